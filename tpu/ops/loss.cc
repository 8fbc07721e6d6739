// Losses and their gradients.
#include <algorithm>

#include "tpu/ops/indexing.h"
#include "tpu/ops/reduction.h"
#include "tpu/ops/rules.h"
#include "tpu/ops/table.h"

namespace tpu::ops {
namespace {

enum Reduction { kNone = 0, kMean = 1, kSum = 2 };

Value reduced(Op& o, const Value& loss) {
  const int64_t reduction = o.integer("reduction");
  if (reduction == kNone) return loss;
  const Dims all = all_dims(loss);
  if (reduction == kSum) return sum_over(loss, all);
  return loss.rank() == 0 ? loss : mean_over(loss, all);
}

// PyTorch broadcasts the operands of a loss against each other.
std::pair<Value, Value> together(const Value& a, const Value& b) {
  if (a.type().bounds() == b.type().bounds()) return {a, b};
  Dims shape(std::max(a.rank(), b.rank()), 1);
  for (const Value* v : {&a, &b}) {
    const int64_t skip = static_cast<int64_t>(shape.size()) - v->rank();
    for (int64_t d = 0; d < v->rank(); ++d) {
      if (v->dim(d) != 1) shape[skip + d] = v->dim(d);
    }
  }
  return {ir::broadcast_to(a, shape), ir::broadcast_to(b, shape)};
}

Value number(const Value& v, double value) { return ir::constant(v.builder(), value, Type(v.dtype(), {})); }

using Pointwise = Value (*)(Op& o, const Value& x, const Value& target);

// f of self and target, reduced.
Rule loss(Pointwise f) {
  return [f](Op& o) {
    const auto [x, target] = together(o.compute("self"), o.compute("target"));
    return reduced(o, f(o, x, target));
  };
}

// f is the derivative by self; the incoming gradient is one number unless reduction is "none".
Rule loss_backward(Pointwise f) {
  return [f](Op& o) {
    const Value x = o.x("self"), grad = o.x("grad_output");
    const Value slope = ir::multiply(f(o, x, o.x("target")), grad);
    if (o.integer("reduction") != kMean) return slope;
    return ir::divide(slope, ir::count(x, all_dims(x), x.dtype()));
  };
}

Value mse(Op&, const Value& x, const Value& target) {
  const Value off = ir::subtract(x, target);
  return ir::multiply(off, off);
}

Value mse_slope(Op&, const Value& x, const Value& target) {
  return ir::multiply(ir::subtract(x, target), number(x, 2));
}

Value smooth_l1(Op& o, const Value& x, const Value& target) {
  const Value beta = o.scalar("beta", x.dtype());
  const Value off = ir::abs(ir::subtract(x, target)), half = number(x, 0.5);
  const Value near = ir::divide(ir::multiply(ir::multiply(off, off), half), beta);
  const Value far = ir::subtract(off, ir::multiply(half, beta));
  return ir::select(ir::compare(off, beta, "LT"), near, far);
}

Value smooth_l1_slope(Op& o, const Value& x, const Value& target) {
  const Value beta = o.scalar("beta", x.dtype());
  const Value off = ir::subtract(x, target), one = ir::full_like(x, 1);
  const Value high = ir::select(ir::compare(off, beta, "GE"), one, ir::divide(off, beta));
  return ir::select(ir::compare(off, ir::negate(beta), "LE"), ir::negate(one), high);
}

Value huber(Op& o, const Value& x, const Value& target) {
  const Value delta = o.scalar("delta", x.dtype());
  const Value off = ir::abs(ir::subtract(x, target)), half = number(x, 0.5);
  const Value near = ir::multiply(ir::multiply(off, off), half);
  const Value far = ir::multiply(delta, ir::subtract(off, ir::multiply(half, delta)));
  return ir::select(ir::compare(off, delta, "LE"), near, far);
}

Value huber_slope(Op& o, const Value& x, const Value& target) {
  const Value delta = o.scalar("delta", x.dtype()), low = ir::negate(delta);
  const Value off = ir::subtract(x, target);
  const Value high = ir::select(ir::compare(off, delta, "GE"), ir::broadcast_to(delta, off), off);
  return ir::select(ir::compare(off, low, "LE"), ir::broadcast_to(low, off), high);
}

Value weighted(Op& o, const Value& v) {
  return o.has("weight") ? ir::multiply(v, ir::broadcast_to(o.compute("weight"), v)) : v;
}

void check_probabilities(Op& o, const Value& v, const std::string& name) {
  if (v.type().bound_numel() == 0) return;
  const Value inside = ir::and_(ir::compare(v, number(v, 0), "GE"), ir::compare(v, number(v, 1), "LE"));
  const Value zero = ir::constant(o.builder(), 0, Type(DType::kI64, {}));
  o.context().check(any_over(ir::not_(inside), all_dims(v)), zero, "RuntimeError",
                    "all elements of " + name + " should be between 0 and 1");
}

Value binary_cross_entropy(Op& o, const Value& x, const Value& target) {
  check_probabilities(o, x, "input");
  check_probabilities(o, target, "target");
  // Logarithms are held at -100, so that a certain mistake costs a finite amount.
  const Value floor = ir::full_like(x, -100), one = number(x, 1);
  const Value log_no = ir::maximum(ir::log_plus_one(ir::negate(x)), floor);
  const Value log_yes = ir::maximum(ir::log(x), floor);
  return weighted(o, ir::subtract(ir::multiply(ir::subtract(target, one), log_no), ir::multiply(target, log_yes)));
}

Value binary_cross_entropy_slope(Op& o, const Value& x, const Value& target) {
  const Value spread = ir::multiply(ir::subtract(number(x, 1), x), x);
  const Value divisor = ir::maximum(spread, ir::full_like(x, 1e-12));
  return weighted(o, ir::divide(ir::subtract(x, target), divisor));
}

Value binary_cross_entropy_with_logits(Op& o, const Value& x, const Value& target) {
  const Value tail = ir::log_plus_one(ir::exponential(ir::negate(ir::abs(x))));
  Value log_sigmoid = ir::subtract(ir::minimum(x, ir::zeros_like(x)), tail);
  const Value one = number(x, 1);
  if (o.has("pos_weight")) {
    const Value extra = ir::subtract(o.compute("pos_weight"), one);
    const Value factor = ir::add(ir::multiply(ir::broadcast_to(extra, x), target), one);
    log_sigmoid = ir::multiply(log_sigmoid, factor);
  }
  return weighted(o, ir::subtract(ir::multiply(ir::subtract(one, target), x), log_sigmoid));
}

// The operands of nll_loss: classes along dimension 1, and per target its weight (0 where ignored).
struct Nll {
  Value x, target, ignored, weight;

