// Ops whose result has as many elements as the data says: the count is read, then the rest is one
// program of that size.
#include <ATen/ExpandUtils.h>
#include <ATen/native/Resize.h>
#include <ATen/ops/aminmax.h>
#include <ATen/ops/count_nonzero.h>
#include <ATen/ops/index_add.h>
#include <ATen/ops/index_select.h>
#include <ATen/ops/nonzero.h>
#include <ATen/ops/nonzero_static.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/zeros.h>
#include <torch/library.h>

namespace tpu {
namespace {

at::Tensor nonzero(const at::Tensor& self) {
  const int64_t count = self.numel() == 0 ? 0 : at::count_nonzero(self).item<int64_t>();
  if (count == 0) return at::empty({0, self.dim()}, self.options().dtype(at::kLong));
  return at::nonzero_static(self, count);
}

at::Tensor& nonzero_out(const at::Tensor& self, at::Tensor& out) {
  TORCH_CHECK(out.scalar_type() == at::kLong, "Expected object of scalar type ", at::kLong, " as out, but got ",
              out.scalar_type());
  const at::Tensor r = tpu::nonzero(self);
  at::native::resize_output(out, r.sizes());
  return out.copy_(r);
}

at::Tensor masked_select(const at::Tensor& self, const at::Tensor& mask) {
  TORCH_CHECK(mask.scalar_type() == at::kBool, "masked_select: expected BoolTensor for mask");
  const auto [s, m] = at::expand_outplace(self, mask);
  return s->reshape(-1).index_select(0, at::nonzero(m->reshape(-1)).squeeze(1));
}

at::Tensor& masked_select_out(const at::Tensor& self, const at::Tensor& mask, at::Tensor& out) {
  TORCH_CHECK(out.scalar_type() == self.scalar_type(),
              "masked_select(): self and result must have the same scalar type");
  const at::Tensor r = tpu::masked_select(self, mask);
  at::native::resize_output(out, r.sizes());
  return out.copy_(r);
}

at::Tensor bincount(const at::Tensor& self, const std::optional<at::Tensor>& weights, c10::SymInt minlength) {
  const int64_t least = minlength.guard_int(__FILE__, __LINE__);
  TORCH_CHECK(least >= 0, "minlength should be >= 0");
  const bool weighted = weights && weights->defined();
  const at::ScalarType dtype = !weighted ? at::kLong : weights->scalar_type() == at::kFloat ? at::kFloat : at::kDouble;
  if (self.dim() == 1 && self.numel() == 0) return at::zeros({least}, self.options().dtype(at::kLong));
  const char* wrong = "bincount only supports 1-d non-negative integral inputs.";
  TORCH_CHECK(self.dim() == 1 && at::isIntegralType(self.scalar_type(), /*includeBool=*/false), wrong);
  TORCH_CHECK(!weighted || (weights->dim() == 1 && weights->size(0) == self.size(0)),
              "weights should be 1-d and have the same length as input");
  const auto [low, high] = at::aminmax(self);
  TORCH_CHECK(low.item<int64_t>() >= 0, wrong);
  const int64_t bins = std::max(least, high.item<int64_t>() + 1);
  const at::Tensor counted = weighted ? weights->to(dtype) : at::ones_like(self, self.options().dtype(dtype));
  return at::zeros({bins}, counted.options()).index_add(0, self.to(at::kLong), counted);
}

}  // namespace

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("nonzero", TORCH_FN(nonzero));
  m.impl("nonzero.out", TORCH_FN(nonzero_out));
  m.impl("masked_select", TORCH_FN(masked_select));
  m.impl("masked_select.out", TORCH_FN(masked_select_out));
  m.impl("bincount", TORCH_FN(bincount));
}

}  // namespace tpu
