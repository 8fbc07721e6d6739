// Ops whose result has as many elements as the data says: the count is read, then the rest is one
// program of that size.
#include <ATen/ExpandUtils.h>
#include <ATen/native/Resize.h>
#include <ATen/ops/count_nonzero.h>
#include <ATen/ops/index_select.h>
#include <ATen/ops/nonzero.h>
#include <ATen/ops/nonzero_static.h>
#include <torch/library.h>

namespace tpu {
namespace {

at::Tensor nonzero(const at::Tensor& self) {
  const int64_t count = self.numel() == 0 ? 0 : at::count_nonzero(self).item<int64_t>();
  if (count == 0) return at::empty({0, self.dim()}, self.options().dtype(at::kLong));
  return at::nonzero_static(self, count);
}

at::Tensor& nonzero_out(const at::Tensor& self, at::Tensor& out) {
  TORCH_CHECK(out.scalar_type() == at::kLong, "Expected object of scalar type ", at::kLong, " as out, but got ", out.scalar_type());
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
  TORCH_CHECK(out.scalar_type() == self.scalar_type(), "masked_select(): self and result must have the same scalar type");
  const at::Tensor r = tpu::masked_select(self, mask);
  at::native::resize_output(out, r.sizes());
  return out.copy_(r);
}

}  // namespace

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("nonzero", TORCH_FN(nonzero));
  m.impl("nonzero.out", TORCH_FN(nonzero_out));
  m.impl("masked_select", TORCH_FN(masked_select));
  m.impl("masked_select.out", TORCH_FN(masked_select_out));
}

}  // namespace tpu
