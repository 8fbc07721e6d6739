// Makers of rules for families of ops, and the small pieces that many rules share.
#pragma once

#include "tpu/ops/op.h"

namespace tpu::ops {

using UnaryFunction = Value (*)(const Value&);
using BinaryFunction = Value (*)(const Value&, const Value&);

// f of the first argument, in the compute dtype.
inline Rule unary(UnaryFunction f) {
  return [f](Op& o) { return f(o.x(0)); };
}
// A chlo op of the first argument: "erf".
inline Rule unary_chlo(const char* name) {
  return [name](Op& o) { return ir::chlo(name, o.x(0)); };
}
// f of the first two arguments, in the compute dtype and broadcast.
inline Rule binary(BinaryFunction f) {
  return [f](Op& o) { return f(o.x(0), o.x(1)); };
}
// Whether the overload has an argument of this name, given or not.
inline bool takes(const Op& o, std::string_view argument) {
  for (const Argument& a : o.arguments()) {
    if (a.name == argument) return true;
  }
  return false;
}
// v times the number `name` (alpha, beta), where that is not 1. CPU rounds it to the result's dtype first.
inline Value scaled(Op& o, const Value& v, const char* name) {
  return o.is_one(name) ? v : ir::multiply(v, ir::convert(o.scalar(name, o.out().dtype()), v.dtype()));
}

// ---- pieces of arithmetic; floats unless said otherwise ----
inline Value is_inf(const Value& v) {
  return ir::compare(ir::abs(v), ir::highest(v.builder(), Type(v.dtype(), {})), "EQ");
}
// Any real dtype; integers and bools stay as they are.
inline Value trunc(const Value& v) {
  if (ir::is_integral(v.dtype())) return v;
  return ir::select(ir::compare(v, ir::zeros_like(v), "LT"), ir::ceil(v), ir::floor(v));
}
// For integers, raises "ZeroDivisionError" where the divisor has a 0, as CPU does.
void check_divisor(Op& o, const Value& divisor);
// Whether the sign bit is set: also of -0 and of NaN.
Value sign_bit(const Value& v);
// |magnitude| with the sign of `sign`.
inline Value copysign(const Value& magnitude, const Value& sign) {
  const Value a = ir::abs(magnitude);
  return ir::select(sign_bit(sign), ir::negate(a), a);
}

}  // namespace tpu::ops
