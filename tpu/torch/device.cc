#include "tpu/torch/device.h"

#include <ATen/core/CachingHostAllocator.h>
#include <ATen/detail/PrivateUse1HooksInterface.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>

#include <atomic>
#include <chrono>
#include <map>
#include <memory>
#include <mutex>
#include <thread>

#include "tpu/torch/cell.h"
#include "tpu/torch/check.h"
#include "tpu/torch/generator.h"
#include "tpu/torch/resize.h"

namespace tpu {
namespace {

constexpr c10::DeviceType kType = c10::DeviceType::PrivateUse1;
thread_local int current = 0;
thread_local c10::StreamId current_stream = 0;

c10::Device device(int index) { return c10::Device(kType, static_cast<c10::DeviceIndex>(index)); }
c10::Stream stream(int index, c10::StreamId id) { return c10::Stream(c10::Stream::UNSAFE, device(index), id); }

// PJRT runs work in program order; an event is the number of runs started before it, and the time at
// which the last of them was done.
struct Event {
  struct Done {
    std::atomic<bool> known{false};
    std::chrono::steady_clock::time_point time;
    void set() {
      time = std::chrono::steady_clock::now();
      known = true;
    }
  };
  uint64_t launches = 0;
  std::shared_ptr<Done> done = std::make_shared<Done>();

  void record() {
    runtime::Session& session = runtime::Session::get();
    launches = session.launches();
    done = std::make_shared<Done>();
    session.when_done(launches, [done = done] { done->set(); });
  }
  bool query() const { return done->known && runtime::Session::get().is_done(launches); }
  void synchronize() const {
    runtime::Session::get().wait(launches);
    // The plugin's thread that tells the time may be a moment behind.
    while (!done->known) std::this_thread::yield();
  }
};

struct Guard final : c10::impl::DeviceGuardImplInterface {
  c10::DeviceType type() const override { return kType; }
  c10::Device exchangeDevice(c10::Device d) const override {
    const c10::Device old = device(current);
    setDevice(d);
    return old;
  }
  c10::Device getDevice() const override { return device(current); }
  void setDevice(c10::Device d) const override { current = check_device_index(d.index()); }
  void uncheckedSetDevice(c10::Device d) const noexcept override {
    if (d.index() >= 0) current = d.index();
  }
  c10::DeviceIndex deviceCount() const noexcept override {
    try {
      return static_cast<c10::DeviceIndex>(device_count());
    } catch (...) {
      return 0;
    }
  }
  c10::DeviceCapability getDeviceCapability(c10::Device) const override { return {}; }

  c10::Stream getStream(c10::Device d) const override { return stream(check_device_index(d.index()), current_stream); }
  c10::Stream getDefaultStream(c10::Device d) const override { return stream(check_device_index(d.index()), 0); }
  c10::Stream getStreamFromGlobalPool(c10::Device d, bool) const override { return getNewStream(d, 0); }
  c10::Stream getNewStream(c10::Device d, int) const override {
    static std::atomic<c10::StreamId> next{1};
    return stream(check_device_index(d.index()), next++);
  }
  c10::Stream exchangeStream(c10::Stream s) const override {
    const c10::Stream old = stream(s.device_index(), current_stream);
    current_stream = s.id();
    return old;
  }
  void* getStreamNativeHandle(const c10::Stream s) const override { return reinterpret_cast<void*>(s.id()); }
  bool queryStream(const c10::Stream&) const override {
    return runtime::Session::get().is_done(runtime::Session::get().launches());
  }
  void synchronizeStream(const c10::Stream&) const override {
    synchronizeDevice(static_cast<c10::DeviceIndex>(current));
  }
  void synchronizeDevice(const c10::DeviceIndex index) const override {
    check_device_index(index);
    if (!runtime::Session::is_started()) return;
    runtime::Session::get().synchronize();
    raise_failed_checks();
  }

