#include "tpu/torch/meta.h"

#include <ATen/ScalarOps.h>
#include <ATen/core/List.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_strided.h>

#include <map>

#include "tpu/torch/decompose.h"

namespace tpu {
namespace {

using c10::DispatchKey;
using c10::IValue;

std::unordered_map<c10::OperatorName, c10::SafeKernelFunction>& remembered() {
  static auto* kernels = new std::unordered_map<c10::OperatorName, c10::SafeKernelFunction>;
  return *kernels;
}

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

using Correct = void (*)(c10::ArrayRef<IValue> args, torch::jit::Stack& results);

// Where a Meta kernel says something else than the CPU does.
const std::map<std::string, Correct>& corrections() {
  static const std::map<std::string, Correct> table = {
      {"aten::native_batch_norm", &batch_norm_saves_nothing},
      {"aten::_native_batch_norm_legit_functional", &batch_norm_saves_nothing},
  };
  return table;
}

}  // namespace

void remember_meta_kernels(const c10::OperatorHandle& op) {
  if (op.hasKernelForDispatchKey(DispatchKey::Meta)) {
    remembered().emplace(op.operator_name(), op.getComputedKernelForDispatchKey(DispatchKey::Meta));
  }
}

at::Tensor to_meta(const at::Tensor& t) {
  // Wrapped numbers stay on the CPU: PyTorch's Python Meta kernels read them there.
  if (!t.defined() || (t.is_cpu() && t.unsafeGetTensorImpl()->is_wrapped_number())) return t;
  at::Tensor m = at::empty_strided(t.sizes(), t.strides(), t.options().device(at::kMeta).requires_grad(false));
  if (t.unsafeGetTensorImpl()->is_wrapped_number()) m.unsafeGetTensorImpl()->set_wrapped_number(true);
  return m;
}

torch::jit::Stack infer(const c10::OperatorHandle& op, c10::ArrayRef<IValue> args) {
  const auto kernel = remembered().find(op.operator_name());
  if (kernel == remembered().end()) ensure_meta_kernel(op);
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
  if (kernel == remembered().end()) {
    op.callBoxed(stack);
  } else {
    kernel->second.callBoxed(op, c10::DispatchKeySet(DispatchKey::Meta), &stack);
  }
  const auto correct = corrections().find(op.operator_name().name);
  if (correct != corrections().end()) correct->second(args, stack);
  return stack;
}

}  // namespace tpu
