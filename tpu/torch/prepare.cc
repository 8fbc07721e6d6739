// Index tensors as the rows want them: masks become indices (their number is known only to the data),
// and indices on the CPU are moved to the device, as PyTorch allows. A result size that the data
// decides is read.
#include "tpu/torch/prepare.h"

#include <ATen/core/List.h>
#include <ATen/core/Tensor.h>
#include <ATen/native/Resize.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/masked_fill.h>
#include <ATen/ops/nonzero.h>
#include <ATen/ops/range.h>
#include <ATen/ops/sum.h>

#include <map>

namespace tpu {
namespace {

bool is_mask(const at::Tensor& t) { return t.scalar_type() == at::kBool || t.scalar_type() == at::kByte; }

// The index list on `device`; self is needed to check the masks' shapes.
c10::List<std::optional<at::Tensor>> plain_indices(const at::Tensor& self, const c10::IValue& indices) {
  c10::List<std::optional<at::Tensor>> plain;
  int64_t dim = 0;
  for (const std::optional<at::Tensor>& given : indices.toOptionalTensorVector()) {
    if (!given || !given->defined()) {
      plain.push_back(std::nullopt);
      ++dim;
      continue;
    }
    const at::Tensor index = given->to(self.device());
    if (!is_mask(index)) {
      TORCH_CHECK_INDEX(index.scalar_type() == at::kLong || index.scalar_type() == at::kInt,
                        "tensors used as indices must be long, int, byte or bool tensors");
      plain.push_back(index);
      ++dim;
      continue;
    }
    for (int64_t d = 0; d < index.dim(); ++d) {
      TORCH_CHECK_INDEX(dim + d < self.dim() && index.size(d) == self.size(dim + d), "The shape of the mask ",
                        index.sizes(), " at index ", d, " does not match the shape of the indexed tensor ",
                        self.sizes(), " at index ", dim + d);
    }
    const at::Tensor where = at::nonzero(index);
    for (int64_t d = 0; d < index.dim(); ++d) plain.push_back(where.select(1, d));
    dim += index.dim();
  }
  TORCH_CHECK_INDEX(dim <= self.dim(), "too many indices for tensor of dimension ", self.dim(), " (got ", dim, ")");
  return plain;
}

bool already_plain(const at::Tensor& self, const c10::IValue& indices) {
  for (const std::optional<at::Tensor>& t : indices.toOptionalTensorVector()) {
    if (t && t->defined() && (is_mask(*t) || t->device() != self.device())) return false;
  }
  return true;
}

c10::IValue& argument(torch::jit::Stack* stack, size_t count, size_t i) { return (*stack)[stack->size() - count + i]; }

template <size_t kArguments>
bool prepare_index(torch::jit::Stack* stack) {
  const at::Tensor& self = argument(stack, kArguments, 0).toTensor();
  c10::IValue& indices = argument(stack, kArguments, 1);
  if (!already_plain(self, indices)) indices = plain_indices(self, indices);
  return false;
}

// self, indices, values, accumulate, (unsafe)
template <size_t kArguments>
bool prepare_index_put(torch::jit::Stack* stack) {
  const at::Tensor self = argument(stack, kArguments, 0).toTensor();
  c10::IValue& indices = argument(stack, kArguments, 1);
  c10::IValue& values = argument(stack, kArguments, 2);
  TORCH_CHECK(self.scalar_type() == values.toTensor().scalar_type(),
              "Index put requires the source and destination dtypes match, got ", self.scalar_type(),
              " for the destination and ", values.toTensor().scalar_type(), " for the source.");
  if (already_plain(self, indices)) return false;
  // x[mask] = number needs no indices.
  const auto list = indices.toOptionalTensorVector();
  if (kArguments == 5 && values.toTensor().numel() == 1 && !argument(stack, kArguments, 3).toBool() &&
      list.size() == 1 && list[0] && list[0]->scalar_type() == at::kBool && list[0]->dim() <= self.dim() &&
      list[0]->sizes() == self.sizes().slice(0, list[0]->dim())) {
    at::Tensor mask = list[0]->to(self.device());
    while (mask.dim() < self.dim()) mask = mask.unsqueeze(-1);
    self.masked_fill_(mask, values.toTensor().reshape({}).to(self.device()));
    torch::jit::drop(*stack, kArguments);
    stack->emplace_back(self);
    return true;
  }
  indices = plain_indices(self, indices);
  return false;
}

// repeats, output_size: how many results there are is only known to the data.
bool prepare_repeat_interleave(torch::jit::Stack* stack) {
  c10::IValue& size = argument(stack, 2, 1);
  if (size.isNone()) size = argument(stack, 2, 0).toTensor().sum().item<int64_t>();
  return false;
}

// start, end, step, out: the numbers are run-time operands, but they decide the size and may be wrong,
// so PyTorch is asked on every call.
template <auto kMake>
bool prepare_range(torch::jit::Stack* stack) {
  const at::Tensor& out = argument(stack, 4, 3).toTensor();
  at::Tensor meta = at::empty({0}, out.options().device(at::kMeta));
  kMake(meta, argument(stack, 4, 0).toScalar(), argument(stack, 4, 1).toScalar(), argument(stack, 4, 2).toScalar());
  if (out.numel() != meta.numel()) at::native::resize_output(out, meta.sizes());
  return false;
}

void arange(at::Tensor& out, const at::Scalar& start, const at::Scalar& end, const at::Scalar& step) {
  at::arange_out(out, start, end, step);
}
void range(at::Tensor& out, const at::Scalar& start, const at::Scalar& end, const at::Scalar& step) {
  at::range_out(out, start, end, step);
}

// A number that the dtype cannot hold.
bool prepare_fill(torch::jit::Stack* stack) {
  const c10::Scalar value = argument(stack, 2, 1).toScalar();
  switch (argument(stack, 2, 0).toTensor().scalar_type()) {
    case at::kByte:
      value.to<uint8_t>();
      break;
    case at::kChar:
      value.to<int8_t>();
      break;
    case at::kShort:
      value.to<int16_t>();
      break;
    case at::kInt:
      value.to<int32_t>();
      break;
    case at::kLong:
      value.to<int64_t>();
      break;
    case at::kHalf:
      value.to<c10::Half>();
      break;
    case at::kBFloat16:
      value.to<c10::BFloat16>();
      break;
    case at::kFloat:
      value.to<float>();
      break;
    default:
      break;
  }
  return false;
}

}  // namespace

Prepare find_prepare(const std::string& name) {
  static const std::map<std::string, Prepare> table = {
      {"aten::arange.start_out", &prepare_range<&arange>},
      {"aten::range.out", &prepare_range<&range>},
      {"aten::index.Tensor", &prepare_index<2>},
      {"aten::index.Tensor_out", &prepare_index<3>},
      {"aten::_unsafe_index.Tensor", &prepare_index<2>},
      {"aten::_index_put_impl_", &prepare_index_put<5>},
      {"aten::index_put", &prepare_index_put<4>},
      {"aten::index_put_", &prepare_index_put<4>},
      {"aten::_unsafe_index_put", &prepare_index_put<4>},
      {"aten::fill_.Scalar", &prepare_fill},
      {"aten::repeat_interleave.Tensor", &prepare_repeat_interleave},
  };
  auto it = table.find(name);
  if (it != table.end()) return it->second;
  for (const auto* checks : {&random_checks(), &info_checks()}) {
    it = checks->find(name);
    if (it != checks->end()) return it->second;
  }
  return nullptr;
}

}  // namespace tpu
