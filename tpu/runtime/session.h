// The process's one client of a PJRT plugin, its devices, and what runs on them.
#pragma once

#include <array>
#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "tpu/ir/type.h"
#include "tpu/pjrt/client.h"
#include "tpu/runtime/disk_cache.h"
#include "tpu/runtime/platform.h"
#include "tpu/runtime/stream.h"

namespace tpu::runtime {

// Bytes that live buffers hold on one device.
struct MemoryUse {
  std::atomic<int64_t> allocated{0}, peak{0}, buffers{0}, allocations{0}, total_allocated{0};
  void add(int64_t bytes);
  void remove(int64_t bytes);
};

// A dense row-major array in device memory, counted in MemoryUse. Immutable but for donation.
class DeviceBuffer {
 public:
  DeviceBuffer(pjrt::Buffer buffer, ir::DType dtype, std::vector<int64_t> dims, int device);
  ~DeviceBuffer();
  DeviceBuffer(const DeviceBuffer&) = delete;
  DeviceBuffer& operator=(const DeviceBuffer&) = delete;

  const pjrt::Buffer& pjrt() const { return buffer_; }
  pjrt::c::Buffer* raw() const { return buffer_.raw(); }
  ir::DType dtype() const { return dtype_; }
  const std::vector<int64_t>& dims() const { return dims_; }
  int64_t numel() const;
  int device() const { return device_; }

 private:
  pjrt::Buffer buffer_;
  ir::DType dtype_;
  int device_;
  std::vector<int64_t> dims_;
  int64_t bytes_;
};
using BufferPtr = std::shared_ptr<DeviceBuffer>;

struct PluginChoice {
  std::string path, platform;
  pjrt::NamedValues options;
};

// What a compile log line says besides the time.
struct CompileReason {
  std::string op;   // what is compiled
  std::string why;  // what differs from the nearest known key
};

// Thread-safe. Never destroyed: the plugin's threads outlive static destructors.
class Session {
 public:
  // Says where the plugin is; called once, at first use.
  static void set_resolver(std::function<PluginChoice()> resolver);
  // The session, started if need be. Throws std::runtime_error with one sentence of what is wrong.
  static Session& get();
  static bool is_started();
  // Starts the session only where the plugin's options do not say it.
  static int count_devices();
  // In a child forked after the session started, the plugin's threads are gone.
  static bool is_in_bad_fork();

  const pjrt::Client& client() const { return *client_; }
  const Platform& platform() const { return *platform_; }
  int num_devices() const { return static_cast<int>(client_->devices().size()); }
  DiskCache& disk_cache() { return disk_cache_; }
  MemoryUse& memory(int device) { return *memory_[device]; }

  using Program = std::shared_ptr<const pjrt::LoadedExecutable>;
  int64_t live_programs() const { return live_programs_; }
  // Whether more programs fit. Each is a few memory mappings, or a hundred, of which Linux allows a process
  // vm.max_map_count; past that, a CPU plugin aborts. Counting the mappings takes a while, so it is not done each time.
  enum class Room { kPlenty, kScarce, kNone };
  Room room(bool count_now = false);
  // From disk, or compiled.
  Program compile(const std::string& text, Effort effort, const CompileReason& reason);

  // Stream 0 of a device is its default one.
  static constexpr int kStreams = 65;
  Stream& stream(int device, int id) { return (*streams_[device])[id]; }

  // Starts one run on a device and a stream of it. Bounded: waits when too much is in flight.
  void execute(const pjrt::LoadedExecutable& program, std::span<pjrt::c::Buffer* const> arguments,
               std::span<const int64_t> non_donatable, std::span<pjrt::c::Buffer*> outputs, int device, int stream);
  // Waits for all that was started before, on one device or on all. Errors of the work are not thrown here: they are
  // stored with the buffers.
  void synchronize(int device);
  void synchronize();

  BufferPtr to_device(const void* data, ir::DType dtype, std::vector<int64_t> dims, int device,
                      pjrt::HostBufferSemantics semantics, pjrt::Event* done_with_host = nullptr);
  // One element as a 0-d buffer; equal values share one.
  BufferPtr host_operand(std::span<const std::byte> bytes, ir::DType dtype, int device);

 private:
  explicit Session(const PluginChoice& choice);
  std::string options(Effort effort);
  void forget_option(const std::string& name);
  Program keep(pjrt::LoadedExecutable program);

  std::shared_ptr<pjrt::Client> client_;
  const Platform* platform_;
  std::string identity_;
  DiskCache disk_cache_;
  std::vector<std::unique_ptr<MemoryUse>> memory_;
  std::vector<std::unique_ptr<std::array<Stream, kStreams>>> streams_;
  std::vector<XlaOption> extra_options_;
  std::atomic<int64_t> live_programs_{0};
  int64_t max_programs_, max_mappings_;
  std::atomic<int64_t> mappings_{0};
  std::atomic<unsigned> asked_for_room_{0};

  std::mutex options_mutex_;
  std::vector<std::string> unknown_options_;
};

}  // namespace tpu::runtime
