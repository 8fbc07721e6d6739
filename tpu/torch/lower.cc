// From a dispatcher call to its row: result types by PyTorch's Meta kernels, arguments as values, and
// the derived forms (in-place, out=, foreach) brought back to the row's functional form.
#include "tpu/torch/lower.h"

#include <ATen/native/Resize.h>
#include <ATen/native/TypeProperties.h>
#include <ATen/ops/empty.h>

#include <set>

#include "tpu/torch/meta.h"
#include "tpu/torch/refusal.h"
#include "tpu/torch/scalar_type.h"
#include "tpu/torch/trace.h"

namespace tpu {
namespace {

using c10::IValue;

void flatten(const IValue& v, std::vector<at::Tensor>& out) {
  if (v.isTensor()) {
    out.push_back(v.toTensor());
  } else if (v.isTensorList()) {
    for (const at::Tensor& t : v.toTensorVector()) out.push_back(t);
  }
}

ops::Number to_number(const c10::Scalar& s) {
  if (s.isBoolean()) return s.toBool();
  if (s.isComplex()) return std::complex<double>(s.toComplexDouble());
  if (s.isFloatingPoint()) return s.toDouble();
  return s.toLong();
}

// Where a row's number argument comes from in the call's arguments.
struct Origin {
  int argument = -1, element = 0;
};

class RowContext final : public ops::Context {
 public:
  RowContext(Trace& trace, const OpEntry& entry, c10::ArrayRef<IValue> args, std::vector<Origin> origins)
      : trace_(trace), entry_(entry), args_(args), origins_(std::move(origins)) {}

  // The dtype that numbers must fit into.
  void set_result(ir::DType dtype) { result_ = dtype; }

  ir::Builder& builder() override { return trace_.builder(); }
  ir::Value scalar_operand(size_t argument, size_t element, ir::DType dtype) override {
    const Origin& o = origins_.at(argument);
    return trace_.scalar(o.argument, o.element + static_cast<int>(element), dtype,
                         is_checked(argument) ? std::optional(result_.value_or(dtype)) : std::nullopt);
  }
  std::pair<ir::Value, ir::Value> random_state(int64_t numbers) override { return trace_.random_state(numbers); }
  ir::DType promote(const std::vector<size_t>& arguments) override {
    at::native::ResultTypeState state;
    for (size_t i : arguments) {
      const IValue& v = args_[i];
      if (v.isTensor() && v.toTensor().defined()) {
        state = at::native::update_result_type_state(v.toTensor(), state);
      } else if (v.isTensorList()) {
        for (const at::Tensor& t : v.toTensorVector()) state = at::native::update_result_type_state(t, state);
      } else if (v.isScalar()) {
        state = at::native::update_result_type_state(v.toScalar(), state);
      }
    }
    return to_dtype(at::native::result_type(state));
  }
  void check(const ir::Value& failed, const ir::Value& value, std::string error, std::string message) override {
    trace_.check(failed, value, std::move(error), std::move(message));
  }
  bool has_i64_contraction() override { return runtime::Session::get().platform().has_int64_dot; }
  std::string matmul_precision() override {
    switch (at::globalContext().float32MatmulPrecision()) {
      case at::Float32MatmulPrecision::HIGHEST:
        return "HIGHEST";
      case at::Float32MatmulPrecision::HIGH:
        return "HIGH";
      default:
        return "DEFAULT";
    }
  }

 private:
  // Whether CPU's kernel converts this argument by Scalar::to. Where it makes a tensor of the number first, it wraps
  // around, and a float argument is cast.
  bool is_checked(size_t argument) const {
    static const std::set<std::string> wraps = {"eq",  "ne",        "lt",         "le",         "gt",   "ge",
                                                "pow", "remainder", "__lshift__", "__rshift__", "isin", "renorm"};
    c10::TypePtr type = entry_.op.schema().arguments()[argument].type();
    if (const auto optional = type->cast<c10::OptionalType>()) type = optional->getElementType();
    return type->kind() == c10::TypeKind::NumberType && trace_.mode() == Trace::Mode::kSingle &&
           !wraps.count(entry_.op.operator_name().name.substr(6));
  }

