// A PJRT plugin: a shared library with the C API's function table.
#pragma once

#include <memory>
#include <string>

#include "tpu/pjrt/c_api.h"
#include "tpu/pjrt/named_value.h"

namespace tpu::pjrt {

// One per library and process: loading a path again gives the same object. It is never unloaded,
// since plugins keep threads running; api() stays valid for the life of the process.
// Thread-safe. A load that throws leaves nothing initialised and may be tried again.
//
// Plugins log to stderr. That is kept silent unless the environment says TORCH_TPU_PLUGIN_LOG=1 or
// sets a level itself (TF_CPP_MIN_LOG_LEVEL, for libtpu TPU_MIN_LOG_LEVEL, TPU_STDERR_LOG_LEVEL).
class Plugin {
 public:
  static std::shared_ptr<Plugin> load(const std::string& path);

  Plugin(const Plugin&) = delete;
  Plugin& operator=(const Plugin&) = delete;

  const c::Api* api() const noexcept { return api_; }
  const std::string& path() const noexcept { return path_; }
  int api_minor() const noexcept { return api_->pjrt_api_version.minor_version; }
  const NamedValues& attributes() const noexcept { return attributes_; }

  // Whether the plugin's table reaches to this entry and fills it: has(&c::Api::Compile).
  template <class Entry>
  bool has(Entry c::Api::* entry) const noexcept {
    const char* end = reinterpret_cast<const char*>(&(api_->*entry) + 1);
    return end <= reinterpret_cast<const char*>(api_) + api_->head.struct_size && api_->*entry != nullptr;
  }

 private:
  Plugin(std::string path, const c::Api* api) : path_(std::move(path)), api_(api) {}

  std::string path_;
  const c::Api* api_;
  NamedValues attributes_;
};

}  // namespace tpu::pjrt
