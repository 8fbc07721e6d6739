// Device: properties and memory statistics.

#include "tpu/pjrt/device.h"

#include "tpu/pjrt/error.h"

namespace tpu::pjrt {

DeviceDescription DeviceDescription::read(const c::Api* api, c::DeviceDescription* raw) {
  DeviceDescription result;
  c::DeviceDescription_Id_Args id{.device_description = raw};
  check(api, api->DeviceDescription_Id(&id));
  result.id = id.id;
  c::DeviceDescription_ProcessIndex_Args process{.device_description = raw};
  check(api, api->DeviceDescription_ProcessIndex(&process));
  result.process_index = process.process_index;
  c::DeviceDescription_Kind_Args kind{.device_description = raw};
  check(api, api->DeviceDescription_Kind(&kind));
  result.kind.assign(kind.device_kind, kind.device_kind_size);
  c::DeviceDescription_ToString_Args text{.device_description = raw};
  check(api, api->DeviceDescription_ToString(&text));
  result.text.assign(text.to_string, text.to_string_size);
  c::DeviceDescription_Attributes_Args attributes{.device_description = raw};
  check(api, api->DeviceDescription_Attributes(&attributes));
  result.attributes = from_c(attributes.attributes, attributes.num_attributes);
  return result;
}

Device::Device(const Plugin& plugin, c::Device* raw, int index) : plugin_(&plugin), raw_(raw), index_(index) {
  const c::Api* api = plugin.api();
  c::Device_GetDescription_Args description{.device = raw};
  check(api, api->Device_GetDescription(&description));
  description_ = DeviceDescription::read(api, description.device_description);
  c::Device_LocalHardwareId_Args hardware{.device = raw};
  check(api, api->Device_LocalHardwareId(&hardware));
  local_hardware_id_ = hardware.local_hardware_id;
}

std::optional<MemoryStats> Device::memory_stats() const {
  if (!plugin_->has(&c::Api::Device_MemoryStats)) return std::nullopt;
  c::Device_MemoryStats_Args args{.device = raw_};
  if (c::Error* error = plugin_->api()->Device_MemoryStats(&args)) {
    Error failure = take(plugin_->api(), error);
    if (failure.code() == Error::Code::kUnimplemented) return std::nullopt;
    throw failure;
  }
  auto value_if = [](bool is_set, int64_t value) { return is_set ? std::optional(value) : std::nullopt; };
  return MemoryStats{
      .bytes_in_use = args.bytes_in_use,
      .peak_bytes_in_use = value_if(args.peak_bytes_in_use_is_set, args.peak_bytes_in_use),
      .num_allocs = value_if(args.num_allocs_is_set, args.num_allocs),
      .largest_alloc_bytes = value_if(args.largest_alloc_size_is_set, args.largest_alloc_size),
      .bytes_limit = value_if(args.bytes_limit_is_set, args.bytes_limit),
      .bytes_reserved = value_if(args.bytes_reserved_is_set, args.bytes_reserved),
      .peak_bytes_reserved = value_if(args.peak_bytes_reserved_is_set, args.peak_bytes_reserved),
      .bytes_reservable_limit = value_if(args.bytes_reservable_limit_is_set, args.bytes_reservable_limit),
      .largest_free_block_bytes = value_if(args.largest_free_block_bytes_is_set, args.largest_free_block_bytes),
      .pool_bytes = value_if(args.pool_bytes_is_set, args.pool_bytes),
      .peak_pool_bytes = value_if(args.peak_pool_bytes_is_set, args.peak_pool_bytes),
  };
}

bool Device::clear_memory_stats() const {
  if (!plugin_->has(&c::Api::Device_ClearMemoryStats)) return false;
  c::Device_ClearMemoryStats_Args args{.device = raw_};
  if (c::Error* error = plugin_->api()->Device_ClearMemoryStats(&args)) {
    Error failure = take(plugin_->api(), error);
    if (failure.code() == Error::Code::kUnimplemented) return false;
    throw failure;
  }
  return true;
}

}  // namespace tpu::pjrt