  void record(void** event, const c10::Stream&, const c10::DeviceIndex, const c10::EventFlag) const override {
    if (!*event) *event = new Event;
    static_cast<Event*>(*event)->record();
  }
  // All streams run in program order already.
  void block(void*, const c10::Stream&) const override {}
  bool queryEvent(void* event) const override { return !event || static_cast<Event*>(event)->query(); }
  void synchronizeEvent(void* event) const override {
    if (event) static_cast<Event*>(event)->synchronize();
  }
  double elapsedTime(void* start, void* end, const c10::DeviceIndex) const override {
    TORCH_CHECK(start && end, "Both events must be recorded before calculating elapsed time.");
    auto *a = static_cast<Event*>(start), *b = static_cast<Event*>(end);
    TORCH_CHECK(a->query() && b->query(), "Both events must be completed before calculating elapsed time.");
    const double ms = std::chrono::duration<double, std::milli>(b->done->time - a->done->time).count();
    // Two threads took the times.
    return a->launches <= b->launches ? std::max(ms, 0.0) : ms;
  }
  void destroyEvent(void* event, const c10::DeviceIndex) const noexcept override { delete static_cast<Event*>(event); }
  void recordDataPtrOnStream(const c10::DataPtr&, const c10::Stream&) const override {}
};

// Host memory needs no pinning for PJRT transfers; it is ordinary memory that remembers being asked for.
struct HostAllocator final : at::HostAllocator {
  c10::DataPtr allocate(size_t n) override {
    if (n == 0) return {nullptr, c10::Device(c10::DeviceType::CPU)};
    void* p = std::aligned_alloc(64, (n + 63) / 64 * 64);
    TORCH_CHECK_WITH(OutOfMemoryError, p, "Cannot allocate ", n, " bytes of host memory");
    std::lock_guard lock(mutex);
    ranges[static_cast<char*>(p)] = n;
    return {p, p, &release, c10::Device(c10::DeviceType::CPU)};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &release; }
  void copy_data(void* dest, const void* src, std::size_t n) const override { default_copy_data(dest, src, n); }
  bool record_event(void*, void*, c10::Stream) override { return true; }
  void empty_cache() override {}
  at::HostStats get_stats() override { return {}; }
  void reset_accumulated_stats() override {}
  void reset_peak_stats() override {}

  static bool contains(const void* p) {
    std::lock_guard lock(mutex);
    auto it = ranges.upper_bound(static_cast<char*>(const_cast<void*>(p)));
    return it != ranges.begin() && p < (--it)->first + it->second;
  }
  static void release(void* p) {
    {
      std::lock_guard lock(mutex);
      ranges.erase(static_cast<char*>(p));
    }
    std::free(p);
  }
  static inline std::mutex mutex;
  static inline std::map<char*, size_t>& ranges = *new std::map<char*, size_t>;
};

HostAllocator& host_allocator() {
  static auto* a = new HostAllocator;
  return *a;
}

struct Hooks final : at::PrivateUse1HooksInterface {
  void init() const override { runtime::Session::get(); }
  bool isBuilt() const override { return true; }
  bool isAvailable() const override { return true; }
  bool hasPrimaryContext(c10::DeviceIndex) const override { return runtime::Session::is_started(); }
  c10::DeviceIndex deviceCount() const override { return static_cast<c10::DeviceIndex>(device_count()); }
  void setCurrentDevice(c10::DeviceIndex d) const override { current = check_device_index(d); }
  c10::DeviceIndex getCurrentDevice() const override { return static_cast<c10::DeviceIndex>(current); }
  c10::DeviceIndex exchangeDevice(c10::DeviceIndex d) const override {
    const int old = current;
    current = check_device_index(d);
    return static_cast<c10::DeviceIndex>(old);
  }
  c10::DeviceIndex maybeExchangeDevice(c10::DeviceIndex d) const override {
    return d < 0 ? static_cast<c10::DeviceIndex>(current) : exchangeDevice(d);
  }
  bool isPinnedPtr(const void* p) const override { return HostAllocator::contains(p); }
  c10::Allocator* getPinnedMemoryAllocator() const override { return &host_allocator(); }
  c10::Device getDeviceFromPtr(void* p) const override {
    TORCH_CHECK(is_device_address(p), "The address is not one of the tpu device");
    return device(current);
  }
  const at::Generator& getDefaultGenerator(c10::DeviceIndex d) const override { return default_generator(d); }
  at::Generator getNewGenerator(c10::DeviceIndex d) const override { return make_generator(check_device_index(d)); }
  void resizePrivateUse1Bytes(const c10::Storage& storage, size_t nbytes) const override {
    resize_storage(*storage.unsafeGetStorageImpl(), nbytes);
  }
};

}  // namespace

C10_REGISTER_GUARD_IMPL(PrivateUse1, Guard)

int current_device() { return current; }

int device_count() {
  // Also asked in a forked child, where the session is of no use.
  static std::atomic<int> known{1};
  if (runtime::Session::is_started() && !runtime::Session::is_in_bad_fork())
    known = runtime::Session::get().num_devices();
  return known;
}

int check_device_index(int index) {
  if (index < 0) return current;
  const int count = device_count();
  TORCH_CHECK(index < count, "tpu:", index, " does not exist: there ", count == 1 ? "is one tpu device" : "are ",
              count == 1 ? "" : std::to_string(count) + " tpu devices", ", the highest index is ", count - 1);
  return index;
}

void register_device() {
  static const bool once = [] {
    c10::SetAllocator(kType, &allocator(), 0);
    at::setHostAllocator(kType, &host_allocator(), 0);
    at::RegisterPrivateUse1HooksInterface(new Hooks);
    return true;
  }();
  (void)once;
}

}  // namespace tpu
