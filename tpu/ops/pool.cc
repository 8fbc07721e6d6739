// Max and average pooling over 2 or 3 trailing dimensions, fixed and adaptive, with gradients.
#include <algorithm>

#include "tpu/ops/rules.h"
#include "tpu/ops/table.h"

namespace tpu::ops {
namespace {

// The windows over the trailing dimensions of an operand; lists have one element per such
// dimension.
struct Pool {
  Dims kernel, stride, padding, dilation;
  int64_t rank() const { return static_cast<int64_t>(kernel.size()); }
};

Pool pool(Op& o, int64_t rank) {
  const auto all = [&](const char* name, const Dims& otherwise) {
    Dims d = o.ints(name);
    if (d.empty()) d = otherwise;
    if (d.size() == 1) d.resize(rank, d[0]);
    return d;
  };
  Pool p;
  p.kernel = all("kernel_size", {});
  p.stride = all("stride", p.kernel);
  p.padding = all("padding", {0});
  p.dilation = Dims(rank, 1);
  for (const Argument& a : o.arguments()) {
    if (a.name == "dilation") p.dilation = all("dilation", {1});
  }
  return p;
}

// The window of p over x that gives results of `sizes`: ceil_mode shows in the padding at the end
// only.
ir::Window window(const Pool& p, const Value& x, const Dims& sizes) {
  const int64_t lead = x.rank() - p.rank();
  ir::Window w{.dimensions = Dims(lead, 1),
               .strides = Dims(lead, 1),
               .base_dilations = {},
               .window_dilations = Dims(lead, 1),
               .padding = {}};
  w.padding.resize(lead, {0, 0});
  for (int64_t d = 0; d < p.rank(); ++d) {
    const int64_t reach = (sizes[lead + d] - 1) * p.stride[d] + (p.kernel[d] - 1) * p.dilation[d] + 1;
    w.dimensions.push_back(p.kernel[d]);
    w.strides.push_back(p.stride[d]);
    w.window_dilations.push_back(p.dilation[d]);
    w.padding.emplace_back(p.padding[d], std::max<int64_t>(reach - x.dim(lead + d) - p.padding[d], 0));
  }
  return w;
}

// Shape of `like` with the last `rank` sizes of `type`: what a rule may read when the batch is
// bounded.
Dims trailing(const Type& type, int64_t rank) {
  Dims d = type.bounds();
  for (int64_t i = type.rank() - rank; i < type.rank(); ++i) d[i] = type.dim(i);
  return d;
}

// ---- max ----

// Over (value, position): NaN wins, then the larger value; of NaNs the last, of equals the first,
// as on CPU.
Values larger(const Values& a) {
  const Value &x = a[0], &i = a[1], &y = a[2], &j = a[3];
  Value take_x = ir::or_(ir::compare(x, y, "GT"), ir::and_(ir::compare(x, y, "EQ"), ir::compare(i, j, "LT")));
  if (ir::is_floating(x.dtype())) {
    const Value x_nan = ir::is_nan(x), y_nan = ir::is_nan(y);
    const Value last = ir::or_(ir::not_(y_nan), ir::compare(i, j, "GT"));
    take_x = ir::select(x_nan, last, ir::and_(take_x, ir::not_(y_nan)));
  }
  return {ir::select(take_x, x, y), ir::select(take_x, i, j)};
}

Values larger_init(const Value& x) {
  ir::Builder& b = x.builder();
  return {ir::lowest(b, Type(x.dtype(), {})), ir::highest(b, Type(DType::kI32, {}))};
}

// Row-major position in the last `rank` dimensions, shaped like x.
Value positions(const Value& x, int64_t rank) {
  const Type type(DType::kI32, x.type().bounds());
  Value flat = ir::constant(x.builder(), 0, type);
  for (int64_t d = x.rank() - rank; d < x.rank(); ++d) {
    const Value size = ir::constant(x.builder(), x.dim(d), type);
    flat = ir::add(ir::multiply(flat, size), ir::iota(x.builder(), type, d));
  }
  return ir::with_sizes_of(flat, x);
}

Rule max_pool(int64_t rank) {
  return [rank](Op& o) {
    const Value x = o.in("self");
    const Pool p = pool(o, rank);
    if (o.out().bound_numel() == 0)
      return Values{ir::constant(o.builder(), 0, o.out()), ir::constant(o.builder(), 0, o.out(1))};
    const Values best =
        ir::reduce_window({x, positions(x, rank)}, larger_init(x), window(p, x, trailing(o.out(), rank)), larger);
    return Values{best[0], ir::convert(best[1], DType::kI64)};
  };
}

// Adds each gradient at its index in the plane of the last `rank` dimensions.
Rule max_pool_backward(int64_t rank) {
  return [rank](Op& o) {
    const Type& type = o.out();
    const DType dtype = ir::opmath(type.dtype());
    const Value grad = o.in("grad_output");
    int64_t planes = 1, area = 1, windows = 1;
    for (int64_t d = 0; d < type.rank(); ++d) (d < type.rank() - rank ? planes : area) *= type.dim(d);
    for (int64_t d = type.rank() - rank; d < type.rank(); ++d) windows *= grad.dim(d);
    const Value zeros = ir::constant(o.builder(), 0, Type(dtype, {planes, area}));
    if (planes * windows == 0 || area == 0) return ir::reshape(zeros, type.dims());
    const Value updates = ir::reshape(ir::convert(grad, dtype), {planes, windows});
    const Value index = ir::reshape(ir::convert(o.in("indices"), DType::kI32), {planes, windows, 1});
    const Value plane = ir::iota(o.builder(), index.type(), 0);
    const ir::ScatterDims dims{.update_window_dims = {},
                               .inserted_window_dims = {0, 1},
                               .input_batching_dims = {},
                               .scatter_indices_batching_dims = {},
                               .scatter_dims_to_operand_dims = {0, 1},
                               .index_vector_dim = 2};
    const Value sums = ir::scatter(zeros, ir::concatenate({plane, index}, 2), updates, dims,
                                   [](const Values& a) { return Values{ir::add(a[0], a[1])}; });
    return ir::reshape(sums, type.dims());
  };
}

// ---- average ----

// What the sum over each window is divided by: 0-d, or shaped as the pooled dimensions.
Value window_counts(Op& o, const Pool& p, const Dims& input, const Dims& output, DType dtype) {
  if (o.has("divisor_override")) return ir::constant(o.builder(), o.integer("divisor_override"), Type(dtype, {}));
  const bool with_padding = o.flag("count_include_pad");
  const size_t lead = output.size() - p.kernel.size();
  const Type type(dtype, Dims(output.begin() + lead, output.end()));
  Value total = ir::constant(o.builder(), 1, type);
  for (int64_t d = 0; d < p.rank(); ++d) {
    const int64_t n = input[lead + d];
    std::vector<int64_t> counts;
    for (int64_t i = 0; i < output[lead + d]; ++i) {
      const int64_t start = i * p.stride[d] - p.padding[d];
      const int64_t end = std::min(start + p.kernel[d], n + p.padding[d]);
      counts.push_back(with_padding ? end - start : std::min(end, n) - std::max<int64_t>(start, 0));
    }
    const Value c = ir::constant_i64(o.builder(), counts, Type(DType::kI64, {output[lead + d]}));
    total = ir::multiply(total, ir::broadcast_in_dim(ir::convert(c, dtype), type, {d}));
  }
  return total;
}

Value sum_windows(const Value& x, const ir::Window& w) {
  const Value zero = ir::constant(x.builder(), 0, Type(x.dtype(), {}));
  return ir::reduce_window({x}, {zero}, w, [](const Values& a) { return Values{ir::add(a[0], a[1])}; })[0];
}

Rule avg_pool(int64_t rank) {
  return [rank](Op& o) {
    const Value x = o.compute("self");
    const Pool p = pool(o, rank);
    const Dims sizes = trailing(o.out(), rank);
    const Value sums = sum_windows(x, window(p, x, sizes));
    return ir::divide(sums, ir::broadcast_to(window_counts(o, p, trailing(x.type(), rank), sizes, x.dtype()), sums));
  };
}

// Each position sums the gradients of the windows that hold it.
Rule avg_pool_backward(int64_t rank) {
  return [rank](Op& o) {
    const Value grad = o.compute("grad_output");
    const Pool p = pool(o, rank);
    const Dims input = trailing(o.out(), rank), output = trailing(grad.type(), rank);
    const int64_t lead = grad.rank() - rank;
    ir::Window w{.dimensions = Dims(lead, 1),
                 .strides = {},
                 .base_dilations = Dims(lead, 1),
                 .window_dilations = {},
                 .padding = {}};
    w.padding.resize(lead, {0, 0});
    for (int64_t d = 0; d < rank; ++d) {
      w.dimensions.push_back(p.kernel[d]);
      w.base_dilations.push_back(p.stride[d]);
      const int64_t last = (output[lead + d] - 1) * p.stride[d];
      w.padding.emplace_back(p.kernel[d] - 1 - p.padding[d], input[lead + d] - 1 - last + p.padding[d]);
    }
    const Value counts = window_counts(o, p, input, output, grad.dtype());
    return sum_windows(ir::divide(grad, ir::broadcast_to(counts, grad)), w);
  };
}

// ---- adaptive ----

// Bin i of `count` over n positions is [floor(i n / count), ceil((i + 1) n / count)). Seen from a
// position, the bins that hold it are the positions of its bin when n and count change places.
struct Bins {
  Bins(int64_t n, int64_t count) : width(0) {
    for (int64_t i = 0; i < count; ++i) {
      starts.push_back(i * n / count);
      sizes.push_back(((i + 1) * n + count - 1) / count - starts.back());
      width = std::max(width, sizes.back());
    }
    even = std::all_of(sizes.begin(), sizes.end(), [&](int64_t s) { return s == width; });
  }
  int64_t count() const { return static_cast<int64_t>(starts.size()); }
  // [count, width], clamped into n.
  std::vector<int64_t> members() const {
    std::vector<int64_t> m;
    for (size_t i = 0; i < starts.size(); ++i) {
      for (int64_t k = 0; k < width; ++k) m.push_back(starts[i] + std::min(k, sizes[i] - 1));
    }
    return m;
  }
  Dims starts, sizes;
  int64_t width;
  bool even;
};

// x with dimension d split into [bins, members of the bin]; members beyond a bin's size become
// `otherwise`.
Value split_into_bins(const Value& x, int64_t d, const Bins& bins, const Value& otherwise) {
  ir::Builder& b = x.builder();
  Dims split = x.dims();
  split[d] = bins.count();
  split.insert(split.begin() + d + 1, bins.width);
  if (bins.count() * bins.width == x.dim(d)) return ir::reshape(x, split);
  const int64_t n = bins.count() * bins.width;
  const Value index = ir::constant_i64(b, bins.members(), Type(DType::kI64, {n, 1}));
  Dims flat = x.dims();
  ir::GatherDims dims{.offset_dims = {},
                      .collapsed_slice_dims = {d},
                      .operand_batching_dims = {},
                      .start_indices_batching_dims = {},
                      .start_index_map = {d},
                      .index_vector_dim = 1,
                      .slice_sizes = flat};
  for (int64_t k = 0; k < x.rank(); ++k) {
    if (k != d) dims.offset_dims.push_back(k);
  }
  flat[d] = n;
  dims.slice_sizes[d] = 1;
  const Value members = ir::reshape(ir::gather(x, index, dims, Type(x.dtype(), flat)), split);
  if (bins.even) return members;
  const Type type(DType::kI64, split);
  const Value sizes = ir::constant_i64(b, bins.sizes, Type(DType::kI64, {bins.count()}));
  const Value valid = ir::compare(ir::iota(b, type, d + 1), ir::broadcast_in_dim(sizes, type, {d}), "LT");
  return ir::select(valid, members, ir::broadcast_to(otherwise, split));
}

Value sum_bins(const Value& x, int64_t d, int64_t count) {
  const Value zero = ir::constant(x.builder(), 0, Type(x.dtype(), {}));
  return ir::reduce(split_into_bins(x, d, Bins(x.dim(d), count), zero), zero, {d + 1}, "add");
}

// The sizes of the bins along dimension d, broadcast to x.
Value bin_sizes(const Value& x, int64_t d, int64_t n) {
  const Value sizes = ir::constant_i64(x.builder(), Bins(n, x.dim(d)).sizes, Type(DType::kI64, {x.dim(d)}));
  return ir::broadcast_in_dim(ir::convert(sizes, x.dtype()), x.type(), {d});
}

Rule adaptive_avg_pool(int64_t rank) {
  return [rank](Op& o) {
    const Type& type = o.out();
    const Value x = o.compute("self");
    if (type.numel() == 0) return ir::constant(o.builder(), 0, type);
    Value y = x;
    for (int64_t d = type.rank() - rank; d < type.rank(); ++d) y = sum_bins(y, d, type.dim(d));
    for (int64_t d = type.rank() - rank; d < type.rank(); ++d) y = ir::divide(y, bin_sizes(y, d, x.dim(d)));
    return y;
  };
}

Rule adaptive_avg_pool_backward(int64_t rank) {
  return [rank](Op& o) {
    const Type& type = o.out();
    Value grad = o.compute("grad_output");
    if (type.numel() == 0 || grad.type().numel() == 0) return ir::constant(o.builder(), 0, type);
    for (int64_t d = type.rank() - rank; d < type.rank(); ++d) grad = ir::divide(grad, bin_sizes(grad, d, type.dim(d)));
    for (int64_t d = type.rank() - rank; d < type.rank(); ++d) grad = sum_bins(grad, d, type.dim(d));
    return grad;
  };
}

Rule adaptive_max_pool(int64_t rank) {
  return [rank](Op& o) {
    const Type& type = o.out();
    const Value x = o.in("self");
    if (type.numel() == 0) return Values{ir::constant(o.builder(), 0, type), ir::constant(o.builder(), 0, o.out(1))};
    const Values init = larger_init(x);
    Value values = x, index = positions(x, rank);
    Dims members;
    for (int64_t k = 0; k < rank; ++k) {
      const int64_t d = type.rank() - rank + 2 * k;
      const Bins bins(values.dim(d), type.dim(type.rank() - rank + k));
      values = split_into_bins(values, d, bins, init[0]);
      index = split_into_bins(index, d, bins, init[1]);
      members.push_back(d + 1);
    }
    Values best = ir::reduce({values, index}, init, members, larger);
    return Values{best[0], ir::convert(best[1], DType::kI64)};
  };
}

const Row kRows[] = {
    {"max_pool2d_with_indices", max_pool(2)},
    {"max_pool2d_with_indices_backward", max_pool_backward(2)},
    {"max_pool3d_with_indices", max_pool(3)},
    {"max_pool3d_with_indices_backward", max_pool_backward(3)},
    {"avg_pool2d", avg_pool(2)},
    {"avg_pool2d_backward", avg_pool_backward(2)},
    {"avg_pool3d", avg_pool(3)},
    {"avg_pool3d_backward", avg_pool_backward(3)},
    {"_adaptive_avg_pool2d", adaptive_avg_pool(2)},
    {"_adaptive_avg_pool2d_backward", adaptive_avg_pool_backward(2)},
    {"_adaptive_avg_pool3d", adaptive_avg_pool(3)},
    {"_adaptive_avg_pool3d_backward", adaptive_avg_pool_backward(3)},
    {"adaptive_max_pool2d", adaptive_max_pool(2)},
    {"adaptive_max_pool2d_backward", max_pool_backward(2)},
    {"adaptive_max_pool3d", adaptive_max_pool(3)},
    {"adaptive_max_pool3d_backward", max_pool_backward(3)},
};

}  // namespace

std::span<const Row> pool_rows() { return kRows; }

}  // namespace tpu::ops
