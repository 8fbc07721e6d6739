// Streams. PJRT has none: buffers are immutable, so programs read the right values in any order. A stream here is
// an ordering domain: it knows what was enqueued on it, and what it was told to wait for, so that events mean what
// they mean elsewhere.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "tpu/pjrt/event.h"

namespace tpu::runtime {

class Stream;

// A point in the work of one or more streams: each stream, and the number of pieces of work up to that point.
using Marker = std::vector<std::pair<Stream*, uint64_t>>;

// Thread-safe. Never destroyed: markers point to it.
class Stream {
 public:
  // Work that was just started. Bounded: waits for the oldest when too much is in flight.
  void add(std::shared_ptr<pjrt::Event> done);
  // All that is on this stream by now, and what it waits for.
  Marker mark();
  // What is marked on this stream from now on is done only when `marker` is, too. Nobody is held up: the values that
  // later work reads are right without.
  void wait_for(const Marker& marker);

 private:
  friend bool is_done(const Marker&);
  friend void synchronize(const Marker&);
  friend void when_done(const Marker&, std::function<void()>);

  using EventPtr = std::shared_ptr<pjrt::Event>;
  // The first piece of work up to `number` that is not done, or null.
  EventPtr first_pending(uint64_t number);
  void pending(uint64_t number, std::vector<EventPtr>& events);
  void prune_locked();

  std::mutex mutex_;
  uint64_t added_ = 0;
  std::deque<std::pair<uint64_t, EventPtr>> in_flight_;
  Marker waits_;
};

bool is_done(const Marker& marker);
// Waits. Errors of the work are not thrown here: they are stored with the buffers.
void synchronize(const Marker& marker);
// Calls f once: now, or on a thread of the plugin's, which f must not block.
void when_done(const Marker& marker, std::function<void()> f);

}  // namespace tpu::runtime
