// Sorting along one dimension and what is read off a sorted row: topk, kthvalue, median, mode.
// NaN counts as larger than every number, and equal elements keep their order.
#include "tpu/ops/indexing.h"
#include "tpu/ops/reduction.h"
#include "tpu/ops/rules.h"
#include "tpu/ops/table.h"

namespace tpu::ops {
namespace {

struct Sorted {
  Value values, indices;
};

Sorted sort_along(const Value& v, int64_t d, bool descending) {
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

Values topk(Op& o) {
  const Value v = at_least_1d(o.in(0));
  const int64_t d = o.dim("dim", v.rank()), k = o.integer("k"), rank = o.in(0).rank();
  const Sorted s = sort_along(v, d, o.flag("largest"));
  const Value indices = ir::convert(ir::slice_in_dim(s.indices, d, 0, k), DType::kI64);
  return {with_rank(ir::slice_in_dim(s.values, d, 0, k), rank), with_rank(indices, rank)};
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
  const Value middle =
      ir::maximum(ir::shift_right_arithmetic(ir::subtract(counted, one), one), zero);
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
    if (n == 0)
      return ir::divide(ir::constant(o.builder(), 0, scalar), ir::constant(o.builder(), 0, scalar));
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
    const Value begins =
        ir::pad(ir::compare(head, tail, "NE"),
                ir::constant_bool(o.builder(), true, Type(DType::kI1, {})), low, none, none);
    const Value zero = ir::constant(o.builder(), 0, Type(DType::kI32, {}));
    const Value starts = ir::select(begins, place, ir::zeros_like(place));
    const Value start = scan({starts}, {zero}, d,
                             [](const Values& a) { return Values{ir::maximum(a[0], a[1])}; })[0];
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
