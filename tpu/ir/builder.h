// StableHLO as values: a Builder collects the text of one function, a Value is one SSA value in it.
// Functions are named as the StableHLO spec names the ops (https://openxla.org/stablehlo/spec).
// Every form emitted here parses from StableHLO 1.13 on. Bounded dimensions travel with the values:
// what XLA cannot do with a bounded operand (slice, convolution, ...) first goes to the bound.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "tpu/ir/type.h"

namespace tpu::ir {

class Builder;

class Value {
 public:
  Value() = default;
  Value(Builder* builder, int id, Type type) : builder_(builder), id_(id), type_(std::move(type)) {}

  explicit operator bool() const { return builder_ != nullptr; }
  Builder& builder() const { return *builder_; }
  int id() const { return id_; }
  const Type& type() const { return type_; }
  DType dtype() const { return type_.dtype(); }
  int64_t rank() const { return type_.rank(); }
  int64_t dim(int64_t d) const { return type_.dim(d); }
  const Dims& dims() const { return type_.dims(); }

  // Ids of the 0-d i32 sizes, one per dimension (-1: static); empty when all are static.
  const std::vector<int>& size_ids() const { return size_ids_; }
  // Type and sizes together, so that they cannot disagree.
  void set_size_id(int64_t d, int id);

 private:
  Builder* builder_ = nullptr;
  int id_ = -1;
  Type type_;
  std::vector<int> size_ids_;
};

using Values = std::vector<Value>;
using Body = std::function<Values(const Values& args)>;

class Builder {
 public:
  Builder() = default;
  Builder(const Builder&) = delete;
  Builder& operator=(const Builder&) = delete;

  // Adds an argument to the function; `attributes` is MLIR text such as "tf.aliasing_output = 0 : i32".
  Value parameter(const Type& type);
  void alias_parameter(int parameter, int output);
  int num_parameters() const { return static_cast<int>(parameters_.size()); }

  // One op in generic form. `attributes` is the text between <{ }>, may be empty.
  Value op(std::string_view name, const Values& operands, const Type& result, std::string_view attributes = {});
  // The same with several results and with regions (text made by region()).
  Values ops(std::string_view name, const Values& operands, const std::vector<Type>& results,
             std::string_view attributes = {}, const std::vector<std::string>& regions = {},
             std::string_view discardable_attributes = {});
  // A region of one block with the given arguments; body returns what the block yields.
  std::string region(const std::vector<Type>& arguments, const Body& body);

  // The module: @main with `results`, which are brought to their bounds.
  std::string module(const Values& results);
  // An unfinished program, for debugging.
  std::string body() const { return body_; }

 private:
  struct Parameter {
    Type type;
    int aliased_output = -1;
  };
  std::string reference(const Value& v) const;