  Trace& trace_;
  const OpEntry& entry_;
  c10::ArrayRef<IValue> args_;
  std::vector<Origin> origins_;
  std::optional<ir::DType> result_;
};

ops::Argument to_argument(Trace& trace, const IValue& v, const c10::Argument& schema, bool runtime) {
  using Kind = ops::Argument::Kind;
  ops::Argument a;
  a.name = schema.name();
  auto number = [&](const c10::Scalar& s) {
    a.kind = Kind::kNumber;
    a.numbers = {to_number(s)};
    a.runtime = runtime;
  };
  if (v.isTensor()) {
    if (!v.toTensor().defined()) return a;
    a.kind = Kind::kTensor;
    a.tensor = trace.read(v.toTensor());
    a.is_contiguous = v.toTensor().is_contiguous();
  } else if (v.isTensorList()) {
    a.kind = Kind::kTensorList;
    for (const at::Tensor& t : v.toTensorVector()) a.tensors.push_back(t.defined() ? trace.read(t) : ir::Value());
  } else if (v.isOptionalTensorList()) {
    a.kind = Kind::kTensorList;
    for (const std::optional<at::Tensor>& t : v.toOptionalTensorVector()) {
      a.tensors.push_back(t && t->defined() ? trace.read(*t) : ir::Value());
    }
  } else if (v.isInt()) {
    if (schema.real_type()->str().find("ScalarType") != std::string::npos) {
      a.kind = Kind::kDType;
      a.dtype = to_dtype(v.toScalarType());
    } else {
      number(v.toScalar());
    }
  } else if (v.isString()) {
    a.kind = Kind::kText;
    a.text = v.toStringRef();
  } else if (v.isScalar()) {
    number(v.toScalar());
  } else if (v.isSymInt()) {
    number(v.toSymInt().guard_int(__FILE__, __LINE__));
  } else if (v.isList()) {
    a.kind = Kind::kNumberList;
    a.runtime = runtime;
    for (const IValue& e : v.toListRef()) a.numbers.push_back(to_number(e.toScalar()));
  } else if (!v.isNone()) {
    a.kind = Kind::kOther;
  }
  return a;
}

at::Tensor meta_of(const ir::Type& type) {
  return at::empty(type.dims(), at::TensorOptions().device(at::kMeta).dtype(to_scalar_type(type.dtype())));
}

// One run of a row: `args` in the order of the row's schema (or more: out= tensors follow).
class RowRun {
 public:
  RowRun(Trace& trace, const OpEntry& entry, c10::ArrayRef<IValue> args, std::vector<Origin> origins)
      : trace_(trace),
        entry_(entry),
        args_(args),
        origins_(origins),
        context_(trace, entry, args, std::move(origins)) {}

  // The row's values with the meta tensors that say what each must be.
  void run() {
    const ops::Row& row = *entry_.row;
    const c10::OperatorHandle& typed = entry_.meta ? *entry_.meta : entry_.op;
    const auto& schema = typed.schema().arguments();
    std::vector<ops::Argument> arguments;
    for (size_t i = 0; i < schema.size(); ++i) {
      // A number in a tensor's place (a foreach .Scalar served by a .Tensor row) is not in the key either.
      const bool in_tensors_place = args_[i].isScalar() && schema[i].type()->kind() == c10::TypeKind::TensorType;
      const bool is_runtime = entry_.arguments[i].is_runtime || in_tensors_place;
      arguments.push_back(
          to_argument(trace_, args_[i], schema[i],
                      trace_.mode() == Trace::Mode::kSingle && is_runtime && origins_[i].argument >= 0));
    }
    if (row.traits.types) {
      ops::Op probe(row.name, arguments, {}, context_);
      for (const ir::Type& t : row.traits.types(probe)) metas.push_back(meta_of(t));
    } else if (row_writes_only()) {
      for (size_t i = 0; i < schema.size(); ++i) {
        if (!schema[i].alias_info() || !schema[i].alias_info()->isWrite()) continue;
        std::vector<at::Tensor> written;
        flatten(args_[i], written);
        for (const at::Tensor& t : written) metas.push_back(to_meta(t));
      }
    } else {
      const c10::OperatorHandle op = row.traits.meta ? find_op(row.traits.meta) : typed;
      const torch::jit::Stack returned = infer(op, args_.slice(0, op.schema().arguments().size()));
      for (size_t i = 0; i < returned.size(); ++i) {
        flatten(returned[i], metas);
        if (returned[i].isInt()) numbers.emplace_back(i, returned[i].toInt());
      }
    }
    std::vector<ir::Type> types;
    for (const at::Tensor& m : metas) {
      types.push_back(m.defined() ? ir::Type(to_dtype(m.scalar_type()), m.sizes().vec()) : ir::Type());
    }
    // Comparisons and the like have another dtype than they compute in.
    if (!types.empty() && !ir::is_bool(types[0].dtype())) context_.set_result(types[0].dtype());
    ops::Op op(row.name, std::move(arguments), types, context_);
    try {
      values = row.rule.run(op);
    } catch (const ops::UserError& e) {
      TORCH_CHECK_INDEX(e.type != "IndexError", e.what());
      TORCH_CHECK_VALUE(e.type != "ValueError", e.what());
      TORCH_CHECK_NOT_IMPLEMENTED(e.type != "NotImplementedError", e.what());
      TORCH_CHECK(false, e.what());
    }
    TORCH_INTERNAL_ASSERT(values.size() >= metas.size(), entry_.name, ": the row returned ", values.size(),
                          " values for ", metas.size(), " results");
    for (size_t i = 0; i < metas.size(); ++i) {
      if (!values[i]) continue;
      TORCH_INTERNAL_ASSERT(values[i].type().bounds() == types[i].bounds(), entry_.name, ": the row returned ",
                            values[i].type().text(), " for result ", i, ", which is ", types[i].text());
      values[i] = ir::convert(values[i], types[i].dtype());
    }
  }

