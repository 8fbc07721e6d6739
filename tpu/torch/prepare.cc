// Index tensors as the rows want them: masks become indices (their number is known only to the data),
// and indices on the CPU are moved to the device, as PyTorch allows. A result size that the data
// decides is read.
#include "tpu/torch/prepare.h"

#include <ATen/core/List.h>
#include <ATen/core/Tensor.h>
#include <ATen/native/Resize.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/index_put.h>
#include <ATen/ops/masked_fill.h>
#include <ATen/ops/nonzero.h>
#include <ATen/ops/range.h>
#include <ATen/ops/sum.h>
#include <ATen/ops/zeros_like.h>

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

// Dimensions all of whose elements are one in memory: the first of them stands for all.
std::vector<int64_t> expanded_dims(const at::Tensor& t) {
  std::vector<int64_t> dims;
  for (int64_t d = 0; d < t.dim(); ++d) {
    if (t.stride(d) == 0 && t.size(d) > 1) dims.push_back(d);
  }
  return dims;
}

at::Tensor first_along(at::Tensor t, const std::vector<int64_t>& dims) {
  for (int64_t d : dims) t = t.narrow(d, 0, 1);
  return t;
}

// self, mask, value: what the mask takes anywhere along an expanded dimension is filled.
bool prepare_masked_fill(torch::jit::Stack* stack) {
  const at::Tensor self = argument(stack, 3, 0).toTensor();
  const std::vector<int64_t> dims = expanded_dims(self);
  if (dims.empty()) return false;
  TORCH_WARN(
      "Use of masked_fill_ on expanded tensors is deprecated. Please clone() the tensor before performing this "
      "operation. This also applies to advanced indexing e.g. tensor[mask] = scalar");
  at::Tensor mask = argument(stack, 3, 1).toTensor().expand(self.sizes());
  for (int64_t d : dims) mask = mask.any(d, /*keepdim=*/true);
  const c10::IValue value = argument(stack, 3, 2);
  at::Tensor first = first_along(self, dims);
  if (value.isTensor()) {
    first.masked_fill_(mask, value.toTensor());
  } else {
    first.masked_fill_(mask, value.toScalar());
  }
  torch::jit::drop(*stack, 3);
  stack->emplace_back(self);
  return true;
}

// Writes to the first elements of expanded dimensions, where all of these are indexed; others stay refused.
template <size_t kArguments>
bool put_first(torch::jit::Stack* stack) {
  const at::Tensor self = argument(stack, kArguments, 0).toTensor();
  const std::vector<int64_t> dims = expanded_dims(self);
  if (dims.empty()) return false;
  auto list = argument(stack, kArguments, 1).toOptionalTensorVector();
  for (int64_t d : dims) {
    if (d >= static_cast<int64_t>(list.size()) || !list[d] || !list[d]->defined()) return false;
    list[d] = at::zeros_like(*list[d]);
  }
  TORCH_WARN(
      "Use of index_put_ on expanded tensors is deprecated. Please clone() the tensor before performing this "
      "operation. This also applies to advanced indexing e.g. tensor[indices] = tensor");
  at::Tensor first = first_along(self, dims);
  first.index_put_(c10::List<std::optional<at::Tensor>>(list), argument(stack, kArguments, 2).toTensor(),
                   argument(stack, kArguments, 3).toBool());
  torch::jit::drop(*stack, kArguments);
  stack->emplace_back(self);
  return true;
}

// self, indices, values, accumulate, (unsafe)
template <size_t kArguments, bool kWrites>
bool prepare_index_put(torch::jit::Stack* stack) {
  const at::Tensor self = argument(stack, kArguments, 0).toTensor();
  c10::IValue& indices = argument(stack, kArguments, 1);
  c10::IValue& values = argument(stack, kArguments, 2);
  TORCH_CHECK(self.scalar_type() == values.toTensor().scalar_type(),
              "Index put requires the source and destination dtypes match, got ", self.scalar_type(),
              " for the destination and ", values.toTensor().scalar_type(), " for the source.");
  if (already_plain(self, indices)) return kWrites && put_first<kArguments>(stack);
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
  return kWrites && put_first<kArguments>(stack);
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

}  // namespace

Prepare find_prepare(const std::string& name) {
  static const std::map<std::string, Prepare> table = {
      {"aten::arange.start_out", &prepare_range<&arange>},
      {"aten::range.out", &prepare_range<&range>},
      {"aten::index.Tensor", &prepare_index<2>},
      {"aten::index.Tensor_out", &prepare_index<3>},
      {"aten::_unsafe_index.Tensor", &prepare_index<2>},
      {"aten::_index_put_impl_", &prepare_index_put<5, true>},
      {"aten::index_put", &prepare_index_put<4, false>},
      {"aten::index_put_", &prepare_index_put<4, true>},
      {"aten::_unsafe_index_put", &prepare_index_put<4, false>},
      {"aten::masked_fill_.Scalar", &prepare_masked_fill},
      {"aten::masked_fill_.Tensor", &prepare_masked_fill},
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
