#include "tpu/torch/process_group.h"

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>

#include <thread>

namespace tpu {
namespace {

using c10d::OpType;
using Tensors = HostStagedBackend::Tensors;
using WorkPtr = HostStagedBackend::WorkPtr;

bool on_device(const at::Tensor& t) { return t.device().type() == c10::DeviceType::PrivateUse1; }

// AVG and PREMUL_SUM, which Gloo does not have, are sums with a factor before or after.
struct Reduction {
  c10d::ReduceOp op;
  bool average = false;
  std::optional<c10d::ReduceOp> scaled;

  Reduction(const c10d::ReduceOp& wanted, const Tensors& results, const char* what) : op(wanted) {
    average = wanted == c10d::ReduceOp::AVG;
    if (wanted == c10d::ReduceOp::PREMUL_SUM) scaled = wanted;
    if (average || scaled) op = c10d::ReduceOp::SUM;
    for (const at::Tensor& t : results) {
      TORCH_CHECK(!average || t.is_floating_point() || t.is_complex(), what,
                  " by ReduceOp.AVG needs floating-point tensors, but got ", t.scalar_type(),
                  ": take ReduceOp.SUM and divide as you need");
    }
  }
  // What Gloo is asked for.
  template <typename Options>
  Options on_host(Options opts) const {
    opts.reduceOp = op;
    return opts;
  }
  // Operands that are not results: as they are, or scaled copies.
  Tensors operands(Tensors host) const {
    if (!scaled) return host;
    for (at::Tensor& t : host) t = t.clone();
    before(host);
    return host;
  }
  std::function<void()> after(const Tensors& host, int size) const {
    if (!average) return nullptr;
    return [host, size] {
      for (at::Tensor t : host) t.div_(size);
    };
  }
  void before(Tensors& host) const {
    if (!scaled) return;
    const auto* factor = static_cast<const c10d::PreMulSumSupplement*>(scaled->supplement_.get());
    for (at::Tensor& t : host) {
      if (factor->tensor_factor.defined()) {
        t.mul_(factor->tensor_factor.cpu());
      } else {
        t.mul_(factor->double_factor);
      }
    }
  }
};

}  // namespace

// The tensors of one collective and their twins in host memory.
struct HostStagedBackend::Staged {
  struct Output {
    at::Tensor device, host;
  };
  std::vector<Output> outputs;
  std::function<void()> after;  // on the host tensors, when the collective is done

  // A dense host tensor with the values.
  at::Tensor input(const at::Tensor& t) const {
    return on_device(t) ? t.detach().cpu().contiguous() : t.detach().contiguous();
  }
  // A host tensor whose values go to `t` in the end; with t's values now if it is read, too.
  at::Tensor output(const at::Tensor& t, bool is_read) {
    at::Tensor host = is_read ? input(t) : at::empty(t.sizes(), t.options().device(at::kCPU).requires_grad(false));
    // A dense CPU tensor is its own twin.
    if (is_read && !on_device(t) && !host.is_alias_of(t)) host = host.clone();
    if (!on_device(t) && t.is_contiguous()) host = t.detach();
    outputs.push_back({t, host});
    return host;
  }
  Tensors in(const Tensors& list) const {
    Tensors host;
    for (const at::Tensor& t : list) host.push_back(input(t));
    return host;
  }
  Tensors out(const Tensors& list, bool is_read) {
    Tensors host;
    for (const at::Tensor& t : list) host.push_back(output(t, is_read));
    return host;
  }

