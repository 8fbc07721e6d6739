// Completion of something asynchronous.
#pragma once

#include <functional>
#include <utility>

#include "tpu/pjrt/error.h"

namespace tpu::pjrt {

// Owns one PJRT event. Destroying it neither waits nor drops callbacks. It doesn't keep the client
// alive: a callback would else be able to end the client on one of the client's own threads.
// An empty Event (default constructed or moved from) counts as ready. Const methods are
// thread-safe; an error stays with the event and is thrown by each await().
class Event {
 public:
  // Gets null on success. Runs once, on the calling thread when the event is ready already, else on
  // a thread of the plugin, which it must not block. It must not throw (that terminates).
  using Callback = std::function<void(const Error*)>;

  Event() = default;
  Event(const c::Api* api, c::Event* raw) noexcept : api_(api), raw_(raw) {}
  Event(Event&& other) noexcept : api_(other.api_), raw_(std::exchange(other.raw_, nullptr)) {}
  Event& operator=(Event&& other) noexcept;
  ~Event();

  void await() const;
  bool is_ready() const;
  void on_ready(Callback callback) const;

  c::Event* raw() const noexcept { return raw_; }

 private:
  const c::Api* api_ = nullptr;
  c::Event* raw_ = nullptr;
};

}  // namespace tpu::pjrt
