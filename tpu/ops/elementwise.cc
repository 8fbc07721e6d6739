// Pointwise arithmetic of one, two and three operands: sums, quotients, powers, bits, bounds,
// choices.
#include "tpu/ops/rules.h"
#include "tpu/ops/table.h"

namespace tpu::ops {
namespace {

Value zero(const Value& like) { return ir::zeros_like(like); }
Value less(const Value& a, const Value& b) { return ir::compare(a, b, "LT"); }
Value is_zero(const Value& v) { return ir::compare(v, zero(v), "EQ"); }
Value is_nonzero(const Value& v) { return ir::compare(v, zero(v), "NE"); }

// ---- division ----

// Where a nonzero remainder and the divisor differ in sign, floor is one below trunc.
Value crosses_floor(const Value& remainder, const Value& divisor) {
  return ir::and_(is_nonzero(remainder),
                  ir::compare(less(remainder, zero(remainder)), less(divisor, zero(divisor)), "NE"));
}

Value modulo(const Value& a, const Value& b) {
  const Value r = ir::remainder(a, b);
  if (ir::is_unsigned(a.dtype())) return r;
  return ir::select(crosses_floor(r, b), ir::add(r, b), r);
}

// c10::div_floor_integer and div_floor_floating.
Value divide_floor(const Value& a, const Value& b) {
  if (ir::is_unsigned(a.dtype())) return ir::divide(a, b);
  const Value mod = ir::remainder(a, b);
  const Value one = ir::full_like(a, 1);
  if (ir::is_integral(a.dtype())) {
    const Value q = ir::divide(a, b);
    return ir::select(crosses_floor(mod, b), ir::subtract(q, one), q);
  }
  const Value quotient = ir::divide(a, b);
  Value q = ir::divide(ir::subtract(a, mod), b);
  q = ir::select(crosses_floor(mod, b), ir::subtract(q, one), q);
  const Value down = ir::floor(q);
  const Value half = ir::full_like(a, 0.5);
  const Value rounded = ir::select(less(half, ir::subtract(q, down)), ir::add(down, one), down);
  const Value result = ir::select(is_zero(q), copysign(zero(a), quotient), rounded);
  return ir::select(is_zero(b), quotient, result);
}

// CPU raises for an integer divided by zero. The check is on the divisor as it came.
Rule division(BinaryFunction f) {
  return [f](Op& o) {
    const Value a = o.x(0), b = o.x(1);
    check_divisor(o, b);
    return f(a, b);
  };
}

Value div_mode(Op& o) {
  const std::string mode = o.has("rounding_mode") ? o.text("rounding_mode") : "";
  const Value a = o.x(0), b = o.x(1);
  if (mode.empty()) return ir::divide(a, b);
  check_divisor(o, b);
  if (mode == "floor") return divide_floor(a, b);
  // CPU rounds the quotient of 16-bit floats before it cuts.
  return trunc(ir::reduce_precision(ir::divide(a, b), o.out().dtype()));
}

// ---- powers ----

Value any(const Value& v) {
  Dims all;
  for (int64_t d = 0; d < v.rank(); ++d) all.push_back(d);
  return ir::reduce(v, ir::constant_bool(v.builder(), false, Type(DType::kI1, {})), all, "or");
}

// By squaring: stablehlo.power looks at six bits of the exponent only. Integers to negative powers
// are 0, but for the bases 1 and -1.
Value integer_power(const Value& a, const Value& b) {
  const Value one = ir::full_like(a, 1);
  auto odd = [&](const Value& v) { return is_nonzero(ir::and_(v, one)); };
  const Value negative = less(b, zero(b));
  const Values found = ir::while_loop(
      {ir::select(negative, zero(b), b), a, one}, [](const Values& v) { return Values{any(is_nonzero(v[0]))}; },
      [&](const Values& v) {
        return Values{ir::shift_right_logical(v[0], one), ir::multiply(v[1], v[1]),
                      ir::select(odd(v[0]), ir::multiply(v[2], v[1]), v[2])};
      });
  if (ir::is_unsigned(a.dtype())) return found[2];
  const Value minus_one = ir::negate(one);
  const Value of_minus_one = ir::select(odd(b), minus_one, one);
  const Value inverse =
      ir::select(ir::compare(a, one, "EQ"), one, ir::select(ir::compare(a, minus_one, "EQ"), of_minus_one, zero(a)));
  return ir::select(negative, inverse, found[2]);
}

Value raise(const Value& a, const Value& b) {
  if (ir::is_integer(a.dtype())) return integer_power(a, b);
  const Value p = ir::power(a, b);
  if (!ir::is_complex(a.dtype())) return p;
  // XLA takes the logarithm of a complex zero.
  const Value vanishes = ir::and_(is_zero(a), less(zero(ir::real(b)), ir::real(b)));
  return ir::select(vanishes, zero(a), p);
}

// The exponents that CPU has formulas for.
Value pow_scalar(Op& o) {
  const Value x = o.x(0);
  const std::complex<double> e = o.complex_number("exponent");
  const bool exact = e.imag() == 0;
  if (ir::is_integral(o.out().dtype()) && e.real() < 0)
    throw UserError("Integers to negative integer powers are not allowed.");
  // CPU takes roots of f16 by pow, which has no NaN for -inf.
  const bool floats = !ir::is_integral(x.dtype()) && o.out().dtype() != DType::kF16;
  if (exact && e.real() == 0) return ir::full_like(x, 1);
  if (exact && e.real() == 1) return x;
  if (exact && e.real() == 2) return ir::multiply(x, x);
  if (exact && e.real() == 3) return ir::multiply(ir::multiply(x, x), x);
  if (exact && floats) {
    const Value one = ir::full_like(x, 1);
    if (e.real() == 0.5) return ir::sqrt(x);
    if (e.real() == -0.5) return ir::rsqrt(x);
    if (e.real() == -1) return ir::divide(one, x);
    if (e.real() == -2) return ir::divide(one, ir::multiply(x, x));
  }
  return raise(x, o.x("exponent"));
}

// ---- two operands ----

Value hypot(const Value& a, const Value& b) {
  const Value x = ir::abs(a), y = ir::abs(b);
  const Value high = ir::maximum(x, y), low = ir::minimum(x, y);
  const Value ratio = ir::divide(low, high);
  const Value length = ir::multiply(high, ir::sqrt(ir::add(ir::full_like(a, 1), ir::multiply(ratio, ratio))));
  const Value finite = ir::select(is_zero(high), high, length);
  return ir::select(ir::or_(is_inf(x), is_inf(y)), ir::highest(a.builder(), Type(a.dtype(), {})), finite);
}

// log(e^a + e^b) to the base of `unit` = log(base).
Value log_add(const Value& a, const Value& b, double unit) {
  if (ir::is_complex(a.dtype())) {
    // The larger real part first, so that the other factor is at most 1.
    const Value swap = less(ir::real(a), ir::real(b));
    const Value high = ir::select(swap, b, a), low = ir::select(swap, a, b);
    const Value sum = ir::add(high, ir::log_plus_one(ir::exponential(ir::subtract(low, high))));
    const Value same_inf = ir::and_(is_inf(ir::real(a)), ir::compare(ir::real(a), ir::real(b), "EQ"));
    return ir::select(same_inf, a, sum);
  }
  const Value high = ir::maximum(a, b);
  const Value gap = ir::negate(ir::abs(ir::subtract(a, b)));
  const Value scale = ir::full_like(a, unit);
  const Value small = ir::log_plus_one(ir::exponential(ir::multiply(gap, scale)));
  const Value sum = ir::add(high, ir::divide(small, scale));
  return ir::select(ir::and_(is_inf(a), ir::compare(a, b, "EQ")), a, sum);
}

// y is 0 where x is, whatever the logarithm, but for NaN.
Value x_log(Op& o, UnaryFunction log) {
  const Value x = o.x(0), y = o.x(1);
  const Value product = ir::select(is_zero(x), zero(x), ir::multiply(x, log(y)));
  return ir::select(ir::is_nan(y), y, product);
}

Value heaviside(Op& o) {
  const Value x = o.x(0);
  return ir::select(is_zero(x), o.x(1), ir::convert(less(zero(x), x), x.dtype()));
}

Value gcd(const Value& a, const Value& b) {
  const Values found = ir::while_loop(
      {ir::abs(a), ir::abs(b)}, [](const Values& v) { return Values{any(is_nonzero(v[0]))}; },
      [](const Values& v) {
        const Value done = is_zero(v[0]);
        const Value divisor = ir::select(done, ir::full_like(v[0], 1), v[0]);
        return Values{ir::select(done, v[0], ir::remainder(v[1], divisor)), ir::select(done, v[1], v[0])};
      });
  return found[1];
}

Value lcm(const Value& a, const Value& b) {
  const Value g = gcd(a, b);
  const Value divisor = ir::select(is_zero(g), ir::full_like(g, 1), g);
  // C++ computes small integers as int.
  const DType wide = ir::size_bytes(a.dtype()) < 4 ? DType::kI32 : a.dtype();
  const Value multiple = ir::multiply(ir::convert(ir::divide(a, divisor), wide), ir::convert(b, wide));
  return ir::select(is_zero(g), g, ir::convert(ir::abs(multiple), a.dtype()));
}

// Right shifts keep the sign; PyTorch's rule for too large and negative counts is XLA's.
Value shift_right(const Value& a, const Value& b) {
  return ir::is_unsigned(a.dtype()) ? ir::shift_right_logical(a, b) : ir::shift_right_arithmetic(a, b);
}

// ---- three operands ----

// The form that is exact at both ends (ATen/native/Lerp.h).
Value lerp(Op& o) {
  const Value start = o.x("self"), end = o.x("end"), weight = o.x("weight");
  const Value span = ir::subtract(end, start);
  const Value near_end = ir::subtract(end, ir::multiply(span, ir::subtract(ir::full_like(weight, 1), weight)));
  const Value size = ir::abs(weight);
  return ir::select(less(size, ir::full_like(size, 0.5)), ir::add(start, ir::multiply(weight, span)), near_end);
}

Value addcmul(Op& o) { return ir::add(o.x(0), ir::multiply(ir::multiply(o.x("value"), o.x(1)), o.x(2))); }

Value addcdiv(Op& o) { return ir::add(o.x(0), ir::divide(ir::multiply(o.x("value"), o.x(1)), o.x(2))); }

// A NaN in the operand or a bound stays; the upper bound wins.
Value clamp(Op& o) {
  Value v = o.x("self");
  if (o.has("min")) v = ir::maximum(v, o.x("min"));
  if (o.has("max")) v = ir::minimum(v, o.x("max"));
  return v;
}
Value clamp_min(Op& o) { return ir::maximum(o.x(0), o.x(1)); }
Value clamp_max(Op& o) { return ir::minimum(o.x(0), o.x(1)); }

// Choices move bits: they need no wider dtype.
Value where(Op& o) {
  const DType dtype = o.out().dtype();
  return ir::select(o.x_as("condition", DType::kI1), o.x_as("self", dtype), o.x_as("other", dtype));
}

Value masked_fill(Op& o) {
  const DType dtype = o.out().dtype();
  return ir::select(o.x_as("mask", DType::kI1), o.x_as("value", dtype), o.x_as("self", dtype));
}

// alpha * v. ATen's CPU kernels of 16-bit floats round the product to the dtype in the last elements, those that do
// not fill two of its vectors, and nowhere else (aten/src/ATen/native/cpu/Loops.h: the scalar tail); so do we.
Value scaled_as_cpu(Op& o, const Value& v) {
  const Value product = scaled(o, v, "alpha");
  const DType dtype = o.out().dtype();
  if (o.is_one("alpha") || !v.type().is_static() || ir::opmath(dtype) == dtype) return product;
  constexpr int64_t kElementsOfTwoVectors = 32;
  const int64_t n = v.type().numel();
  const Type flat(DType::kI64, {n});
  const Value tail =
      ir::compare(ir::iota(o.builder(), flat, 0), ir::constant(o.builder(), n - n % kElementsOfTwoVectors, flat), "GE");
  return ir::select(ir::reshape(tail, v.dims()), ir::convert(ir::convert(product, dtype), v.dtype()), product);
}

const Row kRows[] = {
    {"add.Tensor", [](Op& o) { return ir::add(o.x(0), scaled_as_cpu(o, o.x(1))); }},
    {"sub.Tensor", [](Op& o) { return ir::subtract(o.x(0), scaled_as_cpu(o, o.x(1))); }},
    {"rsub.Tensor", [](Op& o) { return ir::subtract(o.x(1), scaled(o, o.x(0), "alpha")); }},
    {"mul.Tensor", binary(ir::multiply)},
    {"div.Tensor", binary(ir::divide)},
    {"div.Tensor_mode", div_mode},
    {"floor_divide", division(divide_floor)},
    {"remainder.Tensor", division(modulo)},
    {"remainder.Scalar_Tensor", division(modulo)},
    {"fmod.Tensor", division(ir::remainder)},
    {"pow.Tensor_Tensor", binary(raise)},
    {"pow.Tensor_Scalar", pow_scalar, {.static_args = {"exponent"}}},
    {"pow.Scalar", binary(raise)},
    {"atan2", binary(ir::atan2)},
    {"hypot", binary(hypot)},
    {"copysign.Tensor", binary(copysign)},
    {"nextafter",
     [](Op& o) {
       const DType dtype = o.out().dtype();
       return ir::elementwise("chlo.next_after", {o.x_as(0, dtype), o.x_as(1, dtype)});
     }},
    {"heaviside", heaviside},
    {"gcd", binary(gcd)},
    {"lcm", binary(lcm)},
    {"logaddexp", [](Op& o) { return log_add(o.x(0), o.x(1), 1.0); }},
    {"logaddexp2", [](Op& o) { return log_add(o.x(0), o.x(1), 0.69314718055994530942); }},
    {"xlogy.Tensor", [](Op& o) { return x_log(o, ir::log); }},
    {"special_xlog1py", [](Op& o) { return x_log(o, ir::log_plus_one); }},

    {"bitwise_and.Tensor", binary(ir::and_)},
    {"bitwise_or.Tensor", binary(ir::or_)},
    {"bitwise_xor.Tensor", binary(ir::xor_)},
    {"bitwise_left_shift.Tensor", binary(ir::shift_left)},
    {"bitwise_right_shift.Tensor", binary(shift_right)},
    {"__lshift__.Tensor", binary(ir::shift_left)},
    {"__lshift__.Scalar", binary(ir::shift_left)},
    {"__rshift__.Tensor", binary(shift_right)},
    {"__rshift__.Scalar", binary(shift_right)},

    {"addcmul", addcmul},
    {"addcdiv", addcdiv},
    {"lerp.Scalar", lerp},
    {"lerp.Tensor", lerp},
    {"clamp", clamp},
    {"clamp.Tensor", clamp},
    {"clamp_min", clamp_min},
    {"clamp_min.Tensor", clamp_min},
    {"clamp_max", clamp_max},
    {"clamp_max.Tensor", clamp_max},
    {"where.self", where},
    {"masked_fill.Scalar", masked_fill},
    {"masked_fill.Tensor", masked_fill},
};

}  // namespace

// CPU raises when an integer is divided by zero.
void check_divisor(Op& o, const Value& divisor) {
  if (!ir::is_integral(divisor.dtype())) return;
  o.context().check(any(is_zero(divisor)), ir::constant(o.builder(), 0, Type(DType::kI64, {})), "RuntimeError",
                    "ZeroDivisionError");
}

Value sign_bit(const Value& v) {
  const DType dtype = v.dtype();
  if (!ir::is_floating(dtype)) return less(v, zero(v));
  const size_t bytes = ir::size_bytes(dtype);
  const DType bits = bytes == 8 ? DType::kI64 : bytes == 4 ? DType::kI32 : bytes == 2 ? DType::kI16 : DType::kI8;
  const Value i = ir::bitcast_convert(v, bits);
  return less(i, zero(i));
}

std::span<const Row> elementwise_rows() { return kRows; }

}  // namespace tpu::ops
