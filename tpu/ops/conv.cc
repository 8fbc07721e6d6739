// Convolution of any rank, transposed and grouped, and its gradients.
#include "tpu/ops/contract.h"
#include "tpu/ops/rules.h"
#include "tpu/ops/table.h"

namespace tpu::ops {
namespace {

// Tensors are [batch, features, spatial...], kernels [out features, in features / groups,
// spatial...].
struct Geometry {
  Dims stride, padding, dilation;
  int64_t groups = 1;
};

Geometry geometry(Op& o, int64_t rank) {
  const auto all = [&](const char* name) {
    Dims d = o.ints(name);
    if (d.size() == 1) d.resize(rank, d[0]);
    return d;
  };
  return {all("stride"), all("padding"), all("dilation"), o.integer("groups")};
}

// "b, f, 0, 1" for rank 2 and the given names of the first two dimensions.
std::string layout(const std::string& first, const std::string& second, int64_t rank) {
  std::string s = first + ", " + second;
  for (int64_t d = 0; d < rank; ++d) s += ", " + std::to_string(d);
  return s;
}

Dims spatial_dims(int64_t rank) {
  Dims d;
  for (int64_t i = 0; i < rank; ++i) d.push_back(i + 2);
  return d;
}

Value convolution(Op& o, const Value& x, const Value& w, const ir::ConvolutionDims& dims, const Dims& sizes) {
  const Type type(ir::opmath(x.dtype()), sizes);
  if (x.type().numel() == 0 || w.type().numel() == 0 || type.numel() == 0) {
    return ir::constant(o.builder(), 0, type);
  }
  return ir::convolution(x, w, dims, type, contraction_precision(o, x.dtype()));
}

Value forward(Op& o, const Value& x, const Value& w, const Geometry& g, const Dims& sizes) {
  const int64_t rank = x.rank() - 2;
  ir::ConvolutionDims dims{.input = layout("b", "f", rank),
                           .kernel = layout("o", "i", rank),
                           .output = layout("b", "f", rank),
                           .strides = g.stride,
                           .lhs_dilation = Dims(rank, 1),
                           .rhs_dilation = g.dilation,
                           .padding = {},
                           .reversal = {},
                           .feature_group_count = g.groups};
  for (int64_t d = 0; d < rank; ++d) {
    const int64_t needed = (sizes[d + 2] - 1) * g.stride[d] + g.dilation[d] * (w.dim(d + 2) - 1) + 1;
    // The gradient of a transposed convolution must not read what a large output_padding added.
    const bool is_whole = needed + g.stride[d] > x.dim(d + 2) + 2 * g.padding[d];
    dims.padding.emplace_back(g.padding[d], is_whole ? g.padding[d] : needed - x.dim(d + 2) - g.padding[d]);
  }
  return convolution(o, x, w, dims, sizes);
}

// The gradient of forward() for its input of `sizes`, which is also what a transposed convolution
// does.
Value input_gradient(Op& o, const Value& grad, const Value& w, const Geometry& g, const Dims& sizes) {
  const int64_t rank = grad.rank() - 2;
  // [groups * o, i, ...] to [groups * i, o, ...] by group.
  Value kernel = ir::reverse(w, spatial_dims(rank));
  const int64_t out = w.dim(0) / g.groups, in = w.dim(1);
  if (g.groups > 1) {
    Dims split = {g.groups, out, in}, order = {0, 2, 1}, merged = {g.groups * in, out};
    for (int64_t d = 0; d < rank; ++d) {
      split.push_back(w.dim(d + 2));
      merged.push_back(w.dim(d + 2));
      order.push_back(d + 3);
    }
    kernel = ir::reshape(ir::transpose(ir::reshape(kernel, split), order), merged);
  }
  const bool swapped = g.groups > 1;
  ir::ConvolutionDims dims{.input = layout("b", "f", rank),
                           .kernel = swapped ? layout("o", "i", rank) : layout("i", "o", rank),
                           .output = layout("b", "f", rank),
                           .strides = Dims(rank, 1),
                           .lhs_dilation = g.stride,
                           .rhs_dilation = g.dilation,
                           .padding = {},
                           .reversal = {},
                           .feature_group_count = g.groups};
  for (int64_t d = 0; d < rank; ++d) {
    const int64_t reach = g.dilation[d] * (w.dim(d + 2) - 1);
    const int64_t spread = (grad.dim(d + 2) - 1) * g.stride[d] + 1;
    const int64_t low = reach - g.padding[d];
    dims.padding.emplace_back(low, sizes[d + 2] - spread - low + reach);
  }
  return convolution(o, grad, kernel, dims, sizes);
}

// The gradient of forward() for its kernel of `sizes`: batch and features change places.
Value kernel_gradient(Op& o, const Value& x, const Value& grad, const Geometry& g, const Dims& sizes) {
  const int64_t rank = x.rank() - 2;
  ir::ConvolutionDims dims{.input = layout("f", "b", rank),
                           .kernel = layout("i", "o", rank),
                           .output = layout("f", "b", rank),
                           .strides = g.dilation,
                           .lhs_dilation = Dims(rank, 1),
                           .rhs_dilation = g.stride,
                           .padding = {},
                           .reversal = {},
                           .feature_group_count = 1,
                           .batch_group_count = g.groups};
  for (int64_t d = 0; d < rank; ++d) {
    const int64_t spread = (grad.dim(d + 2) - 1) * g.stride[d] + 1;
    const int64_t reach = g.dilation[d] * (sizes[d + 2] - 1);
    dims.padding.emplace_back(g.padding[d], reach + spread - x.dim(d + 2) - g.padding[d]);
  }
  return convolution(o, x, grad, dims, sizes);
}

Value convolution_overrideable(Op& o) {
  const Value x = o.in("input"), w = o.in("weight");
  const Geometry g = geometry(o, x.rank() - 2);
  const Value y =
      o.flag("transposed") ? input_gradient(o, x, w, g, o.out().dims()) : forward(o, x, w, g, o.out().dims());
  if (!o.has("bias")) return y;
  return ir::add(y, ir::broadcast_in_dim(ir::convert(o.in("bias"), y.dtype()), y.type(), {1}));
}

Values convolution_backward_overrideable(Op& o) {
  const Value grad = o.in("grad_output"), x = o.in("input"), w = o.in("weight");
  const Geometry g = geometry(o, x.rank() - 2);
  const bool transposed = o.flag("transposed");
  const Dims wanted = o.ints("output_mask");
  Values results(3);
  if (wanted[0]) {
    results[0] = transposed ? forward(o, grad, w, g, x.dims()) : input_gradient(o, grad, w, g, x.dims());
  }
  if (wanted[1]) {
    results[1] = transposed ? kernel_gradient(o, grad, x, g, w.dims()) : kernel_gradient(o, x, grad, g, w.dims());
  }
  if (wanted[2]) {
    Dims others = spatial_dims(x.rank() - 2);
    others.insert(others.begin(), 0);
    const DType dtype = ir::opmath(grad.dtype());
    results[2] = ir::reduce(ir::convert(grad, dtype), ir::constant(o.builder(), 0, Type(dtype, {})), others, "add");
  }
  return results;
}

std::vector<Type> backward_types(Op& o) {
  const Value grad = o.in("grad_output");
  return {o.in("input").type(), o.in("weight").type(), Type(grad.dtype(), {grad.dim(1)})};
}

const Row kRows[] = {
    {"convolution_overrideable", convolution_overrideable, {.meta = "convolution"}},
    {"convolution_backward_overrideable", convolution_backward_overrideable, {.types = backward_types}},
};

}  // namespace

std::span<const Row> conv_rows() { return kRows; }

}  // namespace tpu::ops
