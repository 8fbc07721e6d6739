// Comparisons, logic, predicates, and the larger or smaller of two.
#include <limits>

#include "tpu/ops/rules.h"
#include "tpu/ops/table.h"

namespace tpu::ops {
namespace {

// In the operands' common dtype: the result says nothing about it.
Rule comparison(const char* direction) {
  return [direction](Op& o) {
    const DType dtype = o.promoted({0, 1});
    return ir::compare(o.x_as(0, dtype), o.x_as(1, dtype), direction);
  };
}

Rule logical(BinaryFunction f) {
  return [f](Op& o) { return f(o.x_as(0, DType::kI1), o.x_as(1, DType::kI1)); };
}

Value infinity(const Value& v, double sign) { return ir::full_like(v, sign * std::numeric_limits<double>::infinity()); }

Value no(const Value& like) { return ir::convert(ir::zeros_like(like), DType::kI1); }

Value is_nan(Op& o) {
  const Value x = o.in(0);
  return ir::is_integral(x.dtype()) ? no(x) : ir::is_nan(x);
}

Value is_infinite(Op& o) {
  const Value x = o.in(0);
  if (ir::is_integral(x.dtype())) return no(x);
  if (ir::is_complex(x.dtype())) return ir::or_(is_inf(ir::real(x)), is_inf(ir::imag(x)));
  return is_inf(x);
}

Rule is_infinity(double sign) {
  return [sign](Op& o) {
    const Value x = o.in(0);
    return ir::is_integral(x.dtype()) ? no(x) : ir::compare(x, infinity(x, sign), "EQ");
  };
}

// The other operand where one is NaN.
Rule ignoring_nan(BinaryFunction f) {
  return [f](Op& o) {
    const Value a = o.x(0), b = o.x(1);
    if (ir::is_integral(a.dtype())) return f(a, b);
    return ir::select(ir::is_nan(a), b, ir::select(ir::is_nan(b), a, f(a, b)));
  };
}

// Every element against every test element: XLA fuses the comparison into the reduction.
Value is_in(Op& o) {
  const DType dtype = o.promoted({0, 1});
  const Value x = o.x_as(0, dtype);
  const bool one_test = o.argument(1).kind != Argument::Kind::kTensor;
  Value tests = one_test ? o.scalar(1, dtype) : ir::convert(o.in(1), dtype);
  tests = ir::reshape(tests, {tests.type().numel()});
  Dims each = x.dims();
  each.push_back(tests.dim(0));
  const Value pairs = ir::broadcast_to(ir::unsqueeze(x, x.rank()), each);
  const Value equal = ir::compare(pairs, ir::broadcast_to(tests, each), "EQ");
  const Value never = ir::constant_bool(o.builder(), false, Type(DType::kI1, {}));
  const Value found = ir::reduce(equal, never, {x.rank()}, "or");
  return o.flag("invert") ? ir::not_(found) : found;
}

const Row kRows[] = {
    {"eq.Tensor", comparison("EQ")},
    {"eq.Scalar", comparison("EQ")},
    {"ne.Tensor", comparison("NE")},
    {"ne.Scalar", comparison("NE")},
    {"lt.Tensor", comparison("LT")},
    {"lt.Scalar", comparison("LT")},
    {"le.Tensor", comparison("LE")},
    {"le.Scalar", comparison("LE")},
    {"gt.Tensor", comparison("GT")},
    {"gt.Scalar", comparison("GT")},
    {"ge.Tensor", comparison("GE")},
    {"ge.Scalar", comparison("GE")},

    {"logical_and", logical(ir::and_)},
    {"logical_or", logical(ir::or_)},
    {"logical_xor", logical(ir::xor_)},
    {"logical_not", [](Op& o) { return ir::not_(o.x_as(0, DType::kI1)); }},

    {"isnan", is_nan},
    {"isinf", is_infinite},
    {"isposinf", is_infinity(1)},
    {"isneginf", is_infinity(-1)},
    {"isin.Tensor_Tensor", is_in},
    {"isin.Tensor_Scalar", is_in},
    {"isin.Scalar_Tensor", is_in},

    {"maximum", binary(ir::maximum)},
    {"minimum", binary(ir::minimum)},
    {"fmax", ignoring_nan(ir::maximum)},
    {"fmin", ignoring_nan(ir::minimum)},
};

}  // namespace

std::span<const Row> compare_rows() { return kRows; }

}  // namespace tpu::ops