  explicit Nll(Op& o) : x(o.compute("self")), target(ir::convert(o.in("target"), DType::kI64)) {
    if (x.rank() == 1) {
      x = ir::unsqueeze(x, 0);
      target = ir::reshape(target, {1});
    }
    const Value ignore = ir::full_like(target, o.integer("ignore_index"));
    ignored = ir::compare(target, ignore, "EQ");
    target = ir::select(ignored, ir::zeros_like(target), target);
    target = checked_index(o, target, x, 1, Negative::kError, {"Target {} is out of bounds."});
    const Value none = ir::zeros_like(ir::convert(target, x.dtype()));
    weight = o.has("weight") ? take_slices(o.compute("weight"), 0, target) : ir::full_like(none, 1);
    weight = ir::select(ignored, none, weight);
  }
};

Values nll_forward(Op& o) {
  const Nll n(o);
  const Value taken = ir::squeeze(take_elements(n.x, 1, ir::unsqueeze(n.target, 1)), 1);
  // An ignored target costs nothing even where its logit is infinite.
  const Value cost = ir::negate(ir::multiply(taken, n.weight));
  const Value loss = ir::select(n.ignored, ir::zeros_like(cost), cost);
  const Dims all = all_dims(loss);
  const int64_t reduction = o.integer("reduction");
  const Value total = sum_over(loss, all), weight = sum_over(n.weight, all);
  if (reduction == kMean) return {ir::divide(total, weight), weight};
  if (reduction == kSum || o.in("self").rank() == 1) {
    return {ir::broadcast_to(total, o.out().dims()), weight};
  }
  return {loss, ir::zeros_like(weight)};
}

Value nll_backward(Op& o) {
  const Nll n(o);
  Value grad = ir::convert(o.in("grad_output"), n.x.dtype());
  if (o.integer("reduction") == kMean) grad = ir::divide(grad, o.compute("total_weight"));
  const Value slope = ir::negate(ir::multiply(n.weight, ir::broadcast_to(grad, n.weight)));
  const Value spread = ir::broadcast_to(ir::unsqueeze(slope, 1), n.x);
  const Value at = ir::broadcast_to(ir::unsqueeze(n.target, 1), n.x);
  const Value hit = ir::compare(iota_like(n.x, 1, at.dtype()), at, "EQ");
  const Value r = ir::select(hit, spread, ir::zeros_like(n.x));
  return o.out().rank() < r.rank() ? ir::squeeze(r, 0) : r;
}

// Targets end at the first -1. Each pair of a target and a class that is none has the loss max(0, 1 - x[target] + x)
// over the number of classes.
Value multilabel_margin_backward(Op& o) {
  const bool single = o.in("self").rank() < 2;
  auto rows = [&](const Value& v) { return v.rank() < 2 ? ir::reshape(v, {1, v.type().numel()}) : v; };
  if (o.out().numel() == 0) return ir::constant(o.builder(), 0, o.out());
  const Value x = rows(o.compute("self")), target = rows(ir::convert(o.in("target"), DType::kI64));
  const int64_t n = x.dim(0), classes = x.dim(1);
  const Value is_label = ir::convert(rows(ir::convert(o.in("is_target"), x.dtype())), DType::kI1);
  // (row, target, class)
  const Type type(x.dtype(), {n, classes, classes});
  const Value ended = cumulative_sum(ir::convert(ir::compare(target, ir::zeros_like(target), "LT"), DType::kI64), 1);
  const Value valid = ir::compare(ended, ir::zeros_like(ended), "EQ");
  auto by_target = [&](const Value& v) { return ir::broadcast_in_dim(v, type.with(v.dtype()), {0, 1}); };
  auto by_class = [&](const Value& v) { return ir::broadcast_in_dim(v, type.with(v.dtype()), {0, 2}); };
  const Value of_target = by_target(target);
  const Value is_it =
      ir::and_(ir::compare(ir::iota(o.builder(), of_target.type(), 2), of_target, "EQ"), by_target(valid));
  const Value all = by_class(x), none = ir::zeros_like(all);
  const Value at_target = sum_over(ir::select(is_it, all, none), {2});
  const Value margin = ir::add(ir::subtract(ir::full_like(all, 1), by_target(at_target)), all);
  const Value counts =
      ir::and_(ir::compare(margin, none, "GT"), ir::and_(by_target(valid), ir::not_(by_class(is_label))));
  const Value hits = ir::convert(counts, x.dtype());
  const Value pulled = ir::select(is_it, by_target(sum_over(hits, {2})), none);
  Value slope = ir::subtract(sum_over(hits, {1}), sum_over(pulled, {1}));
  const double frames = o.integer("reduction") == kMean ? static_cast<double>(n) : 1.0;
  slope = ir::divide(slope, ir::full_like(slope, frames * static_cast<double>(classes)));
  const Value grad = o.compute("grad_output");
  slope = ir::multiply(slope, grad.rank() == 1 && !single ? ir::broadcast_in_dim(grad, slope.type(), {0})
                                                          : ir::broadcast_to(ir::reshape(grad, {}), slope));
  return ir::reshape(slope, o.out().dims());
}

const Row kRows[] = {
    {"mse_loss", loss(mse)},
    {"mse_loss_backward", loss_backward(mse_slope)},
    {"smooth_l1_loss", loss(smooth_l1)},
    {"smooth_l1_loss_backward", loss_backward(smooth_l1_slope)},
    {"huber_loss", loss(huber)},
    {"huber_loss_backward", loss_backward(huber_slope)},
    {"binary_cross_entropy", loss(binary_cross_entropy)},
    {"binary_cross_entropy_backward", loss_backward(binary_cross_entropy_slope)},
    {"binary_cross_entropy_with_logits", loss(binary_cross_entropy_with_logits)},
    {"nll_loss_forward", nll_forward},
    {"nll_loss_backward", nll_backward},
    {"nll_loss2d_forward", nll_forward},
    {"nll_loss2d_backward", nll_backward},
    {"multilabel_margin_loss_backward",
     multilabel_margin_backward,
     {.types = [](Op& o) { return std::vector<Type>{o.in("self").type()}; }}},
};

}  // namespace

std::span<const Row> loss_rows() { return kRows; }

}  // namespace tpu::ops
