// What a program is compiled for and with, as the bytes of XLA's CompileOptionsProto.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <variant>
#include <vector>

namespace tpu::pjrt {

struct CompileOptions {
  using Override = std::variant<std::string, bool, int64_t, double>;

  int num_replicas = 1;
  int num_partitions = 1;
  bool use_spmd_partitioning = false;
  bool use_shardy_partitioner = false;
  // Device ids, [replica][partition]; empty lets the plugin choose (its first devices).
  std::vector<int> device_assignment;
  // Runs on any one device, named at each execute; excludes device_assignment.
  bool compile_portable_executable = false;
  // XLA flags by name, such as {"xla_cpu_enable_fast_min_max", false}. A name that the plugin
  // doesn't know fails the compile.
  std::vector<std::pair<std::string, Override>> env_option_overrides;

  // The same options give the same bytes.
  std::string serialize() const;
};

}  // namespace tpu::pjrt
