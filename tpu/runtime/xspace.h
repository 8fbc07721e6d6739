// What a plugin's profiler saw on its devices, read from the protocol buffer XSpace that profilers of XLA write.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace tpu::runtime {

struct DeviceEvent {
  int64_t begin_ns, duration_ns;  // since the epoch, of the system's clock as far as the plugin knows it
  std::string name;               // of an instruction, a module, a step
};
// Events of one kind, such as "XLA Ops".
struct DeviceLine {
  int64_t device;  // PJRT's number of it
  int64_t id;
  std::string name;
  std::vector<DeviceEvent> events;
};

// Lines of the planes "/device:TPU:<number>", in their order. Throws std::invalid_argument where it is no XSpace.
std::vector<DeviceLine> read_xspace(std::string_view bytes);

}  // namespace tpu::runtime
