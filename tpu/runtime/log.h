// TORCH_TPU_LOG=compiles,fallbacks,...: lines on stderr for those who ask for them.
#pragma once

#include <string>
#include <string_view>

namespace tpu::runtime {

bool log_enabled(std::string_view channel);
void log_line(std::string_view channel, const std::string& line);

}  // namespace tpu::runtime
