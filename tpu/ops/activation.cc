// Activations and the gradients that PyTorch has own ops for. Formulas follow
// aten/src/ATen/native/cpu.
#include <limits>

#include "tpu/ops/rules.h"
#include "tpu/ops/table.h"

namespace tpu::ops {
namespace {

Value zero(const Value& like) { return ir::zeros_like(like); }
Value one(const Value& like) { return ir::full_like(like, 1); }
Value number(const Value& like, double v) { return ir::full_like(like, v); }
Value less(const Value& a, const Value& b) { return ir::compare(a, b, "LT"); }
Value less_equal(const Value& a, const Value& b) { return ir::compare(a, b, "LE"); }
Value half(const Value& v) { return ir::multiply(v, number(v, 0.5)); }

// ---- piecewise linear ----

// `value` where x <= threshold; NaN stays.
Value threshold(Op& o) {
  const Value x = o.x("self");
  return ir::select(less_equal(x, o.x("threshold")), o.x("value"), x);
}

Value threshold_backward(Op& o) {
  const Value grad = o.x("grad_output");
  return ir::select(less_equal(o.x("self"), o.x("threshold")), zero(grad), grad);
}

Value leaky_relu(Op& o) {
  const Value x = o.x("self");
  return ir::select(less(zero(x), x), x, ir::multiply(x, o.x("negative_slope")));
}

Value leaky_relu_backward(Op& o) {
  const Value grad = o.x("grad_output"), x = o.x("self");
  return ir::select(less(zero(x), x), grad, ir::multiply(grad, o.x("negative_slope")));
}

Value prelu(Op& o) {
  const Value x = o.x("self");
  return ir::select(less(zero(x), x), x, ir::multiply(x, o.x("weight")));
}

Values prelu_backward(Op& o) {
  const Value grad = o.x("grad_output"), x = o.x("self");
  const Value positive = less(zero(x), x);
  return {ir::select(positive, grad, ir::multiply(grad, o.x("weight"))),
          ir::select(positive, zero(grad), ir::multiply(grad, x))};
}

Value hardtanh(Op& o) { return ir::minimum(ir::maximum(o.x("self"), o.x("min_val")), o.x("max_val")); }

Value hardtanh_backward(Op& o) {
  const Value grad = o.x("grad_output"), x = o.x("self");
  const Value outside = ir::or_(less_equal(x, o.x("min_val")), less_equal(o.x("max_val"), x));
  return ir::select(outside, zero(grad), grad);
}

// relu6(x + 3) / 6
Value hard_gate(const Value& x) {
  const Value up = ir::maximum(ir::add(x, number(x, 3)), zero(x));
  return ir::divide(ir::minimum(up, number(x, 6)), number(x, 6));
}

Value hardswish(const Value& x) {
  const Value up = ir::minimum(ir::maximum(ir::add(x, number(x, 3)), zero(x)), number(x, 6));
  return ir::divide(ir::multiply(x, up), number(x, 6));
}

Value hardswish_backward(Op& o) {
  const Value grad = o.x("grad_output"), x = o.x("self");
  const Value slope = ir::add(ir::divide(x, number(x, 3)), number(x, 0.5));
  const Value inner = ir::select(less(x, number(x, 3)), ir::multiply(grad, slope), grad);
  return ir::select(less_equal(x, number(x, -3)), zero(grad), inner);
}

Value hardsigmoid_backward(Op& o) {
  const Value grad = o.x("grad_output"), x = o.x("self");
  const Value inside = ir::and_(less(number(x, -3), x), less(x, number(x, 3)));
  return ir::select(inside, ir::divide(grad, number(x, 6)), zero(grad));
}

Value within(const Value& x, const Value& bound) {
  return ir::and_(less_equal(ir::negate(bound), x), less_equal(x, bound));
}

Value hardshrink(Op& o) {
  const Value x = o.x("self");
  return ir::select(within(x, o.x("lambd")), zero(x), x);
}

Value softshrink(Op& o) {
  const Value x = o.x("self"), bound = o.x("lambd");
  const Value below = ir::select(less(x, ir::negate(bound)), ir::add(x, bound), ir::multiply(x, zero(x)));
  return ir::select(less(bound, x), ir::subtract(x, bound), below);
}

Value shrink_backward(Op& o) {
  const Value grad = o.x(0);
  return ir::select(within(o.x("self"), o.x("lambd")), zero(grad), grad);
}

// ---- smooth ----

Value silu(const Value& x) { return ir::multiply(x, ir::logistic(x)); }

Value silu_backward(Op& o) {
  const Value x = o.x("self"), s = ir::logistic(x);
  const Value slope = ir::add(one(x), ir::multiply(x, ir::subtract(one(x), s)));
  return ir::multiply(o.x("grad_output"), ir::multiply(s, slope));
}

// d/dx in terms of the result y.
Value sigmoid_backward(Op& o) {
  const Value y = o.x("output");
  return ir::multiply(o.x("grad_output"), ir::conj(ir::multiply(ir::subtract(one(y), y), y)));
}

Value tanh_backward(Op& o) {
  const Value y = o.x("output");
  return ir::multiply(o.x("grad_output"), ir::conj(ir::subtract(one(y), ir::multiply(y, y))));
}

constexpr double kSqrtHalf = 0.70710678118654752440;
constexpr double kSqrtTwoOverPi = 0.79788456080286535588;
constexpr double kGeluCubic = 0.044715;

// tanh of the cubic that approximates the normal distribution function.
Value gelu_tanh(const Value& x) {
  const Value cubic = ir::multiply(number(x, kGeluCubic), ir::multiply(ir::multiply(x, x), x));
  return ir::tanh(ir::multiply(number(x, kSqrtTwoOverPi), ir::add(x, cubic)));
}

Value normal_cdf(const Value& x) {
  return half(ir::add(one(x), ir::chlo("erf", ir::multiply(x, number(x, kSqrtHalf)))));
}

Value gelu(Op& o) {
  const Value x = o.x("self");
  if (o.text("approximate") == "tanh") return ir::multiply(half(x), ir::add(one(x), gelu_tanh(x)));
  return ir::multiply(x, normal_cdf(x));
}

Value gelu_backward(Op& o) {
  const Value grad = o.x("grad_output"), x = o.x("self");
  if (o.text("approximate") == "tanh") {
    const Value t = gelu_tanh(x);
    const Value left = half(ir::add(one(x), t));
    const Value cubic_slope = ir::multiply(number(x, 3 * kGeluCubic), ir::multiply(x, x));
    const Value inner_slope = ir::multiply(number(x, kSqrtTwoOverPi), ir::add(one(x), cubic_slope));
    const Value tanh_slope = ir::subtract(one(x), ir::multiply(t, t));
    const Value right = ir::multiply(half(x), ir::multiply(tanh_slope, inner_slope));
    return ir::multiply(grad, ir::add(left, right));
  }
  const Value gauss = ir::exponential(ir::multiply(ir::multiply(x, x), number(x, -0.5)));
  const Value pdf = ir::multiply(gauss, number(x, 0.5 * kSqrtHalf * 1.12837916709551257390));
  return ir::multiply(grad, ir::add(normal_cdf(x), ir::multiply(x, pdf)));
}

// tanh(log(1 + e^x)) in one exponential.
Value mish(const Value& x) { return ir::multiply(x, ir::tanh(ir::log_plus_one(ir::exponential(x)))); }

Value softplus(Op& o) {
  const Value x = o.x("self"), beta = o.x("beta");
  const Value scaled_x = ir::multiply(x, beta);
  const Value soft = ir::divide(ir::log_plus_one(ir::exponential(scaled_x)), beta);
  return ir::select(less(o.x("threshold"), scaled_x), x, soft);
}

Value softplus_backward(Op& o) {
  const Value grad = o.x("grad_output");
  const Value scaled_x = ir::multiply(o.x("self"), o.x("beta"));
  const Value z = ir::exponential(scaled_x);
  const Value soft = ir::divide(ir::multiply(grad, z), ir::add(z, one(z)));
  return ir::select(less(o.x("threshold"), scaled_x), grad, soft);
}

Value elu(Op& o) {
  const Value x = o.x("self"), scale = o.x("scale");
  const Value below = ir::exponential_minus_one(ir::multiply(x, o.x("input_scale")));
  return ir::select(less_equal(x, zero(x)), ir::multiply(below, ir::multiply(o.x("alpha"), scale)),
                    ir::multiply(x, scale));
}

Value elu_backward(Op& o) {
  const Value grad = o.x("grad_output"), x = o.x("self_or_result");
  const Value scale = o.x("scale"), input_scale = o.x("input_scale");
  const Value negative = ir::multiply(o.x("alpha"), scale);
  const Value factor = o.flag("is_result") ? ir::add(x, negative)
                                           : ir::multiply(negative, ir::exponential(ir::multiply(x, input_scale)));
  return ir::select(less_equal(x, zero(x)), ir::multiply(ir::multiply(grad, input_scale), factor),
                    ir::multiply(grad, scale));
}

// The second result is what CPU keeps for the gradient; other devices leave it empty.
Values log_sigmoid_forward(Op& o) {
  const Value x = o.x("self");
  const Value z = ir::exponential(ir::negate(ir::abs(x)));
  const Value y = ir::subtract(ir::minimum(x, zero(x)), ir::log_plus_one(z));
  if (o.out(1).bounds() == o.out(0).bounds()) return {y, z};
  return {y, ir::constant(o.builder(), 0, o.out(1))};
}

Value log_sigmoid_backward(Op& o) {
  const Value x = o.x("self");
  const Value z = ir::exponential(ir::negate(ir::abs(x)));
  const Value share = ir::divide(z, ir::add(one(z), z));
  const Value slope = ir::select(less(x, zero(x)), ir::subtract(one(x), share), share);
  return ir::multiply(o.x("grad_output"), slope);
}

Value logit(Op& o) {
  Value x = o.x("self");
  if (o.has("eps")) {
    const Value eps = o.x("eps");
    x = ir::minimum(ir::maximum(x, eps), ir::subtract(one(x), eps));
  }
  return ir::log(ir::divide(x, ir::subtract(one(x), x)));
}

Value logit_backward(Op& o) {
  const Value grad = o.x("grad_output"), x = o.x("self");
  const Value slope = ir::divide(grad, ir::multiply(x, ir::subtract(one(x), x)));
  const bool has_eps = o.has("eps");
  const Value low = has_eps ? o.x("eps") : zero(x);
  const Value outside = ir::or_(less(x, low), less(ir::subtract(one(x), low), x));
  const Value beyond = has_eps ? zero(x) : number(x, std::numeric_limits<double>::quiet_NaN());
  return ir::select(outside, beyond, slope);
}

// ---- gated ----

std::pair<Value, Value> halves(const Value& x, int64_t d) {
  const int64_t n = x.dim(d) / 2;
  return {ir::slice_in_dim(x, d, 0, n), ir::slice_in_dim(x, d, n, 2 * n)};
}

Value glu(Op& o) {
  const Value x = o.compute("self");
  const auto [a, b] = halves(x, o.dim("dim", x.rank()));
  return ir::multiply(a, ir::logistic(b));
}

Value glu_backward(Op& o) {
  const Value x = o.compute("self"), grad = o.compute("grad_output");
  const int64_t d = o.dim("dim", x.rank());
  const auto [a, b] = halves(x, d);
  const Value s = ir::logistic(b);
  const Value gate = ir::multiply(ir::multiply(ir::subtract(one(s), s), s), ir::multiply(grad, a));
  return ir::concatenate({ir::multiply(grad, s), gate}, d);
}

// The tangent of a * logistic(b), of which `glu` is the value.
Value glu_jvp(Op& o) {
  const Value x = o.compute("x"), dx = o.compute("dx"), y = o.compute("glu");
  const int64_t d = o.dim("dim", x.rank());
  const Value s = ir::logistic(halves(x, d).second);
  const auto [da, db] = halves(dx, d);
  return ir::add(ir::multiply(da, s), ir::multiply(y, ir::multiply(ir::subtract(one(s), s), db)));
}

const Row kRows[] = {
    {"relu", [](Op& o) { return ir::maximum(o.x(0), zero(o.x(0))); }},
    {"threshold", threshold},
    {"threshold_backward", threshold_backward},
    {"leaky_relu", leaky_relu},
    {"leaky_relu_backward", leaky_relu_backward},
    {"_prelu_kernel", prelu},
    {"_prelu_kernel_backward", prelu_backward},
    {"hardtanh", hardtanh},
    {"hardtanh_backward", hardtanh_backward},
    {"hardswish", unary(hardswish)},
    {"hardswish_backward", hardswish_backward},
    {"hardsigmoid", unary(hard_gate)},
    {"hardsigmoid_backward", hardsigmoid_backward},
    {"hardshrink", hardshrink},
    {"hardshrink_backward", shrink_backward},
    {"softshrink", softshrink},
    {"softshrink_backward", shrink_backward},
    {"sigmoid", unary(ir::logistic)},
    {"sigmoid_backward", sigmoid_backward},
    {"tanh_backward", tanh_backward},
    {"silu", unary(silu)},
    {"silu_backward", silu_backward},
    {"gelu", gelu},
    {"gelu_backward", gelu_backward},
    {"mish", unary(mish)},
    {"softplus", softplus},
    {"softplus_backward", softplus_backward},
    {"elu", elu},
    {"elu_backward", elu_backward},
    {"log_sigmoid_forward", log_sigmoid_forward},
    {"log_sigmoid_backward", log_sigmoid_backward},
    {"logit", logit},
    {"logit_backward", logit_backward},
    {"glu", glu},
    {"glu_backward", glu_backward},
    {"glu_jvp", glu_jvp, {.types = [](Op& o) { return std::vector<Type>{o.in("glu").type()}; }}},
};

}  // namespace

std::span<const Row> activation_rows() { return kRows; }

}  // namespace tpu::ops
