// Special functions of the error function's and the gamma function's families that have no op in CHLO.
#include "tpu/ops/special.h"

#include <cmath>
#include <limits>
#include <numbers>

#include "tpu/ops/rules.h"
#include "tpu/ops/table.h"

namespace tpu::ops {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();
constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

Value number(const Value& like, double v) { return ir::full_like(like, v); }
Value zero(const Value& like) { return ir::zeros_like(like); }
Value less(const Value& a, const Value& b) { return ir::compare(a, b, "LT"); }
Value equal(const Value& a, double b) { return ir::compare(a, number(a, b), "EQ"); }
Value square(const Value& v) { return ir::multiply(v, v); }
Value times(const Value& v, double c) { return ir::multiply(v, number(v, c)); }

Value any(const Value& v) {
  Dims all;
  for (int64_t d = 0; d < v.rank(); ++d) all.push_back(d);
  return ir::reduce(v, ir::constant_bool(v.builder(), false, Type(DType::kI1, {})), all, "or");
}

// f of the first argument in f64, whatever its dtype: series whose digits cancel.
Rule in_f64(UnaryFunction f) {
  return [f](Op& o) {
    const Value x = o.x(0);
    return ir::convert(f(ir::convert(x, DType::kF64)), x.dtype());
  };
}

// ---- error functions ----

// A rational start, then two steps of Newton, as CPU (ATen/native/Math.h, calc_erfinv); in f64, since near 1 the
// derivative is as large as the error function is flat.
Value erfinv(const Value& y) {
  constexpr double kMiddle[] = {-0.140543331, 0.914624893, -1.645349621, 0.886226899};
  constexpr double kMiddleBelow[] = {0.012229801, -0.329097515, 1.442710462, -2.118377725, 1};
  constexpr double kTail[] = {1.641345311, 3.429567803, -1.624906493, -1.970840454};
  constexpr double kTailBelow[] = {1.637067800, 3.543889200, 1};
  const Value size = ir::abs(y), one = number(y, 1), z = square(y);
  const Value middle = ir::divide(ir::multiply(y, polynomial(z, kMiddle)), polynomial(z, kMiddleBelow));
  const Value t = ir::sqrt(ir::negate(ir::log(times(ir::subtract(one, size), 0.5))));
  const Value tail = ir::divide(copysign(polynomial(t, kTail), y), polynomial(t, kTailBelow));
  Value x = ir::select(ir::compare(size, number(y, 0.7), "LE"), middle, tail);
  for (int step = 0; step < 2; ++step) {
    const Value slope = times(ir::exponential(ir::negate(square(x))), 2 / std::sqrt(std::numbers::pi));
    x = ir::subtract(x, ir::divide(ir::subtract(ir::chlo("erf", x), y), slope));
  }
  x = ir::select(ir::compare(size, one, "EQ"), copysign(number(y, kInf), y), x);
  return ir::select(less(one, size), number(y, kNaN), x);
}

Value log_ndtr(const Value& x) {
  const Value t = times(x, std::numbers::sqrt2 / 2);
  const Value left = ir::subtract(ir::log(times(erfcx(ir::negate(t)), 0.5)), square(t));
  const Value right = ir::log_plus_one(times(ir::chlo("erfc", t), -0.5));
  return ir::select(less(x, number(x, -1)), left, right);
}

// The inverse of the normal distribution: Moshier's Cephes library, ndtri.c.
constexpr double kNdtriP0[] = {-5.99633501014107895267E1, 9.80010754185999661536E1, -5.66762857469070293439E1,
                               1.39312609387279679503E1, -1.23916583867381258016E0};
constexpr double kNdtriQ0[] = {1.00000000000000000000E0,  1.95448858338141759834E0,  4.67627912898881538453E0,
                               8.63602421390890590575E1,  -2.25462687854119370527E2, 2.00260212380060660359E2,
                               -8.20372256168333339912E1, 1.59056225126211695515E1,  -1.18331621121330003142E0};
constexpr double kNdtriP1[] = {4.05544892305962419923E0,   3.15251094599893866154E1,   5.71628192246421288162E1,
                               4.40805073893200834700E1,   1.46849561928858024014E1,   2.18663306850790267539E0,
                               -1.40256079171354495875E-1, -3.50424626827848203418E-2, -8.57456785154685413611E-4};
constexpr double kNdtriQ1[] = {1.00000000000000000000E0,   1.57799883256466749731E1,   4.53907635128879210584E1,
                               4.13172038254672030440E1,   1.50425385692907503408E1,   2.50464946208309415979E0,
                               -1.42182922854787788574E-1, -3.80806407691578277194E-2, -9.33259480895457427372E-4};
constexpr double kNdtriP2[] = {3.23774891776946035970E0,  6.91522889068984211695E0,  3.93881025292474443415E0,
                               1.33303460815807542389E0,  2.01485389549179081538E-1, 1.23716634817820021358E-2,
                               3.01581553508235416007E-4, 2.65806974686737550832E-6, 6.23974539184983293730E-9};
constexpr double kNdtriQ2[] = {1.00000000000000000000E0,  6.02427039364742014255E0,  3.67983563856160859403E0,
                               1.37702099489081330271E0,  2.16236993594496635890E-1, 1.34204006088543189037E-2,
                               3.28014464682127739104E-4, 2.89247864745380683936E-6, 6.79019408009981274425E-9};

Value ndtri(const Value& given) {
  constexpr double kExpMinus2 = 0.13533528323661269189;
  const Value one = number(given, 1);
  const Value mirrored = less(number(given, 1 - kExpMinus2), given);
  const Value y = ir::select(mirrored, ir::subtract(one, given), given);
  const Value centred = ir::subtract(y, number(y, 0.5)), c2 = square(centred);
  const Value bend = ir::divide(ir::multiply(c2, polynomial(c2, kNdtriP0)), polynomial(c2, kNdtriQ0));
  const Value middle = times(ir::add(centred, ir::multiply(centred, bend)), std::sqrt(2 * std::numbers::pi));
  const Value t = ir::sqrt(times(ir::log(y), -2)), z = ir::divide(one, t);
  auto correction = [&](const double (&p)[9], const double (&q)[9]) {
    return ir::divide(ir::multiply(z, polynomial(z, p)), polynomial(z, q));
  };
  const Value near = correction(kNdtriP1, kNdtriQ1), far = correction(kNdtriP2, kNdtriQ2);
  const Value start = ir::subtract(t, ir::divide(ir::log(t), t));
  const Value tail = ir::subtract(start, ir::select(less(t, number(t, 8)), near, far));
  Value x = ir::select(mirrored, tail, ir::negate(tail));
  x = ir::select(less(number(y, kExpMinus2), y), middle, x);
  x = ir::select(equal(given, 0), number(x, -kInf), x);
  x = ir::select(equal(given, 1), number(x, kInf), x);
  return ir::select(ir::or_(less(given, zero(given)), less(one, given)), number(x, kNaN), x);
}

// ---- incomplete gamma functions ----

// P and Q, DLMF 8.2.4: the power series (8.11.4) where x <= a + 1, else the continued fraction (8.9.2) by Lentz's
// method. Each takes about sqrt(a) steps where x is near a.
struct Incomplete {
  Value p, q;
};

constexpr double kTiny = 1e-300, kEnough = 1e-16;
constexpr int64_t kMostSteps = 20000;

Incomplete incomplete_gamma(const Value& a, const Value& x) {
  const Value one = number(a, 1), count = ir::constant(a.builder(), 0, Type(DType::kI64, {}));
  const Value log_front = ir::subtract(ir::subtract(ir::multiply(a, ir::log(x)), x), ir::chlo("lgamma", a));
  const Value front = ir::exponential(log_front);
  const Value by_series = ir::compare(x, ir::add(a, one), "LE");
  auto more = [&](const Values& v) {
    const Value early = less(v[0], ir::full_like(v[0], kMostSteps));
    return Values{ir::and_(early, any(v[1]))};
  };
  auto counted = [](const Value& n) { return ir::add(n, ir::full_like(n, 1)); };
  auto as_float = [&](const Value& n) { return ir::broadcast_to(ir::convert(n, DType::kF64), a); };

  // sum of x^n / (a (a+1) ... (a+n))
  const Value first = ir::divide(one, a);
  const Values series = ir::while_loop({count, by_series, first, first}, more, [&](const Values& v) {
    const Value term = ir::divide(ir::multiply(v[2], x), ir::add(a, as_float(counted(v[0]))));
    const Value sum = ir::select(v[1], ir::add(v[3], term), v[3]);
    const Value goes_on = ir::compare(ir::abs(term), times(ir::abs(sum), kEnough), "GT");
    return Values{counted(v[0]), ir::and_(v[1], goes_on), term, sum};
  });

  // 1 / (x+1-a - 1(1-a) / (x+3-a - 2(2-a) / (x+5-a - ...)))
  auto not_zero = [&](const Value& v) { return ir::select(less(ir::abs(v), number(v, kTiny)), number(v, kTiny), v); };
  const Value b0 = ir::add(ir::subtract(x, a), one);
  const Value d0 = ir::divide(one, not_zero(b0));
  const Values fraction =
      ir::while_loop({count, ir::not_(by_series), number(a, 1 / kTiny), d0, d0}, more, [&](const Values& v) {
        const Value i = as_float(counted(v[0]));
        const Value numerator = ir::multiply(ir::negate(i), ir::subtract(i, a));
        const Value b = ir::add(b0, ir::add(i, i));
        const Value d = ir::divide(one, not_zero(ir::add(b, ir::multiply(numerator, v[3]))));
        const Value c = not_zero(ir::add(b, ir::divide(numerator, v[2])));
        const Value factor = ir::multiply(c, d);
        const Value h = ir::select(v[1], ir::multiply(v[4], factor), v[4]);
        const Value goes_on = ir::compare(ir::abs(ir::subtract(factor, one)), number(a, kEnough), "GT");
        return Values{counted(v[0]), ir::and_(v[1], goes_on), c, d, h};
      });
  const Value p = ir::multiply(front, series[3]), q = ir::multiply(front, fraction[4]);
  return {ir::select(by_series, p, ir::subtract(one, q)), ir::select(by_series, ir::subtract(one, p), q)};
}

Rule igamma(bool upper) {
  return [upper](Op& o) {
    const Value a = ir::convert(o.x(0), DType::kF64), x = ir::convert(o.x(1), DType::kF64);
    const Value no_a = equal(a, 0), no_x = equal(x, 0), all_a = is_inf(a), all_x = is_inf(x);
    const Value negative = ir::or_(less(a, zero(a)), less(x, zero(x)));
    const Value undefined =
        ir::or_(negative, ir::or_(ir::and_(no_a, ir::not_(less(zero(x), x))), ir::and_(all_a, all_x)));
    const Value edge = ir::or_(undefined, ir::or_(ir::or_(no_a, no_x), ir::or_(all_a, all_x)));
    const Value one = number(a, 1);
    const Incomplete inner = incomplete_gamma(ir::select(edge, one, a), ir::select(edge, one, x));
    // All of it lies below x where a is 0 or x infinite, else above.
    const Value below = ir::convert(ir::or_(no_a, all_x), DType::kF64);
    const Value at_edge = upper ? ir::subtract(one, below) : below;
    const Value y = ir::select(edge, at_edge, upper ? inner.q : inner.p);
    return ir::convert(ir::select(undefined, number(y, kNaN), y), o.x(0).dtype());
  };
}

const Row kRows[] = {
    {"erfinv", in_f64(erfinv)},      {"special_erfcx", in_f64(erfcx)}, {"special_log_ndtr", in_f64(log_ndtr)},
    {"special_ndtri", unary(ndtri)}, {"igamma", igamma(false)},        {"igammac", igamma(true)},
};

}  // namespace

