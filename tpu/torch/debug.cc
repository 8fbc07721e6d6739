#include "tpu/torch/debug.h"

#include <c10/util/Exception.h>
#include <torch/csrc/autograd/function.h>

#include <atomic>
#include <cstdlib>
#include <mutex>
#include <unordered_set>

namespace tpu {
namespace {

std::string (*python_line)() = nullptr;

std::atomic<int> sync_mode{0};

std::atomic<bool>& blocking() {
  static std::atomic<bool> on{[] {
    const char* s = std::getenv("TORCH_TPU_LAUNCH_BLOCKING");
    return s && *s && std::string(s) != "0";
  }()};
  return on;
}

}  // namespace

bool launch_blocking() { return blocking().load(std::memory_order_relaxed); }
void set_launch_blocking(bool blocks) { blocking() = blocks; }
int sync_debug_mode() { return sync_mode.load(std::memory_order_relaxed); }
void set_sync_debug_mode(int mode) { sync_mode = mode; }

void about_to_wait() {
  const int mode = sync_debug_mode();
  if (mode == 0) [[likely]]
    return;
  constexpr const char* kWords = "called a synchronizing TPU operation: it waits for values of the device";
  TORCH_CHECK(mode == 1, kWords);
  TORCH_WARN(kWords);
}

void set_python_line_hook(std::string (*hook)()) { python_line = hook; }

const char* interned(std::string text) {
  static std::mutex mutex;
  static auto* texts = new std::unordered_set<std::string>;
  const std::lock_guard lock(mutex);
  return texts->insert(std::move(text)).first->c_str();
}

const char* calling_line() {
  std::string line = python_line ? python_line() : std::string();
  if (line.empty()) {
    const auto node = torch::autograd::get_current_node();
    if (!node) return nullptr;
    line = "the backward pass, in " + node->name();
  }
  return interned(std::move(line));
}

std::string called_at(const char* line) { return line ? std::string(" (called at ") + line + ")" : std::string(); }

}  // namespace tpu
