// Distributions that are drawn by rejection or by a search: gamma, Dirichlet, Poisson, binomial. Every element tries
// until it accepts; its k-th try takes its words from its own counter under a key made of the seed and k, so the
// numbers depend on nothing else.
#include <cmath>
#include <limits>
#include <numeric>

#include "tpu/ops/random.h"
#include "tpu/ops/rules.h"
#include "tpu/ops/table.h"

namespace tpu::ops {
namespace {

Value number(const Value& like, double v) { return ir::full_like(like, v); }
Value zero(const Value& like) { return ir::zeros_like(like); }
Value less(const Value& a, const Value& b) { return ir::compare(a, b, "LT"); }
Value at_most(const Value& a, const Value& b) { return ir::compare(a, b, "LE"); }
Value plus(const Value& a, double v) { return ir::add(a, number(a, v)); }
Value times(const Value& a, double v) { return ir::multiply(a, number(a, v)); }
Value square(const Value& a) { return ir::multiply(a, a); }
Value log_gamma(const Value& a) { return ir::chlo("lgamma", a); }

Value any(const Value& v) {
  Dims all(v.rank());
  std::iota(all.begin(), all.end(), 0);
  return ir::reduce(v, ir::constant_bool(v.builder(), false, Type(DType::kI1, {})), all, "or");
}

// The words of one op's elements.
struct Source {
  Value seed, offset;
  Dims shape;

