// Facts about each platform that the rest of the code asks by name of the fact, never of the platform.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

namespace tpu::runtime {

using XlaOption = std::pair<std::string, std::variant<std::string, bool, int64_t, double>>;

// How much compile time a program is worth.
enum class Effort {
  kQuick,  // an eager op on small operands: compiling costs more than it will ever run
  kFull,
};

struct Platform {
  std::string_view name;
  // XLA flags for every program, and further ones for quick compiles. A flag that a plugin does not
  // know is dropped after the first complaint.
  std::vector<XlaOption> options, quick_options;
  // dot and convolution of 64-bit integers compile.
  bool has_int64_dot = true;
};

// By PJRT platform name ("cpu", "tpu"); an unknown platform gets cautious defaults.
const Platform& platform(std::string_view name);

// "k=v k=v" of TORCH_TPU_XLA_OPTIONS.
std::vector<XlaOption> parse_options(std::string_view text);

}  // namespace tpu::runtime
