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
// v times the number `name` (alpha, beta), where that is not 1.
inline Value scaled(Op& o, const Value& v, const char* name) {
  return o.is_one(name) ? v : ir::multiply(v, o.scalar(name, v.dtype()));
}

}  // namespace tpu::ops
