#include "tpu/ops/reduction.h"

#include <limits>

namespace tpu::ops {
namespace {

Value scalar_of(const Value& v, int64_t value) { return ir::constant(v.builder(), value, Type(v.dtype(), {})); }

}  // namespace

Dims all_dims(const Value& v) {
  Dims dims;
  for (int64_t d = 0; d < v.rank(); ++d) dims.push_back(d);
  return dims;
}

Dims one_dim(const Value& v, int64_t d) { return v.rank() == 0 ? Dims{} : Dims{d}; }

Value sum_over(const Value& v, const Dims& dims) {
  return dims.empty() ? v : ir::reduce(v, scalar_of(v, 0), dims, "add");
}

Value product_over(const Value& v, const Dims& dims) {
  return dims.empty() ? v : ir::reduce(v, scalar_of(v, 1), dims, "multiply");
}

Value max_over(const Value& v, const Dims& dims) {
  if (dims.empty()) return v;
  if (ir::is_bool(v.dtype())) return any_over(v, dims);
  return ir::reduce(v, ir::lowest(v.builder(), Type(v.dtype(), {})), dims, "maximum");
}

Value min_over(const Value& v, const Dims& dims) {
  if (dims.empty()) return v;
  if (ir::is_bool(v.dtype())) return all_over(v, dims);
  return ir::reduce(v, ir::highest(v.builder(), Type(v.dtype(), {})), dims, "minimum");
}

Value max_of_numbers(const Value& v, const Dims& dims) {
  if (dims.empty()) return v;
  const Value init = ir::lowest(v.builder(), Type(v.dtype(), {}));
  return ir::reduce({v}, {init}, dims, [](const Values& a) { return Values{ir::maximum(a[0], a[1])}; })[0];
}

Value all_over(const Value& v, const Dims& dims) {
  return dims.empty() ? v : ir::reduce(v, scalar_of(v, 1), dims, "and");
}

Value any_over(const Value& v, const Dims& dims) {
  return dims.empty() ? v : ir::reduce(v, scalar_of(v, 0), dims, "or");
}

Value mean_over(const Value& v, const Dims& dims) {
  return dims.empty() ? v : ir::divide(sum_over(v, dims), ir::count(v, dims, v.dtype()));
}

Value logsumexp_over(const Value& v, const Dims& dims) {
  const Value top = max_of_numbers(ir::real(v), dims);
  const Value shift = ir::select(ir::is_finite(top), top, ir::zeros_like(top));
  const Value shifted = ir::subtract(v, stretch(ir::convert(shift, v.dtype()), dims, v));
  return ir::add(ir::log(sum_over(ir::exponential(shifted), dims)), ir::convert(shift, v.dtype()));
}

Value keep_dims(const Value& reduced, const Dims& dims) {
  Value v = reduced;
  for (int64_t d : dims) v = ir::unsqueeze(v, d);
  return v;
}

Value stretch(const Value& reduced, const Dims& dims, const Value& like) {
  return dims.empty() ? reduced : ir::broadcast_to(keep_dims(reduced, dims), like);
}

Value along(const Value& vector, int64_t d, const Value& like) {
  Value v = vector;
  for (int64_t k = d + 1; k < like.rank(); ++k) v = ir::unsqueeze(v, v.rank());
  return ir::broadcast_to(v, like);
}

Value iota_like(const Value& v, int64_t d, DType dtype) {
  return ir::with_sizes_of(ir::iota(v.builder(), Type(dtype, v.type().bounds()), d), v);
}

DType index_dtype(const Value& v, int64_t d) {
  return v.type().bound(d) <= std::numeric_limits<int32_t>::max() ? DType::kI32 : DType::kI64;
}

Extremum extremum_along(const Value& v, int64_t d, bool is_max) {
  const Dims dims = {d};
  const Value best = is_max ? max_over(v, dims) : min_over(v, dims);
  Value hit = ir::compare(v, stretch(best, dims, v), "EQ");
  if (ir::is_floating(v.dtype())) hit = ir::or_(hit, ir::is_nan(v));
  const Value place = iota_like(v, d, index_dtype(v, d));
  const Value none = ir::full_like(place, v.type().bound(d));
  return {best, min_over(ir::select(hit, place, none), dims)};
}

namespace {

// XLA evaluates each window by itself, so long scans go by blocks: within them, over their totals,
// and what came before a block into its elements.
constexpr int64_t kBlock = 16;

Values windowed_scan(const Values& operands, const Values& inits, int64_t d, const ir::Body& body) {
  const int64_t rank = operands[0].rank(), n = operands[0].dim(d);
  ir::Window window;
  window.dimensions.assign(rank, 1);
  window.dimensions[d] = n;
  window.padding.assign(rank, {0, 0});
  window.padding[d] = {n - 1, 0};
  return ir::reduce_window(operands, inits, window, body);
}

Values static_scan(const Values& operands, const Values& inits, int64_t d, const ir::Body& body) {
  const Dims dims = operands[0].dims();
  const int64_t n = dims[d], blocks = (n + kBlock - 1) / kBlock;
  if (n <= kBlock) return windowed_scan(operands, inits, d, body);
  const Dims none(dims.size(), 0);
  Dims fill = none, step = none, split = dims;
  fill[d] = blocks * kBlock - n;
  step[d] = 1;
  split[d] = blocks;
  split.insert(split.begin() + d + 1, kBlock);
  Values parts, totals;
  for (size_t i = 0; i < operands.size(); ++i) {
    parts.push_back(ir::reshape(ir::pad(operands[i], inits[i], none, fill, none), split));
  }
  parts = windowed_scan(parts, inits, d + 1, body);
  for (const Value& v : parts) {
    totals.push_back(ir::squeeze(ir::slice_in_dim(v, d + 1, kBlock - 1, kBlock), d + 1));
  }
  totals = static_scan(totals, inits, d, body);
  Values both;
  for (size_t i = 0; i < totals.size(); ++i) {
    const Value before = ir::slice_in_dim(totals[i], d, 0, blocks - 1);
    both.push_back(stretch(ir::pad(before, inits[i], step, none, none), {d + 1}, parts[i]));
  }
  both.insert(both.end(), parts.begin(), parts.end());
  Values out = body(both);
  for (Value& v : out) {
    Dims whole = dims;
    whole[d] = blocks * kBlock;
    v = ir::slice_in_dim(ir::reshape(v, whole), d, 0, n);
  }
  return out;
}

}  // namespace

Values scan(const Values& operands, const Values& inits, int64_t d, const ir::Body& body) {
  const int64_t n = operands[0].type().bound(d);
  if (n <= 1 || operands[0].type().bound_numel() == 0) return operands;
  Values bounded;
  for (const Value& v : operands) bounded.push_back(ir::to_bound(v));
  Values out = static_scan(bounded, inits, d, body);
  for (size_t i = 0; i < out.size(); ++i) out[i] = ir::with_sizes_of(out[i], operands[i]);
  return out;
}

Value cumulative_sum(const Value& v, int64_t d) {
  return scan({v}, {scalar_of(v, 0)}, d, [](const Values& a) { return Values{ir::add(a[0], a[1])}; })[0];
}

}  // namespace tpu::ops
