#include "tpu/runtime/platform.h"

#include <cstdint>
#include <sstream>

namespace tpu::runtime {

const Platform& platform(std::string_view name) {
  static const Platform platforms[] = {
      {"cpu",
       // Without the first, maximum and minimum lose NaN.
       {{"xla_cpu_enable_fast_min_max", false}},
       // A third of the compile time, and kernels up to six times slower.
       {{"xla_cpu_use_fusion_emitters", false}, {"xla_backend_optimization_level", int64_t{0}}},
       true},
      {"tpu", {}, {}, false},
      {"", {}, {}, false},
  };
  for (const Platform& p : platforms) {
    if (p.name == name) return p;
  }
  return platforms[std::size(platforms) - 1];
}

std::vector<XlaOption> parse_options(std::string_view text) {
  std::vector<XlaOption> options;
  std::istringstream stream{std::string(text)};
  for (std::string word; stream >> word;) {
    const size_t eq = word.find('=');
    if (eq == std::string::npos) continue;
    const std::string value = word.substr(eq + 1);
    XlaOption option{word.substr(0, eq), value};
    if (value == "true" || value == "false") {
      option.second = value == "true";
    } else if (!value.empty() && value.find_first_not_of("-0123456789") == std::string::npos) {
      option.second = static_cast<int64_t>(std::stoll(value));
    }
    options.push_back(std::move(option));
  }
  return options;
}

}  // namespace tpu::runtime
