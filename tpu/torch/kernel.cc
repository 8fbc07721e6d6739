#include "tpu/torch/kernel.h"

#include <ATen/EmptyTensor.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <numeric>

#include "tpu/pjrt/error.h"
#include "tpu/runtime/activity.h"
#include "tpu/runtime/counters.h"
#include "tpu/runtime/shutdown.h"
#include "tpu/torch/check.h"
#include "tpu/torch/debug.h"
#include "tpu/torch/decompose.h"
#include "tpu/torch/device.h"
#include "tpu/torch/fallback.h"
#include "tpu/torch/generator.h"
#include "tpu/torch/lower.h"
#include "tpu/torch/memory.h"
#include "tpu/torch/refusal.h"
#include "tpu/torch/scalar_type.h"

namespace tpu {
namespace {

template <typename T>
void put(std::byte* to, T v) {
  std::memcpy(to, &v, sizeof v);
}

// The number as PyTorch's kernels convert it: through the opmath type of the dtype. `is_checked`: a number that the
// dtype does not hold is an error, as Scalar::to says it.
template <typename T>
void put_number(std::byte* to, const c10::Scalar& s, bool is_checked) {
  if (is_checked) {
    put(to, s.to<T>());
  } else if constexpr (std::is_integral_v<T>) {
    put(to, static_cast<T>(s.isFloatingPoint() ? static_cast<int64_t>(s.toDouble())
                           : s.isUnsigned()    ? static_cast<int64_t>(s.toUInt64())
                                               : s.toLong()));
  } else {
    put(to, static_cast<T>(s.toDouble()));
  }
}

size_t put_scalar(std::byte* to, const c10::Scalar& s, ir::DType dtype, bool is_checked) {
  using D = ir::DType;
  switch (dtype) {
    case D::kI1:
      put<uint8_t>(to, s.toBool());
      break;
    case D::kI8:
      put_number<int8_t>(to, s, is_checked);
      break;
    case D::kI16:
      put_number<int16_t>(to, s, is_checked);
      break;
    case D::kI32:
      put_number<int32_t>(to, s, is_checked);
      break;
    case D::kUI8:
      put_number<uint8_t>(to, s, is_checked);
      break;
    case D::kUI16:
      put_number<uint16_t>(to, s, is_checked);
      break;
    case D::kUI32:
      put_number<uint32_t>(to, s, is_checked);
      break;
    case D::kUI64:
    case D::kI64:
      put_number<int64_t>(to, s, is_checked && dtype == D::kI64);
      break;
    case D::kF16:
      put_number<c10::Half>(to, s, is_checked);
      break;
    case D::kBF16:
      put_number<c10::BFloat16>(to, s, is_checked);
      break;
    case D::kF32:
      put_number<float>(to, s, is_checked);
      break;
    case D::kF64:
      put_number<double>(to, s, is_checked);
      break;
    case D::kC64:
      put(to, static_cast<c10::complex<float>>(s.toComplexDouble()));
      break;
    case D::kC128:
      put(to, s.toComplexDouble());
      break;
    default:
      TORCH_CHECK_NOT_IMPLEMENTED(false, "A number cannot be passed to the tpu device as ", ir::text(dtype));
  }
  return ir::size_bytes(dtype);
}

c10::Scalar scalar_at(const c10::IValue& v, int element) {
  if (v.isList()) return v.toListRef()[element].toScalar();
  return v.toScalar();
}

runtime::BufferPtr host_buffer(const Parameter& p, const Call& call, c10::ArrayRef<c10::IValue> args, uint64_t seed,
                               uint64_t offset) {
  std::byte bytes[16];
  size_t n = 0;
  switch (p.kind) {
    case Parameter::Kind::kScalar: {
      const c10::Scalar number = scalar_at(args[p.index], p.element);
      if (p.is_checked) put_scalar(bytes, number, p.held_as, true);
      n = put_scalar(bytes, number, p.dtype, false);
      break;
    }
    case Parameter::Kind::kHost: {
      const c10::TensorImpl* t = call.operands[p.index].impl;
      n = t->itemsize();
      std::memcpy(bytes, static_cast<const char*>(t->data()), n);
      break;
    }
    case Parameter::Kind::kStart: {
      const int64_t start = call.plans[call.operands[p.index].plan].run_time_starts[p.element];
      n = put_scalar(bytes, start, p.dtype, false);
      break;
    }
    case Parameter::Kind::kSeed:
      put(bytes, seed), n = 8;
      break;
    case Parameter::Kind::kOffset:
      put(bytes, offset), n = 8;
      break;
    default:
      TORCH_INTERNAL_ASSERT(false, "not a host parameter");
  }
  return runtime::Session::get().host_operand({bytes, n}, p.dtype, call.device);
}

void raise_lost(const Cell& cell) { TORCH_CHECK(cell.lost.empty(), "The tensor's content was lost: ", cell.lost); }

// The key without values, for the log: what changed against the program that was used last.
std::string reason(const OpEntry& entry, const std::string& now) {
  std::string nearest;
  size_t best = std::string::npos;
  for (const auto& [key, program] : entry.programs) {
    const std::string& d = program->description;
    size_t differ = d.size() > now.size() ? d.size() - now.size() : now.size() - d.size();
    for (size_t i = 0; i < std::min(d.size(), now.size()); ++i) differ += d[i] != now[i];
    if (differ < best) best = differ, nearest = d;
  }
  if (nearest.empty()) return "first call with (" + now + ")";
  if (nearest == now) return "(" + now + ") with another memory layout or flag";
  return "(" + now + ") is new, nearest known (" + nearest + ")";
}

// Dtypes that Meta kernels do not look at.
void check_dtypes(const OpEntry& entry, c10::ArrayRef<c10::IValue> args) {
  // With an out_dtype, the accumulator has a dtype of its own.
  const bool contracts = (entry.family == "matmul" && !entry.name.ends_with(".dtype")) || entry.family == "conv";
  const bool is_nll = entry.name.rfind("aten::nll_loss", 0) == 0;
  const at::Tensor* first = nullptr;
  for (size_t i = 0; i < args.size(); ++i) {
    if (!args[i].isTensor() || !args[i].toTensor().defined() || entry.arguments[i].is_out) continue;
    const at::Tensor& t = args[i].toTensor();
    const std::string& name = entry.arguments[i].name;
    if (contracts && first && name != "offs" && t.scalar_type() != first->scalar_type()) {
      refuse_as_the_cpu_does(entry.op, args);
      TORCH_CHECK(false, "expected scalar type ", first->scalar_type(), " but found ", t.scalar_type());
    }
    if (!first) first = &t;
    if ((name == "index" || (is_nll && name == "target")) && t.scalar_type() != at::kLong)
      refuse_as_the_cpu_does(entry.op, args);
  }
}

ProgramPtr make_program(OpEntry& entry, const Call& call, c10::ArrayRef<c10::IValue> args) {
  check_dtypes(entry, args);
  Trace trace(Trace::Mode::kSingle, call, args);
  std::vector<Trace::Return> returns = lower(trace, entry, args);
  int64_t bytes = 0;
  for (const Trace::Return& r : returns) bytes += r.value ? r.like.numel() * r.like.element_size() : 0;
  check_with_the_cpu(entry, args, bytes);
  const std::string description = describe(entry, args);
  std::string why;
  {
    std::lock_guard lock(entry.mutex);
    why = reason(entry, description);
  }
  auto program = std::const_pointer_cast<Program>(trace.finish(entry, returns, why));
  program->description = description;
  return program;
}

// Foreach lists that the one-program form does not cover go PyTorch's own slow way, which also has
// the error texts.
bool regular_foreach(const OpEntry& entry, c10::ArrayRef<c10::IValue> args) {
  size_t n = 0;
  for (size_t i = 0; i < args.size(); ++i) {
    if (args[i].isTensorList()) {
      const auto list = args[i].toTensorVector();
      if (i == 0) n = list.size();
      if (list.size() != n || n == 0) return false;
      for (const at::Tensor& t : list) {
        const bool host_number = i > 0 && t.defined() && t.is_cpu() && t.dim() == 0;
        if (!t.defined() || (!host_number && t.device().type() != c10::DeviceType::PrivateUse1)) return false;
      }
    } else if (args[i].isTensor() && args[i].toTensor().dim() != 0) {
      return false;
    } else if (args[i].isList() && args[i].toListRef().size() != n && entry.arguments[i].is_number) {
      return false;
    }
  }
  return true;
}

}  // namespace

void push_results(std::vector<at::Tensor> results, const std::vector<std::pair<int, int64_t>>& numbers,
                  const c10::FunctionSchema& schema, torch::jit::Stack* stack) {
  if (schema.returns().empty()) return;
  if (schema.returns().size() == 1 && schema.returns()[0].type()->kind() == c10::TypeKind::ListType) {
    stack->emplace_back(std::move(results));
    return;
  }
  const size_t first = stack->size();
  for (at::Tensor& t : results) stack->emplace_back(std::move(t));
  for (auto [position, number] : numbers) stack->insert(stack->begin() + first + position, number);
}

void raise(const std::string& op, const pjrt::Error& e, int device) {
  using Code = pjrt::Error::Code;
  // What a failed operand made fail says so once for each step between.
  std::string words = e.what();
  constexpr std::string_view kStep = "Error dispatching computation: ";
  if (const size_t last = words.rfind(kStep); last != words.npos) words.erase(0, last + kStep.size());
  const std::string text = op + ": " + words;
  if (e.code() == Code::kResourceExhausted || words.starts_with("Out of memory")) {
    out_of_memory(op, words, device >= 0 ? device : current_device());
  }
  switch (e.code()) {
    case Code::kUnimplemented:
      TORCH_CHECK_NOT_IMPLEMENTED(false, text);
    default:
      TORCH_CHECK(false, text);
  }
}

at::Tensor make_tensor(c10::Storage storage, c10::ScalarType dtype, c10::IntArrayRef sizes, c10::IntArrayRef strides,
                       int64_t offset) {
  at::Tensor t = at::detail::make_tensor<c10::TensorImpl>(
      std::move(storage), c10::DispatchKeySet(c10::DispatchKey::PrivateUse1), c10::scalarTypeToTypeMeta(dtype));
  if (sizes.size() != 1 || sizes[0] != 0 || offset != 0)
    t.unsafeGetTensorImpl()->set_sizes_and_strides(sizes, strides, offset);
  return t;
}

std::mutex& launch_mutex() {
  static auto* m = new std::mutex;
  return *m;
}

namespace {

using Buffers = c10::SmallVector<runtime::BufferPtr, 4>;

// What the outputs need beyond the operands that they take over.
int64_t bytes_needed(const Program& p, const Call& call, c10::ArrayRef<int64_t> not_donated) {
  int64_t bytes = 0;
  for (const Output& o : p.outputs) {
    bytes += std::accumulate(o.dims.begin(), o.dims.end(), static_cast<int64_t>(ir::size_bytes(o.dtype)),
                             std::multiplies<>());
  }
  for (auto [parameter, operand] : p.donations) {
    if (std::find(not_donated.begin(), not_donated.end(), parameter) != not_donated.end()) continue;
    const runtime::DeviceBuffer& b = *call.operands[operand].cell->buffer;
    bytes -= b.numel() * static_cast<int64_t>(ir::size_bytes(b.dtype()));
  }
  return bytes;
}

// Starts the program; once more, after what is in flight has given its memory back where there was too little.
void execute(const Program& p, const Call& call, c10::ArrayRef<pjrt::c::Buffer*> arguments,
             c10::ArrayRef<int64_t> not_donated, std::span<pjrt::c::Buffer*> outputs) {
  if (memory_is_limited()) [[unlikely]] {
    const std::string why = lacks_memory(call.device, bytes_needed(p, call, not_donated));
    if (!why.empty()) throw pjrt::Error(pjrt::Error::Code::kResourceExhausted, why);
  }
  runtime::Session& session = runtime::Session::get();
  auto run = [&] {
    const runtime::ExecuteName name(p.op);
    session.execute(*p.executable, arguments, not_donated, outputs, call.device, current_stream(call.device));
  };
  auto is_deleted = [&](const auto& donation) {
    const runtime::BufferPtr& b = call.operands[donation.second].cell->buffer;
    return b && b->pjrt().is_deleted();
  };
  try {
    try {
      run();
    } catch (const pjrt::Error& e) {
      if (e.code() != pjrt::Error::Code::kResourceExhausted ||
          std::any_of(p.donations.begin(), p.donations.end(), is_deleted))
        throw;
      session.synchronize(call.device);
      run();
      count_retry(call.device);
    }
  } catch (const pjrt::Error& e) {
    for (const auto& donation : p.donations) {
      if (is_deleted(donation))
        call.operands[donation.second].cell->lost = p.op + " failed after it had taken over the memory: " + e.what();
    }
    throw;
  }
}

// The part of a launch that is done under the mutex. Throws pjrt::Error.
void start(const ProgramPtr& program, const Call& call, c10::ArrayRef<c10::IValue> args,
           std::vector<at::Tensor>& results, const char* line, Buffers& buffers) {
  const Program& p = *program;
  runtime::Session::get();  // not in a forked child
  uint64_t seed = 0, offset = 0;
  if (p.random_draws > 0) {
    c10::GeneratorImpl* g = call.generator ? call.generator : default_generator(call.device).unsafeGetGeneratorImpl();
    std::lock_guard lock(g->mutex_);
    seed = g->current_seed();
    offset = g->get_offset();
    g->set_offset(offset + p.random_draws);
  }
  c10::SmallVector<pjrt::c::Buffer*, 16> arguments;
  c10::SmallVector<runtime::BufferPtr, 8> held;  // host operands must outlive the call
  const std::lock_guard lock(launch_mutex());
  for (const Parameter& q : p.parameters) {
    if (q.kind == Parameter::Kind::kBuffer) {
      const Cell& cell = *call.operands[q.index].cell;
      if (!cell.lost.empty()) [[unlikely]]
        raise_lost(cell);
      const runtime::DeviceBuffer* b = cell.buffer.get();
      // PJRT checks the byte size alone. Another thread may have rewritten the tensor since the key was made.
      TORCH_CHECK(b && b->dtype() == q.dtype && b->numel() == q.elements, p.op,
                  ": another thread changed the layout of an operand during the call");
      arguments.push_back(b->raw());
    } else if (q.kind == Parameter::Kind::kCaptured) {
      arguments.push_back(p.captured[q.index]->raw());
    } else {
      held.push_back(host_buffer(q, call, args, seed, offset));
      arguments.push_back(held.back()->raw());
    }
  }
  // Only the cell itself may own a buffer that is given away.
  c10::SmallVector<int64_t, 4> not_donated;
  for (auto [parameter, operand] : p.donations) {
    if (call.operands[operand].cell->buffer.use_count() > 1) not_donated.push_back(parameter);
  }
  c10::SmallVector<pjrt::c::Buffer*, 8> raw(p.outputs.size() + (p.checks.empty() ? 0 : 1));
  execute(p, call, arguments, not_donated, raw);
  const auto& client = p.executable->client();
  for (size_t i = 0; i < p.outputs.size(); ++i) {
    const Output& o = p.outputs[i];
    buffers.push_back(
        std::make_shared<runtime::DeviceBuffer>(pjrt::Buffer(client, raw[i]), o.dtype, o.dims, call.device));
    if (o.write_operand >= 0) {
      Cell& cell = *call.operands[o.write_operand].cell;
      cell.buffer = buffers.back();
      cell.producer = p.producer;
      cell.line = line;
      cell.lost.clear();
    }
  }
  if (!p.checks.empty()) {
    add_pending_checks(program, std::make_shared<runtime::DeviceBuffer>(
                                    pjrt::Buffer(client, raw.back()), ir::DType::kI64,
                                    std::vector<int64_t>{static_cast<int64_t>(2 * p.checks.size())}, call.device));
  }

  c10::SmallVector<c10::Storage, 4> storages(buffers.size());
  results.reserve(p.results.size());
  for (const Result& r : p.results) {
    switch (r.kind) {
      case Result::Kind::kNone:
        results.emplace_back();
        break;
      case Result::Kind::kOperand:
        results.emplace_back(
            c10::intrusive_ptr<at::TensorImpl, at::UndefinedTensorImpl>::reclaim_copy(call.operands[r.index].impl));
        break;
      case Result::Kind::kView:
        results.push_back(make_tensor(call.operands[r.index].impl->storage(), r.dtype, r.sizes, r.strides, r.offset));
        break;
      case Result::Kind::kFresh: {
        if (!storages[r.index]) {
          storages[r.index] = make_storage(r.storage_bytes, call.device);
          Cell& cell = cell_of(*storages[r.index].unsafeGetStorageImpl());
          cell.buffer = buffers[r.index];
          cell.producer = p.producer;
          cell.line = line;
        }
        results.push_back(make_tensor(storages[r.index], r.dtype, r.sizes, r.strides, r.offset));
      }
    }
  }
}

// Debug mode: raises here what would be raised at the next read.
void wait_for(const Buffers& buffers, const std::string& op, const char* line, int device) {
  try {
    for (const runtime::BufferPtr& b : buffers) b->pjrt().ready_event().await();
  } catch (const pjrt::Error& e) {
    raise(op + called_at(line), e, device);
  }
  raise_failed_checks(line);
}

}  // namespace

void launch(const ProgramPtr& program, const Call& call, c10::ArrayRef<c10::IValue> args,
            std::vector<at::Tensor>& results) {
  const bool blocks = launch_blocking();
  const char* line = blocks ? calling_line() : nullptr;
  Buffers buffers;
  try {
    start(program, call, args, results, line, buffers);
  } catch (const pjrt::Error& e) {
    raise(program->op + called_at(line), e, call.device);
  }
  if (blocks) [[unlikely]]
    wait_for(buffers, program->op, line, call.device);
}

void run(OpEntry& entry, torch::jit::Stack* stack) {
  const size_t n = entry.arguments.size();
  if (entry.prepare && entry.prepare(stack)) return;
  for (;;) {
    const c10::ArrayRef<c10::IValue> args(stack->data() + stack->size() - n, n);
    if (entry.form == Form::kForeach && !regular_foreach(entry, args)) {
      entry.op.callBoxedForDispatchKey(c10::DispatchKey::CompositeExplicitAutograd, *stack);
      return;
    }
    if (Trace* trace = Trace::current()) {
      record(*trace, entry, stack);
      return;
    }
    Call call;
    collect(entry, args, call);
    ProgramPtr program = entry.find(call.key);
    if (!program) {
      const runtime::Busy busy;
      try {
        program = entry.remember(call.key, make_program(entry, call, args));
      } catch (const ResizeOut& wanted) {
        resize_outputs(entry, args, wanted.metas);
        continue;
      } catch (const pjrt::Error& e) {
        if (e.code() != pjrt::Error::Code::kUnimplemented) {
          if (e.code() != pjrt::Error::Code::kResourceExhausted) refuse_as_the_cpu_does(entry.op, args);
          raise(entry.name, e);
        }
        fall_back(entry.op, stack, e.what());
        return;
      } catch (const std::length_error& e) {
        TORCH_CHECK_WITH(OutOfMemoryError, false, "The tpu device is out of memory in ", entry.name, ": ", e.what());
      } catch (const c10::NotImplementedError& e) {
        fall_back(entry.op, stack, e.what_without_backtrace());
        return;
      } catch (const c10::OutOfMemoryError&) {
        throw;
      } catch (const std::exception&) {
        refuse_as_the_cpu_does(entry.op, args);
        throw;
      }
    }
    std::vector<at::Tensor> results;
    launch(program, call, args, results);
    if (entry.form == Form::kForeach && entry.writes) {
      // Autograd leaves the version counters of foreach ops to the backend.
      for (const at::Tensor& t : args[0].toTensorVector()) t.unsafeGetTensorImpl()->bump_version();
    }
    torch::jit::drop(*stack, n);
    push_results(std::move(results), program->numbers, entry.op.schema(), stack);
    return;
  }
}

}  // namespace tpu
