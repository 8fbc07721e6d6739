// A named arrangement of devices that need not be present: compile for it ahead of time.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tpu/pjrt/c_api.h"
#include "tpu/pjrt/device.h"
#include "tpu/pjrt/executable.h"
#include "tpu/pjrt/named_value.h"
#include "tpu/pjrt/plugin.h"

namespace tpu::pjrt {

// Owns one topology description. Immutable, thread-safe. A method that throws changes nothing.
class Topology {
 public:
  // Names are the plugin's, such as "v5e:2x2".
  static Topology create(std::shared_ptr<const Plugin> plugin, const std::string& name,
                         const NamedValues& options = {});

  Topology(Topology&& other) noexcept : plugin_(std::move(other.plugin_)), raw_(std::exchange(other.raw_, nullptr)) {}
  Topology& operator=(Topology&& other) noexcept;
  ~Topology();

  std::string platform_name() const;
  std::string platform_version() const;
  std::vector<DeviceDescription> devices() const;

  Executable compile(std::string_view text, std::string_view options) const;

  c::TopologyDescription* raw() const noexcept { return raw_; }

 private:
  Topology(std::shared_ptr<const Plugin> plugin, c::TopologyDescription* raw) : plugin_(std::move(plugin)), raw_(raw) {}

  std::shared_ptr<const Plugin> plugin_;
  c::TopologyDescription* raw_ = nullptr;
};

}  // namespace tpu::pjrt
