// Orthogonal polynomials of a degree that each element has for itself, by their recurrences (DLMF 18.9), and the
// closed forms of Chebyshev's (DLMF 18.5) where CPU takes these.
#include <limits>

#include "tpu/ops/rules.h"
#include "tpu/ops/table.h"

namespace tpu::ops {
namespace {

Value number(const Value& like, double v) { return ir::full_like(like, v); }
Value zero(const Value& like) { return ir::zeros_like(like); }
Value equal(const Value& a, const Value& b) { return ir::compare(a, b, "EQ"); }
Value less(const Value& a, const Value& b) { return ir::compare(a, b, "LT"); }
Value twice(const Value& v) { return ir::add(v, v); }

Value any(const Value& v) {
  Dims all;
  for (int64_t d = 0; d < v.rank(); ++d) all.push_back(d);
  return ir::reduce(v, ir::constant_bool(v.builder(), false, Type(DType::kI1, {})), all, "or");
}

// The degree: what CPU's cast to int64 makes of a float.
Value degree(const Value& n) {
  const Value finite = ir::select(ir::is_finite(n), n, number(n, -1));
  return ir::convert(trunc(finite), DType::kI64);
}

Value is_even(const Value& n) { return equal(ir::and_(n, ir::full_like(n, 1)), zero(n)); }

// P(n) of P(0) = 1, P(1) = first and P(k + 1) = step(k, P(k - 1), P(k)); 1 where n < 1. Stops at NaN.
template <typename Step>
Value recurrence(const Value& n, const Value& first, const Step& step) {
  const Value one = number(first, 1), k = ir::constant(n.builder(), 1, Type(DType::kI64, {}));
  auto active = [](const Values& v, const Value& n) {
    return ir::and_(less(ir::broadcast_to(v[0], n), n), ir::not_(ir::is_nan(v[2])));
  };
  const Values found = ir::while_loop(
      {k, one, first}, [&](const Values& v) { return Values{any(active(v, n))}; },
      [&](const Values& v) {
        const Value go = active(v, n);
        const Value next = step(ir::broadcast_to(ir::convert(v[0], first.dtype()), first), v[1], v[2]);
        return Values{ir::add(v[0], ir::full_like(v[0], 1)), ir::select(go, v[2], v[1]), ir::select(go, next, v[2])};
      });
  return ir::select(less(n, ir::full_like(n, 1)), one, found[2]);
}

// ---- Chebyshev: T, U, V, W ----

struct Chebyshev {
  char kind;
  bool shifted;        // of 2x - 1, for x in [0, 1]
  int64_t trig_above;  // degrees from which on CPU takes the closed form inside the interval
};

// The value at the upper end of the interval; at the lower end it is `lower` for even degrees, -lower for odd ones.
struct Ends {
  Value upper, lower;
};

Ends ends(char kind, const Value& n, const Value& like) {
  const Value count = ir::convert(n, like.dtype()), one = number(like, 1);
  const Value odd = ir::add(twice(count), one);
  switch (kind) {
    case 'T':
      return {one, one};
    case 'U':
      return {ir::add(count, one), ir::add(count, one)};
    case 'V':
      return {one, odd};
    default:
      return {odd, one};
  }
}

Value inside(char kind, const Value& n, const Value& y) {
  const Value angle = ir::chlo("acos", y), half = ir::divide(angle, number(y, 2));
  const Value count = ir::convert(n, y.dtype());
  const Value middle = ir::multiply(ir::add(count, number(y, 0.5)), angle);
  const Value next = ir::multiply(ir::add(count, number(y, 1)), angle);
  switch (kind) {
    case 'T':
      return ir::cosine(ir::multiply(count, angle));
    case 'U':
      return ir::divide(ir::sine(next), ir::sine(angle));
    case 'V':
      return ir::divide(ir::cosine(middle), ir::cosine(half));
    default:
      return ir::divide(ir::sine(middle), ir::sine(half));
  }
}

Rule chebyshev(Chebyshev c) {
  return [c](Op& o) {
    const Value x = o.x("x"), n = degree(o.x("n")), one = number(x, 1);
    const Value y = c.shifted ? ir::subtract(ir::add(x, x), one) : x;
    const Value at_upper = equal(x, one), at_lower = equal(x, c.shifted ? zero(x) : ir::negate(one));
    const Value closed = ir::and_(ir::compare(n, ir::full_like(n, c.trig_above), "GT"), less(ir::abs(y), one));
    const Value known = ir::or_(closed, ir::or_(at_upper, at_lower));
    const Value first = c.kind == 'T'   ? y
                        : c.kind == 'U' ? twice(y)
                        : c.kind == 'V' ? ir::subtract(twice(y), one)
                                        : ir::add(twice(y), one);
    Value p =
        recurrence(ir::select(known, zero(n), n), first, [&](const Value&, const Value& before, const Value& last) {
          return ir::subtract(ir::multiply(twice(y), last), before);
        });
    const Ends e = ends(c.kind, n, x);
    p = ir::select(closed, inside(c.kind, n, y), p);
    p = ir::select(at_upper, e.upper, p);
    p = ir::select(at_lower, ir::select(is_even(n), e.lower, ir::negate(e.lower)), p);
    return ir::select(less(n, zero(n)), zero(p), p);
  };
}

// ---- Hermite, Laguerre, Legendre ----

Value where_negative(const Value& n, const Value& p) { return ir::select(less(n, zero(n)), zero(p), p); }

// CPU's limit, beyond which the numbers overflow anyway.
Value hermite(Op& o, bool probabilists) {
  const Value x = o.x("x"), n = degree(o.x("n"));
  const Value slope = probabilists ? x : twice(x);
  const Value too_high = ir::compare(n, ir::full_like(n, x.dtype() == DType::kF64 ? 512 : 128), "GT");
  const Value p =
      recurrence(ir::select(too_high, zero(n), n), slope, [&](const Value& k, const Value& before, const Value& last) {
        const Value weight = probabilists ? k : twice(k);
        return ir::subtract(ir::multiply(slope, last), ir::multiply(weight, before));
      });
  return where_negative(n, ir::select(too_high, number(x, std::numeric_limits<double>::quiet_NaN()), p));
}

Value laguerre(Op& o) {
  const Value x = o.x("x"), n = degree(o.x("n")), one = number(x, 1), first = ir::subtract(one, x);
  const Value at_zero = equal(x, zero(x));
  const Value p =
      recurrence(ir::select(at_zero, zero(n), n), first, [&](const Value& k, const Value& before, const Value& last) {
        const Value a = ir::multiply(ir::add(twice(k), first), last);
        return ir::divide(ir::subtract(a, ir::multiply(k, before)), ir::add(k, one));
      });
  return where_negative(n, p);
}

Value legendre(Op& o) {
  const Value x = o.x("x"), n = degree(o.x("n")), one = number(x, 1);
  const Value at_end = equal(ir::abs(x), one);
  Value p = recurrence(ir::select(at_end, zero(n), n), x, [&](const Value& k, const Value& before, const Value& last) {
    const Value a = ir::multiply(ir::multiply(ir::add(twice(k), one), x), last);
    return ir::divide(ir::subtract(a, ir::multiply(k, before)), ir::add(k, one));
  });
  const Value is_one = ir::or_(less(zero(x), x), is_even(n));
  return where_negative(n, ir::select(at_end, ir::select(is_one, one, ir::negate(one)), p));
}

const Row kRows[] = {
    {"special_chebyshev_polynomial_t", chebyshev({'T', false, 6})},
    {"special_chebyshev_polynomial_u", chebyshev({'U', false, 8})},
    {"special_chebyshev_polynomial_v", chebyshev({'V', false, 8})},
    {"special_chebyshev_polynomial_w", chebyshev({'W', false, 8})},
    {"special_shifted_chebyshev_polynomial_t", chebyshev({'T', true, 6})},
    {"special_shifted_chebyshev_polynomial_u", chebyshev({'U', true, 6})},
    {"special_shifted_chebyshev_polynomial_v", chebyshev({'V', true, 6})},
    {"special_shifted_chebyshev_polynomial_w", chebyshev({'W', true, 4})},
    {"special_hermite_polynomial_h", [](Op& o) { return hermite(o, false); }},
    {"special_hermite_polynomial_he", [](Op& o) { return hermite(o, true); }},
    {"special_laguerre_polynomial_l", laguerre},
    {"special_legendre_polynomial_p", legendre},
};

}  // namespace

std::span<const Row> polynomial_rows() { return kRows; }

}  // namespace tpu::ops
