// unique in its forms. The number of distinct elements is read; everything else is of known size.
#include <ATen/WrapDimUtils.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/cumsum.h>
#include <ATen/ops/diff.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/nonzero.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/sort.h>
#include <ATen/ops/zeros_like.h>
#include <torch/library.h>

namespace tpu {
namespace {

using Unique = std::tuple<at::Tensor, at::Tensor, at::Tensor>;

// Of the rows of `ordered` (or elements, of a vector): which differ from the one before, where those are, the group
// each row is in, and how large the groups are.
struct Groups {
  at::Tensor starts, group, counts;
};

Groups group_runs(const at::Tensor& ordered, bool with_group, bool with_counts) {
  const int64_t n = ordered.size(0);
  at::Tensor differs = ordered.slice(0, 1).ne(ordered.slice(0, 0, n - 1));
  if (differs.dim() > 1) differs = differs.flatten(1).any(1);
  const at::TensorOptions options = ordered.options();
  const at::Tensor begins = at::cat({at::ones({1}, options.dtype(at::kBool)), differs});
  Groups g;
  g.starts = at::nonzero(begins).squeeze(1);
  if (with_group) g.group = at::cumsum(begins, 0).sub(1);
  if (with_counts) g.counts = at::diff(at::cat({g.starts, at::full({1}, n, options.dtype(at::kLong))}));
  return g;
}

void check_dtype(const at::Tensor& self, const char* op) {
  TORCH_CHECK_NOT_IMPLEMENTED(!at::isComplexType(self.scalar_type()), '"', op, "\" not implemented for '",
                              toString(self.scalar_type()), "'");
}

Unique unique(const at::Tensor& self, bool /*sorted*/, bool return_inverse, bool return_counts) {
  check_dtype(self, "unique");
  const at::Tensor none = at::empty({0}, self.options().dtype(at::kLong));
  if (self.numel() == 0) {
    return {at::empty({0}, self.options()), return_inverse ? at::empty(self.sizes(), none.options()) : none, none};
  }
  const auto [ordered, place] = at::sort(self.reshape(-1), /*stable=*/std::optional<bool>(true));
  const Groups g = group_runs(ordered, return_inverse, return_counts);
  const at::Tensor inverse =
      return_inverse ? at::zeros_like(place).scatter(0, place, g.group).reshape(self.sizes()) : none;
  return {ordered.index_select(0, g.starts), inverse, return_counts ? g.counts : none};
}

std::tuple<at::Tensor, at::Tensor> unique_pair(const at::Tensor& self, bool sorted, bool return_inverse) {
  const auto [values, inverse, counts] = tpu::unique(self, sorted, return_inverse, false);
  return {values, inverse};
}

// The result where no slice has elements.
std::optional<Unique> empty_slices(const at::Tensor& self, int64_t dim) {
  const int64_t zeros = std::count(self.sizes().begin(), self.sizes().end(), 0);
  if (self.size(dim) == 0) {
    TORCH_CHECK(zeros == 1, "Number of zero sized dimensions is more than one, so unique cannot be applied ");
    const at::Tensor none = at::empty({0}, self.options().dtype(at::kLong));
    return Unique{at::empty(self.sizes(), self.options()), none, none};
  }
  TORCH_CHECK(zeros == 0, "There are 0 sized dimensions, and they aren't selected, so unique cannot be applied");
  return std::nullopt;
}

// The slices' order, first element first: stable sorts from the last element to the first.
at::Tensor lexicographic_order(const at::Tensor& rows) {
  at::Tensor order = at::arange(rows.size(0), rows.options().dtype(at::kLong));
  for (int64_t column = rows.size(1) - 1; column >= 0; --column) {
    const at::Tensor keys = rows.select(1, column).index_select(0, order);
    order = order.index_select(0, std::get<1>(at::sort(keys, /*stable=*/std::optional<bool>(true))));
  }
  return order;
}

Unique unique_slices(const at::Tensor& self, int64_t dim, bool consecutive) {
  dim = c10::maybe_wrap_dim(dim, self.dim(), /*wrap_scalar=*/false);
  check_dtype(self, "unique_dim");
  if (const auto empty = empty_slices(self, dim)) return *empty;
  const at::Tensor moved = self.movedim(dim, 0), rows = moved.reshape({moved.size(0), -1});
  const at::Tensor order = consecutive ? at::Tensor() : lexicographic_order(rows);
  const at::Tensor ordered = consecutive ? rows : rows.index_select(0, order);
  const Groups g = group_runs(ordered, true, true);
  std::vector<int64_t> sizes = moved.sizes().vec();
  sizes[0] = g.starts.size(0);
  const at::Tensor values = ordered.index_select(0, g.starts).reshape(sizes).movedim(0, dim);
  const at::Tensor inverse = consecutive ? g.group : at::zeros_like(order).scatter(0, order, g.group);
  return {values, inverse, g.counts};
}

Unique unique_dim(const at::Tensor& self, int64_t dim, bool /*sorted*/, bool /*return_inverse*/,
                  bool /*return_counts*/) {
  return unique_slices(self, dim, false);
}

Unique unique_dim_consecutive(const at::Tensor& self, int64_t dim, bool /*return_inverse*/, bool /*return_counts*/) {
  return unique_slices(self, dim, true);
}

Unique unique_consecutive(const at::Tensor& self, bool return_inverse, bool return_counts, std::optional<int64_t> dim) {
  if (dim && !(*dim == 0 && self.dim() == 1)) return unique_slices(self, *dim, true);
  check_dtype(self, "unique");
  const at::Tensor none = at::empty({0}, self.options().dtype(at::kLong));
  if (self.numel() == 0) {
    return {at::empty({0}, self.options()), return_inverse ? at::empty(self.sizes(), none.options()) : none, none};
  }
  const at::Tensor flat = self.reshape(-1);
  const Groups g = group_runs(flat, return_inverse, return_counts);
  return {flat.index_select(0, g.starts), return_inverse ? g.group.reshape(self.sizes()) : none,
          return_counts ? g.counts : none};
}

}  // namespace

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("_unique", TORCH_FN(unique_pair));
  m.impl("_unique2", TORCH_FN(unique));
  m.impl("unique_dim", TORCH_FN(unique_dim));
  m.impl("unique_dim_consecutive", TORCH_FN(unique_dim_consecutive));
  m.impl("unique_consecutive", TORCH_FN(unique_consecutive));
}

}  // namespace tpu
