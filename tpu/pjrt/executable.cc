// Executable and LoadedExecutable: properties, serialization, launches.

#include "tpu/pjrt/executable.h"

#include "tpu/pjrt/client.h"

namespace tpu::pjrt {
namespace {

// False when the plugin doesn't implement the function called.
bool succeeded(const c::Api* api, c::Error* error) {
  if (error == nullptr) return true;
  Error failure = take(api, error);
  if (failure.code() == Error::Code::kUnimplemented) return false;
  throw failure;
}

}  // namespace

Executable::Executable(std::shared_ptr<const Plugin> plugin, c::Executable* raw)
    : Executable(std::move(plugin), raw, 0) {
  const c::Api* api = plugin_->api();
  c::Executable_NumOutputs_Args args{.executable = raw_};
  check(api, api->Executable_NumOutputs(&args));
  num_outputs_ = args.num_outputs;
}

Executable& Executable::operator=(Executable&& other) noexcept {
  Executable taken(std::move(other));
  std::swap(plugin_, taken.plugin_);
  std::swap(raw_, taken.raw_);
  std::swap(num_outputs_, taken.num_outputs_);
  return *this;
}

Executable::~Executable() {
  if (raw_ == nullptr) return;
  const c::Api* api = plugin_->api();
  c::Executable_Destroy_Args args{.executable = raw_};
  discard(api, api->Executable_Destroy(&args));
}

std::string Executable::name() const {
  const c::Api* api = plugin_->api();
  c::Executable_Name_Args args{.executable = raw_};
  check(api, api->Executable_Name(&args));
  return std::string(args.executable_name, args.executable_name_size);
}

size_t Executable::num_replicas() const {
  const c::Api* api = plugin_->api();
  c::Executable_NumReplicas_Args args{.executable = raw_};
  check(api, api->Executable_NumReplicas(&args));
  return args.num_replicas;
}

size_t Executable::num_partitions() const {
  const c::Api* api = plugin_->api();
  c::Executable_NumPartitions_Args args{.executable = raw_};
  check(api, api->Executable_NumPartitions(&args));
  return args.num_partitions;
}

std::vector<ElementType> Executable::output_element_types() const {
  const c::Api* api = plugin_->api();
  c::Executable_OutputElementTypes_Args args{.executable = raw_};
  check(api, api->Executable_OutputElementTypes(&args));
  return std::vector<ElementType>(args.output_types, args.output_types + args.num_output_types);
}

std::vector<std::vector<int64_t>> Executable::output_dims() const {
  const c::Api* api = plugin_->api();
  c::Executable_OutputDimensions_Args args{.executable = raw_};
  check(api, api->Executable_OutputDimensions(&args));
  std::vector<std::vector<int64_t>> result;
  result.reserve(args.num_outputs);
  const int64_t* dims = args.dims;
  for (size_t i = 0; i < args.num_outputs; ++i) {
    result.emplace_back(dims, dims + args.dim_sizes[i]);
    dims += args.dim_sizes[i];
  }
  return result;
}

std::optional<std::string> Executable::fingerprint() const {
  if (!plugin_->has(&c::Api::Executable_Fingerprint)) return std::nullopt;
  const c::Api* api = plugin_->api();
  c::Executable_Fingerprint_Args args{.executable = raw_};
  if (!succeeded(api, api->Executable_Fingerprint(&args))) return std::nullopt;
  return std::string(args.executable_fingerprint, args.executable_fingerprint_size);
}

std::optional<NamedValues> Executable::cost_analysis() const {
  if (!plugin_->has(&c::Api::Executable_GetCostAnalysis)) return std::nullopt;
  const c::Api* api = plugin_->api();
  c::Executable_GetCostAnalysis_Args args{.executable = raw_};
  if (!succeeded(api, api->Executable_GetCostAnalysis(&args))) return std::nullopt;
  return from_c(args.properties, args.num_properties);
}

std::optional<CompiledMemoryStats> Executable::compiled_memory_stats() const {
  if (!plugin_->has(&c::Api::Executable_GetCompiledMemoryStats)) return std::nullopt;
  const c::Api* api = plugin_->api();
  c::Executable_GetCompiledMemoryStats_Args args{.executable = raw_};
  if (!succeeded(api, api->Executable_GetCompiledMemoryStats(&args))) return std::nullopt;
  return CompiledMemoryStats{
      .generated_code_bytes = args.generated_code_size_in_bytes,
      .argument_bytes = args.argument_size_in_bytes,
      .output_bytes = args.output_size_in_bytes,
      .alias_bytes = args.alias_size_in_bytes,
      .temp_bytes = args.temp_size_in_bytes,
      .host_generated_code_bytes = args.host_generated_code_size_in_bytes,
      .host_argument_bytes = args.host_argument_size_in_bytes,
      .host_output_bytes = args.host_output_size_in_bytes,
      .host_alias_bytes = args.host_alias_size_in_bytes,
      .host_temp_bytes = args.host_temp_size_in_bytes,
      .peak_memory_bytes = args.peak_memory_in_bytes,
      .total_bytes = args.total_size_in_bytes,
  };
}

std::optional<std::string> Executable::optimized_program() const {
  if (!plugin_->has(&c::Api::Executable_OptimizedProgram)) return std::nullopt;
  const c::Api* api = plugin_->api();
  // Called twice: first for the size, then for the code.
  c::Program program;
  c::Executable_OptimizedProgram_Args args{.executable = raw_, .program = &program};
  if (!succeeded(api, api->Executable_OptimizedProgram(&args))) return std::nullopt;
  std::string code(program.code_size, '\0');
  program.code = code.data();
  check(api, api->Executable_OptimizedProgram(&args));
  return code;
}

std::string Executable::serialize() const {
  const c::Api* api = plugin_->api();
  c::Executable_Serialize_Args args{.executable = raw_};
  check(api, api->Executable_Serialize(&args));
  std::unique_ptr<c::SerializedExecutable, void (*)(c::SerializedExecutable*)> backing(
      args.serialized_executable, args.serialized_executable_deleter);
  return std::string(args.serialized_bytes, args.serialized_bytes_size);
}

LoadedExecutable::LoadedExecutable(std::shared_ptr<const Client> client, c::LoadedExecutable* raw)
    : LoadedExecutable(client, client->api(), raw) {
  c::LoadedExecutable_GetExecutable_Args args{.loaded_executable = raw_};
  check(api_, api_->LoadedExecutable_GetExecutable(&args));
  executable_ = Executable(client_->shared_plugin(), args.executable);
}

LoadedExecutable& LoadedExecutable::operator=(LoadedExecutable&& other) noexcept {
  LoadedExecutable taken(std::move(other));
  std::swap(client_, taken.client_);
  std::swap(api_, taken.api_);
  std::swap(raw_, taken.raw_);
  std::swap(executable_, taken.executable_);
  return *this;
}

LoadedExecutable::~LoadedExecutable() {
  if (raw_ == nullptr) return;
  c::LoadedExecutable_Destroy_Args args{.executable = raw_};
  discard(api_, api_->LoadedExecutable_Destroy(&args));
}

void LoadedExecutable::execute(std::span<c::Buffer* const> args, std::span<const int64_t> non_donatable,
                               std::span<c::Buffer*> outputs, c::Device* device, Event* done) const {
  if (outputs.size() != num_outputs()) [[unlikely]] {
    throw Error(Error::Code::kInvalidArgument, "execute: places for " + std::to_string(num_outputs()) +
                                                   " outputs are needed, but got " + std::to_string(outputs.size()) +
                                                   ".");
  }
  c::ExecuteOptions options{.non_donatable_input_indices = non_donatable.data(),
                            .num_non_donatable_input_indices = non_donatable.size()};
  c::Buffer* const* argument_list = args.data();
  c::Buffer** output_list = outputs.data();
  c::Event* event = nullptr;
  c::LoadedExecutable_Execute_Args call{
      .executable = raw_,
      .options = &options,
      .argument_lists = &argument_list,
      .num_devices = 1,
      .num_args = args.size(),
      .output_lists = &output_list,
      .device_complete_events = done != nullptr ? &event : nullptr,
      .execute_device = device,
  };
  check(api_, api_->LoadedExecutable_Execute(&call));
  if (done != nullptr) *done = Event(api_, event);
}

void LoadedExecutable::execute(std::span<const std::span<c::Buffer* const>> args,
                               std::span<const int64_t> non_donatable, std::span<const std::span<c::Buffer*>> outputs,
                               std::span<Event> done) const {
  const size_t num_devices = args.size();
  const size_t num_args = num_devices == 0 ? 0 : args[0].size();
  bool fits = num_devices > 0 && outputs.size() == num_devices && (done.empty() || done.size() == num_devices);
  std::vector<c::Buffer* const*> argument_lists;
  for (const auto& list : args) {
    fits = fits && list.size() == num_args;
    argument_lists.push_back(list.data());
  }
  std::vector<c::Buffer**> output_lists;
  for (const auto& list : outputs) {
    fits = fits && list.size() == num_outputs();
    output_lists.push_back(list.data());
  }
  if (!fits) {
    throw Error(Error::Code::kInvalidArgument, "execute: each device needs the same number of arguments, places for " +
                                                   std::to_string(num_outputs()) +
                                                   " outputs and, if any has, one for its event.");
  }
  c::ExecuteOptions options{.non_donatable_input_indices = non_donatable.data(),
                            .num_non_donatable_input_indices = non_donatable.size()};
  std::vector<c::Event*> events(done.size());
  c::LoadedExecutable_Execute_Args call{
      .executable = raw_,
      .options = &options,
      .argument_lists = argument_lists.data(),
      .num_devices = num_devices,
      .num_args = num_args,
      .output_lists = output_lists.data(),
      .device_complete_events = done.empty() ? nullptr : events.data(),
  };
  check(api_, api_->LoadedExecutable_Execute(&call));
  for (size_t i = 0; i < done.size(); ++i) done[i] = Event(api_, events[i]);
}

std::vector<const Device*> LoadedExecutable::addressable_devices() const {
  c::LoadedExecutable_AddressableDevices_Args args{.executable = raw_};
  check(api_, api_->LoadedExecutable_AddressableDevices(&args));
  std::vector<const Device*> result;
  for (size_t i = 0; i < args.num_addressable_devices; ++i) {
    result.push_back(&client_->device(args.addressable_devices[i]));
  }
  return result;
}

}  // namespace tpu::pjrt
