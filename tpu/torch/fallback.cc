#include "tpu/torch/fallback.h"

#include <ATen/native/CPUFallback.h>

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

void fallback_kernel(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  std::string why;
  if (decompose(op, stack, why)) return;
  fall_back(op, stack, why);
}

}  // namespace tpu
