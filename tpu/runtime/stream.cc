#include "tpu/runtime/stream.h"

#include <algorithm>
#include <atomic>

#include "tpu/runtime/activity.h"

namespace tpu::runtime {
namespace {

// How far the user's thread may run ahead of the device on one stream.
constexpr size_t kMaxInFlight = 512;

void await(const pjrt::Event& event) {
  try {
    event.await();
  } catch (const pjrt::Error&) {
    // Stored with the outputs; raised where they are read.
  }
}

}  // namespace

void Stream::add(EventPtr done) {
  if (done->is_ready()) return;
  EventPtr oldest;
  {
    std::lock_guard lock(mutex_);
    in_flight_.emplace_back(++added_, std::move(done));
    prune_locked();
    if (in_flight_.size() > kMaxInFlight) oldest = in_flight_.front().second;
  }
  if (!oldest) return;
  const ActivityScope scope(Activity::Kind::kWait);
  await(*oldest);
}

Marker Stream::mark() {
  Marker waits;
  {
    std::lock_guard lock(mutex_);
    waits = waits_;
  }
  // Asked without the lock: the other stream may be asking for this one.
  std::erase_if(waits, [](const auto& w) { return is_done({w}); });
  std::lock_guard lock(mutex_);
  std::erase_if(waits_, [&](const auto& w) { return std::find(waits.begin(), waits.end(), w) == waits.end(); });
  waits = waits_;
  waits.emplace_back(this, added_);
  return waits;
}

void Stream::wait_for(const Marker& marker) {
  std::lock_guard lock(mutex_);
  for (const auto& [stream, number] : marker) {
    if (stream == this) continue;
    const auto known =
        std::find_if(waits_.begin(), waits_.end(), [stream = stream](const auto& w) { return w.first == stream; });
    if (known == waits_.end()) {
      waits_.emplace_back(stream, number);
    } else {
      known->second = std::max(known->second, number);
    }
  }
}

void Stream::prune_locked() {
  while (!in_flight_.empty() && in_flight_.front().second->is_ready()) in_flight_.pop_front();
}

Stream::EventPtr Stream::first_pending(uint64_t number) {
  std::lock_guard lock(mutex_);
  prune_locked();
  for (const auto& [n, event] : in_flight_) {
    if (n > number) break;
    if (!event->is_ready()) return event;
  }
  return nullptr;
}

void Stream::pending(uint64_t number, std::vector<EventPtr>& events) {
  std::lock_guard lock(mutex_);
  prune_locked();
  for (const auto& [n, event] : in_flight_) {
    if (n > number) break;
    if (!event->is_ready()) events.push_back(event);
  }
}

bool is_done(const Marker& marker) {
  return std::none_of(marker.begin(), marker.end(), [](const auto& m) { return m.first->first_pending(m.second); });
}

void synchronize(const Marker& marker) {
  for (const auto& [stream, number] : marker) {
    Stream::EventPtr event = stream->first_pending(number);
    if (!event) continue;
    const ActivityScope scope(Activity::Kind::kWait);
    for (; event; event = stream->first_pending(number)) await(*event);
  }
}

void when_done(const Marker& marker, std::function<void()> f) {
  std::vector<Stream::EventPtr> events;
  for (const auto& [stream, number] : marker) stream->pending(number, events);
  if (events.empty()) return f();
  struct Countdown {
    std::atomic<size_t> left;
    std::function<void()> f;
  };
  auto countdown = std::make_shared<Countdown>(events.size(), std::move(f));
  for (const Stream::EventPtr& event : events) {
    event->on_ready([countdown](const pjrt::Error*) {
      if (--countdown->left == 0) countdown->f();
    });
  }
}

}  // namespace tpu::runtime
