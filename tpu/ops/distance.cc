// Distances between all rows of two matrices.
#include <algorithm>
#include <cmath>

#include "tpu/ops/reduction.h"
#include "tpu/ops/rules.h"
#include "tpu/ops/table.h"

namespace tpu::ops {
namespace {

// x1[..., i, :] - x2[..., j, :], as (..., i, j, element).
Value differences(const Value& x1, const Value& x2) {
  const Value a = ir::unsqueeze(x1, x1.rank() - 1), b = ir::unsqueeze(x2, x2.rank() - 2);
  Dims shape(std::max(a.rank(), b.rank()), 1);
  for (const Value* v : {&a, &b}) {
    const int64_t skip = static_cast<int64_t>(shape.size()) - v->rank();
    for (int64_t d = 0; d < v->rank(); ++d) {
      if (v->dim(d) != 1) shape[skip + d] = v->dim(d);
    }
  }
  return ir::subtract(ir::broadcast_to(a, shape), ir::broadcast_to(b, shape));
}

Value power_of(const Value& v, double p) { return ir::power(v, ir::constant(v.builder(), p, Type(v.dtype(), {}))); }

Value cdist(Op& o) {
  const Value off = ir::abs(differences(o.compute("x1"), o.compute("x2")));
  const Dims last = {off.rank() - 1};
  const double p = o.number("p");
  if (off.dim(last[0]) == 0) return ir::constant(o.builder(), 0, Type(off.dtype(), o.out().dims()));
  if (p == 0) {
    return sum_over(ir::convert(ir::compare(off, ir::zeros_like(off), "NE"), off.dtype()), last);
  }
  if (p == 1) return sum_over(off, last);
  if (p == 2) return ir::sqrt(sum_over(ir::multiply(off, off), last));
  if (std::isinf(p)) return max_over(off, last);
  return power_of(sum_over(power_of(off, p), last), 1 / p);
}

// By x1; equal rows have no slope.
Value cdist_backward(Op& o) {
  const Value off = differences(o.compute("x1"), o.compute("x2"));
  const Dims last = {off.rank() - 1};
  const double p = o.number("p");
  if (p == 0 || off.type().numel() == 0) {
    return ir::constant(o.builder(), 0, Type(off.dtype(), o.out().dims()));
  }
  const Value distance = stretch(o.compute("cdist"), last, off);
  const Value grad = stretch(o.compute("grad"), last, off), zero = ir::zeros_like(off);
  const Value size = ir::abs(off), sign = ir::sign(off);
  Value slope = sign;
  if (std::isinf(p)) {
    slope = ir::select(ir::compare(size, distance, "EQ"), sign, zero);
  } else if (p != 1) {
    slope = ir::multiply(sign, power_of(ir::divide(size, distance), p - 1));
    const Value flat = ir::or_(ir::compare(size, zero, "EQ"), ir::compare(distance, zero, "EQ"));
    slope = ir::select(flat, zero, slope);
  }
  return sum_over(ir::multiply(slope, grad), {off.rank() - 2});
}

const Traits kP = {.static_args = {"p"}};

const Row kRows[] = {
    {"_cdist_forward", cdist, kP},
    {"_cdist_backward", cdist_backward, kP},
};

}  // namespace

std::span<const Row> distance_rows() { return kRows; }

}  // namespace tpu::ops