Value polynomial(const Value& x, std::span<const double> coefficients) {
  Value sum = number(x, coefficients[0]);
  for (double c : coefficients.subspan(1)) sum = ir::add(ir::multiply(sum, x), number(x, c));
  return sum;
}

Value chebyshev_series(const Value& x, std::span<const double> coefficients) {
  Value b0 = number(x, coefficients[0]), b1 = zero(x), b2 = b1;
  for (double c : coefficients.subspan(1)) {
    b2 = b1;
    b1 = b0;
    b0 = ir::add(ir::subtract(ir::multiply(x, b1), b2), number(x, c));
  }
  return times(ir::subtract(b0, b2), 0.5);
}

// The product where erfc is a normal number; right of 5 Laplace's continued fraction (DLMF 7.9.1), from its far end.
Value erfcx(const Value& given) {
  const Value x = ir::abs(given);
  const Value grown = ir::exponential(square(x));
  Value tail = x;
  for (int k = 30; k >= 1; --k) tail = ir::add(x, ir::divide(number(x, 0.5 * k), tail));
  const Value far = ir::divide(number(x, 1 / std::sqrt(std::numbers::pi)), tail);
  const Value right = ir::select(less(x, number(x, 5)), ir::multiply(grown, ir::chlo("erfc", x)), far);
  return ir::select(less(given, zero(given)), ir::subtract(times(grown, 2), right), right);
}

std::span<const Row> special_rows() { return kRows; }

}  // namespace tpu::ops
