// Interpolation (upsample_*): every mode is a sum of a few weighted samples in each dimension.
#include <algorithm>
#include <bit>
#include <cmath>

#include "tpu/ops/rules.h"
#include "tpu/ops/table.h"

namespace tpu::ops {
namespace {

enum class Mode { kNearest, kNearestExact, kLinear, kCubic, kLinearAntialias, kCubicAntialias };

struct Resize {
  Mode mode;
  int64_t in, out;
  bool align_corners;
  std::optional<double> scale;
};

// Sample k of result o is element index[k][o], times weight[k][o] (no weights: 1).
struct Samples {
  std::vector<Dims> index;
  std::vector<std::vector<double>> weight;
};

// ---- where samples lie: ATen/native/UpSample.h and cpu/UpSampleKernel.cpp, in their precision
// ----

template <typename T>
T scale_of(const Resize& r) {
  if (r.align_corners) return r.out > 1 ? static_cast<T>(r.in - 1) / (r.out - 1) : T{0};
  if (r.scale && *r.scale > 0) return static_cast<T>(1.0 / *r.scale);
  return static_cast<T>(r.in) / r.out;
}

Samples nearest(const Resize& r) {
  const float scale = scale_of<float>(r);
  const float shift = r.mode == Mode::kNearestExact ? 0.5f : 0.0f;
  Samples s{{Dims(r.out)}, {}};
  for (int64_t o = 0; o < r.out; ++o) {
    const float at = (static_cast<float>(o) + shift) * scale;
    s.index[0][o] = std::min(static_cast<int64_t>(std::floor(at)), r.in - 1);
  }
  return s;
}

template <typename T>
T cubic_near(T x, T a) {
  return ((a + 2) * x - (a + 3)) * x * x + 1;
}
template <typename T>
T cubic_far(T x, T a) {
  return ((a * x - 5 * a) * x + 8 * a) * x - 4 * a;
}

// Linear and cubic: 2 or 4 neighbours, those outside moved to the edge.
template <typename T>
Samples neighbours(const Resize& r) {
  const bool cubic = r.mode == Mode::kCubic;
  const int64_t taps = cubic ? 4 : 2, before = cubic ? 1 : 0;
  const T scale = scale_of<T>(r);
  Samples s{std::vector<Dims>(taps, Dims(r.out)), std::vector<std::vector<double>>(taps, std::vector<double>(r.out))};
  for (int64_t o = 0; o < r.out; ++o) {
    T at = r.align_corners ? scale * o : scale * (o + T{0.5}) - T{0.5};
    if (!cubic && !r.align_corners) at = std::max(at, T{0});
    const int64_t first = std::min(static_cast<int64_t>(std::floor(at)), r.in - 1);
    const T t = std::clamp(at - static_cast<T>(first), T{0}, T{1});
    const T a = -0.75;
    const T weights[4] = {cubic_far<T>(t + 1, a), cubic_near<T>(t, a), cubic_near<T>(1 - t, a), cubic_far<T>(2 - t, a)};
    for (int64_t k = 0; k < taps; ++k) {
      s.index[k][o] = std::clamp<int64_t>(first - before + k, 0, r.in - 1);
      s.weight[k][o] = cubic ? weights[k] : (k == 0 ? 1 - t : t);
    }
  }
  return s;
}

// Antialiased: a filter as wide as the scale, normalised.
template <typename T>
Samples filtered(const Resize& r) {
  const bool cubic = r.mode == Mode::kCubicAntialias;
  const T scale = scale_of<T>(r);
  const T support = (cubic ? T{2} : T{1}) * std::max(scale, T{1});
  const T inverse = scale >= 1 ? 1 / scale : T{1};
  const int64_t most = static_cast<int64_t>(std::ceil(support)) * 2 + 1;
  auto filter = [cubic](T x) {
    x = std::abs(x);
    if (!cubic) return x < 1 ? 1 - x : T{0};
    const T a = -0.5;
    return x < 1 ? cubic_near<T>(x, a) : x < 2 ? cubic_far<T>(x, a) : T{0};
  };
  Samples s;
  for (int64_t o = 0; o < r.out; ++o) {
    const T center = scale * (o + T{0.5});
    const int64_t first = std::max<int64_t>(static_cast<int64_t>(center - support + T{0.5}), 0);
    const int64_t end = std::min(static_cast<int64_t>(center + support + T{0.5}), r.in);
    const int64_t taps = std::clamp<int64_t>(end - first, 0, most);
    T total = 0;
    for (int64_t k = 0; k < taps; ++k) total += filter((k + first - center + T{0.5}) * inverse);
    for (int64_t k = 0; k < taps; ++k) {
      if (static_cast<size_t>(k) == s.index.size()) {
        s.index.emplace_back(r.out, 0);
        s.weight.emplace_back(r.out, 0.0);
      }
      const T w = filter((k + first - center + T{0.5}) * inverse);
      s.index[k][o] = first + k;
      s.weight[k][o] = total != 0 ? w / total : w;
    }
  }
  return s;
}

template <typename T>
Samples samples_in(const Resize& r) {
  switch (r.mode) {
    case Mode::kNearest:
    case Mode::kNearestExact:
      return nearest(r);
    case Mode::kLinear:
    case Mode::kCubic:
      return neighbours<T>(r);
    default:
      return filtered<T>(r);
  }
}

// ---- programs ----

Value floats(ir::Builder& b, const std::vector<double>& values, DType dtype) {
  Dims bits;
  for (double v : values) {
    bits.push_back(dtype == DType::kF64 ? std::bit_cast<int64_t>(v) : std::bit_cast<int32_t>(static_cast<float>(v)));
  }
  const Type type(dtype == DType::kF64 ? DType::kI64 : DType::kI32, {static_cast<int64_t>(bits.size())});
  return ir::bitcast_convert(ir::constant_i64(b, bits, type), dtype);
}

Value integers(ir::Builder& b, const Dims& values) {
  return ir::constant_i64(b, values, Type(DType::kI32, {static_cast<int64_t>(values.size())}));
}

// How many times each element is repeated where that is all there is to do; 0 otherwise.
int64_t repeats(const Samples& s, const Resize& r) {
  if (!s.weight.empty() || r.in == 0 || r.out % r.in != 0) return 0;
  const int64_t times = r.out / r.in;
  for (int64_t o = 0; o < r.out; ++o) {
    if (s.index[0][o] != o / times) return 0;
  }
  return times;
}

// x's dimension d as two, [size / times, times].
Dims split_dims(const Value& x, int64_t d, int64_t times) {
  Dims dims = x.dims();
  dims[d] /= times;
  dims.insert(dims.begin() + d + 1, times);
  return dims;
}

Value take(const Value& x, int64_t d, const Dims& index) {
  ir::GatherDims g;
  g.slice_sizes = x.dims();
  g.slice_sizes[d] = 1;
  Dims result = x.dims();
  result[d] = static_cast<int64_t>(index.size());
  for (int64_t i = 0; i < x.rank(); ++i) {
    if (i != d) g.offset_dims.push_back(i);
  }
  g.collapsed_slice_dims = {d};
  g.start_index_map = {d};
  g.index_vector_dim = 1;
  return ir::gather(x, integers(x.builder(), index), g, x.type().with(result));
}

Value resize_dim(const Value& x, int64_t d, const Samples& s, const Resize& r) {
  if (const int64_t times = repeats(s, r)) {
    if (times == 1) return x;
    Dims wide = x.dims(), map, result = x.dims();
    wide.insert(wide.begin() + d + 1, times);
    for (int64_t i = 0; i < x.rank(); ++i) map.push_back(i <= d ? i : i + 1);
    result[d] *= times;
    return ir::reshape(ir::broadcast_in_dim(x, x.type().with(wide), map), result);
  }
  if (s.weight.empty()) return take(x, d, s.index[0]);
  Value sum;
  for (size_t k = 0; k < s.index.size(); ++k) {
    const Value sample = take(x, d, s.index[k]);
    const Value weight = ir::broadcast_in_dim(floats(x.builder(), s.weight[k], x.dtype()), sample.type(), {d});
    const Value term = ir::multiply(sample, weight);
    sum = sum ? ir::add(sum, term) : term;
  }
  return sum;
}

// The gradient: each result's share goes back to its samples, as a product with the [out, in]
// matrix.
Value resize_dim_backward(const Value& grad, int64_t d, const Samples& s, const Resize& r) {
  ir::Builder& b = grad.builder();
  const Value zero = ir::constant(b, 0, Type(grad.dtype(), {}));
  if (const int64_t times = repeats(s, r)) {
    if (times == 1) return grad;
    return ir::reduce(ir::reshape(grad, split_dims(grad, d, times)), zero, {d + 1}, "add");
  }
  const Type matrix(grad.dtype(), {r.out, r.in});
  const Value column = ir::iota(b, matrix.with(DType::kI32), 1);
  Value weights = ir::constant(b, 0, matrix);
  for (size_t k = 0; k < s.index.size(); ++k) {
    const Value at = ir::broadcast_in_dim(integers(b, s.index[k]), column.type(), {0});
    const Value share = s.weight.empty() ? ir::constant(b, 1, matrix)
                                         : ir::broadcast_in_dim(floats(b, s.weight[k], grad.dtype()), matrix, {0});
    weights = ir::add(weights, ir::select(ir::compare(column, at, "EQ"), share, ir::constant(b, 0, matrix)));
  }
  const Value product = ir::dot_general(
      grad, weights, {.lhs_batching = {}, .rhs_batching = {}, .lhs_contracting = {d}, .rhs_contracting = {0}},
      grad.dtype());
  // The new dimension comes last; back to its place.
  Dims order;
  for (int64_t i = 0; i + 1 < product.rank(); ++i) order.push_back(i);
  order.insert(order.begin() + d, product.rank() - 1);
  return ir::transpose(product, order);
}

Resize resize_of(Op& o, Mode mode, int64_t axis, int64_t axes, int64_t in, int64_t out) {
  constexpr const char* kNames[] = {"scales_d", "scales_h", "scales_w"};
  const char* name = axes == 1 ? "scales" : kNames[3 - axes + axis];
  Resize r{mode, in, out, false, std::nullopt};
  if (mode != Mode::kNearest && mode != Mode::kNearestExact) r.align_corners = o.flag("align_corners");
  if (o.has(name)) r.scale = o.number(name);
  return r;
}

Samples samples(const Resize& r, DType dtype) {
  return dtype == DType::kF64 ? samples_in<double>(r) : samples_in<float>(r);
}

bool is_nearest(Mode mode) { return mode == Mode::kNearest || mode == Mode::kNearestExact; }

Rule resize(Mode mode) {
  return [mode](Op& o) {
    const bool integers_in = ir::is_integral(o.out().dtype());
    Value x = o.in("self");
    if (!is_nearest(mode)) x = integers_in ? ir::convert(x, DType::kF32) : o.compute("self");
    const int64_t axes = x.rank() - 2;
    for (int64_t i = axes - 1; i >= 0; --i) {
      const Resize r = resize_of(o, mode, i, axes, x.dim(i + 2), o.out().dim(i + 2));
      if (r.in == r.out && mode == Mode::kLinear) continue;
      x = resize_dim(x, i + 2, samples(r, x.dtype()), r);
      // CPU keeps bytes between the axes.
      if (integers_in && !is_nearest(mode)) {
        x = ir::clamp(ir::zeros_like(x), ir::floor(ir::add(x, ir::full_like(x, 0.5))), ir::full_like(x, 255));
      }
    }
    return ir::convert(x, integers_in ? o.out().dtype() : x.dtype());
  };
}

Rule resize_backward(Mode mode) {
  return [mode](Op& o) {
    Value grad = o.compute("grad_output");
    const int64_t axes = grad.rank() - 2;
    for (int64_t i = 0; i < axes; ++i) {
      const Resize r = resize_of(o, mode, i, axes, o.out().dim(i + 2), grad.dim(i + 2));
      if (r.in == r.out && mode == Mode::kLinear) continue;
      grad = resize_dim_backward(grad, i + 2, samples(r, grad.dtype()), r);
    }
    return grad;
  };
}

// Scales are part of the program: they decide which elements are sampled.
const Traits kScales1d = {.static_args = {"scales"}};
const Traits kScales2d = {.static_args = {"scales_h", "scales_w"}};
const Traits kScales3d = {.static_args = {"scales_d", "scales_h", "scales_w"}};

const Row kRows[] = {
    {"upsample_nearest1d", resize(Mode::kNearest), kScales1d},
    {"upsample_nearest2d", resize(Mode::kNearest), kScales2d},
    {"upsample_nearest3d", resize(Mode::kNearest), kScales3d},
    {"upsample_nearest1d_backward", resize_backward(Mode::kNearest), kScales1d},
    {"upsample_nearest2d_backward", resize_backward(Mode::kNearest), kScales2d},
    {"upsample_nearest3d_backward", resize_backward(Mode::kNearest), kScales3d},
    {"_upsample_nearest_exact1d", resize(Mode::kNearestExact), kScales1d},
    {"_upsample_nearest_exact2d", resize(Mode::kNearestExact), kScales2d},
    {"_upsample_nearest_exact3d", resize(Mode::kNearestExact), kScales3d},
    {"_upsample_nearest_exact1d_backward", resize_backward(Mode::kNearestExact), kScales1d},
    {"_upsample_nearest_exact2d_backward", resize_backward(Mode::kNearestExact), kScales2d},
    {"_upsample_nearest_exact3d_backward", resize_backward(Mode::kNearestExact), kScales3d},
    {"upsample_linear1d", resize(Mode::kLinear), kScales1d},
    {"upsample_bilinear2d", resize(Mode::kLinear), kScales2d},
    {"upsample_trilinear3d", resize(Mode::kLinear), kScales3d},
    {"upsample_linear1d_backward", resize_backward(Mode::kLinear), kScales1d},
    {"upsample_bilinear2d_backward", resize_backward(Mode::kLinear), kScales2d},
    {"upsample_trilinear3d_backward", resize_backward(Mode::kLinear), kScales3d},
    {"upsample_bicubic2d", resize(Mode::kCubic), kScales2d},
    {"upsample_bicubic2d_backward", resize_backward(Mode::kCubic), kScales2d},
    {"_upsample_bilinear2d_aa", resize(Mode::kLinearAntialias), kScales2d},
    {"_upsample_bilinear2d_aa_backward", resize_backward(Mode::kLinearAntialias), kScales2d},
    {"_upsample_bicubic2d_aa", resize(Mode::kCubicAntialias), kScales2d},
    {"_upsample_bicubic2d_aa_backward", resize_backward(Mode::kCubicAntialias), kScales2d},
};

}  // namespace

std::span<const Row> resize_rows() { return kRows; }

}  // namespace tpu::ops
