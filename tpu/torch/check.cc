#include "tpu/torch/check.h"

#include <c10/util/Exception.h>

#include <deque>
#include <mutex>

#include "tpu/pjrt/error.h"
#include "tpu/torch/debug.h"

namespace tpu {
namespace {

struct Pending {
  ProgramPtr program;
  runtime::BufferPtr told;
};
std::mutex mutex;
std::deque<Pending>& pending() {
  static auto* d = new std::deque<Pending>;
  return *d;
}
constexpr size_t kMaxPending = 256;

// The message of the first failed check, empty when all held.
std::pair<std::string, std::string> read(const Pending& p) {
  std::vector<int64_t> told(p.program->checks.size() * 2);
  try {
    p.told->pjrt().to_host(told.data(), told.size() * sizeof(int64_t)).await();
  } catch (const pjrt::Error&) {
    return {};  // the run failed as a whole; its outputs say so
  }
  for (size_t i = 0; i < p.program->checks.size(); ++i) {
    if (!told[2 * i]) continue;
    std::string message = p.program->checks[i].message;
    if (const size_t at = message.find("{}"); at != std::string::npos) {
      message.replace(at, 2, std::to_string(told[2 * i + 1]));
    }
    const std::string& error = p.program->checks[i].error;
    // Those of linear algebra begin with the public name, as PyTorch's do.
    return {error, error == "LinAlgError" ? message : p.program->op + ": " + message};
  }
  return {};
}

// Kept so that a check that failed while the queue was trimmed is still raised.
std::pair<std::string, std::string> failed;

void take_oldest_locked() {
  auto result = read(pending().front());
  pending().pop_front();
  if (failed.second.empty()) failed = std::move(result);
}

}  // namespace

void add_pending_checks(ProgramPtr program, runtime::BufferPtr told) {
  std::lock_guard lock(mutex);
  pending().push_back({std::move(program), std::move(told)});
  if (pending().size() > kMaxPending) take_oldest_locked();
}

void raise_failed_checks(const char* line) {
  std::pair<std::string, std::string> first;
  {
    std::lock_guard lock(mutex);
    if (pending().empty() && failed.second.empty()) return;
    while (!pending().empty()) take_oldest_locked();
    first = std::move(failed);
    failed = {};
  }
  if (first.second.empty()) return;
  first.second += called_at(line);
  if (first.first == "IndexError") TORCH_CHECK_INDEX(false, first.second);
  TORCH_CHECK_LINALG(first.first != "LinAlgError", first.second);
  TORCH_CHECK(false, first.second);
}

}  // namespace tpu
