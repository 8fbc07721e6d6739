// One device that this process can address.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "tpu/pjrt/c_api.h"
#include "tpu/pjrt/named_value.h"
#include "tpu/pjrt/plugin.h"

namespace tpu::pjrt {

// What the plugin doesn't report is empty.
struct MemoryStats {
  int64_t bytes_in_use = 0;
  std::optional<int64_t> peak_bytes_in_use;
  std::optional<int64_t> num_allocs;
  std::optional<int64_t> largest_alloc_bytes;
  std::optional<int64_t> bytes_limit;
  std::optional<int64_t> bytes_reserved;
  std::optional<int64_t> peak_bytes_reserved;
  std::optional<int64_t> bytes_reservable_limit;
  std::optional<int64_t> largest_free_block_bytes;
  std::optional<int64_t> pool_bytes;
  std::optional<int64_t> peak_pool_bytes;
};

// What a plugin tells about a device, present or in a topology.
struct DeviceDescription {
  int id = 0;  // global: the number that a device assignment uses
  int process_index = 0;
  std::string kind;
  std::string text;
  NamedValues attributes;

  static DeviceDescription read(const c::Api* api, c::DeviceDescription* raw);
};

// Belongs to its Client and lives as long. Immutable, thread-safe.
class Device {
 public:
  Device(const Plugin& plugin, c::Device* raw, int index);

  // Position in Client::devices().
  int index() const noexcept { return index_; }
  int id() const noexcept { return description_.id; }
  int local_hardware_id() const noexcept { return local_hardware_id_; }
  const std::string& kind() const noexcept { return description_.kind; }
  const DeviceDescription& description() const noexcept { return description_; }

  // Nothing where the plugin keeps no statistics.
  std::optional<MemoryStats> memory_stats() const;
  // Starts the peaks anew; false where the plugin can't.
  bool clear_memory_stats() const;

  c::Device* raw() const noexcept { return raw_; }

 private:
  const Plugin* plugin_;
  c::Device* raw_;
  int index_;
  int local_hardware_id_ = -1;
  DeviceDescription description_;
};

}  // namespace tpu::pjrt
