#include "tpu/runtime/log.h"

#include <cstdio>
#include <cstdlib>

namespace tpu::runtime {

bool log_enabled(std::string_view channel) {
  static const std::string channels = [] {
    const char* s = std::getenv("TORCH_TPU_LOG");
    return "," + std::string(s ? s : "") + ",";
  }();
  if (channels.size() <= 2) return false;
  return channels == ",all," || channels.find("," + std::string(channel) + ",") != std::string::npos;
}

void log_line(std::string_view channel, const std::string& line) {
  std::fprintf(stderr, "[torchtpu %.*s] %s\n", static_cast<int>(channel.size()), channel.data(), line.c_str());
}

}  // namespace tpu::runtime
