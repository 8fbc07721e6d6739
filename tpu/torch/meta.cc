#include "tpu/torch/meta.h"

#include <ATen/ScalarOps.h>
#include <ATen/core/List.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_strided.h>

#include <algorithm>
#include <map>

#include "tpu/torch/decompose.h"

namespace tpu {
namespace {

using c10::IValue;

IValue to_meta(const IValue& v) {
  if (v.isTensor()) return tpu::to_meta(v.toTensor());
  if (v.isTensorList()) {
    c10::List<at::Tensor> list;
    for (const at::Tensor& t : v.toTensorVector()) list.push_back(tpu::to_meta(t));
    return list;
  }
  if (v.isOptionalTensorList()) {
    c10::List<std::optional<at::Tensor>> list;
    for (const std::optional<at::Tensor>& t : v.toOptionalTensorVector())
      list.push_back(t ? std::optional(tpu::to_meta(*t)) : std::nullopt);
    return list;
  }
  if (v.isDevice()) return c10::Device(at::kMeta);
  if (v.isGenerator()) return {};
  return v;
}

// input, weight, bias, running_mean, running_var, training, ...: in evaluation the CPU saves no statistics.
void batch_norm_saves_nothing(c10::ArrayRef<IValue> args, torch::jit::Stack& results) {
  if (args[5].toBool()) return;
  for (size_t i : {1, 2}) results[i] = results[i].toTensor().new_empty({0});
}

// PyTorch's Python Meta kernels of nearest-neighbour resizing fail for a batch of none, which the CPU takes.
std::optional<at::Tensor> nearest_of_nothing(const std::string& name, c10::ArrayRef<IValue> args) {
  const bool is_nearest = name.starts_with("aten::upsample_nearest") || name.starts_with("aten::_upsample_nearest");
  if (!is_nearest || name.ends_with("_backward") || !args[1].isIntList()) return {};
  const at::Tensor self = args[0].toTensor();
  const std::vector<int64_t> wanted = args[1].toIntVector();
  if (self.numel() != 0 || self.dim() != static_cast<int64_t>(wanted.size()) + 2) return {};
  std::vector<int64_t> sizes = {self.size(0), self.size(1)};
  for (int64_t d = 1; d < self.dim(); ++d) {
    if (self.size(d) == 0) return {};
  }
  for (int64_t n : wanted) {
    if (n <= 0) return {};
    sizes.push_back(n);
  }
  return at::empty(sizes, self.options().device(at::kMeta));
}

// self, dim, normalization, onesided: the result lies in memory as the transform of the CPU leaves it, other dimensions
// first, then the transformed ones, each by falling stride, the last of dim innermost.
void order_of_real_transform(c10::ArrayRef<IValue> args, torch::jit::Stack& results) {
  const at::Tensor self = args[0].toTensor(), given = results[0].toTensor();
  std::vector<int64_t> dims = args[1].toIntVector(), order;
  if (dims.empty()) return;
  for (int64_t& d : dims) d = d < 0 ? d + self.dim() : d;
  for (int64_t d = 0; d < self.dim(); ++d) {
    if (std::find(dims.begin(), dims.end(), d) == dims.end()) order.push_back(d);
  }
  auto by_stride = [&](int64_t a, int64_t b) { return self.stride(a) > self.stride(b); };
  std::stable_sort(order.begin(), order.end(), by_stride);
  std::stable_sort(dims.begin(), dims.end() - 1, by_stride);
  order.insert(order.end(), dims.begin(), dims.end());
  std::vector<int64_t> strides(order.size());
  int64_t next = 1;
  for (auto d = order.rbegin(); d != order.rend(); ++d) {
    strides[*d] = next;
    next *= std::max<int64_t>(given.size(*d), 1);
  }
  results[0] = at::empty_strided(given.sizes(), strides, given.options());
}

using Correct = void (*)(c10::ArrayRef<IValue> args, torch::jit::Stack& results);

// Where a Meta kernel says something else than the CPU does.
const std::map<std::string, Correct>& corrections() {
  static const std::map<std::string, Correct> table = {
      {"aten::_fft_r2c", &order_of_real_transform},
      {"aten::native_batch_norm", &batch_norm_saves_nothing},
      {"aten::_native_batch_norm_legit_functional", &batch_norm_saves_nothing},
  };
  return table;
}

}  // namespace

at::Tensor to_meta(const at::Tensor& t) {
  // Wrapped numbers stay on the CPU: PyTorch's Python Meta kernels read them there.
  if (!t.defined() || (t.is_cpu() && t.unsafeGetTensorImpl()->is_wrapped_number())) return t;
  at::Tensor m = at::empty_strided(t.sizes(), t.strides(), t.options().device(at::kMeta).requires_grad(false));
  if (t.unsafeGetTensorImpl()->is_wrapped_number()) m.unsafeGetTensorImpl()->set_wrapped_number(true);
  return m;
}

torch::jit::Stack infer(const c10::OperatorHandle& op, c10::ArrayRef<IValue> args) {
  if (const auto known = nearest_of_nothing(op.operator_name().name, args)) return {*known};
  prepare_meta_kernels();
  torch::jit::Stack stack;
  const auto& schema = op.schema().arguments();
  for (size_t i = 0; i < args.size(); ++i) {
    if (args[i].isScalar() && schema[i].type()->kind() == c10::TypeKind::TensorType) {
      // A row of a .Tensor overload that serves a .Scalar one.
      stack.push_back(at::native::wrapped_scalar_tensor(args[i].toScalar()));
    } else {
      stack.push_back(to_meta(args[i]));
    }
  }
  at::AutoDispatchBelowADInplaceOrView guard;
  op.callBoxed(stack);
  const auto correct = corrections().find(op.operator_name().name);
  if (correct != corrections().end()) correct->second(args, stack);
  return stack;
}

}  // namespace tpu
