// Batch normalisation: statistics per channel (dimension 1) over all other dimensions.
#include "tpu/ops/reduction.h"
#include "tpu/ops/rules.h"
#include "tpu/ops/table.h"

namespace tpu::ops {
namespace {

Dims all_but_channel(const Value& v) {
  Dims dims;
  for (int64_t d = 0; d < v.rank(); ++d) {
    if (d != 1) dims.push_back(d);
  }
  return dims;
}

Value optional(Op& o, const char* name, DType dtype) { return o.has(name) ? ir::convert(o.in(name), dtype) : Value(); }

struct BatchNorm {
  Value out, mean, invstd, running_mean, running_var;
};

// old + momentum * (value - old), in old's own dtype.
Value moved(Op& o, const char* name, const Value& value) {
  if (!takes(o, name) || !o.has(name)) return {};
  const Value old = ir::convert(o.in(name), value.dtype());
  const Value step = ir::multiply(o.scalar("momentum", value.dtype()), ir::subtract(value, old));
  return ir::convert(ir::add(old, step), o.in(name).dtype());
}

BatchNorm batch_norm(Op& o, bool training) {
  const Value v = o.compute("input");
  const DType dtype = v.dtype();
  const Dims dims = all_but_channel(v);
  const Value eps = o.scalar("eps", dtype);
  BatchNorm r;
  if (training) {
    r.mean = mean_over(v, dims);
    const Value off = ir::subtract(v, along(r.mean, 1, v));
    const Value squares = sum_over(ir::multiply(off, off), dims);
    const Value n = ir::count(v, dims, dtype);
    r.invstd = ir::rsqrt(ir::add(ir::divide(squares, n), eps));
    const Value one = ir::constant(o.builder(), 1, Type(dtype, {}));
    r.running_mean = moved(o, "running_mean", r.mean);
    r.running_var = moved(o, "running_var", ir::divide(squares, ir::subtract(n, one)));
    r.out = ir::multiply(off, along(r.invstd, 1, v));
    if (o.has("weight")) r.out = ir::multiply(r.out, along(o.compute("weight"), 1, v));
    if (o.has("bias")) r.out = ir::add(r.out, along(o.compute("bias"), 1, v));
    return r;
  }
  r.mean = ir::convert(o.in("running_mean"), dtype);
  r.invstd = ir::rsqrt(ir::add(ir::convert(o.in("running_var"), dtype), eps));
  r.running_mean = o.in("running_mean");
  r.running_var = o.in("running_var");
  Value scale = r.invstd;
  if (o.has("weight")) scale = ir::multiply(scale, o.compute("weight"));
  Value shift = ir::negate(ir::multiply(r.mean, scale));
  if (o.has("bias")) shift = ir::add(shift, o.compute("bias"));
  r.out = ir::add(ir::multiply(v, along(scale, 1, v)), along(shift, 1, v));
  return r;
}

// In evaluation PyTorch's CPU saves nothing: the results are empty.
Value saved(Op& o, size_t i, const Value& v) {
  return o.out(i).bounds() == Dims{0} ? ir::constant(o.builder(), 0, Type(v.dtype(), {0})) : v;
}

Values legit_functional(Op& o) {
  const BatchNorm r = batch_norm(o, o.flag("training"));
  return {r.out, saved(o, 1, r.mean), saved(o, 2, r.invstd), r.running_mean, r.running_var};
}

Values native_batch_norm(Op& o) {
  Values r = legit_functional(o);
  // What is not given is not written.
  if (!o.flag("training")) r[3] = r[4] = {};
  return r;
}

Values no_stats(Op& o) {
  const BatchNorm r = batch_norm(o, true);
  return {r.out, r.mean, r.invstd};
}

Values no_training(Op& o) {
  const BatchNorm r = batch_norm(o, false);
  return {r.out, saved(o, 1, r.mean), saved(o, 2, r.invstd)};
}

Values batch_norm_backward(Op& o) {
  const DType dtype = ir::opmath(o.in("input").dtype());
  const Value v = ir::convert(o.in("input"), dtype), grad = ir::convert(o.in("grad_out"), dtype);
  const Dims dims = all_but_channel(v);
  const bool train = o.flag("train");
  Value mean = optional(o, train ? "save_mean" : "running_mean", dtype);
  Value invstd = optional(o, train ? "save_invstd" : "running_var", dtype);
  if (!train) invstd = ir::rsqrt(ir::add(invstd, o.scalar("eps", dtype)));
  const Value off = ir::subtract(v, along(mean, 1, v));
  const Value total = sum_over(grad, dims);
  const Value dot = sum_over(ir::multiply(grad, off), dims);
  const Dims mask = o.ints("output_mask");
  Values out(3);
  if (mask[0]) {
    Value scale = invstd, inner = grad;
    if (o.has("weight")) scale = ir::multiply(scale, ir::convert(o.in("weight"), dtype));
    if (train) {
      const Value n = ir::count(v, dims, dtype);
      const Value slope = ir::divide(ir::multiply(dot, ir::multiply(invstd, invstd)), n);
      inner = ir::subtract(inner, along(ir::divide(total, n), 1, v));
      inner = ir::subtract(inner, ir::multiply(off, along(slope, 1, v)));
    }
    out[0] = ir::multiply(inner, along(scale, 1, v));
  }
  if (mask[1]) out[1] = ir::multiply(dot, invstd);
  if (mask[2]) out[2] = total;
  return out;
}

// ---- statistics over several processes (SyncBatchNorm) ----

Type per_channel_type(Op& o) {
  const Value v = o.in("input");
  return Type(ir::opmath(v.dtype()), {v.dim(1)});
}

std::vector<Type> two_statistics(Op& o) { return {per_channel_type(o), per_channel_type(o)}; }

Values local_statistics(Op& o) {
  const Value v = ir::convert(o.in("input"), ir::opmath(o.in("input").dtype()));
  const Dims dims = all_but_channel(v);
  const Value mean = mean_over(v, dims);
  const Value off = ir::subtract(v, along(mean, 1, v));
  const Value variance = mean_over(ir::multiply(off, off), dims);
  return {mean, ir::rsqrt(ir::add(variance, o.scalar("eps", v.dtype())))};
}

// One row of mean, invstd and counts per process.
Values gathered_statistics(Op& o) {
  const DType dtype = ir::opmath(o.in("input").dtype());
  const Value means = ir::convert(o.in("mean"), dtype), invstd = ir::convert(o.in("invstd"), dtype);
  const Value eps = o.scalar("eps", dtype), one = ir::constant(o.builder(), 1, Type(dtype, {}));
  const Value counts = ir::convert(o.in("counts"), dtype), n = sum_over(counts, all_dims(counts));
  const Value weight = along(counts, 0, means);
  const Value mean = ir::divide(sum_over(ir::multiply(means, weight), {0}), n);
  const Value off = ir::subtract(means, ir::broadcast_to(mean, means));
  const Value own = ir::subtract(ir::divide(one, ir::multiply(invstd, invstd)), eps);
  const Value squares = sum_over(ir::multiply(ir::add(own, ir::multiply(off, off)), weight), {0});
  return {mean, ir::rsqrt(ir::add(ir::divide(squares, n), eps)), moved(o, "running_mean", mean),
          moved(o, "running_var", ir::divide(squares, ir::subtract(n, one)))};
}

Value apply_statistics(Op& o) {
  const Value v = o.compute("input");
  Value scale = ir::convert(o.in("invstd"), v.dtype());
  if (o.has("weight")) scale = ir::multiply(scale, o.compute("weight"));
  const Value off = ir::subtract(v, along(ir::convert(o.in("mean"), v.dtype()), 1, v));
  const Value y = ir::multiply(off, along(scale, 1, v));
  return o.has("bias") ? ir::add(y, along(o.compute("bias"), 1, v)) : y;
}

std::vector<Type> backward_sums_types(Op& o) { return std::vector<Type>(4, per_channel_type(o)); }

Values backward_sums(Op& o) {
  const DType dtype = ir::opmath(o.in("input").dtype());
  const Value v = ir::convert(o.in("input"), dtype), grad = ir::convert(o.in("grad_out"), dtype);
  const Dims dims = all_but_channel(v);
  const Value off = ir::subtract(v, along(ir::convert(o.in("mean"), dtype), 1, v));
  const Value total = sum_over(grad, dims), dot = sum_over(ir::multiply(grad, off), dims);
  return {total, dot, ir::multiply(dot, ir::convert(o.in("invstd"), dtype)), total};
}

Value apply_backward(Op& o) {
  const Value v = o.compute("input"), grad = o.compute("grad_out");
  const DType dtype = v.dtype();
  const Value counts = ir::convert(o.in("count"), dtype), n = sum_over(counts, all_dims(counts));
  const Value invstd = ir::convert(o.in("invstd"), dtype);
  const Value dot = ir::convert(o.in("sum_dy_xmu"), dtype);
  const Value mean_grad = ir::divide(ir::convert(o.in("sum_dy"), dtype), n);
  const Value slope = ir::divide(ir::multiply(dot, ir::multiply(invstd, invstd)), n);
  const Value off = ir::subtract(v, along(ir::convert(o.in("mean"), dtype), 1, v));
  Value inner = ir::subtract(grad, along(mean_grad, 1, v));
  inner = ir::subtract(inner, ir::multiply(off, along(slope, 1, v)));
  const Value scale = o.has("weight") ? ir::multiply(invstd, o.compute("weight")) : invstd;
  return ir::multiply(inner, along(scale, 1, v));
}

std::vector<Type> like_input(Op& o) { return {o.in("input").type()}; }

const Row kRows[] = {
    {"native_batch_norm", native_batch_norm, {.writes = {"running_mean", "running_var"}}},
    {"_native_batch_norm_legit_functional", legit_functional},
    {"_native_batch_norm_legit.no_stats", no_stats},
    {"_native_batch_norm_legit_no_training", no_training},
    {"native_batch_norm_backward", batch_norm_backward},
    {"batch_norm_stats", local_statistics, {.types = two_statistics}},
    {"batch_norm_gather_stats_with_counts",
     gathered_statistics,
     {.writes = {"running_mean", "running_var"}, .types = two_statistics}},
    {"batch_norm_elemt", apply_statistics, {.types = like_input}},
    {"batch_norm_backward_reduce", backward_sums, {.types = backward_sums_types}},
    {"batch_norm_backward_elemt", apply_backward, {.types = like_input}},
};

}  // namespace

std::span<const Row> batch_norm_rows() { return kRows; }

}  // namespace tpu::ops
