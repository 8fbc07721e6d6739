#include "tpu/torch/device.h"

#include <ATen/core/CachingHostAllocator.h>
#include <ATen/detail/PrivateUse1HooksInterface.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>

#include <array>
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
constexpr int kMaxDevices = 128;  // of a c10::DeviceIndex
thread_local std::array<uint8_t, kMaxDevices> current_streams{};
// Streams 1 to 32 are of the default priority, the others of a high one; as elsewhere in PyTorch they are handed out
// in turn, and the device makes no difference between priorities.
constexpr int kStreamsPerPriority = (runtime::Session::kStreams - 1) / 2;

c10::Device device(int index) { return c10::Device(kType, static_cast<c10::DeviceIndex>(index)); }
c10::Stream stream(int index, c10::StreamId id) { return c10::Stream(c10::Stream::UNSAFE, device(index), id); }

int check_stream(const c10::Stream& s) {
  TORCH_CHECK(s.id() >= 0 && s.id() < runtime::Session::kStreams, "There is no stream ", s.id(), " on ", s.device(),
              ": take one from torch.Stream() or torch.tpu.default_stream()");
  return static_cast<int>(s.id());
}
runtime::Stream& stream_of(const c10::Stream& s) {
  return runtime::Session::get().stream(check_device_index(s.device_index()), check_stream(s));
}

struct Event {
  struct Done {
    std::atomic<bool> known{false};
    std::chrono::steady_clock::time_point time;
  };
  runtime::Marker marker;
  std::shared_ptr<Done> done;  // of events that tell the time

  void record(runtime::Stream& stream, bool timed) {
    marker = stream.mark();
    done.reset();
    if (!timed) return;
    done = std::make_shared<Done>();
    runtime::when_done(marker, [done = done] {
      done->time = std::chrono::steady_clock::now();
      done->known = true;
    });
  }
  bool query() const { return runtime::is_done(marker) && (!done || done->known); }
  void synchronize() const {
    runtime::synchronize(marker);
    // The plugin's thread that tells the time may be a moment behind.
    while (done && !done->known) std::this_thread::yield();
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

  c10::Stream getStream(c10::Device d) const override {
    const int index = check_device_index(d.index());
    return stream(index, current_streams[index]);
  }
  c10::Stream getDefaultStream(c10::Device d) const override { return stream(check_device_index(d.index()), 0); }
  c10::Stream getStreamFromGlobalPool(c10::Device d, bool high) const override {
    return getNewStream(d, high ? -1 : 0);
  }
  c10::Stream getNewStream(c10::Device d, int priority) const override {
    static std::array<std::array<std::atomic<unsigned>, 2>, kMaxDevices> next{};
    const int index = check_device_index(d.index());
    const unsigned turn = next[index][priority < 0]++ % kStreamsPerPriority;
    return stream(index, 1 + (priority < 0 ? kStreamsPerPriority : 0) + turn);
  }
  c10::Stream exchangeStream(c10::Stream s) const override {
    const int index = check_device_index(s.device_index());
    return stream(index, std::exchange(current_streams[index], check_stream(s)));
  }
  void* getStreamNativeHandle(const c10::Stream s) const override { return reinterpret_cast<void*>(s.id()); }
  bool queryStream(const c10::Stream& s) const override { return runtime::is_done(stream_of(s).mark()); }
  void synchronizeStream(const c10::Stream& s) const override {
    runtime::synchronize(stream_of(s).mark());
    raise_failed_checks();
  }
  void synchronizeDevice(const c10::DeviceIndex index) const override {
    const int checked = check_device_index(index);
    if (!runtime::Session::is_started()) return;
    runtime::Session::get().synchronize(checked);
    raise_failed_checks();
  }

  void record(void** event, const c10::Stream& s, const c10::DeviceIndex, const c10::EventFlag flag) const override {
    if (!*event) *event = new Event;
    static_cast<Event*>(*event)->record(stream_of(s), flag == c10::EventFlag::BACKEND_DEFAULT);
  }
  void block(void* event, const c10::Stream& s) const override {
    if (event) stream_of(s).wait_for(static_cast<Event*>(event)->marker);
  }
  bool queryEvent(void* event) const override { return !event || static_cast<Event*>(event)->query(); }
  void synchronizeEvent(void* event) const override {
    if (!event) return;
    static_cast<Event*>(event)->synchronize();
    raise_failed_checks();
  }
  double elapsedTime(void* start, void* end, const c10::DeviceIndex) const override {
    TORCH_CHECK(start && end, "Both events must be recorded before calculating elapsed time.");
    auto *a = static_cast<Event*>(start), *b = static_cast<Event*>(end);
    TORCH_CHECK(a->query() && b->query(), "Both events must be completed before calculating elapsed time.");
    TORCH_CHECK(a->done && b->done, "Both events must be created with argument 'enable_timing=True'.");
    return std::chrono::duration<double, std::milli>(b->done->time - a->done->time).count();
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

int current_stream(int device) { return current_streams[device]; }

int device_count() {
  // Kept, since it is also asked in a forked child, where the session is of no use.
  static std::atomic<int> known{0};
  if (const int n = known) return n;
  return known = runtime::Session::count_devices();
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
