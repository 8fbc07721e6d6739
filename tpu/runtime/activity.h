// What the process asked of the devices, and when, while somebody records it (a profiler). Nobody recording, each call
// costs one relaxed load.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "tpu/pjrt/event.h"

namespace tpu::runtime {

// One call of the PJRT API. Times are nanoseconds of the system's clock since its epoch.
struct Activity {
  enum class Kind : uint8_t {
    kCompile,  // `name` is what is compiled, `detail` why
    kLoad,     // the same, from the disk
    kExecute,  // `name` is the op
    kCopyToDevice,
    kCopyToHost,
    kCopyBetweenDevices,
    kWait,  // for anything above
  };
  Kind kind;
  int device = -1, stream = 0;  // -1: no particular one
  int64_t thread = 0;           // the system's number of the calling one
  // What ran on the calling thread, as the profiler numbers ops and annotated ranges; 0 is none.
  uint64_t op = 0, range = 0;
  std::string name, detail;
  int64_t bytes = 0;
  int64_t begin_ns = 0, end_ns = 0;  // the call
  // When the device was done with it. Set on a thread of the plugin's.
  static constexpr int64_t kNever = 0, kPending = -1;
  std::atomic<int64_t> done_ns{kNever};
};

struct Recording {
  std::vector<std::shared_ptr<Activity>> activities;  // in the order in which the calls returned
  std::unordered_map<uint64_t, uint64_t> range_parents;
};

// One recording at a time. A call that is in progress at either end of it is left out. Stopping waits until the device
// is done with what was recorded.
void start_recording();
Recording stop_recording();

// What runs on this thread now: ops and ranges are nested.
void push_op(uint64_t id);
void pop_op();
void push_range(uint64_t id);
void pop_range();

namespace detail {
inline std::atomic<bool> recording{false};
}
inline bool is_recording() { return detail::recording.load(std::memory_order_relaxed); }

// The activity that lasts as long as this object, which stays on one thread.
class ActivityScope {
 public:
  explicit ActivityScope(Activity::Kind kind, int device = -1, int stream = 0) {
    if (is_recording()) [[unlikely]]
      begin(kind, device, stream);
  }
  ~ActivityScope() {
    if (activity_) [[unlikely]]
      end();
  }
  ActivityScope(const ActivityScope&) = delete;
  ActivityScope& operator=(const ActivityScope&) = delete;

  // Null when nobody records.
  Activity* operator->() const { return activity_.get(); }
  explicit operator bool() const { return activity_ != nullptr; }

  // The device's part ends with the event, or has ended now. For when somebody records.
  void done_when(const pjrt::Event& event);
  void done_now();

 private:
  void begin(Activity::Kind kind, int device, int stream);
  void end();

  std::shared_ptr<Activity> activity_;
  uint64_t recording_ = 0;
};

// Names what this thread executes while it lives.
class ExecuteName {
 public:
  explicit ExecuteName(const std::string& name) : outer_(current_) { current_ = &name; }
  ~ExecuteName() { current_ = outer_; }
  ExecuteName(const ExecuteName&) = delete;
  ExecuteName& operator=(const ExecuteName&) = delete;
  static std::string_view current() { return current_ ? std::string_view(*current_) : "program"; }

 private:
  static inline thread_local const std::string* current_ = nullptr;
  const std::string* outer_;
};

}  // namespace tpu::runtime
