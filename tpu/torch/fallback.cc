#include "tpu/torch/fallback.h"

#include <ATen/EmptyTensor.h>
#include <ATen/core/List.h>
#include <ATen/native/CPUFallback.h>
#include <ATen/ops/empty_strided.h>

#include <cstdlib>
#include <mutex>
#include <set>

#include "tpu/runtime/counters.h"
#include "tpu/runtime/log.h"
#include "tpu/torch/decompose.h"
#include "tpu/torch/trace.h"

namespace tpu {
namespace {

enum class Policy { kWarn, kError, kSilent };

Policy policy() {
  const char* s = std::getenv("TORCH_TPU_FALLBACK");
  const std::string v = s ? s : "";
  return v == "error" ? Policy::kError : v == "silent" ? Policy::kSilent : Policy::kWarn;
}

bool first_time(const std::string& name) {
  static std::mutex mutex;
  static auto* seen = new std::set<std::string>;
  std::lock_guard lock(mutex);
  return seen->insert(name).second;
}

}  // namespace

void fall_back(const c10::OperatorHandle& op, torch::jit::Stack* stack, const std::string& why) {
  const std::string name = c10::toString(op.operator_name());
  if (Trace::current()) throw RecordingBroken(name + " runs on the CPU");
  const Policy p = policy();
  TORCH_CHECK_NOT_IMPLEMENTED(p != Policy::kError, name, " is not implemented on the tpu device (", why,
                              "), and TORCH_TPU_FALLBACK=error forbids running it on the CPU");
  at::native::cpu_fallback(op, stack, /*error_on_views=*/true);
  runtime::counters().add_fallback(name);
  if (p == Policy::kWarn && first_time(name)) {
    TORCH_WARN(name, " runs on the CPU, since the tpu device does not implement it (", why,
               "). This moves its tensors both ways on each call. TORCH_TPU_FALLBACK=error makes it an error, =silent "
               "hides this.");
  }
  if (runtime::log_enabled("fallbacks")) runtime::log_line("fallbacks", name + ": " + why);
}

void refuse_as_the_cpu_does(const c10::OperatorHandle& op, c10::ArrayRef<c10::IValue> args) {
  constexpr int64_t kMaxBytes = 64 << 20;
  int64_t bytes = 0;
  auto on_cpu = [&](const at::Tensor& t) {
    if (!t.defined() || t.is_cpu()) return t;
    const auto sizes = t.sizes(), strides = t.strides();
    const auto n = static_cast<int64_t>(at::detail::computeStorageNbytes(sizes, strides, t.element_size()));
    if ((bytes += n) > kMaxBytes) return at::Tensor();
    at::Tensor c = at::empty_strided(sizes, strides, t.options().device(at::kCPU).requires_grad(false));
    std::memset(c.mutable_data_ptr(), 0, n);
    c._set_conj(t.is_conj());
    c._set_neg(t.is_neg());
    if (t.unsafeGetTensorImpl()->is_wrapped_number()) c.unsafeGetTensorImpl()->set_wrapped_number(true);
    return c;
  };
  at::AutoDispatchBelowADInplaceOrView guard;
  torch::jit::Stack stack;
  for (const c10::IValue& v : args) {
    if (v.isTensor()) {
      stack.emplace_back(on_cpu(v.toTensor()));
    } else if (v.isTensorList()) {
      c10::List<at::Tensor> list;
      for (const at::Tensor& t : v.toTensorVector()) list.push_back(on_cpu(t));
      stack.emplace_back(std::move(list));
    } else if (v.isOptionalTensorList()) {
      c10::List<std::optional<at::Tensor>> list;
      for (const std::optional<at::Tensor>& t : v.toOptionalTensorVector())
        list.push_back(t ? std::optional(on_cpu(*t)) : t);
      stack.emplace_back(std::move(list));
    } else if (v.isDevice()) {
      stack.emplace_back(c10::Device(at::kCPU));
    } else if (v.isGenerator()) {
      stack.emplace_back();
    } else {
      stack.push_back(v);
    }
  }
  if (bytes > kMaxBytes) return;
  const std::string& name = op.operator_name().name;
  if (name == "aten::convolution_backward_overrideable") return;
  // What PyTorch calls of other backends only.
  static const c10::OperatorHandle convolution =
      c10::Dispatcher::singleton().findSchemaOrThrow("aten::convolution", "");
  (name == "aten::convolution_overrideable" ? convolution : op).callBoxed(stack);
}

void fallback_kernel(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  std::string why;
  if (decompose(op, stack, why)) return;
  fall_back(op, stack, why);
}

}  // namespace tpu