  // In-place and mutable overloads that are rows themselves: their results are what they write.
  bool row_writes_only() const {
    if (entry_.meta && entry_.form != Form::kFunctional) return false;
    for (const ArgumentInfo& a : entry_.arguments) {
      if (a.is_out) return false;
    }
    for (const c10::Argument& a : entry_.op.schema().arguments()) {
      if (a.alias_info() && a.alias_info()->isWrite()) return true;
    }
    return false;
  }

  ir::Values values;
  std::vector<at::Tensor> metas;
  // Ints among what the op returns: position and value.
  std::vector<std::pair<int, int64_t>> numbers;

 private:
  Trace& trace_;
  const OpEntry& entry_;
  c10::ArrayRef<IValue> args_;
  std::vector<Origin> origins_;
  RowContext context_;
};

void check_written(const at::Tensor& to, const at::Tensor& result) {
  TORCH_CHECK(to.sizes() == result.sizes(), "output with shape ", to.sizes(), " doesn't match the broadcast shape ",
              result.sizes());
  TORCH_CHECK(c10::canCast(result.scalar_type(), to.scalar_type()), "result type ", result.scalar_type(),
              " can't be cast to the desired output type ", to.scalar_type());
}

std::vector<Origin> own_origins(size_t n) {
  std::vector<Origin> o(n);
  for (size_t i = 0; i < n; ++i) o[i].argument = static_cast<int>(i);
  return o;
}

std::vector<Trace::Return> lower_foreach(Trace& trace, const OpEntry& entry, c10::ArrayRef<IValue> args);

// `origins`: for a foreach element, where its arguments come from.
std::vector<Trace::Return> lower_row(Trace& trace, const OpEntry& entry, c10::ArrayRef<IValue> args,
                                     std::vector<Origin> origins) {
  RowRun run(trace, entry, args, std::move(origins));
  run.run();
  const auto& schema = entry.op.schema();
  std::vector<Trace::Return> returns;
  size_t next = 0;

  if (entry.form == Form::kInplace) {
    const at::Tensor& self = args[0].toTensor();
    check_written(self, run.metas[0]);
    trace.write(self, ir::convert(run.values[0], to_dtype(self.scalar_type())));
    returns.push_back({.value = {}, .like = {}, .tensor = self});
    return returns;
  }
  bool out = false;
  for (size_t i = 0; i < args.size(); ++i) {
    if (!entry.arguments[i].is_out) continue;
    out = true;
    std::vector<at::Tensor> tensors;
    flatten(args[i], tensors);
    for (const at::Tensor& t : tensors) {
      const at::Tensor& meta = run.metas.at(next);
      if (t.sizes() != meta.sizes()) throw ResizeOut{run.metas};
      // Some ops convert to the out='s dtype, others insist on theirs.
      if (t.scalar_type() != meta.scalar_type() && trace.mode() == Trace::Mode::kSingle)
        refuse_as_the_cpu_does(entry.op, args);
      check_written(t, meta);
      trace.write(t, ir::convert(run.values.at(next++), to_dtype(t.scalar_type())));
      returns.push_back({.value = {}, .like = {}, .tensor = t});
    }
  }
  if (!out) {
    if (run.row_writes_only()) {
      std::vector<at::Tensor> written;
      for (size_t i = 0; i < args.size(); ++i) {
        const auto* alias = schema.arguments()[i].alias_info();
        if (alias && alias->isWrite()) flatten(args[i], written);
      }
      for (const at::Tensor& t : written) {
        const ir::Value& v = run.values.at(next++);
        if (v) trace.write(t, ir::convert(v, to_dtype(t.scalar_type())));
      }
      // What is returned besides the written tensors themselves.
      size_t alias = 0;
      for (const c10::Argument& r : schema.returns()) {
        if (r.alias_info()) {
          returns.push_back({.value = {}, .like = {}, .tensor = written.at(alias++)});
        } else {
          const ir::Value& v = run.values.at(next++);
          returns.push_back({.value = v, .like = meta_of(v.type()), .tensor = {}});
        }
      }
      return returns;
    }
    const bool list = schema.returns().size() == 1 && schema.returns()[0].type()->kind() == c10::TypeKind::ListType;
    for (size_t i = 0; i < run.metas.size(); ++i, ++next) {
      returns.push_back({.value = run.values[i], .like = run.metas[i], .tensor = {}, .in_list = list});
    }
    for (auto [position, number] : run.numbers) {
      returns.insert(returns.begin() + position, {.value = {}, .like = {}, .tensor = {}, .number = number});
    }
  }
  for (std::string_view name : entry.row->traits.writes) {
    const ir::Value v = run.values.at(next++);
    for (size_t i = 0; i < args.size(); ++i) {
      if (entry.arguments[i].name != name || !args[i].isTensor() || !args[i].toTensor().defined() || !v) continue;
      trace.write(args[i].toTensor(), ir::convert(v, to_dtype(args[i].toTensor().scalar_type())));
    }
  }
  return returns;
}

std::vector<Trace::Return> lower_foreach(Trace& trace, const OpEntry& entry, c10::ArrayRef<IValue> args) {
  const OpEntry& element = *entry.element;
  const bool inplace = entry.writes;
  const size_t n = args[0].toListRef().size();
  std::vector<Trace::Return> returns;
  const auto& schema = element.op.schema().arguments();
  for (size_t k = 0; k < n; ++k) {
    std::vector<IValue> sub;
    std::vector<Origin> origins;
    for (size_t i = 0; i < schema.size(); ++i) {
      if (i >= args.size()) {
        sub.push_back(schema[i].default_value().value_or(IValue()));
        origins.push_back({});
        continue;
      }
      const bool per_tensor = args[i].isTensorList() || (args[i].isList() && entry.arguments[i].is_number);
      origins.push_back({static_cast<int>(i), per_tensor ? static_cast<int>(k) : 0});
      sub.push_back(per_tensor ? args[i].toListRef()[k] : args[i]);
    }
    RowRun run(trace, element, sub, origins);
    run.run();
    const ir::Value v = run.values.at(0);
    if (inplace) {
      const at::Tensor self = sub[0].toTensor();
      check_written(self, run.metas[0]);
      trace.write(self, ir::convert(v, to_dtype(self.scalar_type())));
    } else {
      returns.push_back({.value = v, .like = run.metas[0], .tensor = {}, .in_list = true});
    }
  }
  return returns;
}

}  // namespace

c10::OperatorHandle find_op(const std::string& name) {
  const size_t dot = name.find('.');
  const std::string full = "aten::" + name.substr(0, dot);
  return c10::Dispatcher::singleton().findSchemaOrThrow(full.c_str(),
                                                        dot == std::string::npos ? "" : name.substr(dot + 1).c_str());
}

std::vector<Trace::Return> lower(Trace& trace, const OpEntry& entry, c10::ArrayRef<IValue> args) {
  if (entry.form == Form::kForeach) return lower_foreach(trace, entry, args);
  return lower_row(trace, entry, args, own_origins(args.size()));
}

void resize_outputs(const OpEntry& entry, c10::ArrayRef<c10::IValue> args, const std::vector<at::Tensor>& metas) {
  // Not every tensor may be resized: one that is also an operand may not.
  int64_t bytes = 0;
  for (const at::Tensor& m : metas) bytes += m.defined() ? m.numel() * m.element_size() : 0;
  check_with_the_cpu(entry, args, bytes);
  size_t next = 0;
  for (size_t i = 0; i < args.size(); ++i) {
    if (!entry.arguments[i].is_out) continue;
    std::vector<at::Tensor> tensors;
    flatten(args[i], tensors);
    for (const at::Tensor& t : tensors) {
      const at::Tensor& meta = metas.at(next++);
      TORCH_CHECK(c10::canCast(meta.scalar_type(), t.scalar_type()), "result type ", meta.scalar_type(),
                  " can't be cast to the desired output type ", t.scalar_type());
      const bool resized = at::native::resize_output(t, meta.sizes());
      // CPU keeps the layout it prefers in an out= that it sized itself.
      if (resized && !meta.is_contiguous()) t.as_strided_(meta.sizes(), meta.strides());
    }
  }
}

}  // namespace tpu
