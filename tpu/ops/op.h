// What a row of the op table sees of one call: operands as values, result types, arguments.
// Nothing here knows torch; the torch layer fills an Op in from a dispatcher call.
#pragma once

#include <complex>
#include <functional>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "tpu/ir/builder.h"

namespace tpu::ops {

using ir::Dims;
using ir::DType;
using ir::Type;
using ir::Value;
using ir::Values;

using Number = std::variant<bool, int64_t, double, std::complex<double>>;
double as_double(const Number& n);
int64_t as_int(const Number& n);
std::complex<double> as_complex(const Number& n);
// The dtype PyTorch gives a Python number of this kind: i1, i64, f64, c128.
DType natural_dtype(const Number& n);

// The call itself is wrong in a way that the Meta kernel does not tell: thrown by rules, raised as the
// Python exception `type` ("RuntimeError", "IndexError", "ValueError", "NotImplementedError") with this very text.
class UserError : public std::runtime_error {
 public:
  explicit UserError(const std::string& message, std::string type = "RuntimeError")
      : std::runtime_error(message), type(std::move(type)) {}
  std::string type;
};

// One argument of the call, in schema order.
struct Argument {
  enum class Kind { kNone, kTensor, kTensorList, kNumber, kNumberList, kText, kDType, kOther };
  std::string name;
  Kind kind = Kind::kNone;
  Value tensor;  // kTensor
  // kTensor: row-major without gaps. For results that PyTorch defines by the layout of an argument.
  bool is_contiguous = true;
  Values tensors;               // kTensorList; an absent element is an empty Value
  std::vector<Number> numbers;  // kNumber: one element; kNumberList
  std::string text;             // kText
  DType dtype = DType::kF32;    // kDType
  // A run-time number may be used through scalar() only: its value is not in the program's key.
  bool runtime = false;
};

// What the caller offers while a rule runs.
class Context {
 public:
  virtual ~Context() = default;
  virtual ir::Builder& builder() = 0;
  // Element `element` of the run-time number argument `argument` as a 0-d operand of `dtype`.
  virtual Value scalar_operand(size_t argument, size_t element, DType dtype) = 0;
  // [seed, offset] of the generator as ui64 values; advances the offset by `numbers` logical draws.
  virtual std::pair<Value, Value> random_state(int64_t numbers) = 0;
  // PyTorch's type promotion over the given arguments (at::result_type).
  virtual DType promote(const std::vector<size_t>& arguments) = 0;
  // Reports an error at the next read or synchronize where the 0-d i1 `failed` is true; `value` (0-d
  // i64) is put in for {} in the message. error: "IndexError", "RuntimeError" or "LinAlgError".
  virtual void check(const Value& failed, const Value& value, std::string error, std::string message) = 0;
  // torch.get_float32_matmul_precision as a StableHLO precision name.
  virtual std::string matmul_precision() = 0;
  // Whether the platform contracts 64-bit integers (dot_general, convolution).
  virtual bool has_i64_contraction() { return true; }
};

class Op {
 public:
  Op(std::string name, std::vector<Argument> arguments, std::vector<Type> outputs, Context& context)
      : name_(std::move(name)), arguments_(std::move(arguments)), outputs_(std::move(outputs)), context_(context) {}

  // The ATen overload, "add.Tensor".
  const std::string& name() const { return name_; }
  ir::Builder& builder() { return context_.builder(); }
  Context& context() { return context_; }