  // Runs on whatever thread finishes the collective.
  void finish() const {
    const at::NoGradGuard no_grad;
    const at::AutoDispatchBelowADInplaceOrView below_autograd;
    if (after) after();
    for (const Output& o : outputs) {
      if (!o.host.is_same(o.device) && !o.host.is_alias_of(o.device)) o.device.detach().copy_(o.host);
    }
  }
  Tensors results() const {
    Tensors list;
    for (const Output& o : outputs) list.push_back(o.device);
    return list;
  }
};

namespace {

// Done when the host's work is and its results are on the device.
class StagedWork final : public c10d::Work {
 public:
  StagedWork(int rank, OpType type, const char* title, Tensors results, uint64_t number)
      : Work(rank, type, title, results), results_(std::move(results)), number_(number) {
    future_ = c10::make_intrusive<c10::ivalue::Future>(c10::ListType::create(c10::TensorType::get()));
  }
  void complete(const std::function<void()>& finish, std::exception_ptr failed) {
    if (!failed) {
      try {
        finish();
      } catch (...) {
        failed = std::current_exception();
      }
    }
    if (failed) {
      future_->setError(failed);
    } else {
      future_->markCompleted(c10::IValue(results_));
    }
    Work::finish(failed);
  }
  void set_source(int rank) { source_ = rank; }
  int sourceRank() const override { return source_; }
  // The results are on the device when the work is done; wait() calls this.
  void synchronize() override {}
  Tensors result() override { return results_; }
  c10::intrusive_ptr<c10::ivalue::Future> getFuture() override { return future_; }
  uint64_t getSequencenumber() const override { return number_; }

 private:
  Tensors results_;
  uint64_t number_;
  std::atomic<int> source_{-1};
  c10::intrusive_ptr<c10::ivalue::Future> future_;
};

// What tells that a work is done, or null: some of Gloo's (sends, receives, reduce_scatter) end only in a thread that
// waits for them.
c10::intrusive_ptr<c10::ivalue::Future> future_of(c10d::Work& work, OpType type) {
  if (c10d::isP2POp(type)) return nullptr;
  try {
    return work.getFuture();
  } catch (const c10::Error&) {
    return nullptr;
  }
}

std::exception_ptr failure_of(const c10::ivalue::Future& future) {
  return future.hasError() ? future.exception_ptr() : nullptr;
}

}  // namespace

HostStagedBackend::HostStagedBackend(c10::intrusive_ptr<c10d::Backend> host)
    : Backend(host->getRank(), host->getSize()), host_(std::move(host)) {
  init();
}

HostStagedBackend::~HostStagedBackend() = default;

WorkPtr HostStagedBackend::started(WorkPtr work) {
  if (coalescing_) coalesced_.push_back(work);
  return work;
}

namespace {

std::atomic<int> completing{0};

// The end of one collective, on a thread that is not Python's: tensors that Python knows of are released there, which
// needs an interpreter.
struct Completion {
  WorkPtr inner;
  c10::intrusive_ptr<StagedWork> work;
  std::function<void()> finish;

