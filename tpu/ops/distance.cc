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

// The distance of each row of x1 from each row of x2.
Value distances(Op& o, const Value& x1, const Value& x2) {
  const Value off = ir::abs(differences(x1, x2));
  const Dims last = {off.rank() - 1};
  const double p = o.number("p");
  if (off.dim(last[0]) == 0) {
    Dims sizes = off.dims();
    sizes.pop_back();
    return ir::constant(o.builder(), 0, Type(off.dtype(), sizes));
  }
  if (p == 0) {
    return sum_over(ir::convert(ir::compare(off, ir::zeros_like(off), "NE"), off.dtype()), last);
  }
  if (p == 1) return sum_over(off, last);
  if (p == 2) return ir::sqrt(sum_over(ir::multiply(off, off), last));
  if (std::isinf(p)) return max_over(off, last);
  return power_of(sum_over(power_of(off, p), last), 1 / p);
}

Value cdist(Op& o) { return distances(o, o.compute("x1"), o.compute("x2")); }

// The gradient by x1; equal rows have no slope.
Value distance_slopes(Op& o, const Value& x1, const Value& x2, const Value& distances, const Value& gradient) {
  const Value off = differences(x1, x2);
  const Dims last = {off.rank() - 1};
  const double p = o.number("p");
  if (p == 0 || off.type().numel() == 0) {
    return ir::constant(o.builder(), 0, Type(off.dtype(), o.out().dims()));
  }
  const Value distance = stretch(distances, last, off);
  const Value grad = stretch(gradient, last, off), zero = ir::zeros_like(off);
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

Value cdist_backward(Op& o) {
  return distance_slopes(o, o.compute("x1"), o.compute("x2"), o.compute("cdist"), o.compute("grad"));
}

// Places of the pairs i < j among n rows, in the order (0, 1), (0, 2), ...: position in the matrix of all pairs.
Value pair_positions(ir::Builder& b, int64_t n) {
  const Type type(DType::kI64, {n, n});
  const Value row = ir::iota(b, type, 0), column = ir::iota(b, type, 1);
  // The pairs' numbers among the pairs, others behind them.
  const Value start =
      ir::divide(ir::multiply(row, ir::subtract(ir::full_like(row, 2 * n - 1), row)), ir::full_like(row, 2));
  const Value number = ir::subtract(ir::add(start, ir::subtract(column, row)), ir::full_like(row, 1));
  const Value key = ir::select(ir::compare(row, column, "LT"), number, ir::full_like(row, n * n));
  const Value flat = ir::reshape(key, {n * n});
  const Value place = ir::iota(b, flat.type(), 0);
  const Value order =
      ir::sort({flat, place}, 0, true, [](const Values& a) { return Values{ir::compare(a[0], a[1], "LT")}; })[1];
  return ir::slice_in_dim(order, 0, 0, n * (n - 1) / 2);
}

// Of the n rows, each pair once.
Value pdist(Op& o) {
  const int64_t n = o.in("self").dim(0), pairs = o.out().numel();
  if (pairs == 0) return ir::constant(o.builder(), 0, o.out());
  const Value x = o.compute("self");
  const Value all = ir::reshape(distances(o, x, x), {n * n});
  const Value where = ir::reshape(pair_positions(o.builder(), n), {pairs, 1});
  const ir::GatherDims dims{.offset_dims = {},
                            .collapsed_slice_dims = {0},
                            .operand_batching_dims = {},
                            .start_indices_batching_dims = {},
                            .start_index_map = {0},
                            .index_vector_dim = 1,
                            .slice_sizes = {1}};
  return ir::gather(all, where, dims, Type(all.dtype(), {pairs}));
}

// grad and distance of each pair, put into the matrix of all pairs and made symmetric.
Value pdist_backward(Op& o) {
  const int64_t n = o.in("self").dim(0), pairs = n * (n - 1) / 2;
  if (pairs == 0 || o.out().numel() == 0) return ir::constant(o.builder(), 0, o.out());
  const Value x = o.compute("self");
  const Value where = ir::reshape(pair_positions(o.builder(), n), {pairs, 1});
  const ir::ScatterDims dims{.update_window_dims = {},
                             .inserted_window_dims = {0},
                             .input_batching_dims = {},
                             .scatter_indices_batching_dims = {},
                             .scatter_dims_to_operand_dims = {0},
                             .index_vector_dim = 1,
                             .unique_indices = true};
  auto matrix = [&](const char* name) {
    const Value zeros = ir::constant(o.builder(), 0, Type(x.dtype(), {n * n}));
    const Value upper = ir::reshape(
        ir::scatter(zeros, where, o.compute(name), dims, [](const Values& a) { return Values{a[1]}; }), {n, n});
    return ir::add(upper, ir::transpose(upper, {1, 0}));
  };
  return distance_slopes(o, x, x, matrix("pdist"), matrix("grad"));
}

const Traits kP = {.static_args = {"p"}};

const Row kRows[] = {
    {"_cdist_forward", cdist, kP},
    {"_cdist_backward", cdist_backward, kP},
    {"_pdist_forward", pdist, kP},
    {"_pdist_backward", pdist_backward, kP},
};

}  // namespace

std::span<const Row> distance_rows() { return kRows; }

}  // namespace tpu::ops