  // ---- operands. An argument is named by its position in the schema or by its name ----
  struct Ref {
    Ref(int position) : position(position) {}                       // NOLINT: meant to convert
    Ref(size_t position) : position(static_cast<int>(position)) {}  // NOLINT
    Ref(const char* name) : name(name) {}                           // NOLINT
    Ref(std::string_view name) : name(name) {}                      // NOLINT
    int position = -1;
    std::string_view name;
  };
  // Given and not None.
  bool has(Ref a) const;
  // The tensor as it came.
  Value in(Ref a) const;
  Values list(Ref a) const;
  // The operand as PyTorch computes with it: converted to compute_dtype(). Also takes numbers.
  Value compute(Ref a);
  // compute(a), broadcast to the shape of the first result.
  Value x(Ref a);
  // A number as 0-d value of `dtype`, at run time where it can be.
  Value scalar(Ref a, DType dtype, size_t element = 0);
  // The dtype that elementwise ops compute in: opmath of the first result's dtype.
  DType compute_dtype() const { return ir::opmath(out(0).dtype()); }
  // at::result_type over the given arguments.
  DType promoted(const std::vector<size_t>& arguments) { return context_.promote(arguments); }
  // Argument a converted to `dtype` and broadcast to the first result.
  Value x_as(Ref a, DType dtype);

  // ---- results ----
  const Type& out(size_t i = 0) const { return outputs_.at(i); }
  size_t num_outputs() const { return outputs_.size(); }

  // ---- static arguments: their values are part of the program's key ----
  int64_t integer(Ref a) const;
  int64_t integer(Ref a, int64_t if_none) const;
  bool flag(Ref a) const;
  bool flag(Ref a, bool if_none) const;
  double number(Ref a) const;
  double number(Ref a, double if_none) const;
  std::complex<double> complex_number(Ref a) const;
  Number raw_number(Ref a) const;
  Dims ints(Ref a) const;
  std::vector<double> numbers(Ref a) const;
  std::string text(Ref a) const;
  std::optional<DType> dtype(Ref a) const;
  // A dim argument, wrapped into [0, rank).
  int64_t dim(Ref a, int64_t rank) const;
  // A dim list, wrapped and sorted; empty or None means all.
  Dims dims(Ref a, int64_t rank) const;
  // alpha and beta: whether the number is exactly 0 / 1 (that much of them is in the key).
  bool is_zero(Ref a) const;
  bool is_one(Ref a) const;

  const std::vector<Argument>& arguments() const { return arguments_; }
  const Argument& argument(Ref a) const;

 private:
  size_t index(Ref a) const;
  const Argument& static_argument(Ref a) const;

  std::string name_;
  std::vector<Argument> arguments_;
  std::vector<Type> outputs_;
  Context& context_;
};

// A rule returns one value per result, then one per tensor that the row `writes`. An empty value is an
// undefined result, or a written tensor that stays as it was.
struct Rule {
  Rule() = default;
  template <typename F>
    requires std::is_invocable_v<F, Op&>
  Rule(F f) {  // NOLINT: meant to convert
    if constexpr (std::is_same_v<std::invoke_result_t<F, Op&>, Value>) {
      run = [f](Op& o) { return Values{f(o)}; };
    } else {
      run = f;
    }
  }
  std::function<Values(Op&)> run;
};

struct Traits {
  // Scalar and float arguments that the rule reads as numbers (default: run-time operands).
  std::vector<std::string_view> static_args = {};
  // int arguments that are run-time operands (default: static).
  std::vector<std::string_view> runtime_args = {};
  // Tensor arguments that are written although the schema does not say so (batch norm's statistics);
  // their new values follow the results.
  std::vector<std::string_view> writes = {};
  // Another overload whose Meta kernel gives the result types when called with the same arguments.
  const char* meta = nullptr;
  // Result types, where PyTorch has no Meta kernel for the op.
  std::function<std::vector<Type>(Op&)> types = {};
  // Draws random numbers.
  bool random = false;
  // Called by the torch layer only: no kernel is registered for the op.
  bool internal = false;
};

// An op is one row, keyed by its ATen overload name: the functional overload where there is one
// (in-place, out= and _foreach_ forms are derived), else the in-place one, whose rule then returns
// the new values of the written arguments.
struct Row {
  const char* name;
  Rule rule;
  Traits traits = {};
};

}  // namespace tpu::ops
