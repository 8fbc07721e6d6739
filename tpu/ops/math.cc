// Mathematical functions of one operand: rounding, signs, exponentials, trigonometry, special
// functions, parts of complex numbers.
#include <cmath>
#include <limits>
#include <numbers>

#include "tpu/ops/rules.h"
#include "tpu/ops/special.h"
#include "tpu/ops/table.h"

namespace tpu::ops {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();
constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

Value number(const Value& like, double v) { return ir::full_like(like, v); }
Value zero(const Value& like) { return ir::zeros_like(like); }
Value less(const Value& a, const Value& b) { return ir::compare(a, b, "LT"); }
Value is_zero(const Value& v) { return ir::compare(v, zero(v), "EQ"); }

// ---- rounding and signs ----

// Integers are whole already.
Rule rounding(UnaryFunction f) {
  return [f](Op& o) { return ir::is_integral(o.x(0).dtype()) ? o.x(0) : f(o.x(0)); };
}

Value round_decimals(Op& o) {
  const Value x = o.x(0);
  const int64_t decimals = o.integer("decimals");
  if (ir::is_integral(x.dtype())) return x;
  if (decimals == 0) return ir::round_nearest_even(x);
  const Value scale = number(x, std::pow(10.0, std::abs(static_cast<double>(decimals))));
  if (decimals < 0) return ir::multiply(ir::round_nearest_even(ir::divide(x, scale)), scale);
  return ir::divide(ir::round_nearest_even(ir::multiply(x, scale)), scale);
}

Value fraction(const Value& x) { return ir::subtract(x, trunc(x)); }

// 0 for NaN and without a negative zero, as CPU.
Value signum(const Value& x) {
  if (ir::is_complex(x.dtype())) {
    const Value size = ir::complex(ir::abs(x), zero(ir::real(x)));
    return ir::select(is_zero(size), zero(x), ir::divide(x, size));
  }
  if (ir::is_bool(x.dtype())) return x;
  const Value positive = ir::convert(less(zero(x), x), x.dtype());
  if (ir::is_unsigned(x.dtype())) return positive;
  return ir::subtract(positive, ir::convert(less(x, zero(x)), x.dtype()));
}

double finite_max(DType dtype) {
  switch (dtype) {
    case DType::kF16:
      return 65504.0;
    case DType::kBF16:
      return 0x1.FEp127;
    case DType::kF32:
      return std::numeric_limits<float>::max();
    case DType::kF8E5M2:
      return 57344.0;
    case DType::kF8E4M3FN:
      return 448.0;
    default:
      return std::numeric_limits<double>::max();
  }
}

Value real_nan_to_num(Op& o, const Value& x) {
  const double top = finite_max(ir::real_of(o.out().dtype()));
  auto replacement = [&](const char* name, double otherwise) {
    return o.has(name) ? o.scalar(name, x.dtype()) : ir::constant(o.builder(), otherwise, Type(x.dtype(), {}));
  };
  Value r = ir::select(ir::is_nan(x), replacement("nan", 0.0), x);
  r = ir::select(ir::compare(x, number(x, kInf), "EQ"), replacement("posinf", top), r);
  return ir::select(ir::compare(x, number(x, -kInf), "EQ"), replacement("neginf", -top), r);
}

Value nan_to_num(Op& o) {
  const Value x = o.x(0);
  if (ir::is_integral(x.dtype())) return x;
  if (!ir::is_complex(x.dtype())) return real_nan_to_num(o, x);
  return ir::complex(real_nan_to_num(o, ir::real(x)), real_nan_to_num(o, ir::imag(x)));
}

// ---- floating-point representation ----

struct Format {
  DType bits;
  int64_t mantissa_bits, bias, exponent_mask;
  double smallest_normal;
};

Format format_of(DType dtype) {
  if (dtype == DType::kF64) return {DType::kI64, 52, 1023, 0x7FF, 0x1p-1022};
  return {DType::kI32, 23, 127, 0xFF, 0x1p-126};
}

// x = mantissa * 2^exponent with |mantissa| in [1/2, 1); for normal numbers only.
std::pair<Value, Value> split_exponent(const Value& x) {
  const Format f = format_of(x.dtype());
  const Value bits = ir::bitcast_convert(x, f.bits);
  const Value width = ir::full_like(bits, f.mantissa_bits);
  const Value biased = ir::and_(ir::shift_right_logical(bits, width), ir::full_like(bits, f.exponent_mask));
  const Value others = ir::full_like(bits, ~(f.exponent_mask << f.mantissa_bits));
  const Value half = ir::full_like(bits, (f.bias - 1) << f.mantissa_bits);
  return {ir::bitcast_convert(ir::or_(ir::and_(bits, others), half), x.dtype()),
          ir::subtract(biased, ir::full_like(bits, f.bias - 1))};
}

Value is_normal(const Value& x) {
  const Value size = ir::abs(x);
  return ir::and_(ir::is_finite(x), ir::compare(size, number(x, format_of(x.dtype()).smallest_normal), "GE"));
}

Values frexp(Op& o) {
  const Value x = o.x(0);
  const auto [mantissa, exponent] = split_exponent(x);
  const Value normal = is_normal(x);
  return {ir::select(normal, mantissa, x), ir::convert(ir::select(normal, exponent, zero(exponent)), DType::kI32)};
}

// ---- exponentials and logarithms ----

// A complex zero has a logarithm with an infinite part, which a complex product would make NaN.
Value times(const Value& x, double factor) {
  if (!ir::is_complex(x.dtype())) return ir::multiply(x, number(x, factor));
  const Value re = ir::real(x), im = ir::imag(x);
  return ir::complex(ir::multiply(re, number(re, factor)), ir::multiply(im, number(im, factor)));
}

Value exp2(const Value& x) {
  if (ir::is_complex(x.dtype())) return ir::exponential(times(x, std::numbers::ln2));
  return ir::power(number(x, 2), x);
}

// Exact for powers of 2, which programs take the floor of.
Value log2(const Value& x) {
  const Value scale = number(x, 1 / std::numbers::ln2);
  const Value plain = times(ir::log(x), 1 / std::numbers::ln2);
  if (ir::is_complex(x.dtype())) return plain;
  auto [mantissa, exponent] = split_exponent(x);
  // Near 1 the exponent must be 0, or digits cancel.
  const Value low = less(mantissa, number(x, std::numbers::sqrt2 / 2));
  mantissa = ir::select(low, ir::add(mantissa, mantissa), mantissa);
  exponent = ir::subtract(exponent, ir::convert(low, exponent.dtype()));
  const Value exact = ir::add(ir::convert(exponent, x.dtype()), ir::multiply(ir::log(mantissa), scale));
  return ir::select(ir::and_(is_normal(x), less(zero(x), x)), exact, plain);
}

Value log10(const Value& x) { return times(ir::log(x), 1 / std::numbers::ln10); }

Value reciprocal(const Value& x) { return ir::divide(ir::full_like(x, 1), x); }

Value sinc(const Value& x) {
  const Value angle = ir::multiply(x, number(x, std::numbers::pi));
  return ir::select(is_zero(x), ir::full_like(x, 1), ir::divide(ir::sine(angle), angle));
}

// -x log x
Value entropy(const Value& x) {
  const Value inside = ir::multiply(ir::negate(x), ir::log(x));
  const Value outside = ir::select(is_zero(x), zero(x), number(x, -kInf));
  return ir::select(ir::or_(less(zero(x), x), ir::is_nan(x)), inside, outside);
}

// ---- special functions ----

Value digamma(const Value& x) {
  return ir::select(is_zero(x), copysign(number(x, kInf), ir::negate(x)), ir::chlo("digamma", x));
}

// ATen/native/Math.h, trigamma: reflection below 1/2, recurrence, then the asymptotic series.
Value trigamma(const Value& given) {
  const Value one = number(given, 1);
  const Value reflect = less(given, number(given, 0.5));
  const Value ratio =
      ir::divide(number(given, std::numbers::pi), ir::sine(ir::multiply(given, number(given, std::numbers::pi))));
  Value sum = ir::select(reflect, ir::negate(ir::multiply(ratio, ratio)), zero(given));
  Value x = ir::select(reflect, ir::subtract(one, given), given);
  for (int i = 0; i < 6; ++i) {
    sum = ir::add(sum, ir::divide(one, ir::multiply(x, x)));
    x = ir::add(x, one);
  }
  const Value y = ir::divide(one, ir::multiply(x, x));
  Value series = ir::subtract(number(x, 1.0 / 30), ir::multiply(y, number(x, 1.0 / 42)));
  series = ir::subtract(number(x, 1.0 / 6), ir::multiply(y, series));
  series = ir::add(ir::add(one, ir::divide(number(x, 0.5), x)), ir::multiply(y, series));
  sum = ir::add(sum, ir::divide(series, x));
  return ir::select(reflect, ir::negate(sum), sum);
}

// Hurwitz zeta (ATen/native/Math.h): chlo.zeta is wrong left of -9. The argument is moved right of
// 9 term by term, then Euler and Maclaurin's series; in f64, as CPU.
Value zeta(const Value& given_x, const Value& given_q) {
  const Value x = ir::convert(given_x, DType::kF64), q = ir::convert(given_q, DType::kF64);
  const Value one = number(x, 1), nine = number(x, 9), exponent = ir::negate(x);
  constexpr int kAtLeast = 9, kAtMost = 4096;
  const Value step = ir::constant(x.builder(), 0, Type(DType::kI32, {}));
  const Values moved = ir::while_loop(
      {step, q, ir::power(q, exponent)},
      [&](const Values& v) {
        Dims all;
        for (int64_t d = 0; d < v[1].rank(); ++d) all.push_back(d);
        const Value never = ir::constant_bool(x.builder(), false, Type(DType::kI1, {}));
        const Value left = ir::reduce(ir::compare(v[1], nine, "LE"), never, all, "or");
        return Values{ir::and_(ir::or_(less(v[0], ir::full_like(v[0], kAtLeast)), left),
                               less(v[0], ir::full_like(v[0], kAtMost)))};
      },
      [&](const Values& v) {
        const Value early = less(v[0], ir::full_like(v[0], kAtLeast));
        const Value active = ir::or_(ir::compare(v[1], nine, "LE"), ir::broadcast_to(early, v[1]));
        const Value a = ir::select(active, ir::add(v[1], one), v[1]);
        const Value term = ir::select(active, ir::power(a, exponent), zero(a));
        return Values{ir::add(v[0], ir::full_like(v[0], 1)), a, ir::add(v[2], term)};
      });
  constexpr double kBernoulli[] = {12.0,
                                   -720.0,
                                   30240.0,
                                   -1209600.0,
                                   47900160.0,
                                   -1.8924375803183791606e9,
                                   7.47242496e10,
                                   -2.950130727918164224e12,
                                   1.1646782814350067249e14,
                                   -4.5979787224074726105e15,
                                   1.8152105401943546773e17,
                                   -7.1661652561756670113e18};
  const Value w = moved[1];
  Value b = ir::power(w, exponent);
  Value sum = ir::add(moved[2], ir::divide(ir::multiply(b, w), ir::subtract(x, one)));
  sum = ir::subtract(sum, ir::multiply(b, number(x, 0.5)));
  Value factor = one;
  for (int i = 0; i < 12; ++i) {
    factor = ir::multiply(factor, ir::add(x, number(x, 2.0 * i)));
    b = ir::divide(b, w);
    const Value term = ir::divide(ir::multiply(factor, b), number(x, kBernoulli[i]));
    // Terms that no longer count may be infinity times 0.
    sum = ir::select(ir::is_finite(term), ir::add(sum, term), sum);
    factor = ir::multiply(factor, ir::add(x, number(x, 2.0 * i + 1)));
    b = ir::divide(b, w);
  }
  const Value whole_q = ir::compare(q, ir::floor(q), "EQ"), whole_x = ir::compare(x, ir::floor(x), "EQ");
  const Value pole = ir::select(whole_q, number(x, kInf), ir::select(whole_x, sum, number(x, kNaN)));
  sum = ir::select(ir::compare(q, zero(q), "LE"), pole, sum);
  sum = ir::select(less(x, one), number(x, kNaN), sum);
  return ir::convert(ir::select(ir::compare(x, one, "EQ"), number(x, kInf), sum), given_x.dtype());
}

Value polygamma(Op& o) {
  const Value x = o.x("self");
  const int64_t n = o.integer("n");
  if (n == 0) return digamma(x);
  if (n == 1) return trigamma(x);
  const double scale = (n % 2 ? 1.0 : -1.0) * std::tgamma(static_cast<double>(n + 1));
  return ir::multiply(number(x, scale), zeta(number(x, static_cast<double>(n + 1)), x));
}

// Cephes i0e.c: Chebyshev series of exp(-x) I0(x) in [0, 8], and of exp(-x) sqrt(x) I0(x) above.
constexpr double kI0eLow[] = {
    -4.41534164647933937950E-18, 3.33079451882223809783E-17, -2.43127984654795469359E-16, 1.71539128555513303061E-15,
    -1.16853328779934516808E-14, 7.67618549860493561688E-14, -4.85644678311192946090E-13, 2.95505266312963983461E-12,
    -1.72682629144155570723E-11, 9.67580903537323691224E-11, -5.18979560163526290666E-10, 2.65982372468238665035E-9,
    -1.30002500998624804212E-8,  6.04699502254191894932E-8,  -2.67079385394061173391E-7,  1.11738753912010371815E-6,
    -4.41673835845875056359E-6,  1.64484480707288970893E-5,  -5.75419501008210370398E-5,  1.88502885095841655729E-4,
    -5.76375574538582365885E-4,  1.63947561694133579842E-3,  -4.32430999505057594430E-3,  1.05464603945949983183E-2,
    -2.37374148058994688156E-2,  4.93052842396707084878E-2,  -9.49010970480476444210E-2,  1.71620901522208775349E-1,
    -3.04682672343198398683E-1,  6.76795274409476084995E-1};
constexpr double kI0eHigh[] = {
    -7.23318048787475395456E-18, -4.83050448594418207126E-18, 4.46562142029675999901E-17,  3.46122286769746109310E-17,
    -2.82762398051658348494E-16, -3.42548561967721913462E-16, 1.77256013305652638360E-15,  3.81168066935262242075E-15,
    -9.55484669882830764870E-15, -4.15056934728722208663E-14, 1.54008621752140982691E-14,  3.85277838274214270114E-13,
    7.18012445138366623367E-13,  -1.79417853150680611778E-12, -1.32158118404477131188E-11, -3.14991652796324136454E-11,
    1.18891471078464383424E-11,  4.94060238822496958910E-10,  3.39623202570838634515E-9,   2.26666899049817806459E-8,
    2.04891858946906374183E-7,   2.89137052083475648297E-6,   6.88975834691682398426E-5,   3.36911647825569408990E-3,
    8.04490411014108831608E-1};

Value i0e(const Value& given) {
  const Value x = ir::abs(given);
  const Value low = chebyshev_series(ir::subtract(ir::multiply(x, number(x, 0.5)), number(x, 2)), kI0eLow);
  const Value shifted = ir::subtract(ir::divide(number(x, 32), x), number(x, 2));
  const Value high = ir::divide(chebyshev_series(shifted, kI0eHigh), ir::sqrt(x));
  return ir::select(ir::compare(x, number(x, 8), "LE"), low, high);
}

Value i1(const Value& x) { return ir::multiply(ir::chlo("bessel_i1e", x), ir::exponential(ir::abs(x))); }

// ---- complex numbers ----

Value absolute(Op& o) {
  const Value x = o.in(0);
  return ir::abs(ir::convert(x, ir::opmath(x.dtype())));
}

Value angle(Op& o) {
  if (ir::is_complex(o.in(0).dtype())) return ir::atan2(ir::imag(o.in(0)), ir::real(o.in(0)));
  const Value x = o.x(0);
  const Value of_sign = ir::select(less(x, zero(x)), number(x, std::numbers::pi), zero(x));
  return ir::select(ir::is_nan(x), x, of_sign);
}

Value make_complex(Op& o) {
  const DType part = ir::real_of(o.out().dtype());
  return ir::complex(o.x_as(0, part), o.x_as(1, part));
}

Value polar(Op& o) {
  const DType part = ir::real_of(o.out().dtype());
  const Value size = o.x_as(0, part), phase = o.x_as(1, part);
  return ir::complex(ir::multiply(size, ir::cosine(phase)), ir::multiply(size, ir::sine(phase)));
}

const Row kRows[] = {
    {"abs", absolute},
    {"neg", unary(ir::negate)},
    {"bitwise_not", unary(ir::not_)},
    {"ceil", rounding(ir::ceil)},
    {"floor", rounding(ir::floor)},
    {"trunc", rounding(trunc)},
    {"round", rounding(ir::round_nearest_even)},
    {"round.decimals", round_decimals},
    {"frac", unary(fraction)},
    {"sign", unary(signum)},
    {"sgn", unary(signum)},
    {"signbit", [](Op& o) { return sign_bit(o.in(0)); }},
    {"nan_to_num", nan_to_num},
    {"frexp.Tensor", frexp},

    {"exp", unary(ir::exponential)},
    {"exp2", unary(exp2)},
    {"expm1", unary(ir::exponential_minus_one)},
    {"log", unary(ir::log)},
    {"log2", unary(log2)},
    {"log10", unary(log10)},
    {"log1p", unary(ir::log_plus_one)},
    {"sqrt", unary(ir::sqrt)},
    {"rsqrt", unary(ir::rsqrt)},
    {"reciprocal", unary(reciprocal)},
    {"special_entr", unary(entropy)},

    {"sin", unary(ir::sine)},
    {"cos", unary(ir::cosine)},
    {"tan", unary(ir::tan)},
    {"asin", unary_chlo("asin")},
    {"acos", unary_chlo("acos")},
    {"atan", unary_chlo("atan")},
    {"sinh", unary_chlo("sinh")},
    {"cosh", unary_chlo("cosh")},
    {"tanh", unary(ir::tanh)},
    {"asinh", unary_chlo("asinh")},
    {"acosh", unary_chlo("acosh")},
    {"atanh", unary_chlo("atanh")},
    {"sinc", unary(sinc)},

    {"erf", unary_chlo("erf")},
    {"erfc", unary_chlo("erfc")},
    {"lgamma", unary_chlo("lgamma")},
    {"digamma", unary(digamma)},
    {"polygamma", polygamma},
    {"special_zeta", binary(zeta)},
    {"i0", unary(modified_bessel_i0)},
    {"special_i0e", unary(i0e)},
    {"special_i1", unary(i1)},
    {"special_i1e", unary_chlo("bessel_i1e")},

    {"angle", angle},
    {"complex", make_complex},
    {"polar", polar},
    {"_conj_physical", unary(ir::conj)},
    {"conj_physical_", [](Op& o) { return ir::is_complex(o.in(0).dtype()) ? ir::conj(o.in(0)) : o.in(0); }},
};

}  // namespace

Value modified_bessel_i0(const Value& x) { return ir::multiply(i0e(x), ir::exponential(ir::abs(x))); }

std::span<const Row> math_rows() { return kRows; }

}  // namespace tpu::ops