  int next_id_ = 0;
  std::string body_;
  // Results of ops with several are written %v7#1; all others by their own id.
  std::unordered_map<int, std::string> names_;
  std::vector<Parameter> parameters_;
  std::vector<int> parameter_ids_;
};

// ---- constants ----
Value constant(Builder& b, double value, const Type& type);   // splat, rounded to the dtype
Value constant(Builder& b, int64_t value, const Type& type);  // splat; exact for integers
Value constant(Builder& b, int value, const Type& type);
Value constant_bool(Builder& b, bool value, const Type& type);
Value constant_i64(Builder& b, const std::vector<int64_t>& values, const Type& type);  // row-major list
Value constant_complex(Builder& b, double re, double im, const Type& type);
// Splats shaped (and bounded) like x, of x's dtype.
Value full_like(const Value& x, double value);
Value full_like(const Value& x, int64_t value);
Value full_like(const Value& x, int value);
Value zeros_like(const Value& x);
// Largest / lowest value of the dtype (inf for floats).
Value highest(Builder& b, const Type& type);
Value lowest(Builder& b, const Type& type);
Value iota(Builder& b, const Type& type, int64_t dimension);

// ---- elementwise: operands of one shape and dtype, 0-d operands are broadcast ----
Value elementwise(std::string_view name, const Values& operands);
Value elementwise(std::string_view name, const Values& operands, DType result);
Value add(const Value& a, const Value& b);
Value subtract(const Value& a, const Value& b);
Value multiply(const Value& a, const Value& b);
Value divide(const Value& a, const Value& b);
Value remainder(const Value& a, const Value& b);  // sign of the dividend, as C
Value maximum(const Value& a, const Value& b);
Value minimum(const Value& a, const Value& b);
Value power(const Value& a, const Value& b);
Value atan2(const Value& a, const Value& b);
Value and_(const Value& a, const Value& b);
Value or_(const Value& a, const Value& b);
Value xor_(const Value& a, const Value& b);
Value not_(const Value& a);
Value shift_left(const Value& a, const Value& b);
Value shift_right_logical(const Value& a, const Value& b);
Value shift_right_arithmetic(const Value& a, const Value& b);
Value negate(const Value& a);
Value abs(const Value& a);  // real result for complex
Value sign(const Value& a);
Value exponential(const Value& a);
Value exponential_minus_one(const Value& a);
Value log(const Value& a);
Value log_plus_one(const Value& a);
Value logistic(const Value& a);
Value sqrt(const Value& a);
Value rsqrt(const Value& a);
Value cbrt(const Value& a);
Value tanh(const Value& a);
Value cosine(const Value& a);
Value sine(const Value& a);
Value tan(const Value& a);
Value floor(const Value& a);
Value ceil(const Value& a);
Value round_nearest_even(const Value& a);
Value is_finite(const Value& a);
Value is_nan(const Value& a);  // a != a
Value real(const Value& a);
Value imag(const Value& a);
Value complex(const Value& re, const Value& im);
Value conj(const Value& a);
Value chlo(std::string_view name, const Value& a);  // "erf", "lgamma", ...: unary, same type
// direction: "EQ" "NE" "LT" "LE" "GT" "GE"; order "" or "TOTALORDER" (floats)
Value compare(const Value& a, const Value& b, std::string_view direction, std::string_view order = {});
Value select(const Value& predicate, const Value& on_true, const Value& on_false);
Value clamp(const Value& low, const Value& x, const Value& high);
// Numeric conversion; to i1 means != 0, complex to real drops the imaginary part.
Value convert(const Value& a, DType dtype);
Value bitcast_convert(const Value& a, DType dtype);  // same width only
// Rounded to what the narrower float dtype holds, of a's dtype: XLA drops a pair of converts.
Value reduce_precision(const Value& a, DType dtype);

// ---- shape ----
Value broadcast_in_dim(const Value& a, const Type& type, const Dims& broadcast_dimensions);
// NumPy rule: trailing dimensions aligned, size 1 stretched. `like` gives sizes and bounds.
Value broadcast_to(const Value& a, const Value& like);
Value broadcast_to(const Value& a, const Dims& dims);
Value reshape(const Value& a, const Dims& dims);  // static result
Value unsqueeze(const Value& a, int64_t d);
Value squeeze(const Value& a, int64_t d);
Value transpose(const Value& a, const Dims& permutation);
Value slice(const Value& a, const Dims& starts, const Dims& limits, const Dims& strides);
// One dimension only: [start, limit) with stride, other dimensions whole.
Value slice_in_dim(const Value& a, int64_t d, int64_t start, int64_t limit, int64_t stride = 1);
// Starts are 0-d integers; XLA clamps them so that the window fits.
Value dynamic_slice(const Value& a, const Values& starts, const Dims& sizes);
Value dynamic_update_slice(const Value& a, const Value& update, const Values& starts);
Value pad(const Value& a, const Value& value, const Dims& low, const Dims& high, const Dims& interior);
Value concatenate(const Values& parts, int64_t d);
Value reverse(const Value& a, const Dims& dimensions);

// ---- bounds ----
// The run-time size of dimension d as 0-d i32: a constant where static.
Value size(const Value& a, int64_t d);
// Product of the run-time sizes of `dims` in `dtype`.
Value count(const Value& a, const Dims& dims, DType dtype);
Value set_dimension_size(const Value& a, int64_t d, const Value& size);
// All dimensions static at their bounds; what lies beyond the sizes is undefined.
Value to_bound(const Value& a);
// `a` (static at like's bounds) with like's sizes.
Value with_sizes_of(const Value& a, const Value& like);

// ---- reductions and windows ----
// reducer: "add" "maximum" "minimum" "multiply" "and" "or"; NaN is kept by maximum and minimum.
Value reduce(const Value& a, const Value& init, const Dims& dimensions, std::string_view reducer);
// Several operands with a body over (accumulators..., elements...) that returns the accumulators.
Values reduce(const Values& operands, const Values& inits, const Dims& dimensions, const Body& body);
struct Window {
  Dims dimensions, strides, base_dilations, window_dilations;
  std::vector<std::pair<int64_t, int64_t>> padding;
};
Values reduce_window(const Values& operands, const Values& inits, const Window& window, const Body& body);
// select picks by GE ("max pooling"), scatter adds.
Value select_and_scatter(const Value& operand, const Value& source, const Value& init, const Window& window);
// comparator over (a0, b0, a1, b1, ...) returns i1.
Values sort(const Values& operands, int64_t dimension, bool stable, const Body& comparator);

// ---- contractions ----
struct DotDims {
  Dims lhs_batching, rhs_batching, lhs_contracting, rhs_contracting;
};
// precision: "DEFAULT" "HIGH" "HIGHEST". Result dims: batch, lhs free, rhs free.
Value dot_general(const Value& lhs, const Value& rhs, const DotDims& dims, DType result,
                  std::string_view precision = "HIGHEST");
struct ConvolutionDims {
  // Text as in the pretty form: "b, f, 0, 1", "o, i, 0, 1", "b, f, 0, 1".
  std::string input, kernel, output;
  Dims strides, lhs_dilation, rhs_dilation;
  std::vector<std::pair<int64_t, int64_t>> padding;
  std::vector<bool> reversal;
  int64_t feature_group_count = 1, batch_group_count = 1;
};
Value convolution(const Value& lhs, const Value& rhs, const ConvolutionDims& dims, const Type& result,
                  std::string_view precision = "HIGHEST");

// ---- indexing ----
struct GatherDims {
  Dims offset_dims, collapsed_slice_dims, operand_batching_dims, start_indices_batching_dims, start_index_map;
  int64_t index_vector_dim = 0;
  Dims slice_sizes;
};
Value gather(const Value& operand, const Value& indices, const GatherDims& dims, const Type& result);
struct ScatterDims {
  Dims update_window_dims, inserted_window_dims, input_batching_dims, scatter_indices_batching_dims,
      scatter_dims_to_operand_dims;
  int64_t index_vector_dim = 0;
  bool unique_indices = false;
};
// body over (old, update). Updates outside the operand are dropped.
Value scatter(const Value& operand, const Value& indices, const Value& updates, const ScatterDims& dims,
              const Body& body);

// ---- control flow, linear algebra, other ----
Values while_loop(const Values& init, const Body& condition, const Body& body);
Values if_(const Value& predicate, const Body& then_branch, const Body& else_branch, const std::vector<Type>& results);
Value fft(const Value& a, std::string_view kind, const Dims& lengths, const Type& result);
Value cholesky(const Value& a, bool lower);
Value triangular_solve(const Value& a, const Value& b, bool left_side, bool lower, bool unit_diagonal,
                       std::string_view transpose_a);  // "NO_TRANSPOSE" "TRANSPOSE" "ADJOINT"
Values custom_call(std::string_view target, const Values& operands, const std::vector<Type>& results,
                   std::string_view backend_config, Builder& b);
Values chlo_top_k(const Value& a, int64_t k);  // values, i32 indices, along the last dimension
Value optimization_barrier(const Value& a);

}  // namespace tpu::ir