  Source(Op& o, Dims s) : shape(std::move(s)) {
    std::tie(seed, offset) = o.context().random_state(Type(DType::kUI64, shape).numel());
  }
  // The key of stream `stream` of try `step` (0-d ui64).
  Value key(const Value& step, int64_t stream) const {
    constexpr auto kGolden = static_cast<int64_t>(0x9E3779B97F4A7C15);
    const Value n = ir::add(ir::multiply(step, ir::full_like(step, 4)), ir::full_like(step, stream + 1));
    return ir::xor_(seed, ir::multiply(n, ir::constant(step.builder(), kGolden, step.type())));
  }
  Value uniform(const Value& step, int64_t stream, DType dtype) const {
    return open_interval(threefry(key(step, stream), offset, shape), dtype);
  }
  Value normal(const Value& step, int64_t stream, DType dtype) const {
    return standard_normals(key(step, stream), offset, shape, dtype).first;
  }
};

struct Try {
  Value accepted, value;
};

// The first accepted value of each element that is not `done` from the start, where it is `otherwise`.
template <typename Propose>
Value until_accepted(const Value& done, const Value& otherwise, const Propose& propose) {
  const Value step = ir::constant(done.builder(), 0, Type(DType::kUI64, {}));
  return ir::while_loop(
      {step, done, otherwise}, [](const Values& v) { return Values{any(ir::not_(v[1]))}; },
      [&](const Values& v) {
        const Try t = propose(v[0]);
        const Value take = ir::and_(t.accepted, ir::not_(v[1]));
        return Values{ir::add(v[0], ir::full_like(v[0], 1)), ir::or_(v[1], t.accepted),
                      ir::select(take, t.value, v[2])};
      })[2];
}

// ---- gamma ----

struct LogGamma {
  Value body, boost;  // the sample is body * exp(boost)
};

// Marsaglia and Tsang, "A simple method for generating gamma variables" (2000), with their boost for shapes below 1.
LogGamma gamma_sample(const Source& source, const Value& alpha) {
  const DType dtype = alpha.dtype();
  const Value one = number(alpha, 1), small = less(alpha, one);
  const Value d = plus(ir::select(small, ir::add(alpha, one), alpha), -1.0 / 3);
  const Value c = ir::rsqrt(times(d, 9));
  const Value undefined = ir::not_(less(zero(alpha), alpha));
  const Value body =
      until_accepted(undefined, ir::select(ir::is_nan(alpha), alpha, zero(alpha)), [&](const Value& step) {
        const Value x = source.normal(step, 0, dtype), u = source.uniform(step, 1, dtype);
        const Value y = ir::add(one, ir::multiply(c, x)), positive = less(zero(y), y);
        const Value v = ir::multiply(square(y), y), log_v = ir::log(ir::select(positive, v, one));
        const Value bound = ir::add(times(square(x), 0.5), ir::multiply(d, ir::add(ir::subtract(one, v), log_v)));
        return Try{ir::and_(positive, less(ir::log(u), bound)), ir::multiply(d, v)};
      });
  const Value first = ir::constant(alpha.builder(), 0, Type(DType::kUI64, {}));
  const Value boost = ir::divide(ir::log(source.uniform(first, 2, dtype)), alpha);
  return {body, ir::select(ir::and_(small, ir::not_(undefined)), boost, zero(alpha))};
}

double smallest(DType dtype) {
  switch (dtype) {
    case DType::kF64:
      return std::numeric_limits<double>::min();
    case DType::kF16:
      return 0x1p-14;
    default:
      return std::numeric_limits<float>::min();
  }
}

Value standard_gamma(Op& o) {
  const Value alpha = o.x(0);
  const LogGamma g = gamma_sample(Source(o, alpha.dims()), alpha);
  return ir::maximum(ir::multiply(g.body, ir::exponential(g.boost)), number(alpha, smallest(o.out().dtype())));
}

// Gamma samples over their sum, by logarithms: of small concentrations all may underflow.
Value dirichlet(Op& o) {
  const Value alpha = o.x(0);
  const LogGamma g = gamma_sample(Source(o, alpha.dims()), alpha);
  const Value log = ir::add(ir::log(g.body), g.boost);
  const int64_t last = alpha.rank() - 1;
  Dims kept;
  for (int64_t d = 0; d < last; ++d) kept.push_back(d);
  auto over_last = [&](const Value& v, const Value& init, const char* reducer) {
    return ir::broadcast_in_dim(ir::reduce(v, init, {last}, reducer), v.type(), kept);
  };
  const Type scalar(alpha.dtype(), {});
  const Value top = over_last(log, ir::lowest(o.builder(), scalar), "maximum");
  const Value part = ir::exponential(ir::subtract(log, top));
  const Value total = over_last(part, ir::constant(o.builder(), 0, scalar), "add");
  return ir::maximum(ir::divide(part, total), number(alpha, smallest(o.out().dtype())));
}

// ---- counts; in f64, as on CPU: the logarithms of large factorials cancel ----

// The number of steps that the cumulated probabilities, starting with `first` and followed by next(k, p), take to
// pass u.
template <typename Next>
Value search(const Value& wanted, const Value& u, const Value& first, const Next& next) {
  auto active = [&](const Values& v) { return ir::and_(wanted, ir::and_(less(v[2], u), less(zero(v[1]), v[1]))); };
  return ir::while_loop(
      {zero(u), first, first}, [&](const Values& v) { return Values{any(active(v))}; },
      [&](const Values& v) {
        const Value go = active(v);
        const Value k = ir::select(go, plus(v[0], 1), v[0]);
        const Value p = ir::select(go, next(k, v[1]), v[1]);
        return Values{k, p, ir::select(go, ir::add(v[2], p), v[2])};
      })[0];
}

constexpr double kFew = 10;

// Small rates by inversion, others by Hörmann's PTRS, "The transformed rejection method for generating Poisson random
// variables" (1993).
Value poisson(Op& o) {
  const Value rate = ir::convert(o.in(0), DType::kF64);
  const Source source(o, rate.dims());
  const Value first_step = ir::constant(o.builder(), 0, Type(DType::kUI64, {}));
  o.context().check(any(less(rate, zero(rate))), ir::constant(o.builder(), 0, Type(DType::kI64, {})), "RuntimeError",
                    "invalid Poisson rate, expected rate to be non-negative");
  const Value few = less(rate, number(rate, kFew));
  const Value u = source.uniform(first_step, 2, DType::kF64);
  const Value low = search(few, u, ir::exponential(ir::negate(rate)),
                           [&](const Value& k, const Value& p) { return ir::divide(ir::multiply(p, rate), k); });
  const Value lambda = ir::select(few, number(rate, kFew), rate);
  const Value b = plus(times(ir::sqrt(lambda), 2.53), 0.931), a = plus(times(b, 0.02483), -0.059);
  const Value inverse_alpha = plus(ir::divide(number(b, 1.1328), plus(b, -3.4)), 1.1239);
  const Value v_r = plus(ir::divide(number(b, -3.6224), plus(b, -2)), 0.9277);
  const Value log_lambda = ir::log(lambda);
  const Value not_tried = ir::or_(few, ir::not_(ir::is_finite(rate)));
  const Value high = until_accepted(not_tried, rate, [&](const Value& step) {
    const Value u = plus(source.uniform(step, 0, DType::kF64), -0.5), v = source.uniform(step, 1, DType::kF64);
    const Value us = ir::subtract(number(u, 0.5), ir::abs(u));
    const Value slope = ir::add(ir::divide(times(a, 2), us), b);
    const Value k = ir::floor(plus(ir::add(ir::multiply(slope, u), lambda), 0.43));
    const Value at_once = ir::and_(less(number(us, 0.07), us), at_most(v, v_r));
    const Value never = ir::or_(less(k, zero(k)), ir::and_(less(us, number(us, 0.013)), less(us, v)));
    const Value left = ir::log(ir::divide(ir::multiply(v, inverse_alpha), ir::add(ir::divide(a, square(us)), b)));
    const Value safe = ir::maximum(k, zero(k));
    const Value right = ir::subtract(ir::subtract(ir::multiply(safe, log_lambda), lambda), log_gamma(plus(safe, 1)));
    return Try{ir::or_(at_once, ir::and_(ir::not_(never), at_most(left, right))), k};
  });
  return ir::convert(ir::select(few, low, high), o.out().dtype());
}

// Few expected successes by inversion, others by Hörmann's BTRS, "The generation of binomial random variates" (1993).
Value binomial(Op& o) {
  const Value n = ir::broadcast_to(ir::convert(o.in("count"), DType::kF64), o.out().dims());
  const Value given = ir::broadcast_to(ir::convert(o.in("prob"), DType::kF64), o.out().dims());
  const Source source(o, o.out().dims());
  const Value first_step = ir::constant(o.builder(), 0, Type(DType::kUI64, {}));
  const Value one = number(n, 1), none = zero(n);
  const Value mirrored = less(number(given, 0.5), given);
  const Value p = ir::select(mirrored, ir::subtract(one, given), given), q = ir::subtract(one, p);
  const Value nan = ir::or_(ir::is_nan(n), ir::is_nan(given));
  const Value edge = ir::or_(nan, ir::or_(at_most(n, none), at_most(p, none)));
  const Value few = ir::and_(ir::not_(edge), less(ir::multiply(n, p), number(n, kFew)));
  const Value odds = ir::divide(p, q);
  const Value u = source.uniform(first_step, 2, DType::kF64);
  const Value start = ir::exponential(ir::multiply(n, ir::log_plus_one(ir::negate(p))));
  const Value low = search(few, u, start, [&](const Value& k, const Value& probability) {
    const Value rest = plus(ir::subtract(n, k), 1);
    return ir::divide(ir::multiply(ir::multiply(probability, rest), odds), k);
  });
  const Value skipped = ir::or_(edge, few);
  const Value m_count = ir::select(skipped, number(n, 40), n), prob = ir::select(skipped, number(p, 0.5), p);
  const Value ratio = ir::divide(prob, ir::subtract(one, prob));
  const Value deviation = ir::sqrt(ir::multiply(ir::multiply(m_count, prob), ir::subtract(one, prob)));
  const Value b = plus(times(deviation, 2.53), 1.15), a = ir::add(plus(times(b, 0.0248), -0.0873), times(prob, 0.01));
  const Value c = plus(ir::multiply(m_count, prob), 0.5), v_r = plus(ir::divide(number(b, -4.2), b), 0.92);
  const Value alpha = ir::multiply(plus(ir::divide(number(b, 5.1), b), 2.83), deviation);
  const Value mode = ir::floor(ir::multiply(plus(m_count, 1), prob));
  const Value log_ratio = ir::log(ratio);
  auto log_ways = [&](const Value& k) {
    return ir::add(log_gamma(plus(k, 1)), log_gamma(plus(ir::subtract(m_count, k), 1)));
  };
  const Value at_mode = log_ways(mode);
  const Value high = until_accepted(skipped, none, [&](const Value& step) {
    const Value u = plus(source.uniform(step, 0, DType::kF64), -0.5), v = source.uniform(step, 1, DType::kF64);
    const Value us = ir::subtract(number(u, 0.5), ir::abs(u));
    const Value slope = ir::add(ir::divide(times(a, 2), us), b);
    const Value k = ir::floor(ir::add(ir::multiply(slope, u), c));
    const Value possible = ir::and_(at_most(none, k), at_most(k, m_count));
    const Value at_once = ir::and_(less(number(us, 0.07), us), at_most(v, v_r));
    const Value safe = ir::select(possible, k, mode);
    const Value left = ir::log(ir::divide(ir::multiply(v, alpha), ir::add(ir::divide(a, square(us)), b)));
    const Value odds_part = ir::multiply(ir::subtract(safe, mode), log_ratio);
    const Value right = ir::add(ir::subtract(at_mode, log_ways(safe)), odds_part);
    return Try{ir::and_(possible, ir::or_(at_once, at_most(left, right))), k};
  });
  Value k = ir::select(few, low, ir::select(edge, none, high));
  k = ir::select(mirrored, ir::subtract(ir::maximum(n, none), k), k);
  return ir::convert(ir::select(nan, number(k, std::numeric_limits<double>::quiet_NaN()), k), o.out().dtype());
}

std::vector<Type> like_self(Op& o) { return {o.in(0).type()}; }

std::vector<Type> binomial_type(Op& o) {
  const Value count = o.in("count"), prob = o.in("prob");
  if (!ir::is_floating(count.dtype())) {
    throw UserError("binomial only supports floating-point dtypes for count and prob");
  }
  Dims sizes(std::max(count.rank(), prob.rank()), 1);
  for (const Value& v : {count, prob}) {
    const int64_t skip = static_cast<int64_t>(sizes.size()) - v.rank();
    for (int64_t d = 0; d < v.rank(); ++d) {
      if (v.dim(d) != 1) sizes[skip + d] = v.dim(d);
    }
  }
  return {Type(count.dtype(), sizes)};
}

const Row kRows[] = {
    {"_standard_gamma", standard_gamma, {.types = like_self, .random = true}},
    {"_sample_dirichlet", dirichlet, {.types = like_self, .random = true}},
    {"poisson", poisson, {.types = like_self, .random = true}},
    {"binomial", binomial, {.types = binomial_type, .random = true}},
};

}  // namespace

std::span<const Row> distribution_rows() { return kRows; }

}  // namespace tpu::ops
