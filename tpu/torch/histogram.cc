// Histograms over one and several dimensions. The outer edges come from the data where no range is given.
#include <ATen/native/Resize.h>
#include <ATen/ops/bucketize.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/index_add.h>
#include <ATen/ops/linspace.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>
#include <torch/library.h>

#include <cmath>

namespace tpu {
namespace {

void check_inputs(const at::Tensor& input, const std::vector<at::Tensor>& bins,
                  const std::optional<at::Tensor>& weight) {
  TORCH_CHECK(input.dim() >= 2, "torch.histogramdd: input tensor should have at least 2 dimensions");
  const int64_t n = input.size(-1);
  TORCH_CHECK(static_cast<int64_t>(bins.size()) == n, "torch.histogramdd: expected ", n,
              " sequences of bin edges for a ", n, "-dimensional histogram but got ", bins.size());
  for (int64_t d = 0; d < n; ++d) {
    TORCH_CHECK(
        bins[d].scalar_type() == input.scalar_type(),
        "torch.histogramdd: input tensor and bins tensors should have the same dtype, but got input with dtype ",
        input.dtype(), " and bins for dimension ", d, " with dtype ", bins[d].dtype());
    TORCH_CHECK(bins[d].dim() == 1, "torch.histogramdd: bins tensor should have one dimension, but got ", bins[d].dim(),
                " dimensions in the bins tensor for dimension ", d);
    TORCH_CHECK(bins[d].numel() > 0, "torch.histogramdd: bins tensor should have at least 1 element, but got ",
                bins[d].numel(), " elements in the bins tensor for dimension ", d);
  }
  if (weight && weight->defined()) {
    TORCH_CHECK(input.dtype() == weight->dtype(),
                "torch.histogramdd: if weight tensor is provided, input tensor and weight tensor should have the same "
                "dtype, but got input(",
                input.dtype(), "), and weight(", weight->dtype(), ")");
    const auto outer = input.sizes().slice(0, input.dim() - 1);
    TORCH_CHECK(outer == weight->sizes(),
                "torch.histogramdd: if weight tensor is provided it should have the same shape as the input tensor "
                "excluding its innermost dimension, but got input with shape ",
                input.sizes(), " and weight with shape ", weight->sizes());
  }
  TORCH_CHECK_NOT_IMPLEMENTED(input.scalar_type() == at::kFloat || input.scalar_type() == at::kDouble,
                              "\"histogramdd\" not implemented for '", toString(input.scalar_type()), "'");
}

// The count (or weight) of each cell that the edges of each dimension make; input [*, dimensions].
at::Tensor count(const at::Tensor& input, const std::vector<at::Tensor>& edges, const std::optional<at::Tensor>& weight,
                 bool density) {
  const int64_t n = input.size(-1);
  const at::Tensor points = input.reshape({-1, n});
  std::vector<int64_t> sizes;
  int64_t cells = 1;
  for (int64_t d = 0; d < n; ++d) {
    TORCH_CHECK(edges[d].numel() > 1, "torch.histogram(): bins must be > 0, but got ", edges[d].numel() - 1,
                " for dimension ", d);
    sizes.push_back(edges[d].numel() - 1);
    cells *= sizes.back();
  }
  at::Tensor cell, inside;
  for (int64_t d = 0; d < n; ++d) {
    const at::Tensor x = points.select(1, d), last = edges[d].select(0, -1);
    at::Tensor bin = at::bucketize(x, edges[d], /*out_int32=*/false, /*right=*/true).sub(1);
    // The last bin holds its right edge, too. NaN is in no bin.
    bin = at::where(x.eq(last), sizes[d] - 1, bin);
    const at::Tensor in = x.ge(edges[d].select(0, 0)).logical_and(x.le(last)).logical_and(bin.ge(0));
    inside = inside.defined() ? inside.logical_and(in) : in;
    bin = bin.clamp(0, sizes[d] - 1);
    cell = cell.defined() ? cell.mul(sizes[d]).add(bin) : bin;
  }
  const at::Tensor one = at::ones({points.size(0)}, input.options());
  const at::Tensor each = weight && weight->defined() ? weight->reshape(-1) : one;
  at::Tensor hist = at::zeros({cells}, input.options());
  if (points.size(0) > 0) hist = hist.index_add(0, cell, at::where(inside, each, at::zeros_like(each)));
  hist = hist.reshape(sizes);
  if (!density) return hist;
  hist = hist.div(hist.sum());
  for (int64_t d = 0; d < n; ++d) {
    std::vector<int64_t> shape(n, 1);
    shape[d] = sizes[d];
    hist = hist.div(edges[d].diff().reshape(shape));
  }
  return hist;
}

// Equally wide bins of each dimension, over `range` (pairs) or the data.
std::vector<at::Tensor> equal_bins(const at::Tensor& input, at::IntArrayRef bins,
                                   std::optional<at::ArrayRef<double>> range) {
  TORCH_CHECK(input.dim() >= 2, "torch.histogramdd: input tensor should have at least 2 dimensions");
  const int64_t n = input.size(-1);
  TORCH_CHECK(static_cast<int64_t>(bins.size()) == n,
              "histogramdd: The size of bins must be equal to the innermost dimension of the input.");
  TORCH_CHECK(!range || static_cast<int64_t>(range->size()) == 2 * n, "torch.histogramdd: for a ", n,
              "-dimensional histogram range should have ", 2 * n, " elements, but got ", range ? range->size() : 0);
  TORCH_CHECK_NOT_IMPLEMENTED(input.scalar_type() == at::kFloat || input.scalar_type() == at::kDouble,
                              "\"histogramdd\" not implemented for '", toString(input.scalar_type()), "'");
  std::vector<double> low(n, 0), high(n, 1);
  if (range) {
    for (int64_t d = 0; d < n; ++d) low[d] = (*range)[2 * d], high[d] = (*range)[2 * d + 1];
  } else if (input.numel() > 0) {
    const at::Tensor points = input.reshape({-1, n});
    const at::Tensor least = points.amin(0).cpu().to(at::kDouble), most = points.amax(0).cpu().to(at::kDouble);
    for (int64_t d = 0; d < n; ++d) {
      low[d] = least[d].item<double>(), high[d] = most[d].item<double>();
    }
  }
  std::vector<at::Tensor> edges;
  for (int64_t d = 0; d < n; ++d) {
    TORCH_CHECK(std::isfinite(low[d]) && std::isfinite(high[d]), "torch.histogramdd: dimension ", d, "'s range [",
                low[d], ", ", high[d], "] is not finite");
    TORCH_CHECK(low[d] <= high[d], "torch.histogramdd: min should not exceed max, but got min ", low[d], " max ",
                high[d], " for dimension ", d);
    TORCH_CHECK(bins[d] > 0, "torch.histogram(): bins must be > 0, but got ", bins[d], " for dimension ", d);
    if (low[d] == high[d]) low[d] -= 0.5, high[d] += 0.5;
    edges.push_back(at::linspace(low[d], high[d], bins[d] + 1, input.options()));
  }
  return edges;
}

using Histogram = std::tuple<at::Tensor, at::Tensor>;

// A vector as points of one dimension.
at::Tensor points_of(const at::Tensor& self) { return self.reshape({self.numel(), 1}); }
std::optional<at::Tensor> flat(const std::optional<at::Tensor>& weight) {
  return weight && weight->defined() ? std::optional(weight->reshape(-1)) : std::nullopt;
}

Histogram histogram_edges(const at::Tensor& self, const at::Tensor& bins, const std::optional<at::Tensor>& weight,
                          bool density) {
  check_inputs(points_of(self), {bins}, flat(weight));
  return {count(points_of(self), {bins}, flat(weight), density), bins.clone()};
}

Histogram histogram_bins(const at::Tensor& self, int64_t bins, std::optional<at::ArrayRef<double>> range,
                         const std::optional<at::Tensor>& weight, bool density) {
  const at::Tensor points = points_of(self);
  const std::vector<at::Tensor> edges = equal_bins(points, {bins}, range);
  check_inputs(points, edges, flat(weight));
  return {count(points, edges, flat(weight), density), edges[0]};
}

std::tuple<at::Tensor&, at::Tensor&> put(const Histogram& h, at::Tensor& hist, at::Tensor& edges) {
  at::native::resize_output(hist, std::get<0>(h).sizes());
  hist.copy_(std::get<0>(h));
  at::native::resize_output(edges, std::get<1>(h).sizes());
  edges.copy_(std::get<1>(h));
  return {hist, edges};
}

std::tuple<at::Tensor&, at::Tensor&> histogram_edges_out(const at::Tensor& self, const at::Tensor& bins,
                                                         const std::optional<at::Tensor>& weight, bool density,
                                                         at::Tensor& hist, at::Tensor& edges) {
  return put(histogram_edges(self, bins, weight, density), hist, edges);
}

std::tuple<at::Tensor&, at::Tensor&> histogram_bins_out(const at::Tensor& self, int64_t bins,
                                                        std::optional<at::ArrayRef<double>> range,
                                                        const std::optional<at::Tensor>& weight, bool density,
                                                        at::Tensor& hist, at::Tensor& edges) {
  return put(histogram_bins(self, bins, range, weight, density), hist, edges);
}

std::vector<at::Tensor> histogramdd_edges(const at::Tensor& self, at::IntArrayRef bins,
                                          std::optional<at::ArrayRef<double>> range,
                                          const std::optional<at::Tensor>& /*weight*/, bool /*density*/) {
  return equal_bins(self, bins, range);
}

at::Tensor histogramdd_bins(const at::Tensor& self, at::IntArrayRef bins, std::optional<at::ArrayRef<double>> range,
                            const std::optional<at::Tensor>& weight, bool density) {
  const std::vector<at::Tensor> edges = equal_bins(self, bins, range);
  check_inputs(self, edges, weight);
  return count(self, edges, weight, density);
}

at::Tensor histogramdd(const at::Tensor& self, at::TensorList bins, const std::optional<at::Tensor>& weight,
                       bool density) {
  check_inputs(self, bins.vec(), weight);
  return count(self, bins.vec(), weight, density);
}

}  // namespace

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("histogram.bins_tensor", TORCH_FN(histogram_edges));
  m.impl("histogram.bins_tensor_out", TORCH_FN(histogram_edges_out));
  m.impl("histogram.bin_ct", TORCH_FN(histogram_bins));
  m.impl("histogram.bin_ct_out", TORCH_FN(histogram_bins_out));
  m.impl("_histogramdd_bin_edges", TORCH_FN(histogramdd_edges));
  m.impl("_histogramdd_from_bin_cts", TORCH_FN(histogramdd_bins));
  m.impl("_histogramdd_from_bin_tensors", TORCH_FN(histogramdd));
}

}  // namespace tpu
