// Padding of all modes, and sliding windows as a dimension of their own, with the gradients.
#include <algorithm>

#include "tpu/ops/rules.h"
#include "tpu/ops/table.h"

namespace tpu::ops {
namespace {

Value scalar_zero(const Value& v) { return ir::constant(v.builder(), 0, Type(v.dtype(), {})); }

// Zeros before, after and between along one dimension; negative counts cut.
Value pad_dim(const Value& x, int64_t d, int64_t low, int64_t high, int64_t between = 0) {
  Dims l(x.rank(), 0), h(x.rank(), 0), i(x.rank(), 0);
  l[d] = low;
  h[d] = high;
  i[d] = between;
  return ir::pad(x, scalar_zero(x), l, h, i);
}

Value constant_pad(Op& o) {
  const Value x = o.in("self");
  const Dims given = o.ints("pad");
  Dims low(x.rank(), 0), high(x.rank(), 0);
  for (size_t i = 0; i + 1 < given.size(); i += 2) {
    const int64_t d = x.rank() - 1 - static_cast<int64_t>(i / 2);
    low[d] = given[i];
    high[d] = given[i + 1];
  }
  return ir::pad(x, o.scalar("value", x.dtype()), low, high, Dims(x.rank(), 0));
}

// ---- reflection and replication: one dimension at a time ----

enum class Edge { kReflect, kReplicate };

Value sum_dim(const Value& x, int64_t d) { return ir::reduce(x, scalar_zero(x), {d}, "add"); }

// What lies beyond the low (or high) end of dimension d: `n` elements.
Value beyond(const Value& x, int64_t d, int64_t n, bool high, Edge edge) {
  const int64_t size = x.dim(d);
  if (edge == Edge::kReflect) {
    const int64_t start = high ? size - 1 - n : 1;
    return ir::reverse(ir::slice_in_dim(x, d, start, start + n), {d});
  }
  const int64_t at = high ? size - 1 : 0;
  Dims wide = x.dims();
  wide[d] = n;
  return ir::broadcast_to(ir::slice_in_dim(x, d, at, at + 1), wide);
}

// The gradient of beyond(), at x's size again.
Value beyond_backward(const Value& grad, int64_t d, int64_t size, bool high, Edge edge) {
  const int64_t n = grad.dim(d);
  if (edge == Edge::kReflect) {
    const int64_t start = high ? size - 1 - n : 1;
    return pad_dim(ir::reverse(grad, {d}), d, start, size - start - n);
  }
  const int64_t at = high ? size - 1 : 0;
  return pad_dim(ir::unsqueeze(sum_dim(grad, d), d), d, at, size - 1 - at);
}

Value pad_edge(const Value& x, int64_t d, int64_t low, int64_t high, Edge edge) {
  Values parts;
  if (low > 0) parts.push_back(beyond(x, d, low, false, edge));
  parts.push_back(x);
  if (high > 0) parts.push_back(beyond(x, d, high, true, edge));
  return pad_dim(ir::concatenate(parts, d), d, std::min<int64_t>(low, 0), std::min<int64_t>(high, 0));
}

Value pad_edge_backward(const Value& given, int64_t d, int64_t low, int64_t high, int64_t size, Edge edge) {
  const Value grad = pad_dim(given, d, std::max<int64_t>(-low, 0), std::max<int64_t>(-high, 0));
  low = std::max<int64_t>(low, 0);
  high = std::max<int64_t>(high, 0);
  Value sum = ir::slice_in_dim(grad, d, low, low + size);
  if (low > 0) sum = ir::add(sum, beyond_backward(ir::slice_in_dim(grad, d, 0, low), d, size, false, edge));
  if (high > 0) {
    const Value tail = ir::slice_in_dim(grad, d, low + size, low + size + high);
    sum = ir::add(sum, beyond_backward(tail, d, size, true, edge));
  }
  return sum;
}

Rule edge_pad(Edge edge) {
  return [edge](Op& o) {
    Value x = o.in("self");
    const Dims p = o.ints("padding");
    for (size_t i = 0; i + 1 < p.size(); i += 2) {
      x = pad_edge(x, x.rank() - 1 - static_cast<int64_t>(i / 2), p[i], p[i + 1], edge);
    }
    return x;
  };
}

Rule edge_pad_backward(Edge edge) {
  return [edge](Op& o) {
    Value grad = o.compute("grad_output");
    const Dims p = o.ints("padding");
    for (size_t i = 0; i + 1 < p.size(); i += 2) {
      const int64_t d = grad.rank() - 1 - static_cast<int64_t>(i / 2);
      grad = pad_edge_backward(grad, d, p[i], p[i + 1], o.out().dim(d), edge);
    }
    return grad;
  };
}

// ---- windows ----

// Sums windows into a dimension: x's dimension d counts windows, the last dimension runs inside
// one; window w starts at w * step. The result has `size` elements at d, and no last dimension.
// Each window is cut into pieces as long as a step: the k-th pieces of all windows do not overlap.
Value fold(const Value& x, int64_t d, int64_t size, int64_t step, int64_t dilation) {
  const int64_t last = x.rank() - 1;
  const int64_t length = (x.dim(last) - 1) * dilation + 1, windows = x.dim(d);
  const int64_t pieces = (length + step - 1) / step;
  Value v = pad_dim(x, last, 0, pieces * step - length, dilation - 1);
  Dims order;
  for (int64_t i = 0; i <= d; ++i) order.push_back(i);
  order.push_back(last);
  for (int64_t i = d + 1; i < last; ++i) order.push_back(i);
  v = ir::transpose(v, order);
  Value sum;
  for (int64_t k = 0; k < pieces; ++k) {
    const Value piece = ir::slice_in_dim(v, d + 1, k * step, (k + 1) * step);
    Dims merged = piece.dims();
    merged.erase(merged.begin() + d);
    merged[d] = windows * step;
    const Value placed = pad_dim(ir::reshape(piece, merged), d, k * step, size - (k + windows) * step);
    sum = sum ? ir::add(sum, placed) : placed;
  }
  return sum;
}

Value unfold_backward(Op& o) {
  const Value grad = o.compute("grad_in");
  const int64_t d = o.dim("dim", o.out().rank());
  if (grad.type().numel() == 0) return ir::constant(o.builder(), 0, o.out());
  if (o.out().rank() == 0) return ir::reshape(grad, {});
  return fold(grad, d, o.out().dim(d), o.integer("step"), 1);
}

// The elements of windows along dimension d: it becomes two, [length, windows].
Value windows_of(const Value& x, int64_t d, int64_t length, int64_t windows, int64_t step, int64_t dilation) {
  const Type type(DType::kI32, {length, windows});
  const Value inside = ir::iota(x.builder(), type, 0), window = ir::iota(x.builder(), type, 1);
  const Value at =
      ir::add(ir::multiply(inside, ir::full_like(inside, dilation)), ir::multiply(window, ir::full_like(window, step)));
  ir::GatherDims g;
  Dims result = x.dims();
  g.slice_sizes = result;
  g.slice_sizes[d] = 1;
  result[d] = length;
  result.insert(result.begin() + d + 1, windows);
  for (int64_t i = 0; i < static_cast<int64_t>(result.size()); ++i) {
    if (i != d && i != d + 1) g.offset_dims.push_back(i);
  }
  g.collapsed_slice_dims = {d};
  g.start_index_map = {d};
  g.index_vector_dim = 2;
  return ir::gather(x, at, g, x.type().with(result));
}

struct Patches {
  int64_t kernel[2], dilation[2], padding[2], stride[2];
  int64_t count(int i, int64_t size) const {
    return (size + 2 * padding[i] - dilation[i] * (kernel[i] - 1) - 1) / stride[i] + 1;
  }
};

Patches patches(Op& o) {
  Patches p;
  auto read = [&](const char* name, int64_t* to) {
    const Dims d = o.ints(name);
    to[0] = d.at(0);
    to[1] = d.back();
  };
  read("kernel_size", p.kernel);
  read("dilation", p.dilation);
  read("padding", p.padding);
  read("stride", p.stride);
  return p;
}

Value im2col(Op& o) {
  Value x = o.in("self");
  const Patches p = patches(o);
  if (x.rank() == 3) x = ir::unsqueeze(x, 0);
  const int64_t rows = p.count(0, x.dim(2)), columns = p.count(1, x.dim(3));
  x = pad_dim(pad_dim(x, 2, p.padding[0], p.padding[0]), 3, p.padding[1], p.padding[1]);
  x = windows_of(x, 3, p.kernel[1], columns, p.stride[1], p.dilation[1]);
  x = windows_of(x, 2, p.kernel[0], rows, p.stride[0], p.dilation[0]);
  // batch, channel, kernel row, row, kernel column, column
  return ir::reshape(ir::transpose(x, {0, 1, 2, 4, 3, 5}), o.out().dims());
}

Value col2im(Op& o) {
  const Value x = o.compute("self");
  const Patches p = patches(o);
  const Dims& out = o.out().dims();
  const int64_t height = out[out.size() - 2], width = out.back(), channels = out[out.size() - 3];
  const int64_t batch = out.size() == 4 ? out[0] : 1;
  const int64_t rows = p.count(0, height), columns = p.count(1, width);
  Value v = ir::reshape(x, {batch, channels, p.kernel[0], p.kernel[1], rows, columns});
  v = fold(ir::transpose(v, {0, 1, 2, 4, 5, 3}), 4, width + 2 * p.padding[1], p.stride[1], p.dilation[1]);
  // batch, channel, kernel row, row, x
  v = fold(ir::transpose(v, {0, 1, 3, 4, 2}), 2, height + 2 * p.padding[0], p.stride[0], p.dilation[0]);
  v = pad_dim(pad_dim(v, 2, -p.padding[0], -p.padding[0]), 3, -p.padding[1], -p.padding[1]);
  return ir::reshape(v, out);
}

const Row kRows[] = {
    {"constant_pad_nd", constant_pad},
    {"reflection_pad1d", edge_pad(Edge::kReflect)},
    {"reflection_pad2d", edge_pad(Edge::kReflect)},
    {"reflection_pad3d", edge_pad(Edge::kReflect)},
    {"reflection_pad1d_backward", edge_pad_backward(Edge::kReflect)},
    {"reflection_pad2d_backward", edge_pad_backward(Edge::kReflect)},
    {"reflection_pad3d_backward", edge_pad_backward(Edge::kReflect)},
    {"replication_pad1d", edge_pad(Edge::kReplicate)},
    {"replication_pad2d", edge_pad(Edge::kReplicate)},
    {"replication_pad3d", edge_pad(Edge::kReplicate)},
    {"replication_pad1d_backward", edge_pad_backward(Edge::kReplicate)},
    {"replication_pad2d_backward", edge_pad_backward(Edge::kReplicate)},
    {"replication_pad3d_backward", edge_pad_backward(Edge::kReplicate)},
    {"unfold_backward", unfold_backward},
    {"im2col", im2col},
    {"col2im", col2im},
};

}  // namespace

std::span<const Row> pad_rows() { return kRows; }

}  // namespace tpu::ops
