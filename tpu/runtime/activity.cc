#include "tpu/runtime/activity.h"

#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <mutex>
#include <utility>

#include "tpu/pjrt/error.h"

namespace tpu::runtime {
namespace {

struct Log {
  std::mutex mutex;
  std::atomic<uint64_t> number{0};  // of the recording
  Recording recording;
};
Log& log() {
  static auto* l = new Log;  // threads may stand in it at exit
  return *l;
}

struct Nesting {
  uint64_t recording = 0;
  std::vector<uint64_t> ops, ranges;
};
// What a thread was in when an earlier recording ended is forgotten: nobody says that it left.
Nesting& nesting() {
  static thread_local Nesting n;
  const uint64_t now = log().number.load(std::memory_order_relaxed);
  if (n.recording != now) n = {now, {}, {}};
  return n;
}

int64_t now_ns() {
  timespec t;
  ::clock_gettime(CLOCK_REALTIME, &t);
  return int64_t{1'000'000'000} * t.tv_sec + t.tv_nsec;
}

int64_t thread_id() {
  static thread_local const int64_t id = ::syscall(SYS_gettid);
  return id;
}

void set_done(Activity& activity) {
  activity.done_ns.store(now_ns(), std::memory_order_release);
  activity.done_ns.notify_all();
}

}  // namespace

void start_recording() {
  std::lock_guard lock(log().mutex);
  log().recording = {};
  ++log().number;
  detail::recording = true;
}

Recording stop_recording() {
  Recording recording;
  {
    std::lock_guard lock(log().mutex);
    detail::recording = false;
    recording = std::exchange(log().recording, {});
  }
  for (const auto& a : recording.activities) a->done_ns.wait(Activity::kPending, std::memory_order_acquire);
  return recording;
}

void push_op(uint64_t id) { nesting().ops.push_back(id); }
void pop_op() {
  if (Nesting& n = nesting(); !n.ops.empty()) n.ops.pop_back();
}

void push_range(uint64_t id) {
  Nesting& n = nesting();
  if (!n.ranges.empty()) {
    std::lock_guard lock(log().mutex);
    log().recording.range_parents[id] = n.ranges.back();
  }
  n.ranges.push_back(id);
}
void pop_range() {
  if (Nesting& n = nesting(); !n.ranges.empty()) n.ranges.pop_back();
}

void ActivityScope::begin(Activity::Kind kind, int device, int stream) {
  const Nesting& n = nesting();
  recording_ = n.recording;
  activity_ = std::make_shared<Activity>();
  activity_->kind = kind;
  activity_->device = device;
  activity_->stream = stream;
  activity_->thread = thread_id();
  if (!n.ops.empty()) activity_->op = n.ops.back();
  if (!n.ranges.empty()) activity_->range = n.ranges.back();
  activity_->begin_ns = now_ns();
}

void ActivityScope::end() {
  activity_->end_ns = now_ns();
  std::lock_guard lock(log().mutex);
  if (!is_recording() || log().number != recording_) return;
  log().recording.activities.push_back(std::move(activity_));
}

void ActivityScope::done_now() { set_done(*activity_); }

void ActivityScope::done_when(const pjrt::Event& event) {
  try {
    if (event.is_ready()) return done_now();
    activity_->done_ns = Activity::kPending;
    event.on_ready([activity = activity_](const pjrt::Error*) { set_done(*activity); });
  } catch (const pjrt::Error&) {
    // Recording must not fail what it records.
    done_now();
  }
}

}  // namespace tpu::runtime
