#include "tpu/torch/trace.h"

#include "tpu/torch/debug.h"
#include "tpu/torch/generator.h"
#include "tpu/torch/scalar_type.h"

namespace tpu {
namespace {

thread_local Trace* current_trace = nullptr;

ir::Dims permuted(c10::IntArrayRef sizes, const ir::Dims& order) {
  ir::Dims d;
  for (int64_t i : order) d.push_back(sizes[i]);
  return d;
}

// Whether the tensor is all of its storage.
bool covers_storage(const at::Tensor& t) {
  return t.storage_offset() == 0 && t.unsafeGetTensorImpl()->is_non_overlapping_and_dense_or_false() &&
         static_cast<size_t>(t.numel()) * t.element_size() == t.unsafeGetTensorImpl()->unsafe_storage().nbytes();
}

int64_t numel_of(const ir::Dims& dims) {
  return std::accumulate(dims.begin(), dims.end(), int64_t{1}, std::multiplies<>());
}

}  // namespace

Trace::Trace(Mode mode, const Call& call, c10::ArrayRef<c10::IValue> args) : mode_(mode), call_(call), args_(args) {}

Trace* Trace::current() { return current_trace; }
Trace::Scope::Scope(Trace& trace) : previous_(current_trace) { current_trace = &trace; }
Trace::Scope::~Scope() { current_trace = previous_; }

ir::Value Trace::parameter(const Parameter& p, const ir::Type& type) {
  for (size_t i = 0; i < parameters_.size(); ++i) {
    if (parameters_[i] == p) return parameter_values_[i];
  }
  parameters_.push_back(p);
  parameter_values_.push_back(builder_.parameter(type));
  return parameter_values_.back();
}

int Trace::find_operand(const c10::TensorImpl* t) const {
  for (size_t i = 0; i < call_.operands.size(); ++i) {
    if (call_.operands[i].impl == t) return static_cast<int>(i);
  }
  return -1;
}

int Trace::find_cell(const Cell* cell) const {
  for (size_t i = 0; i < call_.operands.size(); ++i) {
    if (call_.operands[i].cell == cell) return static_cast<int>(i);
  }
  return -1;
}

Trace::State& Trace::state(const at::Tensor& t) {
  const Cell* cell = &cell_of(*t.unsafeGetTensorImpl());
  auto [it, fresh] = states_.try_emplace(cell);
  State& s = it->second;
  if (!fresh) return s;
  order_.push_back(cell);
  kept_.push_back(t);
  const ir::DType dtype = to_dtype(t.scalar_type());
  s.operand = find_cell(cell);
  if (!cell->buffer) {
    const size_t bytes = t.unsafeGetTensorImpl()->unsafe_storage().nbytes();
    const ir::DType whole = bytes % ir::size_bytes(dtype) == 0 ? dtype : ir::DType::kUI8;
    s.value = ir::constant(builder_, 0, ir::Type(whole, dense_of(*cell, bytes, whole).dims));
    return s;
  }
  const ir::Type type(cell->buffer->dtype(), cell->buffer->dims());
  if (s.operand >= 0) {
    s.parameter = builder_.num_parameters();
    s.value = parameter({.kind = Parameter::Kind::kBuffer,
                         .index = s.operand,
                         .element = 0,
                         .dtype = type.dtype(),
                         .elements = type.numel()},
                        type);
  } else {
    s.is_captured = true;
    captured_.push_back(cell->buffer);
    s.value = parameter({.kind = Parameter::Kind::kCaptured,
                         .index = static_cast<int>(captured_.size()) - 1,
                         .element = 0,
                         .dtype = type.dtype(),
                         .elements = type.numel()},
                        type);
  }
  return s;
}

std::vector<at::Tensor> Trace::outside() const {
  std::vector<at::Tensor> tensors;
  for (size_t i = 0; i < order_.size(); ++i) {
    const State& s = states_.at(order_[i]);
    if (s.is_captured && !s.is_constant) tensors.push_back(kept_[i]);
  }
  return tensors;
}

void Trace::disown(const std::string& why) {
  for (const at::Tensor& t : kept_) {
    Cell& cell = cell_of(*t.unsafeGetTensorImpl());
    const State& s = states_.at(&cell);
    if (s.operand < 0 && !s.is_captured && s.writes > 0) cell.lost = why;
  }
}

// How t lies in the current dense value of its storage.
Trace::Window Trace::window(const at::Tensor& t) {
  const ir::DType dtype = to_dtype(t.scalar_type());
  Window w{ops::reinterpret(state(t).value, dtype), {}, {}};
  const auto sizes = t.sizes(), strides = t.strides();
  const int operand = mode_ != Mode::kRecording ? find_operand(t.unsafeGetTensorImpl()) : -1;
  if (operand >= 0 && call_.operands[operand].plan >= 0) {
    // The plan in the key was made for the buffer as it was; a write may have changed its dimensions since.
    const Cell& cell = *call_.operands[operand].cell;
    const ir::Dims planned = dense_of(cell, t.unsafeGetTensorImpl()->unsafe_storage().nbytes(), dtype).dims;
    if (numel_of(planned) == w.dense.type().numel()) {
      w.dense = ir::reshape(w.dense, planned);
      w.plan = call_.plans[call_.operands[operand].plan];
      const ir::DType index = w.dense.type().numel() > INT32_MAX ? ir::DType::kI64 : ir::DType::kI32;
      for (int k = 0; k < w.plan.num_starts; ++k) {
        w.starts.push_back(parameter({.kind = Parameter::Kind::kStart, .index = operand, .element = k, .dtype = index},
                                     ir::Type(index, {})));
      }
      return w;
    }
  }
  const ir::Dims& dims = w.dense.dims();
  w.plan = ops::plan_view(dims, {sizes.data(), sizes.size()}, {strides.data(), strides.size()}, t.storage_offset());
  const ir::DType index = w.dense.type().numel() > INT32_MAX ? ir::DType::kI64 : ir::DType::kI32;
  for (int k = 0; k < w.plan.num_starts; ++k) {
    w.starts.push_back(ir::constant(builder_, w.plan.run_time_starts[k], ir::Type(index, {})));
  }
  return w;
}

ir::Value Trace::read(const at::Tensor& t) {
  const ir::DType dtype = to_dtype(t.scalar_type());
  if (t.is_cpu()) {
    const int operand = find_operand(t.unsafeGetTensorImpl());
    if (mode_ != Mode::kRecording && operand >= 0) {
      return parameter({.kind = Parameter::Kind::kHost, .index = operand, .element = 0, .dtype = dtype},
                       ir::Type(dtype, {}));
    }
    if (t.dim() != 0) throw RecordingBroken("a tensor on the CPU takes part");
    const c10::Scalar s = t.item();
    if (s.isComplex())
      return ir::constant_complex(builder_, s.toComplexDouble().real(), s.toComplexDouble().imag(),
                                  ir::Type(dtype, {}));
    if (s.isFloatingPoint()) return ir::constant(builder_, s.toDouble(), ir::Type(dtype, {}));
    return ir::constant(builder_, s.toLong(), ir::Type(dtype, {}));
  }
  const Window w = window(t);
  const auto sizes = t.sizes(), strides = t.strides();
  ir::Value v =
      ops::read_view(w.dense, w.plan, {sizes.data(), sizes.size()}, {strides.data(), strides.size()}, w.starts);
  if (t.is_conj()) v = ir::conj(v);
  if (t.is_neg()) v = ir::negate(v);
  return v;
}

void Trace::write(const at::Tensor& t, const ir::Value& value) {
  ir::Value v = value;
  if (t.is_conj()) v = ir::conj(v);
  if (t.is_neg()) v = ir::negate(v);
  State& s = state(t);
  ++s.writes;
  const auto sizes = t.sizes(), strides = t.strides();
  if (covers_storage(t)) {
    s.value = ir::transpose(v, memory_order(strides));
    return;
  }
  const Window w = window(t);
  const ir::Value old = s.value;
  s.value =
      ops::write_view(w.dense, w.plan, {sizes.data(), sizes.size()}, {strides.data(), strides.size()}, w.starts, v);
  // The last bytes of a storage that t's dtype does not divide.
  auto bytes_of = [](const ir::Value& x) { return x.type().numel() * static_cast<int64_t>(ir::size_bytes(x.dtype())); };
  const int64_t covered = bytes_of(s.value), all = bytes_of(old);
  if (covered == all) return;
  auto as_bytes = [](const ir::Value& x, int64_t n) { return ir::reshape(ops::reinterpret(x, ir::DType::kUI8), {n}); };
  s.value = ir::concatenate({as_bytes(s.value, covered), ir::slice_in_dim(as_bytes(old, all), 0, covered, all)}, 0);
}

ir::Value Trace::scalar(int argument, int element, ir::DType dtype, std::optional<ir::DType> held_as) {
  return parameter({.kind = Parameter::Kind::kScalar,
                    .index = argument,
                    .element = element,
                    .dtype = dtype,
                    .is_checked = held_as.has_value(),
                    .held_as = held_as.value_or(dtype)},
                   ir::Type(dtype, {}));
}

std::pair<ir::Value, ir::Value> Trace::random_state(int64_t numbers) {
  const ir::Type type(ir::DType::kUI64, {});
  const ir::Value seed = parameter({.kind = Parameter::Kind::kSeed, .dtype = ir::DType::kUI64}, type);
  ir::Value offset = parameter({.kind = Parameter::Kind::kOffset, .dtype = ir::DType::kUI64}, type);
  if (draws_ > 0) offset = ir::add(offset, ir::constant(builder_, draws_, type));
  draws_ += numbers;
  return {seed, offset};
}

bool Trace::draws_from(const c10::GeneratorImpl* generator) const {
  const c10::GeneratorImpl* default_one = default_generator(call_.device).unsafeGetGeneratorImpl();
  return (generator ? generator : default_one) == (call_.generator ? call_.generator : default_one);
}

void Trace::set_draws(int64_t draws) {
  if (draws < 0) throw RecordingBroken("a generator is set to a state from before");
  draws_ = draws;
}

void Trace::check(const ir::Value& failed, const ir::Value& value, std::string error, std::string message) {
  checks_.push_back({std::move(error), std::move(message)});
  told_.push_back(ir::reshape(ir::convert(failed, ir::DType::kI64), {1}));
  told_.push_back(ir::reshape(ir::convert(value, ir::DType::kI64), {1}));
}

ProgramPtr Trace::finish(const OpEntry& entry, std::vector<Return> returns, const std::string& why) {
  for (Return& r : returns) {
    // A result is made of an output and a geometry; bits that say how to read it are resolved.
    if (!r.tensor.defined() || !(r.tensor.is_conj() || r.tensor.is_neg())) continue;
    if (find_operand(r.tensor.unsafeGetTensorImpl()) >= 0) continue;
    r.value = read(r.tensor);
    r.like = std::exchange(r.tensor, at::Tensor());
  }
  auto program = std::make_shared<Program>();
  program->op = entry.name;
  program->producer = interned(entry.name);
  ir::Values outputs;
  auto add_output = [&](const ir::Value& v, int write_operand) {
    outputs.push_back(v);
    program->outputs.push_back({v.dtype(), v.type().dims(), write_operand});
    return static_cast<int>(outputs.size()) - 1;
  };

  // Written cells of operands first: they may take over the old buffer.
  for (const Cell* cell : order_) {
    const State& s = states_.at(cell);
    if (s.writes == 0 || s.operand < 0) continue;
    const int output = add_output(s.value, s.operand);
    if (s.parameter >= 0 && s.value.type().bound_numel() * ir::size_bytes(s.value.dtype()) ==
                                parameter_values_[s.parameter].type().bound_numel() *
                                    ir::size_bytes(parameter_values_[s.parameter].dtype())) {
      builder_.alias_parameter(s.parameter, output);
      program->donations.emplace_back(s.parameter, s.operand);
    }
  }
  // Fresh storages made while recording, one output each however many results view them.
  std::unordered_map<const Cell*, int> fresh;
  int64_t biggest = 0;
  for (const Return& r : returns) {
    if (r.number) {
      program->numbers.emplace_back(&r - returns.data(), *r.number);
      continue;
    }
    Result result;
    result.in_list = r.in_list;
    if (r.value) {
      const at::Tensor& like = r.like;
      result.kind = Result::Kind::kFresh;
      result.dtype = like.scalar_type();
      result.sizes.assign(like.sizes().begin(), like.sizes().end());
      result.strides.assign(like.strides().begin(), like.strides().end());
      if (like.unsafeGetTensorImpl()->is_non_overlapping_and_dense_or_false()) {
        const ir::Dims order = memory_order(like.strides());
        result.index = add_output(ir::transpose(r.value, order), -1);
        result.storage_bytes = like.numel() * like.element_size();
      } else {
        int64_t last = like.numel() ? 1 : 0;
        for (int64_t d = 0; d < like.dim() && last; ++d) last += (like.size(d) - 1) * like.stride(d);
        const ir::Dims flat = {last};
        const auto sizes = like.sizes(), strides = like.strides();
        const ops::ViewPlan plan =
            ops::plan_view(flat, {sizes.data(), sizes.size()}, {strides.data(), strides.size()}, 0);
        ir::Values starts;
        for (int k = 0; k < plan.num_starts; ++k)
          starts.push_back(ir::constant(builder_, plan.run_time_starts[k], ir::Type(ir::DType::kI32, {})));
        const ir::Value zeros = ir::constant(builder_, 0, ir::Type(r.value.dtype(), flat));
        result.index = add_output(ops::write_view(zeros, plan, {sizes.data(), sizes.size()},
                                                  {strides.data(), strides.size()}, starts, r.value),
                                  -1);
        result.storage_bytes = last * like.element_size();
      }
    } else if (r.tensor.defined()) {
      const at::Tensor& t = r.tensor;
      if (const int operand = find_operand(t.unsafeGetTensorImpl()); operand >= 0) {
        result.kind = Result::Kind::kOperand;
        result.index = operand;
      } else {
        TORCH_INTERNAL_ASSERT(t.device().type() == c10::DeviceType::PrivateUse1, entry.name, " returned a tensor on ",
                              t.device());
        const Cell* cell = &cell_of(*t.unsafeGetTensorImpl());
        result.dtype = t.scalar_type();
        result.sizes.assign(t.sizes().begin(), t.sizes().end());
        result.strides.assign(t.strides().begin(), t.strides().end());
        result.offset = t.storage_offset();
        if (const int owner = find_cell(cell); owner >= 0) {
          result.kind = Result::Kind::kView;
          result.index = owner;
        } else {
          result.kind = Result::Kind::kFresh;
          auto [it, first] = fresh.try_emplace(cell, 0);
          if (first) it->second = add_output(state(t).value, -1);
          result.index = it->second;
          result.storage_bytes = t.unsafeGetTensorImpl()->unsafe_storage().nbytes();
        }
      }
    }
    program->results.push_back(std::move(result));
  }
  if (!told_.empty()) outputs.push_back(ir::concatenate(told_, 0));

  for (const ir::Value& v : parameter_values_) biggest = std::max(biggest, v.type().bound_numel());
  for (const ir::Value& v : outputs) biggest = std::max(biggest, v.type().bound_numel());
  // Work of one run, in element operations: below this, compiling costs more than a slow kernel ever will.
  constexpr int64_t kLittleWork = 32768;
  const std::string body = builder_.body();
  const int64_t ops = std::count(body.begin(), body.end(), '\n');
  const runtime::Effort effort = ops * biggest <= kLittleWork ? runtime::Effort::kQuick : runtime::Effort::kFull;
  program->parameters = std::move(parameters_);
  program->checks = std::move(checks_);
  program->captured = std::move(captured_);
  program->random_draws = static_cast<uint64_t>(draws_);
  const std::string text = builder_.module(outputs);
  program->executable = runtime::Session::get().compile(text, effort, {entry.name, why});
  return program;
}

}  // namespace tpu
