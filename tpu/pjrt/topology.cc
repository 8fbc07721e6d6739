// Topology: compiling for devices that are not here.

#include "tpu/pjrt/topology.h"

#include "tpu/pjrt/error.h"

namespace tpu::pjrt {

Topology Topology::create(std::shared_ptr<const Plugin> plugin, const std::string& name, const NamedValues& options) {
  const c::Api* api = plugin->api();
  const std::vector<c::NamedValue> values = to_c(options);
  c::TopologyDescription_Create_Args args{.topology_name = name.data(),
                                          .topology_name_size = name.size(),
                                          .create_options = values.data(),
                                          .num_options = values.size()};
  check(api, api->TopologyDescription_Create(&args));
  return Topology(std::move(plugin), args.topology);
}

Topology& Topology::operator=(Topology&& other) noexcept {
  Topology taken(std::move(other));
  std::swap(plugin_, taken.plugin_);
  std::swap(raw_, taken.raw_);
  return *this;
}

Topology::~Topology() {
  if (raw_ == nullptr) return;
  const c::Api* api = plugin_->api();
  c::TopologyDescription_Destroy_Args args{.topology = raw_};
  discard(api, api->TopologyDescription_Destroy(&args));
}

std::string Topology::platform_name() const {
  const c::Api* api = plugin_->api();
  c::TopologyDescription_PlatformName_Args args{.topology = raw_};
  check(api, api->TopologyDescription_PlatformName(&args));
  return std::string(args.platform_name, args.platform_name_size);
}

std::string Topology::platform_version() const {
  const c::Api* api = plugin_->api();
  c::TopologyDescription_PlatformVersion_Args args{.topology = raw_};
  check(api, api->TopologyDescription_PlatformVersion(&args));
  return std::string(args.platform_version, args.platform_version_size);
}

std::vector<DeviceDescription> Topology::devices() const {
  const c::Api* api = plugin_->api();
  c::TopologyDescription_GetDeviceDescriptions_Args args{.topology = raw_};
  check(api, api->TopologyDescription_GetDeviceDescriptions(&args));
  std::vector<DeviceDescription> result;
  result.reserve(args.num_descriptions);
  for (size_t i = 0; i < args.num_descriptions; ++i) {
    result.push_back(DeviceDescription::read(api, args.descriptions[i]));
  }
  return result;
}

Executable Topology::compile(std::string_view text, std::string_view options) const {
  constexpr std::string_view kFormat = "mlir";
  const c::Api* api = plugin_->api();
  c::Program program{.code = const_cast<char*>(text.data()),
                     .code_size = text.size(),
                     .format = kFormat.data(),
                     .format_size = kFormat.size()};
  c::Compile_Args args{
      .topology = raw_, .program = &program, .compile_options = options.data(), .compile_options_size = options.size()};
  check(api, api->Compile(&args));
  return Executable(plugin_, args.executable);
}

}  // namespace tpu::pjrt
