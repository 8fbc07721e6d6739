// A client of a plugin: its devices, and what makes buffers and executables for them.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tpu/pjrt/buffer.h"
#include "tpu/pjrt/device.h"
#include "tpu/pjrt/event.h"
#include "tpu/pjrt/executable.h"
#include "tpu/pjrt/named_value.h"
#include "tpu/pjrt/plugin.h"

namespace tpu::pjrt {

struct HostTransfer {
  Buffer buffer;
  Event done_with_host;
};

// Shared by all that comes from it, so that it ends last. Must not end on one of the plugin's own
// threads (an Event callback). All methods are thread-safe. A method that throws leaves the client
// as it was.
class Client : public std::enable_shared_from_this<Client> {
 public:
  // Options are the plugin's, such as {"cpu_device_count", 4}.
  static std::shared_ptr<Client> create(std::shared_ptr<const Plugin> plugin, const NamedValues& options = {});

  Client(const Client&) = delete;
  Client& operator=(const Client&) = delete;
  ~Client();

  const Plugin& plugin() const noexcept { return *plugin_; }
  const std::shared_ptr<const Plugin>& shared_plugin() const noexcept { return plugin_; }
  const c::Api* api() const noexcept { return api_; }

  const std::string& platform_name() const noexcept { return platform_name_; }
  const std::string& platform_version() const noexcept { return platform_version_; }
  int process_index() const noexcept { return process_index_; }
  // Those that this process can address, in the plugin's order.
  const std::vector<Device>& devices() const noexcept { return devices_; }
  const Device& device(c::Device* raw) const;
  // Of all processes together.
  size_t global_device_count() const noexcept { return global_device_count_; }

  // `text` is StableHLO as MLIR text or bytecode, `options` CompileOptions::serialize().
  LoadedExecutable compile(std::string_view text, std::string_view options) const;
  // `options`, unless empty, replace those the program was compiled with.
  LoadedExecutable deserialize(std::string_view bytes, std::string_view options = {}) const;

  // `data` is dense and row-major, or as `byte_strides` say. The zero-copy semantics copy all the
  // same where the memory doesn't suit the platform (on CPU, unless it starts at a multiple of 64).
  HostTransfer buffer_from_host(const void* data, ElementType type, std::span<const int64_t> dims,
                                HostBufferSemantics semantics, const Device& device,
                                std::span<const int64_t> byte_strides = {}) const;
  // Memory of the device with undefined content.
  Buffer uninitialized_buffer(ElementType type, std::span<const int64_t> dims, const Device& device) const;
  // A buffer over memory that belongs to the caller, row-major and valid on the device (on CPU,
  // host memory that starts at a multiple of 64; else this throws). `on_delete` runs once, on any
  // thread, when the plugin no longer uses it; if this throws, it never runs. Donating a view to a
  // program ends the view but leaves the memory as it is.
  Buffer view_of_host(void* data, ElementType type, std::span<const int64_t> dims, const Device& device,
                      std::function<void()> on_delete = {}) const;

  c::Client* raw() const noexcept { return raw_; }

 private:
  Client(std::shared_ptr<const Plugin> plugin, c::Client* raw);
  void read_properties();

  std::shared_ptr<const Plugin> plugin_;
  const c::Api* api_;
  c::Client* raw_;
  std::string platform_name_;
  std::string platform_version_;
  int process_index_ = 0;
  size_t global_device_count_ = 0;
  std::vector<Device> devices_;
};

}  // namespace tpu::pjrt
