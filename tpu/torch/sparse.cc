// Sparse COO tensors: indices and values are dense tensors of the device, so all work on them is ATen's dense ops.
// What only moves indices and values about is PyTorch's own device-generic code.
#include <ATen/native/SparseTensorUtils.h>
#include <ATen/ops/_coalesced_native.h>
#include <ATen/ops/_indices_native.h>
#include <ATen/ops/_nnz_native.h>
#include <ATen/ops/_sparse_coo_tensor_unsafe.h>
#include <ATen/ops/_sparse_coo_tensor_with_dims_and_tensors_native.h>
#include <ATen/ops/_sparse_coo_tensor_with_dims_native.h>
#include <ATen/ops/_to_sparse_native.h>
#include <ATen/ops/_values_native.h>
#include <ATen/ops/add.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/clone_native.h>
#include <ATen/ops/copy_native.h>
#include <ATen/ops/copy_sparse_to_sparse_native.h>
#include <ATen/ops/cumsum.h>
#include <ATen/ops/dense_dim_native.h>
#include <ATen/ops/empty_like_native.h>
#include <ATen/ops/empty_native.h>
#include <ATen/ops/indices_native.h>
#include <ATen/ops/is_coalesced_native.h>
#include <ATen/ops/isin.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/mul_native.h>
#include <ATen/ops/ne.h>
#include <ATen/ops/resize_as_sparse_native.h>
#include <ATen/ops/searchsorted.h>
#include <ATen/ops/sort.h>
#include <ATen/ops/sparse_dim_native.h>
#include <ATen/ops/sparse_resize_and_clear_native.h>
#include <ATen/ops/sparse_resize_native.h>
#include <ATen/ops/sum.h>
#include <ATen/ops/values_native.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zero_native.h>
#include <ATen/ops/zeros.h>
#include <torch/library.h>

