// Event: waiting and callbacks.

#include "tpu/pjrt/event.h"

#include <memory>
#include <optional>

namespace tpu::pjrt {
namespace {

struct Waiter {
  const c::Api* api;
  Event::Callback callback;
};

void run(c::Error* error, void* user_arg) noexcept {
  std::unique_ptr<Waiter> waiter(static_cast<Waiter*>(user_arg));
  if (error == nullptr) {
    waiter->callback(nullptr);
  } else {
    const Error failure = take(waiter->api, error);
    waiter->callback(&failure);
  }
}

}  // namespace

Event& Event::operator=(Event&& other) noexcept {
  Event taken(std::move(other));
  std::swap(api_, taken.api_);
  std::swap(raw_, taken.raw_);
  return *this;
}

Event::~Event() {
  if (raw_ == nullptr) return;
  c::Event_Destroy_Args args{.event = raw_};
  discard(api_, api_->Event_Destroy(&args));
}

void Event::await() const {
  if (raw_ == nullptr) return;
  c::Event_Await_Args args{.event = raw_};
  check(api_, api_->Event_Await(&args));
}

bool Event::is_ready() const {
  if (raw_ == nullptr) return true;
  c::Event_IsReady_Args args{.event = raw_};
  check(api_, api_->Event_IsReady(&args));
  return args.is_ready;
}

void Event::on_ready(Callback callback) const {
  if (raw_ == nullptr) {
    callback(nullptr);
    return;
  }
  auto waiter = std::make_unique<Waiter>(Waiter{api_, std::move(callback)});
  c::Event_OnReady_Args args{.event = raw_, .callback = &run, .user_arg = waiter.get()};
  check(api_, api_->Event_OnReady(&args));
  waiter.release();
}

}  // namespace tpu::pjrt
