// Softmax and normalisations within a sample: layer, group and weight norm.
#include "tpu/ops/reduction.h"
#include "tpu/ops/rules.h"
#include "tpu/ops/table.h"

namespace tpu::ops {
namespace {

Dims softmax_dims(Op& o, const Value& v) { return v.rank() == 0 ? Dims{} : Dims{o.dim("dim", v.rank())}; }

Value softmax_over(const Value& v, const Dims& dims) {
  const Value top = stretch(max_of_numbers(v, dims), dims, v);
  const Value e = ir::exponential(ir::subtract(v, top));
  return ir::divide(e, stretch(sum_over(e, dims), dims, v));
}

Value softmax(Op& o) {
  const Value v = o.compute(0);
  return softmax_over(v, softmax_dims(o, v));
}

// A row of -inf gives zeros instead of NaN.
Value safe_softmax(Op& o) {
  const Value v = o.compute(0);
  const Dims dims = softmax_dims(o, v);
  const Value low = ir::lowest(o.builder(), Type(v.dtype(), {}));
  const Value none = stretch(all_over(ir::compare(v, low, "EQ"), dims), dims, v);
  return ir::select(none, ir::zeros_like(v), softmax_over(v, dims));
}

Value log_softmax(Op& o) {
  const Value v = o.compute(0);
  const Dims dims = softmax_dims(o, v);
  const Value shifted = ir::subtract(v, stretch(max_of_numbers(v, dims), dims, v));
  const Value total = ir::log(sum_over(ir::exponential(shifted), dims));
  return ir::subtract(shifted, stretch(total, dims, v));
}

Value softmax_backward(Op& o) {
  const Value grad = o.compute("grad_output"), y = o.compute("output");
  const Dims dims = softmax_dims(o, y);
  const Value scaled = ir::multiply(grad, y);
  return ir::subtract(scaled, ir::multiply(y, stretch(sum_over(scaled, dims), dims, y)));
}

Value log_softmax_backward(Op& o) {
  const Value grad = o.compute("grad_output"), y = o.compute("output");
  const Dims dims = softmax_dims(o, y);
  const Value total = stretch(sum_over(grad, dims), dims, grad);
  return ir::subtract(grad, ir::multiply(ir::exponential(y), total));
}

// (v - mean) * rstd over `dims`, and both statistics.
struct Normalized {
  Value y, mean, rstd;
};

Normalized normalize(const Value& v, const Dims& dims, const Value& eps) {
  const Value mean = mean_over(v, dims);
  const Value off = ir::subtract(v, stretch(mean, dims, v));
  const Value variance = mean_over(ir::multiply(off, off), dims);
  const Value rstd = ir::rsqrt(ir::add(variance, eps));
  return {ir::multiply(off, stretch(rstd, dims, v)), mean, rstd};
}

// The gradient that passes through normalize(): grad is that of y.
Value normalize_backward(const Value& grad, const Value& y, const Value& rstd, const Dims& dims) {
  const Value mean = stretch(mean_over(grad, dims), dims, y);
  const Value slope = stretch(mean_over(ir::multiply(grad, y), dims), dims, y);
  const Value inner = ir::subtract(ir::subtract(grad, mean), ir::multiply(y, slope));
  return ir::multiply(inner, stretch(rstd, dims, y));
}

Dims trailing_dims(const Value& v, size_t n) {
  Dims dims;
  for (int64_t d = v.rank() - static_cast<int64_t>(n); d < v.rank(); ++d) dims.push_back(d);
  return dims;
}

Dims leading_dims(const Value& v, size_t n) {
  Dims dims;
  for (int64_t d = 0; d < v.rank() - static_cast<int64_t>(n); ++d) dims.push_back(d);
  return dims;
}

Values layer_norm(Op& o) {
  const Value v = o.compute("input");
  const Dims dims = trailing_dims(v, o.ints("normalized_shape").size());
  const Normalized n = normalize(v, dims, o.scalar("eps", v.dtype()));
  Value y = n.y;
  if (o.has("weight")) y = ir::multiply(y, ir::broadcast_to(o.compute("weight"), v));
  if (o.has("bias")) y = ir::add(y, ir::broadcast_to(o.compute("bias"), v));
  return {y, keep_dims(n.mean, dims), keep_dims(n.rstd, dims)};
}

Values layer_norm_backward(Op& o) {
  const DType dtype = ir::opmath(o.in("input").dtype());
  const Value v = ir::convert(o.in("input"), dtype), grad = ir::convert(o.in("grad_out"), dtype);
  const size_t n = o.ints("normalized_shape").size();
  const Dims inner = trailing_dims(v, n), outer = leading_dims(v, n);
  const Value mean = ir::convert(o.in("mean"), dtype), rstd = ir::convert(o.in("rstd"), dtype);
  const Value y = ir::multiply(ir::subtract(v, ir::broadcast_to(mean, v)), ir::broadcast_to(rstd, v));
  const Dims mask = o.ints("output_mask");
  Values out(3);
  if (mask[0]) {
    Value through = grad;
    if (o.has("weight")) {
      through = ir::multiply(grad, ir::broadcast_to(ir::convert(o.in("weight"), dtype), v));
    }
    Value squeezed = rstd;
    for (auto d = inner.rbegin(); d != inner.rend(); ++d) squeezed = ir::squeeze(squeezed, *d);
    out[0] = normalize_backward(through, y, squeezed, inner);
  }
  if (mask[1]) out[1] = sum_over(ir::multiply(grad, y), outer);
  if (mask[2]) out[2] = sum_over(grad, outer);
  return out;
}

// Channels split into groups: (N, group, C / group, elements of a channel). A bounded batch is
// padding that no group reads, so it may be ignored until the end.
Value grouped(const Value& v, int64_t groups) {
  for (int64_t d = 1; d < v.rank(); ++d) v.dim(d);
  int64_t spatial = 1;
  for (int64_t d = 2; d < v.rank(); ++d) spatial *= v.dim(d);
  return ir::reshape(ir::to_bound(v), {v.type().bound(0), groups, v.dim(1) / groups, spatial});
}

Value ungrouped(const Value& v, const Value& like) {
  return ir::with_sizes_of(ir::reshape(v, like.type().bounds()), like);
}

// A per-channel vector, against grouped().
Value per_channel(Op& o, const char* name, const Value& like) {
  const Value v = ir::convert(o.in(name), like.dtype());
  return ir::broadcast_to(ir::reshape(v, {like.dim(1), like.dim(2), 1}), like);
}

Values group_norm(Op& o) {
  const Value in = o.compute("input");
  const Value v = grouped(in, o.integer("group"));
  const Normalized n = normalize(v, {2, 3}, o.scalar("eps", v.dtype()));
  Value y = n.y;
  if (o.has("weight")) y = ir::multiply(y, per_channel(o, "weight", v));
  if (o.has("bias")) y = ir::add(y, per_channel(o, "bias", v));
  auto sized = [&](const Value& s) {
    return in.type().is_dynamic(0) ? ir::set_dimension_size(s, 0, ir::size(in, 0)) : s;
  };
  return {ungrouped(y, in), sized(n.mean), sized(n.rstd)};
}

Values group_norm_backward(Op& o) {
  const DType dtype = ir::opmath(o.in("input").dtype());
  const Value in = ir::convert(o.in("input"), dtype);
  in.dims();
  const Value v = grouped(in, o.integer("group"));
  const Value grad = grouped(ir::convert(o.in("grad_out"), dtype), o.integer("group"));
  const Dims dims = {2, 3}, statistics = {v.dim(0), v.dim(1)};
  const Value mean = ir::reshape(ir::convert(o.in("mean"), dtype), statistics);
  const Value rstd = ir::reshape(ir::convert(o.in("rstd"), dtype), statistics);
  const Value y = ir::multiply(ir::subtract(v, stretch(mean, dims, v)), stretch(rstd, dims, v));
  const Dims mask = o.ints("output_mask");
  Values out(3);
  if (mask[0]) {
    const Value through = o.has("weight") ? ir::multiply(grad, per_channel(o, "weight", v)) : grad;
    out[0] = ungrouped(normalize_backward(through, y, rstd, dims), in);
  }
  const Dims channels = {in.dim(1)};
  if (mask[1]) out[1] = ir::reshape(sum_over(ir::multiply(grad, y), {0, 3}), channels);
  if (mask[2]) out[2] = ir::reshape(sum_over(grad, {0, 3}), channels);
  return out;
}

// All dimensions but `dim`, over which weight norm takes the length.
Dims other_dims(const Value& v, int64_t dim) {
  Dims dims;
  for (int64_t d = 0; d < v.rank(); ++d) {
    if (d != dim) dims.push_back(d);
  }
  return dims;
}

Values weight_norm(Op& o) {
  const Value v = o.compute("v");
  const Dims dims = other_dims(v, o.dim("dim", v.rank()));
  const Value length = ir::sqrt(sum_over(ir::multiply(v, v), dims));
  const Value kept = keep_dims(length, dims);
  const Value scale = ir::divide(ir::convert(o.in("g"), v.dtype()), kept);
  return {ir::multiply(v, ir::broadcast_to(scale, v)), kept};
}

Values weight_norm_backward(Op& o) {
  const Value v = o.compute("saved_v"), grad = o.compute("grad_w");
  const Value g = o.compute("saved_g"), length = o.compute("saved_norms");
  const Dims dims = other_dims(v, o.dim("dim", v.rank()));
  const Value dot = keep_dims(sum_over(ir::multiply(grad, v), dims), dims);
  const Value grad_g = ir::divide(dot, length);
  const Value slope = ir::divide(grad_g, length);
  const Value inner = ir::subtract(grad, ir::multiply(v, ir::broadcast_to(slope, v)));
  return {ir::multiply(inner, ir::broadcast_to(ir::divide(g, length), v)), grad_g};
}

const Row kRows[] = {
    {"_softmax", softmax},
    {"_safe_softmax", safe_softmax},
    {"_log_softmax", log_softmax},
    {"_softmax_backward_data", softmax_backward},
    {"_log_softmax_backward_data", log_softmax_backward},
    {"native_layer_norm", layer_norm},
    {"native_layer_norm_backward", layer_norm_backward},
    {"native_group_norm", group_norm},
    {"native_group_norm_backward", group_norm_backward},
    {"_weight_norm_interface", weight_norm},
    {"_weight_norm_interface_backward", weight_norm_backward},
};

}  // namespace

std::span<const Row> norm_rows() { return kRows; }

}  // namespace tpu::ops
