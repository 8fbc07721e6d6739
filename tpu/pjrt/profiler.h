// The plugin's own profiler, which knows what goes on inside a program. Few plugins have one: libtpu has, the CPU's
// not.
#pragma once

#include <memory>
#include <string>

#include "tpu/pjrt/plugin.h"

namespace tpu::pjrt {

namespace c {
struct Profiler;
struct Profiler_Api;
}  // namespace c

// start(), stop() and collect() are called once each and in this order, on any thread. They throw Error.
class Profiler {
 public:
  // Null where the plugin has none.
  static std::unique_ptr<Profiler> create(std::shared_ptr<const Plugin> plugin);
  ~Profiler();
  Profiler(const Profiler&) = delete;
  Profiler& operator=(const Profiler&) = delete;

  void start();
  void stop();
  // A serialized tensorflow.profiler.XSpace.
  std::string collect();

 private:
  Profiler(std::shared_ptr<const Plugin> plugin, const c::Profiler_Api* api) : plugin_(std::move(plugin)), api_(api) {}

  std::shared_ptr<const Plugin> plugin_;
  const c::Profiler_Api* api_;
  c::Profiler* raw_ = nullptr;
};

}  // namespace tpu::pjrt
