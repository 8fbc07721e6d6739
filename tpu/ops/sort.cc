// Sorting along one dimension and what is read off a sorted row: topk, kthvalue, median, mode.
// NaN counts as larger than every number, and equal elements keep their order.
#include <cstdint>
#include <limits>
#include <utility>

#include "tpu/ops/indexing.h"
#include "tpu/ops/reduction.h"
#include "tpu/ops/rules.h"
#include "tpu/ops/table.h"

namespace tpu::ops {
namespace {

struct Sorted {
  Value values, indices;
};

bool fits_32_bits(DType dtype) { return ir::size_bytes(dtype) < 8 && dtype != DType::kUI32; }

// An i32 that orders as v does: NaN above all numbers, and -0 equal to 0.
Value order_key(const Value& v) {
  if (!ir::is_floating(v.dtype())) return ir::convert(v, DType::kI32);
  const Value x = ir::convert(v, DType::kF32);
  Value bits = ir::bitcast_convert(x, DType::kI32);
  const Value minus_zero = ir::full_like(bits, int64_t{INT32_MIN}), zero = ir::zeros_like(bits);
  bits = ir::select(ir::compare(bits, minus_zero, "EQ"), zero, bits);
  bits = ir::select(ir::is_nan(x), ir::full_like(bits, INT32_MAX), bits);
  const Value flipped = ir::xor_(bits, ir::full_like(bits, INT32_MAX));
  return ir::select(ir::compare(bits, zero, "LT"), flipped, bits);
}

// Key and place in one number: XLA's CPU sorts one operand ten times as fast as two.
Sorted sort_packed(const Value& v, int64_t d, bool descending) {
  const Value key = order_key(v);
  const Value high = ir::convert(descending ? ir::not_(key) : key, DType::kI64);
  const Value bits = ir::full_like(high, 32);
  const Value packed = ir::or_(ir::shift_left(high, bits), iota_like(v, d, DType::kI64));
  const Value sorted =
      ir::sort({packed}, d, true, [](const Values& a) { return Values{ir::compare(a[0], a[1], "LT")}; })[0];
  const Value low = ir::full_like(sorted, int64_t{UINT32_MAX});
  const Value at = ir::convert(ir::and_(sorted, low), DType::kI32);
  if (ir::is_floating(v.dtype())) return {take_elements(v, d, at), at};
  const Value top = ir::shift_right_arithmetic(sorted, bits);
  return {ir::convert(descending ? ir::not_(top) : top, v.dtype()), at};
}

Sorted sort_along(const Value& v, int64_t d, bool descending) {
  if (index_dtype(v, d) == DType::kI32 && fits_32_bits(v.dtype())) {
    return sort_packed(v, d, descending);
  }
  const Value at = iota_like(v, d, index_dtype(v, d));
  const Values out = ir::sort({v, at}, d, true, [descending](const Values& a) {
    const Value &x = descending ? a[1] : a[0], &y = descending ? a[0] : a[1];
    const Value less = ir::compare(x, y, "LT");
    if (!ir::is_floating(x.dtype())) return Values{less};
    return Values{ir::or_(less, ir::and_(ir::is_nan(y), ir::not_(ir::is_nan(x))))};
  });
  return {out[0], out[1]};
}

Values sort(Op& o) {
  const Value v = at_least_1d(o.in(0));
  const Sorted s = sort_along(v, o.dim("dim", v.rank()), o.flag("descending"));
  const int64_t rank = o.in(0).rank();
  return {with_rank(s.values, rank), with_rank(ir::convert(s.indices, DType::kI64), rank)};
}

// The k first of the sorted row. Plugins have a fast top_k of f32 along the last dimension; it
// orders NaN by their sign.
Sorted top_of(const Value& v, int64_t d, int64_t k, bool largest) {
  const bool is_exact = ir::size_bytes(v.dtype()) <= (ir::is_floating(v.dtype()) ? 4 : 2);
  if (k == 0 || !is_exact || !v.type().is_static()) {
    const Sorted s = sort_along(v, d, largest);
    return {ir::slice_in_dim(s.values, d, 0, k), ir::slice_in_dim(s.indices, d, 0, k)};
  }
  Dims swap = all_dims(v);
  std::swap(swap[d], swap.back());
  const Value x = ir::convert(ir::transpose(v, swap), DType::kF32);
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const Value key = ir::select(ir::is_nan(x), ir::full_like(x, largest ? nan : -nan), largest ? x : ir::negate(x));
  const Values top = ir::chlo_top_k(key, k);
  const Value values = ir::convert(largest ? top[0] : ir::negate(top[0]), v.dtype());
  return {ir::transpose(values, swap), ir::transpose(top[1], swap)};
}

Values topk(Op& o) {
  const Value v = at_least_1d(o.in(0));
  const int64_t rank = o.in(0).rank();
  const Sorted s = top_of(v, o.dim("dim", v.rank()), o.integer("k"), o.flag("largest"));
  return {with_rank(s.values, rank), with_rank(ir::convert(s.indices, DType::kI64), rank)};
}

// Element `place` (a value per row, with dimension d of size 1) of each row, in the result's shape.
Values pick(Op& o, const Sorted& s, int64_t d, const Value& place) {
  const Value values = take_elements(s.values, d, place);
  const Value indices = ir::convert(take_elements(s.indices, d, place), DType::kI64);
  if (o.in(0).rank() > 0 && o.flag("keepdim")) return {values, indices};
  return {ir::squeeze(values, d), ir::squeeze(indices, d)};
}

Values kthvalue(Op& o) {
  const Value v = at_least_1d(o.in(0));
  const int64_t d = o.dim("dim", v.rank()), k = o.integer("k");
  const Sorted s = sort_along(v, d, false);
  Dims rows = v.dims();
  rows[d] = 1;
  return pick(o, s, d, ir::constant(o.builder(), k - 1, Type(DType::kI32, rows)));
}

// The place of the (lower) median in sorted rows: with dimension d of size 1. The first NaN, where
// there is one and they are not skipped.
Value median_place(const Value& v, int64_t d, bool skip_nan) {
  const Value nan = ir::is_floating(v.dtype()) ? ir::convert(ir::is_nan(v), DType::kI32)
                                               : ir::full_like(ir::convert(v, DType::kI32), 0);
  const Value nans = ir::unsqueeze(sum_over(nan, {d}), d);
  const Value zero = ir::zeros_like(nans), n = ir::full_like(nans, v.dim(d));
  const Value one = ir::full_like(nans, 1);
  const Value numbers = ir::subtract(n, nans);
  const Value counted = skip_nan ? numbers : n;
  const Value middle = ir::maximum(ir::shift_right_arithmetic(ir::subtract(counted, one), one), zero);
  return skip_nan ? middle : ir::select(ir::compare(nans, zero, "GT"), numbers, middle);
}

Rule median_along(bool skip_nan) {
  return [skip_nan](Op& o) {
    const Value v = at_least_1d(o.in(0));
    const int64_t d = o.dim("dim", v.rank());
    return pick(o, sort_along(v, d, false), d, median_place(v, d, skip_nan));
  };
}

Rule median(bool skip_nan) {
  return [skip_nan](Op& o) {
    const int64_t n = o.in(0).type().numel();
    const Type scalar(o.in(0).dtype(), {});
    if (n == 0) return ir::divide(ir::constant(o.builder(), 0, scalar), ir::constant(o.builder(), 0, scalar));
    const Value v = ir::reshape(o.in(0), {n});
    const Value place = median_place(v, 0, skip_nan);
    return ir::squeeze(take_elements(sort_along(v, 0, false).values, 0, place), 0);
  };
}

// The smallest of the most frequent values, and where it is last.
Values mode(Op& o) {
  const Value v = at_least_1d(o.in(0));
  const int64_t d = o.dim("dim", v.rank()), n = v.dim(d);
  const Sorted s = sort_along(v, d, false);
  Value place = iota_like(v, d, DType::kI32);
  if (n > 1) {
    const Value head = ir::slice_in_dim(s.values, d, 0, n - 1);
    const Value tail = ir::slice_in_dim(s.values, d, 1, n);
    Dims low(v.rank(), 0), none(v.rank(), 0);
    low[d] = 1;
    const Value begins = ir::pad(ir::compare(head, tail, "NE"),
                                 ir::constant_bool(o.builder(), true, Type(DType::kI1, {})), low, none, none);
    const Value zero = ir::constant(o.builder(), 0, Type(DType::kI32, {}));
    const Value starts = ir::select(begins, place, ir::zeros_like(place));
    const Value start = scan({starts}, {zero}, d, [](const Values& a) { return Values{ir::maximum(a[0], a[1])}; })[0];
    place = extremum_along(ir::subtract(place, start), d, true).indices;
    place = ir::unsqueeze(place, d);
  }
  return pick(o, s, d, place);
}

const Row kRows[] = {
    {"sort", sort},
    {"sort.stable", sort},
    {"topk", topk},
    {"kthvalue", kthvalue},
    {"median", median(false)},
    {"median.dim", median_along(false)},
    {"nanmedian", median(true)},
    {"nanmedian.dim", median_along(true)},
    {"mode", mode},
};

}  // namespace

std::span<const Row> sort_rows() { return kRows; }

}  // namespace tpu::ops