  static void run(const std::shared_ptr<Completion>& shared, std::exception_ptr failed) {
    struct Counted {
      Counted() { ++completing; }
      ~Counted() { --completing; }
    } const counted;
    Completion c = std::move(*shared);
    if (!failed && c.work->retrieveOpType() == OpType::RECVANYSOURCE) c.work->set_source(c.inner->sourceRank());
    c.work->complete(c.finish, failed);
  }
};

}  // namespace

void wait_for_completions() {
  while (completing > 0) std::this_thread::yield();
}

template <typename Start>
WorkPtr HostStagedBackend::run(OpType type, const char* title, Staged staged, Start start) {
  WorkPtr inner = start();
  auto work = c10::make_intrusive<StagedWork>(getRank(), type, title, staged.results(), getSequenceNumberForGroup());
  auto completion = std::make_shared<Completion>(
      Completion{inner, work, [staged = std::make_shared<Staged>(std::move(staged))] { staged->finish(); }});
  if (const auto future = future_of(*inner, type)) {
    future->addCallback([completion](c10::ivalue::Future& done) { Completion::run(completion, failure_of(done)); });
  } else {
    std::thread([inner, completion = std::move(completion)] {
      std::exception_ptr failed;
      try {
        inner->wait();
      } catch (...) {
        failed = std::current_exception();
      }
      Completion::run(completion, failed);
    }).detach();
  }
  return started(work);
}

WorkPtr HostStagedBackend::broadcast(Tensors& tensors, const c10d::BroadcastOptions& opts) {
  Staged s;
  Tensors host = s.out(tensors, getRank() == opts.rootRank);
  // The root has the values already.
  if (getRank() == opts.rootRank) s.outputs.clear();
  return run(OpType::BROADCAST, "tpu:broadcast", std::move(s), [&] { return host_->broadcast(host, opts); });
}

WorkPtr HostStagedBackend::allreduce(Tensors& tensors, const c10d::AllreduceOptions& opts) {
  const Reduction reduction(opts.reduceOp, tensors, "all_reduce");
  Staged s;
  Tensors host = s.out(tensors, true);
  reduction.before(host);
  s.after = reduction.after(host, getSize());
  const auto inner = reduction.on_host(opts);
  return run(OpType::ALLREDUCE, "tpu:all_reduce", std::move(s), [&] { return host_->allreduce(host, inner); });
}

WorkPtr HostStagedBackend::allreduce_coalesced(Tensors& tensors, const c10d::AllreduceCoalescedOptions& opts) {
  const Reduction reduction(opts.reduceOp, tensors, "all_reduce_coalesced");
  Staged s;
  Tensors host = s.out(tensors, true);
  reduction.before(host);
  s.after = reduction.after(host, getSize());
  const auto inner = reduction.on_host(opts);
  return run(OpType::ALLREDUCE_COALESCED, "tpu:all_reduce_coalesced", std::move(s),
             [&] { return host_->allreduce_coalesced(host, inner); });
}

WorkPtr HostStagedBackend::reduce(Tensors& tensors, const c10d::ReduceOptions& opts) {
  const Reduction reduction(opts.reduceOp, tensors, "reduce");
  Staged s;
  Tensors host = s.out(tensors, true);
  // What Gloo leaves in the others' tensors is no result.
  if (getRank() != opts.rootRank) {
    for (size_t i = 0; i < host.size(); ++i) {
      if (host[i].is_alias_of(tensors[i])) host[i] = host[i].clone();
    }
    s.outputs.clear();
  }
  reduction.before(host);
  if (getRank() == opts.rootRank) s.after = reduction.after(host, getSize());
  const auto inner = reduction.on_host(opts);
  return run(OpType::REDUCE, "tpu:reduce", std::move(s), [&] { return host_->reduce(host, inner); });
}

WorkPtr HostStagedBackend::allgather(std::vector<Tensors>& outputs, Tensors& inputs,
                                     const c10d::AllgatherOptions& opts) {
  Staged s;
  std::vector<Tensors> to;
  for (const Tensors& list : outputs) to.push_back(s.out(list, false));
  Tensors from = s.in(inputs);
  return run(OpType::ALLGATHER, "tpu:all_gather", std::move(s), [&] { return host_->allgather(to, from, opts); });
}

WorkPtr HostStagedBackend::_allgather_base(at::Tensor& output, at::Tensor& input, const c10d::AllgatherOptions& opts) {
  Staged s;
  at::Tensor to = s.output(output, false), from = s.input(input);
  return run(OpType::_ALLGATHER_BASE, "tpu:_all_gather_base", std::move(s),
             [&] { return host_->_allgather_base(to, from, opts); });
}

WorkPtr HostStagedBackend::allgather_coalesced(std::vector<Tensors>& outputs, Tensors& inputs,
                                               const c10d::AllgatherOptions& opts) {
  Staged s;
  std::vector<Tensors> to;
  for (const Tensors& list : outputs) to.push_back(s.out(list, false));
  Tensors from = s.in(inputs);
  return run(OpType::ALLGATHER_COALESCED, "tpu:all_gather_coalesced", std::move(s),
             [&] { return host_->allgather_coalesced(to, from, opts); });
}

WorkPtr HostStagedBackend::allgather_into_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                                           const c10d::AllgatherOptions& opts) {
  Staged s;
  Tensors to = s.out(outputs, false), from = s.in(inputs);
  return run(OpType::COALESCED, "tpu:all_gather_into_tensor_coalesced", std::move(s),
             [&] { return host_->allgather_into_tensor_coalesced(to, from, opts); });
}

WorkPtr HostStagedBackend::gather(std::vector<Tensors>& outputs, Tensors& inputs, const c10d::GatherOptions& opts) {
  Staged s;
  std::vector<Tensors> to;
  for (const Tensors& list : outputs) to.push_back(s.out(list, false));
  Tensors from = s.in(inputs);
  return run(OpType::GATHER, "tpu:gather", std::move(s), [&] { return host_->gather(to, from, opts); });
}

