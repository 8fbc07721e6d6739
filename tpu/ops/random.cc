// Random numbers: uniform, normal and other distributions, permutations, sampling, dropout.
#include "tpu/ops/random.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <numeric>

#include "tpu/ops/rules.h"
#include "tpu/ops/table.h"

namespace tpu::ops {
namespace {

Value u32(ir::Builder& b, int64_t value) { return ir::constant(b, value, Type(DType::kUI32, {})); }
Value u64(ir::Builder& b, int64_t value) { return ir::constant(b, value, Type(DType::kUI64, {})); }

Value rotate_left(const Value& x, int bits) {
  ir::Builder& b = x.builder();
  return ir::or_(ir::shift_left(x, u32(b, bits)), ir::shift_right_logical(x, u32(b, 32 - bits)));
}

Value high_word(const Value& v) { return ir::shift_right_logical(v, u64(v.builder(), 32)); }

// Draws one counter per element of `shape` from the op's generator.
Words draw(Op& o, const Dims& shape) {
  const auto [seed, offset] = o.context().random_state(Type(DType::kUI64, shape).numel());
  return threefry(seed, offset, shape);
}
Words draw(Op& o) { return draw(o, o.out().dims()); }

// first:second as ui64.
Value joined(const Words& w) {
  const Value high = ir::convert(w.first, DType::kUI64), low = ir::convert(w.second, DType::kUI64);
  return ir::or_(ir::shift_left(high, u64(high.builder(), 32)), low);
}

// Bits of precision that uniform numbers of a dtype have on CPU.
int digits(DType dtype) {
  switch (ir::real_of(dtype)) {
    case DType::kF64:
      return 53;
    case DType::kF16:
      return 11;
    case DType::kBF16:
      return 8;
    default:
      return 24;
  }
}

// What draws are computed in: f32 or f64. Integers take their distributions in f64, as on CPU.
DType real_dtype(DType dtype) {
  const DType real = ir::real_of(ir::opmath(dtype));
  return ir::is_floating(real) ? real : DType::kF64;
}

// ---- uniform and normal ----

// The message is CPU's own, which is asked when a call is refused.
void demand_floats(Op& o) {
  if (ir::is_integral(o.out().dtype())) throw UserError(o.name() + " is not implemented for integers");
}

Value uniform(Op& o) {
  demand_floats(o);
  const DType real = real_dtype(o.out().dtype());
  const Words w = draw(o);
  const Value from = o.scalar("from", real), width = ir::subtract(o.scalar("to", real), from);
  const auto scale = [&](const Value& u) { return ir::add(ir::multiply(u, width), from); };
  if (!ir::is_complex(o.out().dtype())) return scale(unit_interval(w, real, digits(o.out().dtype())));
  const Words other = {w.second, w.first};
  return ir::complex(scale(unit_interval(w, real, 24)), scale(unit_interval(other, real, 24)));
}

std::pair<Value, Value> normals(Op& o, const Dims& shape, DType real) {
  const auto [seed, offset] = o.context().random_state(Type(DType::kUI64, shape).numel());
  return standard_normals(seed, offset, shape, real);
}

Value normal(Op& o) {
  demand_floats(o);
  const DType real = real_dtype(o.out().dtype());
  const auto [z, other] = normals(o, o.out().dims(), real);
  const Value mean = o.scalar("mean", real), std = o.scalar("std", real);
  if (!ir::is_complex(o.out().dtype())) return ir::add(ir::multiply(z, std), mean);
  // The variance is that of the complex number: half of it in each part.
  const Value half = ir::multiply(std, ir::full_like(std, std::sqrt(0.5)));
  return ir::complex(ir::add(ir::multiply(z, half), mean), ir::add(ir::multiply(other, half), mean));
}

// mean and std are tensors or numbers.
Value normal_of_tensors(Op& o) {
  const DType real = o.compute_dtype();
  return ir::add(ir::multiply(normals(o, o.out().dims(), real).first, o.x("std")), o.x("mean"));
}

// ---- integers ----

// The high 64 bits of a * b: a number in [0, b) for uniform a, without a division.
Value multiply_high(const Value& a, const Value& b) {
  const Value mask = u64(a.builder(), 0xFFFFFFFF);
  const Value a0 = ir::and_(a, mask), a1 = high_word(a), b0 = ir::and_(b, mask), b1 = high_word(b);
  const Value low = high_word(ir::multiply(a0, b0));
  const Value middle = ir::add(ir::multiply(a1, b0), low);
  const Value cross = ir::add(ir::multiply(a0, b1), ir::and_(middle, mask));
  return ir::add(ir::add(ir::multiply(a1, b1), high_word(middle)), high_word(cross));
}

// The largest number that random_() gives: the dtype's, or the last up to which a float holds all
// integers.
int64_t largest(DType dtype) {
  if (ir::is_floating(dtype)) return int64_t{1} << digits(dtype);
  if (ir::is_bool(dtype)) return 1;
  const int bits = 8 * static_cast<int>(ir::size_bytes(dtype)) - (ir::is_unsigned(dtype) ? 0 : 1);
  return bits >= 63 ? INT64_MAX : (int64_t{1} << bits) - 1;
}

// from + [0, range); range 0 stands for 2^64.
Value ranged(Op& o, const Value& from, const Value& range) {
  const Value word = joined(draw(o));
  const Value whole = ir::compare(range, u64(o.builder(), 0), "EQ");
  const Value r = ir::select(ir::broadcast_to(whole, word.dims()), word, multiply_high(word, range));
  const Value sum = ir::add(ir::bitcast_convert(r, DType::kI64), from);
  return ir::convert(sum, o.out().dtype());
}

Value random_integers(Op& o) {
  const Value zero = ir::constant(o.builder(), 0, Type(DType::kI64, {}));
  return ranged(o, zero, u64(o.builder(), static_cast<int64_t>(static_cast<uint64_t>(largest(o.out().dtype())) + 1)));
}

Value random_to(Op& o) {
  const Value zero = ir::constant(o.builder(), 0, Type(DType::kI64, {}));
  return ranged(o, zero, ir::bitcast_convert(o.scalar("to", DType::kI64), DType::kUI64));
}

Value random_from(Op& o) {
  const Type type(DType::kI64, {});
  const Value from = o.scalar("from", DType::kI64);
  const Value end = o.has("to") ? o.scalar("to", DType::kI64)
                                : ir::add(ir::constant(o.builder(), largest(o.out().dtype()), type),
                                          ir::constant(o.builder(), 1, type));
  return ranged(o, from, ir::bitcast_convert(ir::subtract(end, from), DType::kUI64));
}

// ---- other distributions ----

Rule from_open_interval(Value (*f)(Op& o, const Value& u), bool takes_integers = false) {
  return [f, takes_integers](Op& o) {
    if (!takes_integers) demand_floats(o);
    const Value y = f(o, open_interval(draw(o), real_dtype(o.out().dtype())));
    return ir::is_integral(o.out().dtype()) ? ir::convert(y, o.out().dtype()) : y;
  };
}

Value exponential(Op& o, const Value& u) {
  return ir::negate(ir::divide(ir::log(u), ir::broadcast_to(o.scalar("lambd", u.dtype()), u)));
}

Value geometric(Op& o, const Value& u) {
  const Value failure = ir::log_plus_one(ir::negate(o.scalar("p", u.dtype())));
  return ir::ceil(ir::divide(ir::log(u), failure));
}

Value cauchy(Op& o, const Value& u) {
  const Value angle = ir::multiply(ir::subtract(u, ir::full_like(u, 0.5)), ir::full_like(u, std::numbers::pi));
  return ir::add(ir::multiply(ir::tan(angle), o.scalar("sigma", u.dtype())), o.scalar("median", u.dtype()));
}

Value bernoulli_of_number(Op& o) {
  return ir::convert(bernoulli_mask(draw(o), o.scalar("p", DType::kF64)), o.out().dtype());
}

Dims all_dims(const Value& v) {
  Dims d(v.rank());
  std::iota(d.begin(), d.end(), 0);
  return d;
}

Rule bernoulli_of_tensor(const char* probabilities) {
  return [probabilities](Op& o) {
    const DType real = real_dtype(o.in(probabilities).dtype());
    const Value p = o.x_as(probabilities, real), u = unit_interval(draw(o), real, digits(real));
    const Value fits = ir::and_(ir::compare(p, ir::zeros_like(p), "GE"), ir::compare(p, ir::full_like(p, 1), "LE"));
    const Value none = ir::constant_bool(o.builder(), false, Type(DType::kI1, {}));
    const Value bad = ir::reduce(ir::not_(fits), none, all_dims(p), "or");
    o.context().check(bad, ir::constant(o.builder(), 0, Type(DType::kI64, {})), "RuntimeError",
                      "Expected p_in >= 0 && p_in <= 1 to be true, but got false.");
    return ir::convert(ir::compare(u, p, "LT"), o.out().dtype());
  };
}

// ---- permutations and samples ----

// The positions that sort random keys; equal keys keep the order of positions.
Value random_permutation(Op& o) {
  const int64_t n = o.out().dim(0);
  const DType dtype = n < (int64_t{1} << 31) ? DType::kI32 : DType::kI64;
  const Value order = ir::sort({joined(draw(o)), ir::iota(o.builder(), Type(dtype, {n}), 0)}, 0, true,
                               [](const Values& a) { return Values{ir::compare(a[0], a[1], "LT")}; })[1];
  return ir::convert(order, o.out().dtype());
}

// The first category whose cumulated weight exceeds u times the total; a last one of weight 0 is
// never taken.
Value sample_with_replacement(Op& o, const Value& weights, int64_t samples) {
  const int64_t rows = weights.dim(0), n = weights.dim(1);
  const Value zero = ir::constant(o.builder(), 0, Type(weights.dtype(), {}));
  const ir::Window window{.dimensions = {1, n},
                          .strides = {},
                          .base_dilations = {},
                          .window_dilations = {},
                          .padding = {{0, 0}, {n - 1, 0}}};
  const Value sums =
      ir::reduce_window({weights}, {zero}, window, [](const Values& a) { return Values{ir::add(a[0], a[1])}; })[0];
  const Type type(weights.dtype(), {rows, samples, n});
  const Value total = ir::reshape(ir::slice_in_dim(sums, 1, n - 1, n), {rows});
  const Value u = unit_interval(draw(o, {rows, samples}), weights.dtype(), digits(weights.dtype()));
  const Value target = ir::multiply(u, ir::broadcast_in_dim(total, u.type().with(weights.dtype()), {0}));
  const Value passed =
      ir::compare(ir::broadcast_in_dim(sums, type, {0, 2}), ir::broadcast_in_dim(target, type, {0, 1}), "LE");
  const Type i32(DType::kI32, {});
  const Value index = ir::reduce(ir::convert(passed, DType::kI32), ir::constant(o.builder(), 0, i32), {2}, "add");
  const Value position = ir::iota(o.builder(), weights.type().with(DType::kI32), 1);
  const Value taken = ir::select(ir::compare(weights, zero, "GT"), position, ir::zeros_like(position));
  const Value last = ir::reduce(taken, ir::constant(o.builder(), 0, i32), {1}, "maximum");
  return ir::minimum(index, ir::broadcast_in_dim(last, index.type(), {0}));
}

// The largest of weight / exponential (as on CPU and CUDA): sampling in the order of an exponential
// race.
Value sample_without_replacement(Op& o, const Value& weights, int64_t samples) {
  const Value key = ir::divide(weights, ir::negate(ir::log(open_interval(draw(o, weights.dims()), weights.dtype()))));
  const Value position = ir::iota(o.builder(), weights.type().with(DType::kI32), 1);
  const Value order = ir::sort({key, position}, 1, true,
                               [](const Values& a) { return Values{ir::compare(a[0], a[1], "GT", "TOTALORDER")}; })[1];
  return ir::slice_in_dim(order, 1, 0, samples);
}

Value multinomial(Op& o) {
  const Value self = ir::convert(o.in("self"), real_dtype(o.in("self").dtype()));
  const int64_t samples = o.integer("num_samples"), n = self.dim(self.rank() - 1);
  if (!ir::is_floating(o.in("self").dtype()))
    throw UserError("multinomial only supports floating-point dtypes for input");
  if (n > (int64_t{1} << 24)) throw UserError("number of categories cannot exceed 2^24");
  if (samples <= 0) throw UserError("cannot sample n_sample <= 0 samples");
  if (!o.flag("replacement") && samples > n) {
    throw UserError("cannot sample n_sample > prob_dist.size(-1) samples without replacement");
  }
  if (o.out().numel() == 0) return ir::constant(o.builder(), 0, o.out());
  if (n == 0) throw UserError("multinomial cannot sample from no categories");
  const Value weights = ir::reshape(self, {self.type().numel() / n, n});
  const Value zero = ir::constant(o.builder(), 0, Type(weights.dtype(), {}));
  const Value negative = ir::compare(weights, zero, "LT"), odd = ir::not_(ir::is_finite(weights));
  const Value none = ir::constant_bool(o.builder(), false, Type(DType::kI1, {}));
  const Value code = ir::constant(o.builder(), 0, Type(DType::kI64, {}));
  auto refuse = [&](const Value& bad, const char* why) {
    o.context().check(ir::reduce(bad, none, {0, 1}, "or"), code, "RuntimeError", why);
  };
  // PyTorch has another kernel, with other words, for many draws with replacement.
  if (o.flag("replacement") && samples > 1) {
    refuse(negative, "invalid multinomial distribution (encountering probability entry < 0)");
    refuse(odd, "invalid multinomial distribution (encountering probability entry = infinity or NaN)");
  } else {
    refuse(ir::or_(negative, odd), "probability tensor contains either `inf`, `nan` or element < 0");
  }
  const Value empty = ir::compare(ir::reduce(weights, zero, {1}, "add"), zero, "LE");
  o.context().check(ir::reduce(empty, none, {0}, "or"), code, "RuntimeError",
                    "invalid multinomial distribution (sum of probabilities <= 0)");
  const Value taken = o.flag("replacement") ? sample_with_replacement(o, weights, samples)
                                            : sample_without_replacement(o, weights, samples);
  return ir::convert(ir::reshape(taken, o.out().dims()), DType::kI64);
}

// ---- dropout ----

Values native_dropout(Op& o) {
  const Value x = o.x("input");
  if (o.has("train") && !o.flag("train")) return {x, ir::constant_bool(o.builder(), true, o.out(1))};
  const Value p = o.scalar("p", DType::kF64), one = ir::full_like(p, 1), keep = ir::subtract(one, p);
  const Value scale =
      ir::select(ir::compare(keep, ir::zeros_like(keep), "EQ"), ir::zeros_like(keep), ir::divide(one, keep));
  const Value mask = bernoulli_mask(draw(o), keep);
  return {ir::multiply(ir::multiply(x, ir::convert(mask, x.dtype())), ir::convert(scale, x.dtype())), mask};
}

Value native_dropout_backward(Op& o) {
  return ir::multiply(ir::multiply(o.x("grad_output"), o.x("mask")), o.scalar("scale", o.compute_dtype()));
}

const Traits kRandom{.random = true};

// Leaky with a random slope while training, else with the middle one: the result, and the slopes as noise.
Values rrelu(Op& o) {
  const Value self = o.in("self"), noise = o.in("noise");
  const Value x = ir::convert(self, real_dtype(self.dtype()));
  const auto number = [&](const char* name) { return o.scalar(name, x.dtype()); };
  const Value low = number("lower"), high = number("upper"), one = ir::full_like(x, 1);
  const Value is_low = ir::compare(x, ir::zeros_like(x), "LE");
  if (!o.flag("training")) {
    const Value middle = ir::divide(ir::add(low, high), ir::full_like(low, 2));
    return {ir::convert(ir::select(is_low, ir::multiply(x, middle), x), self.dtype()), noise};
  }
  const Value u = unit_interval(draw(o, x.dims()), x.dtype(), digits(self.dtype()));
  const Value slope = ir::add(ir::multiply(u, ir::subtract(high, low)), low);
  const Value used = ir::select(is_low, slope, one);
  return {ir::convert(ir::multiply(x, used), self.dtype()), ir::convert(used, noise.dtype())};
}

// The noise is written, and so comes before what is returned.
Values rrelu_with_noise(Op& o) {
  const Values r = rrelu(o);
  return {r[1], r[0]};
}

const Row kRows[] = {
    {"rrelu_with_noise", rrelu_with_noise, kRandom},
    {"rrelu_with_noise_", rrelu, kRandom},
    {"rrelu_with_noise_functional", rrelu, kRandom},
    {"uniform_", uniform, kRandom},
    {"normal_", normal, kRandom},
    {"normal.Tensor_Tensor", normal_of_tensors, kRandom},
    {"normal.Tensor_float", normal_of_tensors, kRandom},
    {"normal.float_Tensor", normal_of_tensors, kRandom},
    {"log_normal_", [](Op& o) { return ir::exponential(normal(o)); }, kRandom},
    {"bernoulli", bernoulli_of_tensor("self"), kRandom},
    {"bernoulli.p", bernoulli_of_number, kRandom},
    {"bernoulli_.float", bernoulli_of_number, kRandom},
    {"bernoulli_.Tensor", bernoulli_of_tensor("p"), kRandom},
    {"random_", random_integers, kRandom},
    {"random_.to", random_to, {.runtime_args = {"to"}, .random = true}},
    {"random_.from", random_from, {.runtime_args = {"from", "to"}, .random = true}},
    {"exponential_", from_open_interval(exponential), kRandom},
    {"geometric_", from_open_interval(geometric, /*takes_integers=*/true), kRandom},
    {"cauchy_", from_open_interval(cauchy), kRandom},
    {"randperm.generator_out", random_permutation, kRandom},
    {"multinomial", multinomial, kRandom},
    {"native_dropout", native_dropout, kRandom},
    {"native_dropout_backward", native_dropout_backward},
};

}  // namespace

Words threefry(const Value& seed, const Value& offset, const Dims& shape) {
  ir::Builder& b = seed.builder();
  const int64_t n = Type(DType::kUI64, shape).numel();
  const Value flat = ir::reshape(ir::iota(b, Type(DType::kUI64, {n}), 0), shape);
  const Value counter = ir::add(flat, ir::broadcast_to(offset, shape));
  const Value key[2] = {ir::convert(seed, DType::kUI32), ir::convert(high_word(seed), DType::kUI32)};
  const Value keys[3] = {key[0], key[1], ir::xor_(ir::xor_(key[0], key[1]), u32(b, 0x1BD11BDA))};
  Value x = ir::add(ir::convert(counter, DType::kUI32), keys[0]);
  Value y = ir::add(ir::convert(high_word(counter), DType::kUI32), keys[1]);
  constexpr int kRotations[2][4] = {{13, 15, 26, 6}, {17, 29, 16, 24}};
  for (int group = 0; group < 5; ++group) {
    for (int rotation : kRotations[group % 2]) {
      x = ir::add(x, y);
      y = ir::xor_(rotate_left(y, rotation), x);
    }
    x = ir::add(x, keys[(group + 1) % 3]);
    y = ir::add(y, ir::add(keys[(group + 2) % 3], u32(b, group + 1)));
  }
  return {x, y};
}

Value unit_interval(const Words& words, DType dtype, int digits) {
  ir::Builder& b = words.first.builder();
  const Value bits = digits > 32 ? ir::shift_right_logical(joined(words), u64(b, 64 - digits))
                                 : ir::shift_right_logical(words.first, u32(b, 32 - digits));
  const Value whole = ir::convert(bits, dtype);
  return ir::multiply(whole, ir::full_like(whole, std::ldexp(1.0, -digits)));
}

Value open_interval(const Words& words, DType dtype) {
  const int steps = dtype == DType::kF64 ? 52 : 23;
  const Value u = unit_interval(words, dtype, steps);
  return ir::add(u, ir::full_like(u, std::ldexp(0.5, -steps)));
}

std::pair<Value, Value> standard_normals(const Value& seed, const Value& offset, const Dims& shape, DType real) {
  const Words w = threefry(seed, offset, shape);
  Value radius_unit, angle_unit;
  if (real == DType::kF64) {
    // 53 bits each need two more words: the same counters under another key.
    const Words more = threefry(ir::not_(seed), offset, shape);
    const Value u = unit_interval(w, real, 53);
    radius_unit = ir::subtract(ir::full_like(u, 1), u);
    angle_unit = unit_interval(more, real, 53);
  } else {
    const Value word = ir::convert(w.first, real);
    radius_unit = ir::add(ir::multiply(word, ir::full_like(word, std::ldexp(1.0, -32))),
                          ir::full_like(word, std::ldexp(1.0, -33)));
    angle_unit = unit_interval({w.second, w.first}, real, 24);
  }
  const Value radius = ir::sqrt(ir::multiply(ir::log(radius_unit), ir::full_like(radius_unit, -2)));
  const Value angle = ir::multiply(angle_unit, ir::full_like(angle_unit, 2 * std::numbers::pi));
  return {ir::multiply(radius, ir::cosine(angle)), ir::multiply(radius, ir::sine(angle))};
}

Value bernoulli_mask(const Words& words, const Value& p) {
  // 32 bits against a threshold: exact at p = 0 and, with the comparison in 64 bits, at p = 1.
  const Value scaled = ir::multiply(p, ir::full_like(p, std::ldexp(1.0, 32)));
  return ir::compare(ir::convert(words.first, DType::kUI64), ir::convert(scaled, DType::kUI64), "LT");
}

std::span<const Row> random_rows() { return kRows; }

}  // namespace tpu::ops
