#include <ATen/autocast_mode.h>
#include <c10/core/DeviceType.h>

#include <cstdlib>

#include "tpu/runtime/shutdown.h"
#include "tpu/torch/device.h"
#include "tpu/torch/registry.h"
#include "tpu/torch/torch_tpu.h"

namespace torch_tpu {

void load(const std::string& plugin) {
  static bool loaded = false;
  if (loaded) return;
  loaded = true;
  c10::register_privateuse1_backend("tpu");
  tpu::register_device();
  tpu::register_ops();
  at::autocast::set_autocast_dtype(c10::DeviceType::PrivateUse1, at::kBFloat16);
  if (plugin.empty()) return;
  tpu::runtime::Session::set_resolver(
      [plugin] { return tpu::runtime::PluginChoice{plugin, "", {{"cpu_device_count", int64_t{1}}}}; });
}

void shut_down() { tpu::runtime::shut_down(); }

}  // namespace torch_tpu