WorkPtr HostStagedBackend::scatter(Tensors& outputs, std::vector<Tensors>& inputs, const c10d::ScatterOptions& opts) {
  Staged s;
  Tensors to = s.out(outputs, false);
  std::vector<Tensors> from;
  for (const Tensors& list : inputs) from.push_back(s.in(list));
  return run(OpType::SCATTER, "tpu:scatter", std::move(s), [&] { return host_->scatter(to, from, opts); });
}

WorkPtr HostStagedBackend::reduce_scatter(Tensors& outputs, std::vector<Tensors>& inputs,
                                          const c10d::ReduceScatterOptions& opts) {
  const Reduction reduction(opts.reduceOp, outputs, "reduce_scatter");
  Staged s;
  Tensors to = s.out(outputs, false);
  std::vector<Tensors> from;
  for (const Tensors& list : inputs) {
    from.push_back(reduction.operands(s.in(list)));
  }
  s.after = reduction.after(to, getSize());
  const auto inner = reduction.on_host(opts);
  return run(OpType::REDUCE_SCATTER, "tpu:reduce_scatter", std::move(s),
             [&] { return host_->reduce_scatter(to, from, inner); });
}

WorkPtr HostStagedBackend::_reduce_scatter_base(at::Tensor& output, at::Tensor& input,
                                                const c10d::ReduceScatterOptions& opts) {
  const Reduction reduction(opts.reduceOp, {output}, "reduce_scatter_tensor");
  Staged s;
  at::Tensor to = s.output(output, false);
  Tensors from = reduction.operands({s.input(input)});
  s.after = reduction.after({to}, getSize());
  const auto inner = reduction.on_host(opts);
  return run(OpType::_REDUCE_SCATTER_BASE, "tpu:_reduce_scatter_base", std::move(s),
             [&] { return host_->_reduce_scatter_base(to, from[0], inner); });
}

WorkPtr HostStagedBackend::reduce_scatter_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                                           const c10d::ReduceScatterOptions& opts) {
  const Reduction reduction(opts.reduceOp, outputs, "reduce_scatter_tensor_coalesced");
  Staged s;
  Tensors to = s.out(outputs, false), from = reduction.operands(s.in(inputs));
  s.after = reduction.after(to, getSize());
  const auto inner = reduction.on_host(opts);
  return run(OpType::REDUCE_SCATTER_TENSOR_COALESCED, "tpu:reduce_scatter_tensor_coalesced", std::move(s),
             [&] { return host_->reduce_scatter_tensor_coalesced(to, from, inner); });
}

WorkPtr HostStagedBackend::alltoall_base(at::Tensor& output, at::Tensor& input, std::vector<int64_t>& output_sizes,
                                         std::vector<int64_t>& input_sizes, const c10d::AllToAllOptions& opts) {
  Staged s;
  at::Tensor to = s.output(output, false), from = s.input(input);
  return run(OpType::ALLTOALL_BASE, "tpu:all_to_all", std::move(s),
             [&] { return host_->alltoall_base(to, from, output_sizes, input_sizes, opts); });
}

WorkPtr HostStagedBackend::alltoall(Tensors& outputs, Tensors& inputs, const c10d::AllToAllOptions& opts) {
  const auto size = static_cast<size_t>(getSize());
  TORCH_CHECK(outputs.size() == size && inputs.size() == size, "all_to_all needs one tensor for each of the ", size,
              " ranks, but got ", outputs.size(), " outputs and ", inputs.size(), " inputs");
  // One flat exchange with uneven parts.
  Staged s;
  Tensors to = s.out(outputs, false), flat;
  std::vector<int64_t> output_sizes, input_sizes;
  int64_t total = 0;
  for (const at::Tensor& t : to) output_sizes.push_back(t.numel()), total += t.numel();
  for (const at::Tensor& t : inputs) {
    TORCH_CHECK(t.scalar_type() == to[0].scalar_type(), "all_to_all: expected tensors of one dtype, but got ",
                t.scalar_type(), " and ", to[0].scalar_type());
    flat.push_back(s.input(t).reshape(-1));
    input_sizes.push_back(t.numel());
  }
  at::Tensor from = at::cat(flat), all = at::empty({total}, to[0].options());
  s.after = [all, to, output_sizes] {
    int64_t begin = 0;
    for (size_t i = 0; i < to.size(); ++i) {
      at::Tensor(to[i]).copy_(all.narrow(0, begin, output_sizes[i]).view(to[i].sizes()));
      begin += output_sizes[i];
    }
  };
  return run(OpType::ALLTOALL, "tpu:all_to_all", std::move(s),
             [&] { return host_->alltoall_base(all, from, output_sizes, input_sizes, opts); });
}

