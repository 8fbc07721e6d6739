// Client: creation, compiling, host transfers.

#include "tpu/pjrt/client.h"

#include <utility>

#include "tpu/pjrt/error.h"

namespace tpu::pjrt {
namespace {

void run_on_delete(void* /*data*/, void* user_arg) noexcept {
  std::unique_ptr<std::function<void()>> on_delete(static_cast<std::function<void()>*>(user_arg));
  (*on_delete)();
}

}  // namespace

std::shared_ptr<Client> Client::create(std::shared_ptr<const Plugin> plugin, const NamedValues& options) {
  const std::vector<c::NamedValue> values = to_c(options);
  c::Client_Create_Args args{.create_options = values.data(), .num_options = values.size()};
  check(plugin->api(), plugin->api()->Client_Create(&args));
  std::shared_ptr<Client> client(new Client(std::move(plugin), args.client));
  client->read_properties();
  return client;
}

Client::Client(std::shared_ptr<const Plugin> plugin, c::Client* raw)
    : plugin_(std::move(plugin)), api_(plugin_->api()), raw_(raw) {}

Client::~Client() {
  c::Client_Destroy_Args args{.client = raw_};
  discard(api_, api_->Client_Destroy(&args));
}

void Client::read_properties() {
  c::Client_PlatformName_Args name{.client = raw_};
  check(api_, api_->Client_PlatformName(&name));
  platform_name_.assign(name.platform_name, name.platform_name_size);
  c::Client_PlatformVersion_Args version{.client = raw_};
  check(api_, api_->Client_PlatformVersion(&version));
  platform_version_.assign(version.platform_version, version.platform_version_size);
  c::Client_ProcessIndex_Args process{.client = raw_};
  check(api_, api_->Client_ProcessIndex(&process));
  process_index_ = process.process_index;
  c::Client_Devices_Args all{.client = raw_};
  check(api_, api_->Client_Devices(&all));
  global_device_count_ = all.num_devices;
  c::Client_AddressableDevices_Args ours{.client = raw_};
  check(api_, api_->Client_AddressableDevices(&ours));
  devices_.reserve(ours.num_addressable_devices);
  for (size_t i = 0; i < ours.num_addressable_devices; ++i) {
    devices_.emplace_back(*plugin_, ours.addressable_devices[i], static_cast<int>(i));
  }
}

const Device& Client::device(c::Device* raw) const {
  for (const Device& device : devices_) {
    if (device.raw() == raw) return device;
  }
  throw Error(Error::Code::kNotFound, "The device doesn't belong to this process.");
}

LoadedExecutable Client::compile(std::string_view text, std::string_view options) const {
  constexpr std::string_view kFormat = "mlir";
  // The plugin only reads the code; the field is writable since other calls fill it.
  c::Program program{.code = const_cast<char*>(text.data()),
                     .code_size = text.size(),
                     .format = kFormat.data(),
                     .format_size = kFormat.size()};
  c::Client_Compile_Args args{
      .client = raw_, .program = &program, .compile_options = options.data(), .compile_options_size = options.size()};
  check(api_, api_->Client_Compile(&args));
  return LoadedExecutable(shared_from_this(), args.executable);
}

LoadedExecutable Client::deserialize(std::string_view bytes, std::string_view options) const {
  c::Executable_DeserializeAndLoad_Args args{
      .client = raw_,
      .serialized_executable = bytes.data(),
      .serialized_executable_size = bytes.size(),
      .overridden_serialized_compile_options = options.empty() ? nullptr : options.data(),
      .overridden_serialized_compile_options_size = options.size(),
  };
  check(api_, api_->Executable_DeserializeAndLoad(&args));
  return LoadedExecutable(shared_from_this(), args.loaded_executable);
}

HostTransfer Client::buffer_from_host(const void* data, ElementType type, std::span<const int64_t> dims,
                                      HostBufferSemantics semantics, const Device& device,
                                      std::span<const int64_t> byte_strides) const {
  c::Client_BufferFromHostBuffer_Args args{
      .client = raw_,
      .data = data,
      .type = type,
      .dims = dims.data(),
      .num_dims = dims.size(),
      .byte_strides = byte_strides.empty() ? nullptr : byte_strides.data(),
      .num_byte_strides = byte_strides.size(),
      .host_buffer_semantics = semantics,
      .device = device.raw(),
  };
  check(api_, api_->Client_BufferFromHostBuffer(&args));
  return {Buffer(shared_from_this(), args.buffer), Event(api_, args.done_with_host_buffer)};
}

Buffer Client::uninitialized_buffer(ElementType type, std::span<const int64_t> dims, const Device& device) const {
  c::Client_CreateUninitializedBuffer_Args args{
      .client = raw_,
      .shape_dims = dims.data(),
      .shape_num_dims = dims.size(),
      .shape_element_type = type,
      .device = device.raw(),
  };
  check(api_, api_->Client_CreateUninitializedBuffer(&args));
  return Buffer(shared_from_this(), args.buffer);
}

Buffer Client::view_of_host(void* data, ElementType type, std::span<const int64_t> dims, const Device& device,
                            std::function<void()> on_delete) const {
  if (!on_delete) on_delete = [] {};
  auto owned = std::make_unique<std::function<void()>>(std::move(on_delete));
  c::Client_CreateViewOfDeviceBuffer_Args args{
      .client = raw_,
      .device_buffer_ptr = data,
      .dims = dims.data(),
      .num_dims = dims.size(),
      .element_type = type,
      .device = device.raw(),
      .on_delete_callback = &run_on_delete,
      .on_delete_callback_arg = owned.get(),
  };
  check(api_, api_->Client_CreateViewOfDeviceBuffer(&args));
  owned.release();
  return Buffer(shared_from_this(), args.buffer);
}

}  // namespace tpu::pjrt
