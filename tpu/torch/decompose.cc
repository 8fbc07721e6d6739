#include "tpu/torch/decompose.h"

#include <mutex>

#include "tpu/pjrt/error.h"
#include "tpu/runtime/counters.h"
#include "tpu/runtime/shutdown.h"
#include "tpu/torch/kernel.h"
#include "tpu/torch/lower.h"
#include "tpu/torch/meta.h"
#include "tpu/torch/refusal.h"

namespace tpu {
namespace {

PythonHooks hooks;

// Some decompositions end, through a prim, in the very op they are of.
class NotItself {
 public:
  explicit NotItself(const c10::OperatorHandle& op) : name_(op.operator_name()) {
    for (const c10::OperatorName& n : active) {
      if (n == name_) throw RecordingBroken("PyTorch's decomposition of it calls it again");
    }
    active.push_back(name_);
  }
  ~NotItself() { active.pop_back(); }

 private:
  static thread_local std::vector<c10::OperatorName> active;
  c10::OperatorName name_;
};
thread_local std::vector<c10::OperatorName> NotItself::active;

// Takes the results of the op off the stack, lists flattened.
std::vector<Trace::Return> take_returns(const c10::FunctionSchema& schema, torch::jit::Stack& stack) {
  std::vector<Trace::Return> returns;
  for (const c10::IValue& v : torch::jit::last(stack, schema.returns().size())) {
    if (v.isTensor()) {
      returns.push_back({.value = {}, .like = {}, .tensor = v.toTensor()});
    } else if (v.isTensorList()) {
      for (const at::Tensor& t : v.toTensorVector())
        returns.push_back({.value = {}, .like = {}, .tensor = t, .in_list = true});
    } else if (v.isNone()) {
      returns.push_back({});
    } else {
      throw RecordingBroken("it returns something that is not a tensor");
    }
  }
  return returns;
}

// A tensor whose content the recording holds.
at::Tensor recorded(Trace& trace, const Trace::Return& r, int device) {
  if (!r.value) return r.tensor;
  int64_t last = r.like.numel() ? 1 : 0;
  for (int64_t d = 0; d < r.like.dim() && last; ++d) last += (r.like.size(d) - 1) * r.like.stride(d);
  at::Tensor t = make_tensor(make_storage(last * r.like.element_size(), device), r.like.scalar_type(), r.like.sizes(),
                             r.like.strides());
  trace.write(t, r.value);
  return t;
}

std::vector<std::vector<int64_t>> sizes_of_outs(const OpEntry& entry, c10::ArrayRef<c10::IValue> args) {
  std::vector<std::vector<int64_t>> sizes;
  for (size_t i = 0; i < args.size(); ++i) {
    if (entry.arguments[i].is_out && args[i].isTensor()) sizes.push_back(args[i].toTensor().sizes().vec());
  }
  return sizes;
}

// A program cannot resize: out= tensors are brought to the size of the results first, which Meta tells. Whether any
// was not of that size.
bool resize_outs(const OpEntry& entry, c10::ArrayRef<c10::IValue> args) {
  const auto before = sizes_of_outs(entry, args);
  if (before.empty()) return false;
  std::vector<at::Tensor> metas;
  try {
    for (const c10::IValue& v : infer(entry.op, args)) {
      if (v.isTensor()) metas.push_back(v.toTensor());
    }
  } catch (const std::exception& e) {
    if (hooks.is_interrupt && hooks.is_interrupt(e)) throw;
    return false;  // the recording tells what is wrong, if anything is
  }
  if (metas.size() != before.size()) return false;
  bool differ = false;
  for (size_t i = 0; i < metas.size(); ++i) differ = differ || metas[i].sizes() != c10::IntArrayRef(before[i]);
  if (differ) resize_outputs(entry, args, metas);
  return differ;
}

}  // namespace

void set_python_hooks(const PythonHooks& h) { hooks = h; }

void prepare_meta_kernels() {
  // Not std::call_once: what is called takes the GIL, which another thread may hold while it waits here.
  static std::atomic<bool> prepared{false};
  if (prepared || !hooks.import_meta_kernels) return;
  hooks.import_meta_kernels();
  prepared = true;
}

void record(Trace& trace, OpEntry& entry, torch::jit::Stack* stack) {
  const size_t n = entry.arguments.size();
  std::vector<at::Tensor> results;
  std::vector<std::pair<int, int64_t>> numbers;
  {
    const c10::ArrayRef<c10::IValue> args(stack->data() + stack->size() - n, n);
    int device = 0;
    for (const c10::IValue& v : args) {
      if (v.isTensor() && v.toTensor().defined() && !v.toTensor().is_cpu()) device = v.toTensor().device().index();
      if (v.isGenerator() && !trace.draws_from(v.toGenerator().unsafeGetGeneratorImpl()))
        throw RecordingBroken(entry.name + " draws from a generator of its own");
    }
    std::vector<Trace::Return> returns;
    try {
      returns = lower(trace, entry, args);
    } catch (const ResizeOut& wanted) {
      resize_outputs(entry, args, wanted.metas);
      returns = lower(trace, entry, args);
    }
    for (const Trace::Return& r : returns) {
      if (r.number) {
        numbers.emplace_back(&r - returns.data(), *r.number);
      } else {
        results.push_back(recorded(trace, r, device));
      }
    }
  }
  torch::jit::drop(*stack, n);
  push_results(std::move(results), numbers, entry.op.schema(), stack);
}

bool decompose(const c10::OperatorHandle& op, torch::jit::Stack* stack, std::string& why) {
  const runtime::Busy busy;  // it may run Python
  if (!hooks.has_decomposition || !hooks.has_decomposition(op)) {
    why = "it has no row in the op table and PyTorch has no decomposition of it";
    return false;
  }
  if (Trace::current()) {
    const NotItself guard(op);
    hooks.call_decomposition(op, stack);
    return true;
  }
  OpEntry& entry = entry_of(op);
  const size_t n = entry.arguments.size();
  const c10::ArrayRef<c10::IValue> args(stack->data() + stack->size() - n, n);
  auto call = std::make_unique<Call>();
  ProgramPtr program;
  try {
    collect(entry, args, *call);
    program = entry.find(call->key);
    if (!program && resize_outs(entry, args)) {
      call = std::make_unique<Call>();
      collect(entry, args, *call);
      program = entry.find(call->key);
    }
  } catch (const c10::NotImplementedError& e) {
    why = e.what_without_backtrace();
    return false;
  }
  if (!program) {
    {
      std::lock_guard lock(entry.mutex);
      if (auto it = entry.unrecordable.find(call->key); it != entry.unrecordable.end()) {
        why = it->second;
        return false;
      }
    }
    Trace trace(Trace::Mode::kRecording, *call, args);
    std::vector<Trace::Return> returns;
    auto give_up = [&](const std::exception& e) {
      if (hooks.is_interrupt && hooks.is_interrupt(e)) std::rethrow_exception(std::current_exception());
      // The CPU has the right error text if the call itself was wrong.
      const auto* known = dynamic_cast<const c10::Error*>(&e);
      why = std::string("its decomposition cannot be one program: ") +
            (known ? known->what_without_backtrace() : e.what());
      std::lock_guard lock(entry.mutex);
      if (entry.unrecordable.size() > 4096) entry.unrecordable.clear();
      entry.unrecordable.emplace(call->key, why);
      return false;
    };
    const auto outs = sizes_of_outs(entry, args);
    try {
      torch::jit::Stack copy(args.begin(), args.end());
      Trace::Scope scope(trace);
      const NotItself guard(op);
      hooks.call_decomposition(op, &copy);
      returns = take_returns(op.schema(), copy);
      if (sizes_of_outs(entry, args) != outs) throw RecordingBroken("it resizes an out= tensor");
    } catch (const std::exception& e) {
      return give_up(e);
    }
    int64_t bytes = 0;
    for (const Trace::Return& r : returns) bytes += r.tensor.defined() ? r.tensor.numel() * r.tensor.element_size() : 0;
    check_with_the_cpu(entry, args, bytes);
    try {
      const std::string description = describe(entry, args);
      auto made = std::const_pointer_cast<Program>(trace.finish(entry, returns, "decomposed, (" + description + ")"));
      made->description = description;
      program = made;
    } catch (const std::exception& e) {
      return give_up(e);
    }
    program = entry.remember(call->key, program);
  }
  runtime::counters().add_decomposition(entry.name);
  std::vector<at::Tensor> results;
  launch(program, *call, args, results);
  torch::jit::drop(*stack, n);
  push_results(std::move(results), program->numbers, op.schema(), stack);
  return true;
}

}  // namespace tpu