WorkPtr HostStagedBackend::send(Tensors& tensors, int to, int tag) {
  Staged s;
  Tensors host = s.in(tensors);
  s.after = [host] {};  // alive until then
  return run(OpType::SEND, "tpu:send", std::move(s), [&] { return host_->send(host, to, tag); });
}

WorkPtr HostStagedBackend::recv(Tensors& tensors, int from, int tag) {
  Staged s;
  Tensors host = s.out(tensors, false);
  return run(OpType::RECV, "tpu:recv", std::move(s), [&] { return host_->recv(host, from, tag); });
}

WorkPtr HostStagedBackend::recvAnysource(Tensors& tensors, int tag) {
  Staged s;
  Tensors host = s.out(tensors, false);
  return run(OpType::RECVANYSOURCE, "tpu:recv", std::move(s), [&] { return host_->recvAnysource(host, tag); });
}

WorkPtr HostStagedBackend::barrier(const c10d::BarrierOptions& opts) {
  c10d::BarrierOptions inner = opts;
  inner.device_ids.clear();
  inner.device.reset();
  return run(OpType::BARRIER, "tpu:barrier", Staged(), [&] { return host_->barrier(inner); });
}

void HostStagedBackend::monitoredBarrier(const c10d::BarrierOptions& opts, bool wait_all_ranks) {
  host_->monitoredBarrier(opts, wait_all_ranks);
}

void HostStagedBackend::startCoalescing() {
  TORCH_CHECK(!coalescing_, "A coalesced group of collectives is open already: end it before the next one");
  coalescing_ = true;
}

WorkPtr HostStagedBackend::endCoalescing() {
  TORCH_CHECK(coalescing_, "No coalesced group of collectives is open");
  coalescing_ = false;
  std::vector<WorkPtr> parts = std::exchange(coalesced_, {});
  Tensors results;
  for (const WorkPtr& w : parts) {
    for (at::Tensor& t : w->result()) results.push_back(std::move(t));
  }
  auto work = c10::make_intrusive<StagedWork>(getRank(), OpType::COALESCED, "tpu:coalesced", results,
                                              getSequenceNumberForGroup());
  struct Countdown {
    std::mutex mutex;
    size_t left;
    std::exception_ptr failed;
  };
  auto countdown = std::make_shared<Countdown>();
  countdown->left = parts.size();
  if (parts.empty()) work->complete([] {}, nullptr);
  for (const WorkPtr& w : parts) {
    w->getFuture()->addCallback([work, countdown](c10::ivalue::Future& done) {
      bool last;
      {
        std::lock_guard lock(countdown->mutex);
        if (!countdown->failed) countdown->failed = failure_of(done);
        last = --countdown->left == 0;
      }
      if (last) work->complete([] {}, countdown->failed);
    });
  }
  return work;
}

c10::intrusive_ptr<c10d::Backend> HostStagedBackend::split(const c10::intrusive_ptr<c10d::Store>& store,
                                                           const std::vector<int>& ranks,
                                                           const c10::intrusive_ptr<Options>& opts) {
  auto part = host_->split(store, ranks, opts);
  return part ? c10::make_intrusive<HostStagedBackend>(part) : nullptr;
}

c10::intrusive_ptr<c10d::Backend> HostStagedBackend::merge(const c10::intrusive_ptr<c10d::Store>& store,
                                                           const c10::intrusive_ptr<Options>& opts, const int& rank,
                                                           const int& size) {
  return c10::make_intrusive<HostStagedBackend>(host_->merge(store, opts, rank, size));
}

}  // namespace tpu
