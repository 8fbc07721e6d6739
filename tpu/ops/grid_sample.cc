// grid_sample: the input read between its elements, at places that the grid gives, and its gradients.
#include <algorithm>
#include <cmath>

#include "tpu/ops/indexing.h"
#include "tpu/ops/reduction.h"
#include "tpu/ops/table.h"

namespace tpu::ops {
namespace {

enum Interpolation { kLinear = 0, kNearest = 1, kCubic = 2 };
enum Padding { kZeros = 0, kBorder = 1, kReflection = 2 };

Value like(const Value& v, double number) { return ir::full_like(v, number); }

struct Settings {
  int64_t interpolation, padding;
  bool align_corners;
};

// A place in one dimension, with its derivative by the grid's number.
struct Place {
  Value at, slope;
};

// From [-1, 1] to element numbers.
Place unnormalized(const Value& x, int64_t size, bool align_corners) {
  const double n = static_cast<double>(size);
  const Value shifted = ir::add(x, like(x, 1));
  if (align_corners) return {ir::multiply(shifted, like(x, (n - 1) / 2)), like(x, (n - 1) / 2)};
  const Value wide = ir::subtract(ir::multiply(shifted, like(x, n)), like(x, 1));
  return {ir::multiply(wide, like(x, 0.5)), like(x, n / 2)};
}

Place clipped(const Place& p, int64_t size) {
  const Value low = like(p.at, 0), high = like(p.at, static_cast<double>(size - 1));
  // At the ends themselves the slope is 0, as in PyTorch.
  const Value inside = ir::and_(ir::compare(p.at, low, "GT"), ir::compare(p.at, high, "LT"));
  return {ir::minimum(ir::maximum(p.at, low), high), ir::select(inside, p.slope, low)};
}

// Mirrored at twice_low / 2 and twice_high / 2 until it lies between.
Place reflected(const Place& p, int64_t twice_low, int64_t twice_high) {
  const Value zero = like(p.at, 0);
  if (twice_low == twice_high) return {zero, zero};
  const Value low = like(p.at, static_cast<double>(twice_low) / 2);
  const Value span = like(p.at, static_cast<double>(twice_high - twice_low) / 2);
  const Value off = ir::subtract(p.at, low), distance = ir::abs(off);
  const Value extra = ir::remainder(distance, span), flips = ir::floor(ir::divide(distance, span));
  const Value odd = ir::compare(ir::remainder(flips, like(flips, 2)), zero, "NE");
  const Value slope = ir::select(ir::compare(off, zero, "LT"), ir::negate(p.slope), p.slope);
  return {ir::add(ir::select(odd, ir::subtract(span, extra), extra), low), ir::select(odd, ir::negate(slope), slope)};
}

Place padded(const Place& p, int64_t size, const Settings& s) {
  if (s.padding == kBorder) return clipped(p, size);
  if (s.padding != kReflection) return p;
  return clipped(s.align_corners ? reflected(p, 0, 2 * (size - 1)) : reflected(p, -1, 2 * size - 1), size);
}

// One element that counts along one dimension: where (a whole number), how much, and the derivative of that.
struct Tap {
  Value at, weight, slope;
};

// Cubic convolution (Keys, a = -0.75) of a sample `x` away, and its derivative by x.
Value cubic_near(const Value& x, double a) {
  const Value inner = ir::subtract(ir::multiply(like(x, a + 2), x), like(x, a + 3));
  return ir::add(ir::multiply(ir::multiply(inner, x), x), like(x, 1));
}
Value cubic_near_slope(const Value& x, double a) {
  return ir::multiply(ir::subtract(ir::multiply(like(x, 3 * (a + 2)), x), like(x, 2 * (a + 3))), x);
}
Value cubic_far(const Value& x, double a) {
  const Value inner =
      ir::add(ir::multiply(ir::subtract(ir::multiply(like(x, a), x), like(x, 5 * a)), x), like(x, 8 * a));
  return ir::subtract(ir::multiply(inner, x), like(x, 4 * a));
}
Value cubic_far_slope(const Value& x, double a) {
  return ir::add(ir::multiply(ir::subtract(ir::multiply(like(x, 3 * a), x), like(x, 10 * a)), x), like(x, 8 * a));
}

std::vector<Tap> taps_of(const Value& x, int64_t size, const Settings& s) {
  const Place raw = unnormalized(x, size, s.align_corners);
  if (s.interpolation == kCubic) {
    constexpr double a = -0.75;
    const Value base = ir::floor(raw.at), t = ir::subtract(raw.at, base), one = like(t, 1);
    const Value r = ir::subtract(one, t), up = ir::add(t, one), down = ir::add(r, one);
    const Value weights[] = {cubic_far(up, a), cubic_near(t, a), cubic_near(r, a), cubic_far(down, a)};
    const Value slopes[] = {cubic_far_slope(up, a), cubic_near_slope(t, a), ir::negate(cubic_near_slope(r, a)),
                            ir::negate(cubic_far_slope(down, a))};
    std::vector<Tap> taps;
    for (int i = 0; i < 4; ++i) {
      const Place at{ir::add(base, like(base, i - 1)), raw.slope};
      taps.push_back({padded(at, size, s).at, weights[i], ir::multiply(slopes[i], raw.slope)});
    }
    return taps;
  }
  const Place p = padded(raw, size, s);
  if (s.interpolation == kNearest) return {{ir::round_nearest_even(p.at), like(p.at, 1), like(p.at, 0)}};
  const Value base = ir::floor(p.at), t = ir::subtract(p.at, base);
  return {{base, ir::subtract(like(t, 1), t), ir::negate(p.slope)}, {ir::add(base, like(base, 1)), t, p.slope}};
}

// All elements that count, as combinations of one tap per dimension.
struct Sample {
  Value index;    // i32 [batch, points] into the flat spatial dimensions; their number where it is outside
  Value weight;   // [batch, points], 0 outside
  Values slopes;  // by each dimension's number in the grid
};

struct Problem {
  Settings settings;
  Value input;  // [batch, elements, channels]
  std::vector<Sample> samples;
  int64_t batch, channels, elements, points, rank;
};

Problem setup(Op& o, const Value& input, const Value& grid) {
  Problem p;
  p.settings = {o.integer("interpolation_mode"), o.integer("padding_mode"), o.flag("align_corners")};
  p.rank = input.rank() - 2;
  p.batch = input.dim(0), p.channels = input.dim(1), p.elements = 1, p.points = 1;
  for (int64_t d = 0; d < p.rank; ++d) p.elements *= input.dim(2 + d), p.points *= grid.dim(1 + d);
  p.input = ir::transpose(ir::reshape(input, {p.batch, p.channels, p.elements}), {0, 2, 1});
  if (p.batch == 0 || p.points == 0) return p;
  const Value flat = ir::reshape(grid, {p.batch, p.points, p.rank});
  std::vector<std::vector<Tap>> taps;
  for (int64_t d = 0; d < p.rank; ++d) {
    // The grid's last dimension names x first: the last dimension of the input.
    const int64_t k = p.rank - 1 - d;
    const Value x = ir::reshape(ir::slice_in_dim(flat, 2, k, k + 1), {p.batch, p.points});
    taps.push_back(taps_of(x, input.dim(2 + d), p.settings));
  }
  size_t count = 1;
  for (const auto& t : taps) count *= t.size();
  for (size_t combination = 0; combination < count; ++combination) {
    Sample s;
    Value inside;
    std::vector<const Tap*> chosen;
    size_t rest = combination;
    for (int64_t d = 0; d < p.rank; ++d) {
      chosen.push_back(&taps[d][rest % taps[d].size()]);
      rest /= taps[d].size();
      const Value at = chosen.back()->at;
      const int64_t size = input.dim(2 + d);
      const Value in =
          ir::and_(ir::compare(at, like(at, 0), "GE"), ir::compare(at, like(at, static_cast<double>(size)), "LT"));
      inside = inside ? ir::and_(inside, in) : in;
      const Value number = ir::convert(at, DType::kI32);
      s.index = s.index ? ir::add(ir::multiply(s.index, ir::full_like(s.index, size)), number) : number;
    }
    s.index = ir::select(inside, s.index, ir::full_like(s.index, p.elements));
    const auto product = [&](int64_t derived) {
      Value v;
      for (int64_t d = 0; d < p.rank; ++d) {
        const Value factor = d == derived ? chosen[d]->slope : chosen[d]->weight;
        v = v ? ir::multiply(v, factor) : factor;
      }
      return ir::select(inside, v, ir::zeros_like(v));
    };
    s.weight = product(-1);
    for (int64_t d = 0; d < p.rank; ++d) s.slopes.push_back(product(d));
    p.samples.push_back(std::move(s));
  }
  return p;
}

// [batch, points, channels] of the sample; what is outside is some number.
Value elements_at(const Problem& p, const Value& index) {
  ir::GatherDims g;
  g.offset_dims = {2};
  g.collapsed_slice_dims = g.start_index_map = {1};
  g.operand_batching_dims = g.start_indices_batching_dims = {0};
  g.index_vector_dim = 2;
  g.slice_sizes = {1, 1, p.channels};
  return ir::gather(p.input, index, g, Type(p.input.dtype(), {p.batch, p.points, p.channels}));
}

Value over_channels(const Value& v, const Problem& p) {
  return ir::broadcast_in_dim(v, Type(v.dtype(), {p.batch, p.points, p.channels}), {0, 1});
}

// An infinity outside does not count.
Value weighted(const Value& weight, const Value& v, const Problem& p) {
  const Value w = over_channels(weight, p), zero = ir::zeros_like(w);
  return ir::select(ir::compare(w, zero, "EQ"), zero, ir::multiply(w, v));
}

Value grid_sampler(Op& o) {
  const Value input = o.compute("input"), grid = o.compute("grid");
  const Problem p = setup(o, input, grid);
  if (o.out().numel() == 0) return ir::constant(o.builder(), 0, o.out());
  Value sum;
  for (const Sample& s : p.samples) {
    const Value part = weighted(s.weight, elements_at(p, s.index), p);
    sum = sum ? ir::add(sum, part) : part;
  }
  return ir::reshape(ir::transpose(sum, {0, 2, 1}), o.out().dims());
}

Values grid_sampler_backward(Op& o) {
  const Value input = ir::convert(o.in("input"), ir::opmath(o.in("input").dtype()));
  const Value grid = ir::convert(o.in("grid"), input.dtype());
  const Problem p = setup(o, input, grid);
  const bool wants_input = o.ints("output_mask").at(0) != 0;
  if (p.batch == 0 || p.points == 0 || p.channels == 0) {
    return {wants_input ? ir::zeros_like(input) : Value(), ir::zeros_like(grid)};
  }
  const Value grad = ir::transpose(
      ir::reshape(ir::convert(o.in("grad_output"), input.dtype()), {p.batch, p.channels, p.points}), {0, 2, 1});
  Value grad_input = ir::zeros_like(p.input);
  Values by_place(p.rank);
  ir::ScatterDims scatter;
  scatter.update_window_dims = {2};
  scatter.inserted_window_dims = scatter.scatter_dims_to_operand_dims = {1};
  scatter.input_batching_dims = scatter.scatter_indices_batching_dims = {0};
  scatter.index_vector_dim = 2;
  for (const Sample& s : p.samples) {
    if (wants_input) {
      grad_input = ir::scatter(grad_input, s.index, ir::multiply(over_channels(s.weight, p), grad), scatter,
                               [](const Values& a) { return Values{ir::add(a[0], a[1])}; });
    }
    if (p.settings.interpolation == kNearest) continue;
    const Value along = sum_over(ir::multiply(elements_at(p, s.index), grad), {2});
    for (int64_t d = 0; d < p.rank; ++d) {
      const Value is_zero = ir::compare(s.slopes[d], ir::zeros_like(s.slopes[d]), "EQ");
      const Value part = ir::select(is_zero, ir::zeros_like(along), ir::multiply(s.slopes[d], along));
      by_place[d] = by_place[d] ? ir::add(by_place[d], part) : part;
    }
  }
  Value grad_grid = ir::zeros_like(grid);
  if (p.settings.interpolation != kNearest) {
    Values parts;
    for (int64_t d = p.rank - 1; d >= 0; --d) parts.push_back(ir::unsqueeze(by_place[d], 2));
    grad_grid = ir::reshape(ir::concatenate(parts, 2), grid.dims());
  }
  return {wants_input ? ir::reshape(ir::transpose(grad_input, {0, 2, 1}), input.dims()) : Value(), grad_grid};
}

const Row kRows[] = {
    {"grid_sampler_2d", grid_sampler},
    {"grid_sampler_2d_backward", grid_sampler_backward},
    {"grid_sampler_3d", grid_sampler},
    {"grid_sampler_3d_backward", grid_sampler_backward},
};

}  // namespace

std::span<const Row> grid_sample_rows() { return kRows; }

}  // namespace tpu::ops
