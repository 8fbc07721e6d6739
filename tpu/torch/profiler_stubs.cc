// What the legacy profiler of autograd asks of a device, where Kineto is not used: an event around each op.
#include <c10/core/Event.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <c10/util/ApproximateClock.h>
#include <torch/csrc/profiler/stubs/base.h>

#include "tpu/torch/device.h"

namespace tpu {
namespace {

constexpr c10::DeviceType kType = c10::DeviceType::PrivateUse1;
using EventPtr = torch::profiler::impl::ProfilerVoidEventStub;

struct ProfilerStubs final : torch::profiler::impl::ProfilerStubs {
  void record(c10::DeviceIndex* device, EventPtr* event, int64_t* cpu_ns) const override {
    const c10::impl::VirtualGuardImpl guard(kType);
    const c10::Device current = guard.getDevice();
    if (device) *device = current.index();
    auto recorded = std::make_shared<c10::Event>(kType, c10::EventFlag::BACKEND_DEFAULT);
    recorded->record(guard.getStream(current));
    if (cpu_ns) *cpu_ns = c10::getTime();
    *event = std::move(recorded);
  }
  // Microseconds.
  float elapsed(const EventPtr* from, const EventPtr* to) const override {
    auto *a = static_cast<c10::Event*>(from->get()), *b = static_cast<c10::Event*>(to->get());
    a->synchronize();
    b->synchronize();
    return static_cast<float>(a->elapsedTime(*b) * 1e3);
  }
  bool enabled() const override { return true; }
  void onEachDevice(std::function<void(int)> f) const override {
    const c10::impl::VirtualGuardImpl guard(kType);
    const c10::Device before = guard.getDevice();
    for (int d = 0; d < device_count(); ++d) {
      guard.setDevice(c10::Device(kType, static_cast<c10::DeviceIndex>(d)));
      f(d);
    }
    guard.setDevice(before);
  }
  void synchronize() const override {
    const c10::impl::VirtualGuardImpl guard(kType);
    guard.synchronizeDevice(guard.getDevice().index());
  }
  // For tools that watch a process from outside, which these devices have none of.
  void mark(const char*) const override {}
  void rangePush(const char*) const override {}
  void rangePop() const override {}
};

const struct Register {
  Register() { torch::profiler::impl::registerPrivateUse1Methods(new ProfilerStubs); }
} registered;

}  // namespace
}  // namespace tpu