namespace tpu {
namespace {

// Row-major position of each element in the sparse dimensions.
at::Tensor positions(const at::Tensor& t) {
  const at::Tensor indices = t._indices();
  at::Tensor position = at::zeros({indices.size(1)}, indices.options());
  for (int64_t d = 0; d < t.sparse_dim(); ++d) position = position.mul(t.size(d)).add(indices[d]);
  return position;
}

// The values' first dimension, then the dense ones.
std::vector<int64_t> values_shape(const at::Tensor& t, int64_t first) {
  std::vector<int64_t> shape{first};
  for (int64_t d = t.sparse_dim(); d < t.dim(); ++d) shape.push_back(t.size(d));
  return shape;
}

// Adds rows in place; the bools of a mask are or-ed, as by PyTorch on the CPU.
at::Tensor& add_rows(at::Tensor& to, const at::Tensor& index, const at::Tensor& rows) {
  if (to.scalar_type() != at::kBool) return to.index_add_(0, index, rows);
  at::Tensor count = to.to(at::kByte);
  count.index_add_(0, index, rows.to(at::kByte).ne(0).to(at::kByte));
  return to.copy_(count.ne(0));
}

at::Tensor coalesce(const at::Tensor& self) {
  if (self.is_coalesced()) return self;
  const int64_t nnz = self._nnz();
  if (nnz < 2) {
    at::Tensor result = self.clone();
    return result._coalesced_(true);
  }
  const auto [sorted, order] = at::sort(positions(self));
  const at::Tensor is_new = sorted.slice(0, 1).ne(sorted.slice(0, 0, -1));
  const at::Tensor group = at::cat({at::zeros({1}, sorted.options()), is_new.cumsum(0)});
  const int64_t groups = group[-1].item<int64_t>() + 1;
  at::Tensor values = at::zeros(values_shape(self, groups), self._values().options());
  add_rows(values, group, self._values().index_select(0, order));
  at::Tensor indices = at::zeros({self.sparse_dim(), groups}, self._indices().options());
  // Equal positions write equal indices.
  indices.scatter_(1, group.expand({self.sparse_dim(), -1}), self._indices().index_select(1, order));
  return at::_sparse_coo_tensor_unsafe(indices, values, self.sizes())._coalesced_(true);
}

at::Tensor to_dense(const at::Tensor& self, std::optional<at::ScalarType> dtype, std::optional<bool>) {
  at::Tensor dense = at::zeros(self.sizes(), self._values().options().dtype(dtype.value_or(self.scalar_type())));
  return dense.add_(self);
}

// dense + alpha * sparse, in place.
at::Tensor& add_to_dense_(at::Tensor& self, const at::Tensor& other, const at::Scalar& alpha) {
  TORCH_CHECK(self.sizes() == other.sizes(), "add: expected 'self' and 'other' to have same size, but got ",
              self.sizes(), " and ", other.sizes(), " (a dense tensor plus a sparse one does not broadcast)");
  if (other._nnz() == 0 || self.numel() == 0) return self;
  const at::Tensor values =
      self.scalar_type() == at::kBool ? other._values() : other._values().to(self.scalar_type()).mul(alpha);
  if (other.sparse_dim() == 0) return self.add_(values.sum(0));
  const int64_t rows = c10::multiply_integers(self.sizes().slice(0, other.sparse_dim()));
  if (self.is_contiguous()) {
    at::Tensor flat = self.view(values_shape(other, rows));
    add_rows(flat, positions(other), values);
    return self;
  }
  at::Tensor flat = self.reshape(values_shape(other, rows)).clone();
  add_rows(flat, positions(other), values);
  return self.copy_(flat.view(self.sizes()));
}

at::Tensor add_sparse(const at::Tensor& self, const at::Tensor& other, const at::Scalar& alpha) {
  if (!self.is_sparse() && !other.is_sparse()) return at::add(self, other, alpha);
  TORCH_CHECK(other.is_sparse() || !self.is_sparse(),
              "add(sparse, dense) is not supported. Use add(dense, sparse) instead.");
  const at::ScalarType type = at::result_type(self, other);
  if (!self.is_sparse()) {
    at::Tensor result = self.to(type, /*non_blocking=*/false, /*copy=*/true);
    return add_to_dense_(result, other, alpha);
  }
  TORCH_CHECK(self.sizes() == other.sizes(), "add: expected sizes of 'self' and 'other' to match, but ", self.sizes(),
              " != ", other.sizes());
  TORCH_CHECK(self.sparse_dim() == other.sparse_dim() && self.dense_dim() == other.dense_dim(),
              "add: expected 'self' and 'other' to have same density, but 'self' has ", self.sparse_dim(),
              " sparse dimensions while 'other' has ", other.sparse_dim(), " sparse dimensions");
  at::Tensor theirs = other._values().to(type);
  if (type != at::kBool) theirs = theirs.mul(alpha);
  return at::_sparse_coo_tensor_unsafe(at::cat({self._indices(), other._indices()}, 1),
                                       at::cat({self._values().to(type), theirs}), self.sizes());
}

// In place, `result` takes over what another sparse tensor holds.
at::Tensor& take_over(at::Tensor& result, const at::Tensor& from) {
  at::sparse::alias_into_sparse(result, from._indices(), from._values().to(result.scalar_type()));
  return result._coalesced_(from.is_coalesced());
}

at::Tensor& add_(at::Tensor& self, const at::Tensor& other, const at::Scalar& alpha) {
  if (self.is_sparse()) return take_over(self, add_sparse(self, other, alpha));
  return add_to_dense_(self, other, alpha);
}

at::Tensor with_values(const at::Tensor& like, at::Tensor values) {
  return at::_sparse_coo_tensor_unsafe(like._indices(), values, like.sizes())._coalesced_(like.is_coalesced());
}

// Where `wanted`'s elements are among the coalesced `t`'s: index, and whether it is there.
std::pair<at::Tensor, at::Tensor> lookup(const at::Tensor& t, const at::Tensor& wanted) {
  const at::Tensor have = positions(t), want = positions(wanted);
  const at::Tensor at = at::searchsorted(have, want).clamp(0, have.numel() - 1);
  return {at, have.index_select(0, at).eq(want)};
}

at::Tensor rows_where(const at::Tensor& found, const at::Tensor& rows) {
  std::vector<int64_t> shape(rows.dim(), 1);
  shape[0] = found.numel();
  return at::where(found.view(shape), rows, at::zeros({}, rows.options()));
}

at::Tensor mul_sparse(const at::Tensor& self, const at::Tensor& other) {
  if (!self.is_sparse()) return mul_sparse(other, self);
  const at::ScalarType type = at::result_type(self, other);
  if (other.dim() == 0 && !other.is_sparse()) return with_values(self, self._values().mul(other).to(type));
  TORCH_CHECK(self.sizes() == other.sizes(),
              "mul: expected 'self' and 'other' to have same sizes when a tensor is "
              "sparse on the tpu device, but ",
              self.sizes(), " != ", other.sizes());
  if (!other.is_sparse()) {
    const int64_t rows = c10::multiply_integers(self.sizes().slice(0, self.sparse_dim()));
    const at::Tensor theirs = other.reshape(values_shape(self, rows)).index_select(0, positions(self));
    return with_values(self, self._values().mul(theirs));
  }
  const at::Tensor a = self.coalesce(), b = other.coalesce();
  if (a._nnz() == 0 || b._nnz() == 0)
    return with_values(a, a._values().to(type)).mul(at::zeros({}, a._values().options()));
  const auto [at, found] = lookup(b, a);
  const at::Tensor kept = found.nonzero().view({-1});
  return at::_sparse_coo_tensor_unsafe(
             a._indices().index_select(1, kept),
             a._values().index_select(0, kept).mul(b._values().index_select(0, at.index_select(0, kept))), self.sizes())
      ._coalesced_(true);
}

at::Tensor& mul_(at::Tensor& self, const at::Tensor& other) {
  TORCH_CHECK(self.is_sparse(), "mul_: a dense tensor cannot take the product with a sparse one in place");
  return take_over(self, mul_sparse(self, other));
}

at::Tensor div_sparse(const at::Tensor& self, const at::Tensor& other) {
  TORCH_CHECK(self.is_sparse() && !other.is_sparse() && other.dim() == 0,
              "Sparse division requires the divisor to be a number or a dense tensor without dimensions, but got ",
              other.sizes());
  return with_values(self, self._values().div(other));
}

at::Tensor& div_(at::Tensor& self, const at::Tensor& other) { return take_over(self, div_sparse(self, other)); }

at::Tensor neg(const at::Tensor& self) { return with_values(self, self._values().neg()); }

// Functions with f(0) = 0 that do not distribute over a sum of duplicates.
template <at::Tensor (at::Tensor::*F)() const>
at::Tensor unary(const at::Tensor& self) {
  const at::Tensor c = self.coalesce();
  return with_values(c, (c._values().*F)());
}

at::Tensor pow(const at::Tensor& self, const at::Scalar& exponent) {
  TORCH_CHECK(exponent.toDouble() > 0, "pow(sparse, exponent) needs an exponent above 0: any other fills the zeros");
  const at::Tensor c = self.coalesce();
  return with_values(c, c._values().pow(exponent));
}

at::Tensor sparse_mask(const at::Tensor& self, const at::Tensor& mask) {
  TORCH_CHECK(self.sizes() == mask.sizes(), "sparse_mask(): operands have incompatible sizes; self has size ",
              self.sizes(), " but mask has size ", mask.sizes());
  if (!self.is_sparse()) {
    const int64_t rows = c10::multiply_integers(self.sizes().slice(0, mask.sparse_dim()));
    return with_values(mask, self.reshape(values_shape(mask, rows)).index_select(0, positions(mask)));
  }
  const at::Tensor c = self.coalesce();
  if (c._nnz() == 0) return with_values(mask, at::zeros(mask._values().sizes(), c._values().options()));
  const auto [at, found] = lookup(c, mask);
  return with_values(mask, rows_where(found, c._values().index_select(0, at)));
}

// beta * self + alpha * sparse @ dense.
at::Tensor addmm_sparse(const at::Tensor& self, const at::Tensor& sparse, const at::Tensor& dense,
                        const at::Scalar& beta, const at::Scalar& alpha) {
  TORCH_CHECK(
      sparse.is_sparse() && !dense.is_sparse() && sparse.dim() == 2 && dense.dim() == 2 && sparse.dense_dim() == 0,
      "addmm: expected a sparse matrix times a dense one, but got ", sparse.layout(), sparse.sizes(), " and ",
      dense.layout(), dense.sizes());
  TORCH_CHECK(sparse.size(1) == dense.size(0), "addmm: Argument #3 (dense): Expected dim 0 size ", sparse.size(1),
              ", got ", dense.size(0));
  const at::Tensor product =
      at::zeros({sparse.size(0), dense.size(1)}, dense.options())
          .index_add_(0, sparse._indices()[0],
                      dense.index_select(0, sparse._indices()[1]).mul(sparse._values().unsqueeze(1)));
  const at::Tensor scaled = product.mul(alpha);
  // As by PyTorch, a beta of 0 drops NaNs of self.
  return beta.toComplexDouble() == 0.0 ? scaled : self.mul(beta).add(scaled);
}

at::Tensor mm(const at::Tensor& sparse, const at::Tensor& dense) {
  return addmm_sparse(at::zeros({}, dense.options()), sparse, dense, 0, 1);
}

at::Tensor to_sparse(const at::Tensor& self, std::optional<at::Layout> layout, at::OptionalIntArrayRef block,
                     std::optional<int64_t> dense_dim) {
  return at::native::dense_to_sparse(self, layout, block, dense_dim);
}
at::Tensor to_sparse_dim(const at::Tensor& self, int64_t sparse_dim) {
  return at::native::dense_to_sparse(self, sparse_dim);
}

at::Tensor sum(const at::Tensor& self, std::optional<at::ScalarType> dtype) { return self._values().sum(dtype); }

}  // namespace

TORCH_LIBRARY_IMPL(aten, SparsePrivateUse1, m) {
  namespace native = at::native;
  m.impl("_sparse_coo_tensor_with_dims_and_tensors", TORCH_FN(native::new_with_dims_and_tensor_sparse_symint));
  m.impl("_sparse_coo_tensor_with_dims", TORCH_FN(native::new_with_dims_sparse));
  m.impl("empty.memory_format", TORCH_FN(native::empty_sparse_symint));
  m.impl("empty_like", TORCH_FN(native::empty_like_sparse_coo));
  m.impl("_indices", TORCH_FN(native::_indices_sparse));
  m.impl("_values", TORCH_FN(native::_values_sparse));
  m.impl("indices", TORCH_FN(native::indices_sparse));
  m.impl("values", TORCH_FN(native::values_sparse));
  m.impl("_nnz", TORCH_FN(native::_nnz_sparse));
  m.impl("sparse_dim", TORCH_FN(native::sparse_dim_sparse));
  m.impl("dense_dim", TORCH_FN(native::dense_dim_sparse));
  m.impl("is_coalesced", TORCH_FN(native::is_coalesced_sparse));
  m.impl("_coalesced_", TORCH_FN(native::_coalesced_sparse_));
  m.impl("clone", TORCH_FN(native::clone_sparse));
  m.impl("copy_sparse_to_sparse_", TORCH_FN(native::copy_sparse_));
  m.impl("copy_", TORCH_FN(native::copy_sparse_wrapper_));
  m.impl("sparse_resize_", TORCH_FN(native::sparse_resize_));
  m.impl("sparse_resize_and_clear_", TORCH_FN(native::sparse_resize_and_clear_));
  m.impl("resize_as_sparse_", TORCH_FN(native::resize_as_sparse_));
  m.impl("zero_", TORCH_FN(native::zero_sparse_));

  m.impl("_coalesce", TORCH_FN(coalesce));
  m.impl("_to_dense", TORCH_FN(to_dense));
  m.impl("add.Tensor", TORCH_FN(add_sparse));
  m.impl("add_.Tensor", TORCH_FN(add_));
  m.impl("mul.Tensor", TORCH_FN(mul_sparse));
  m.impl("mul_.Tensor", TORCH_FN(mul_));
  m.impl("div.Tensor", TORCH_FN(div_sparse));
  m.impl("div_.Tensor", TORCH_FN(div_));
  m.impl("neg", TORCH_FN(neg));
  m.impl("abs", TORCH_FN(unary<&at::Tensor::abs>));
  m.impl("sqrt", TORCH_FN(unary<&at::Tensor::sqrt>));
  m.impl("sin", TORCH_FN(unary<&at::Tensor::sin>));
  m.impl("tanh", TORCH_FN(unary<&at::Tensor::tanh>));
  m.impl("sign", TORCH_FN(unary<&at::Tensor::sign>));
  m.impl("relu", TORCH_FN(unary<&at::Tensor::relu>));
  m.impl("pow.Tensor_Scalar", TORCH_FN(pow));
  m.impl("sparse_mask", TORCH_FN(sparse_mask));
  m.impl("addmm", TORCH_FN(addmm_sparse));
  m.impl("mm", TORCH_FN(mm));
  m.impl("sum", TORCH_FN(sum));
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("_to_sparse", TORCH_FN(to_sparse));
  m.impl("_to_sparse.sparse_dim", TORCH_FN(to_sparse_dim));
  m.impl("sparse_mask", TORCH_FN(sparse_mask));
}

}  // namespace tpu
