// Compiled programs: Executable (compiled, known) and LoadedExecutable (able to run).
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "tpu/pjrt/c_api.h"
#include "tpu/pjrt/event.h"
#include "tpu/pjrt/plugin.h"

namespace tpu::pjrt {

class Client;
class Device;

// The compiler's account of one program on one device. Fields newer than the plugin are zero.
struct CompiledMemoryStats {
  int64_t generated_code_bytes = 0;
  int64_t argument_bytes = 0;
  int64_t output_bytes = 0;
  int64_t alias_bytes = 0;
  int64_t temp_bytes = 0;
  int64_t host_generated_code_bytes = 0;
  int64_t host_argument_bytes = 0;
  int64_t host_output_bytes = 0;
  int64_t host_alias_bytes = 0;
  int64_t host_temp_bytes = 0;
  int64_t peak_memory_bytes = 0;
  int64_t total_bytes = 0;
};

// A compiled program, not necessarily able to run here. Immutable, thread-safe. What a plugin
// doesn't implement is nullopt.
class Executable {
 public:
  Executable() = default;
  // Takes over `raw`, also when it throws.
  Executable(std::shared_ptr<const Plugin> plugin, c::Executable* raw);
  Executable(Executable&& other) noexcept
      : plugin_(std::move(other.plugin_)), raw_(std::exchange(other.raw_, nullptr)), num_outputs_(other.num_outputs_) {}
  Executable& operator=(Executable&& other) noexcept;
  ~Executable();

  size_t num_outputs() const noexcept { return num_outputs_; }
  std::string name() const;
  size_t num_replicas() const;
  size_t num_partitions() const;
  std::vector<ElementType> output_element_types() const;
  // Bounds, where a dimension is dynamic.
  std::vector<std::vector<int64_t>> output_dims() const;
  std::optional<std::string> fingerprint() const;
  std::optional<NamedValues> cost_analysis() const;
  std::optional<CompiledMemoryStats> compiled_memory_stats() const;
  // The program after the compiler's passes, in the plugin's format (HLO, as bytes).
  std::optional<std::string> optimized_program() const;
  // Only this plugin, on this kind of machine and device, may load the bytes, and loading runs
  // code: take them from nowhere else.
  std::string serialize() const;

  c::Executable* raw() const noexcept { return raw_; }

 private:
  Executable(std::shared_ptr<const Plugin> plugin, c::Executable* raw, size_t num_outputs) noexcept
      : plugin_(std::move(plugin)), raw_(raw), num_outputs_(num_outputs) {}

  std::shared_ptr<const Plugin> plugin_;
  c::Executable* raw_ = nullptr;
  size_t num_outputs_ = 0;
};

// A program that can run on the devices it was compiled for. Keeps its client alive.
// Const methods are thread-safe; work is enqueued in the order of the calls.
class LoadedExecutable {
 public:
  // Takes over `raw`, also when it throws.
  LoadedExecutable(std::shared_ptr<const Client> client, c::LoadedExecutable* raw);
  LoadedExecutable(LoadedExecutable&& other) noexcept
      : client_(std::move(other.client_)),
        api_(other.api_),
        raw_(std::exchange(other.raw_, nullptr)),
        executable_(std::move(other.executable_)) {}
  LoadedExecutable& operator=(LoadedExecutable&& other) noexcept;
  ~LoadedExecutable();

  // Enqueues one run on one device and returns. `outputs` has num_outputs() places, which become
  // the caller's to own (Buffer takes them). Arguments that the program aliases with a result are
  // donated, that is deleted, except those whose positions are in `non_donatable`.
  // `device` is for portable programs, which run on any device; else null.
  // The plugin checks number and byte size of the arguments only, not their types.
  // If it throws, no output was made; arguments to be donated may be gone (see Buffer::is_deleted).
  // An error of the run itself is stored in the outputs. `done`, if given, becomes the completion.
  void execute(std::span<c::Buffer* const> args, std::span<const int64_t> non_donatable, std::span<c::Buffer*> outputs,
               c::Device* device = nullptr, Event* done = nullptr) const;

  // One run on all addressable devices: args[device][argument], outputs[device][output], in the
  // order of addressable_devices(). `done` is empty or has a place for each device.
  void execute(std::span<const std::span<c::Buffer* const>> args, std::span<const int64_t> non_donatable,
               std::span<const std::span<c::Buffer*>> outputs, std::span<Event> done = {}) const;

  // Those of the assignment that belong to this process; none for a portable program.
  std::vector<const Device*> addressable_devices() const;

  const Executable& executable() const noexcept { return executable_; }
  size_t num_outputs() const noexcept { return executable_.num_outputs(); }
  std::string name() const { return executable_.name(); }
  std::vector<ElementType> output_element_types() const { return executable_.output_element_types(); }
  std::vector<std::vector<int64_t>> output_dims() const { return executable_.output_dims(); }
  std::optional<std::string> fingerprint() const { return executable_.fingerprint(); }
  std::optional<NamedValues> cost_analysis() const { return executable_.cost_analysis(); }
  std::optional<CompiledMemoryStats> compiled_memory_stats() const { return executable_.compiled_memory_stats(); }
  std::string serialize() const { return executable_.serialize(); }

  const std::shared_ptr<const Client>& client() const noexcept { return client_; }
  c::LoadedExecutable* raw() const noexcept { return raw_; }

 private:
  LoadedExecutable(std::shared_ptr<const Client> client, const c::Api* api, c::LoadedExecutable* raw) noexcept
      : client_(std::move(client)), api_(api), raw_(raw) {}

  std::shared_ptr<const Client> client_;
  const c::Api* api_ = nullptr;
  c::LoadedExecutable* raw_ = nullptr;
  Executable executable_;
};

}  // namespace tpu::pjrt
