// Reading and writing single elements by index tensors: gather, scatter, masks, searches, counts.
#include "tpu/ops/indexing.h"
#include "tpu/ops/reduction.h"
#include "tpu/ops/rules.h"
#include "tpu/ops/table.h"

namespace tpu::ops {
namespace {

Value element_index(Op& o, const Value& v, int64_t d) {
  return checked_index(o, at_least_1d(o.in("index")), v, d, Negative::kError, {out_of_bounds(v, d), "RuntimeError"});
}

Value gather(Op& o) {
  const Value v = at_least_1d(o.in(0));
  const int64_t d = o.dim("dim", v.rank());
  return with_rank(take_elements(v, d, element_index(o, v, d)), o.in("index").rank());
}

// src may be larger than the index: what lies beyond is not used.
Value cut_to(const Value& src, const Value& index) {
  Value v = src;
  for (int64_t d = 0; d < v.rank(); ++d) {
    if (v.type().bound(d) != index.type().bound(d)) v = ir::slice_in_dim(v, d, 0, index.dim(d));
  }
  return v;
}

// "src" or "value", shaped like the index.
Value updates_of(Op& o, const Value& index, DType dtype) {
  for (const Argument& a : o.arguments()) {
    if (a.name == "src" && a.kind == Argument::Kind::kTensor) {
      return cut_to(at_least_1d(ir::convert(a.tensor, dtype)), index);
    }
  }
  return ir::broadcast_to(o.scalar("value", dtype), index);
}

Value scatter(Op& o) {
  const Value v = at_least_1d(o.in(0));
  const int64_t d = o.dim("dim", v.rank());
  const Value at = element_index(o, v, d);
  return with_rank(put_elements(v, d, at, updates_of(o, at, v.dtype()), replace), o.in(0).rank());
}

// scatter_add, and scatter with reduce= "add" or "multiply".
Rule scatter_combined() {
  return [](Op& o) {
    const Value v = at_least_1d(o.compute(0));
    const int64_t d = o.dim("dim", v.rank());
    const Value at = element_index(o, v, d);
    const bool multiplies = o.name() != "scatter_add" && o.text("reduce") == "multiply";
    const Value updates = updates_of(o, at, v.dtype());
    return with_rank(put_elements(v, d, at, updates, multiplies ? ir::multiply : ir::add), o.in(0).rank());
  };
}

Combine combiner(const std::string& reduce) {
  if (reduce == "prod") return ir::multiply;
  if (reduce == "amax") return ir::maximum;
  if (reduce == "amin") return ir::minimum;
  return ir::add;
}

Value identity_of(const Value& v, const std::string& reduce) {
  const Type type(v.dtype(), {});
  if (reduce == "amax") return ir::lowest(v.builder(), type);
  if (reduce == "amin") return ir::highest(v.builder(), type);
  return ir::constant(v.builder(), reduce == "prod" ? 1 : 0, type);
}

// scatter_reduce and index_reduce: `put` writes updates into its first argument.
using Put = std::function<Value(const Value& v, const Value& updates, Combine combine)>;

Value reduce_into(Op& o, const Value& v, const Value& updates, const Put& put) {
  const std::string reduce = o.text("reduce");
  const bool include_self = o.flag("include_self");
  const Value ones = ir::full_like(updates, 1);
  Value start = v;
  if (!include_self) {
    // Elements that nothing is written to keep their value.
    const Value hit = put(ir::zeros_like(v), ones, replace);
    start = ir::select(ir::compare(hit, ir::zeros_like(v), "NE"), identity_of(v, reduce), v);
  }
  const Value r = put(start, updates, combiner(reduce));
  if (reduce != "mean") return r;
  const Value count = put(ir::full_like(v, include_self ? 1 : 0), ones, ir::add);
  const Value divisor = ir::maximum(count, ir::full_like(v, 1));
  const Value mean = ir::divide(r, divisor);
  if (ir::is_floating(v.dtype()) || ir::is_complex(v.dtype())) return mean;
  // Integer means are rounded down.
  const Value rest = ir::subtract(r, ir::multiply(mean, divisor)), zero = ir::zeros_like(v);
  const Value one = ir::full_like(v, 1);
  return ir::select(ir::compare(rest, zero, "LT"), ir::subtract(mean, one), mean);
}

Value scatter_reduce(Op& o) {
  const Value v = at_least_1d(o.compute(0));
  const int64_t d = o.dim("dim", v.rank());
  const Value at = element_index(o, v, d);
  auto put = [&](const Value& base, const Value& updates, Combine combine) {
    return put_elements(base, d, at, updates, combine);
  };
  return with_rank(reduce_into(o, v, updates_of(o, at, v.dtype()), put), o.in(0).rank());
}

Value index_reduce(Op& o) {
  const Value v = at_least_1d(o.compute(0)), source = at_least_1d(o.compute("source"));
  const int64_t d = o.dim("dim", v.rank());
  const Value at = checked_index(o, at_least_1d(o.in("index")), v, d, Negative::kError, {"index out of range in self"});
  auto put = [&](const Value& base, const Value& updates, Combine combine) {
    return put_slices(base, d, at, updates, combine);
  };
  return with_rank(reduce_into(o, v, source, put), o.in(0).rank());
}

// For each element of a flat mask how many before it are set; where it is not, `otherwise`.
Value places(const Value& mask, int64_t otherwise) {
  const Value ones = ir::convert(mask, DType::kI32);
  const Value before = ir::subtract(cumulative_sum(ones, 0), ones);
  return ir::select(mask, before, ir::full_like(before, otherwise));
}

Value masked_scatter(Op& o) {
  const Value v = ir::broadcast_to(o.in(0), o.out().dims());
  const Value mask = ir::broadcast_to(ir::convert(o.in("mask"), DType::kI1), o.out().dims());
  const int64_t n = v.type().numel(), given = o.in("source").type().numel();
  if (n == 0) return v;
  const Value flat = ir::reshape(mask, {n});
  const Value count = sum_over(ir::convert(flat, DType::kI64), {0});
  const Value limit = ir::constant(o.builder(), given, Type(DType::kI64, {}));
  o.context().check(ir::compare(count, limit, "GT"), count, "RuntimeError",
                    "Number of elements of source < number of ones in mask");
  const Value source = ir::reshape(ir::convert(o.in("source"), v.dtype()), {given});
  const Value taken = take_slices(source, 0, places(flat, 0));
  return ir::select(mask, ir::reshape(taken, v.dims()), v);
}

Value masked_scatter_backward(Op& o) {
  const Value grad = o.in("grad_output");
  const Value mask = ir::broadcast_to(ir::convert(o.in("mask"), DType::kI1), grad.dims());
  const int64_t n = grad.type().numel(), wanted = o.out().numel();
  const Value none = ir::constant(o.builder(), 0, Type(grad.dtype(), {wanted}));
  const Value at = places(ir::reshape(mask, {n}), wanted);
  return ir::reshape(put_slices(none, 0, at, ir::reshape(grad, {n}), replace), o.out().dims());
}

// Row by row the coordinates of nonzero elements; rows that are left over hold fill_value.
Value nonzero_static(Op& o) {
  const Value v = o.in(0);
  const int64_t n = v.type().numel(), rows = o.out().dim(0);
  Value r = ir::broadcast_to(o.scalar("fill_value", DType::kI64), o.out().dims());
  if (v.rank() == 0 || n == 0) return r;
  const Value mask = ir::convert(v, DType::kI1);
  Values columns;
  for (int64_t d = 0; d < v.rank(); ++d) {
    columns.push_back(ir::reshape(iota_like(mask, d, DType::kI64), {n, 1}));
  }
  const Value at = places(ir::reshape(mask, {n}), rows);
  return put_slices(r, 0, at, ir::concatenate(columns, 1), replace);
}

Value search(Op& o, const Value& sorted, bool right) {
  const Value values = o.scalar("self", sorted.dtype());
  return ir::convert(search_sorted(sorted, values, right), o.out().dtype());
}

Value bucketize(Op& o) { return search(o, o.in("boundaries"), o.flag("right")); }

Value searchsorted(Op& o) {
  Value sorted = o.in("sorted_sequence");
  if (o.has("sorter")) {
    sorted = take_elements(sorted, sorted.rank() - 1, ir::convert(o.in("sorter"), DType::kI32));
  }
  return search(o, sorted, o.flag("right") || (o.has("side") && o.text("side") == "right"));
}

// Counts per equal bin between min and max; where those are equal, between the operand's own.
Value histc(Op& o) {
  const Value in = o.compute(0);
  const int64_t bins = o.out().dim(0), n = in.type().numel();
  const Value none = ir::constant(o.builder(), 0, Type(in.dtype(), {bins}));
  if (n == 0) return none;
  const Value v = ir::reshape(in, {n});
  Value low = o.scalar("min", v.dtype()), high = o.scalar("max", v.dtype());
  const Value same = ir::compare(low, high, "EQ");
  low = ir::select(same, min_over(v, {0}), low);
  high = ir::select(same, max_over(v, {0}), high);
  const Value flat = ir::compare(low, high, "EQ"), one = ir::full_like(low, 1);
  low = ir::select(flat, ir::subtract(low, one), low);
  high = ir::select(flat, ir::add(high, one), high);
  const Value inside =
      ir::and_(ir::compare(v, ir::broadcast_to(low, v), "GE"), ir::compare(v, ir::broadcast_to(high, v), "LE"));
  const Value scaled = ir::multiply(ir::subtract(v, low), ir::full_like(low, bins));
  const Value bin = ir::convert(ir::divide(scaled, ir::subtract(high, low)), DType::kI32);
  const Value last = ir::full_like(bin, bins - 1);
  const Value at = ir::select(inside, ir::minimum(bin, last), ir::full_like(bin, bins));
  return put_slices(none, 0, at, ir::full_like(v, 1), ir::add);
}

// repeat_interleave(repeats, output_size=n): element i stands repeats[i] times.
Value repeat_interleave(Op& o) {
  const Value repeats = o.in("repeats");
  const Value ends = cumulative_sum(ir::convert(repeats, DType::kI64), 0);
  const Value at = ir::iota(o.builder(), Type(DType::kI64, o.out().dims()), 0);
  return ir::convert(search_sorted(ends, at, true), o.out().dtype());
}

const Row kRows[] = {
    {"gather", gather},
    {"scatter.src", scatter},
    {"scatter.value", scatter},
    {"scatter.reduce", scatter_combined()},
    {"scatter.value_reduce", scatter_combined()},
    {"scatter_add", scatter_combined()},
    {"scatter_reduce.two", scatter_reduce},
    {"index_reduce", index_reduce},
    {"masked_scatter", masked_scatter},
    {"masked_scatter_backward", masked_scatter_backward},
    {"nonzero_static", nonzero_static},
    {"searchsorted.Tensor", searchsorted},
    {"searchsorted.Scalar", searchsorted},
    {"bucketize.Tensor", bucketize},
    {"bucketize.Scalar", bucketize},
    {"histc", histc},
    {"repeat_interleave.Tensor", repeat_interleave},
};

}  // namespace

std::span<const Row> scatter_rows() { return kRows; }

}  // namespace tpu::ops
