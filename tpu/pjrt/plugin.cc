#include "tpu/pjrt/plugin.h"

#include <dlfcn.h>

#include <filesystem>
#include <map>
#include <mutex>
#include <system_error>

#include "tpu/pjrt/error.h"

namespace tpu::pjrt {
namespace {

void require_known_version(const std::string& path, const c::Api* api) {
  const auto [major, minor] =
      std::pair(api->pjrt_api_version.major_version, api->pjrt_api_version.minor_version);
  const std::string has = "The PJRT plugin " + path + " has API version " + std::to_string(major) +
                          "." + std::to_string(minor);
  if (major != 0) {
    throw Error(Error::Code::kFailedPrecondition,
                has + ", but only versions 0.x are known. Install an older plugin.");
  }
  // The size guards against a plugin that misstates its version.
  if (minor < c::kOldestMinor || api->head.struct_size < offsetof(c::Api, Client_CreateErrorBuffer)) {
    throw Error(Error::Code::kFailedPrecondition,
                has + ", but 0." + std::to_string(c::kOldestMinor) +
                    " or newer is needed. Install a newer plugin.");
  }
}

const c::Api* open(const std::string& path) {
  std::error_code ignored;
  if (!std::filesystem::exists(path, ignored)) {
    throw Error(Error::Code::kNotFound, "The PJRT plugin " + path + " doesn't exist.");
  }
  void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    throw Error(Error::Code::kInvalidArgument,
                "The PJRT plugin " + path + " can't be loaded: " + dlerror());
  }
  const auto get_api = reinterpret_cast<c::GetPjrtApi>(dlsym(library, "GetPjrtApi"));
  const c::Api* api = get_api == nullptr ? nullptr : get_api();
  if (api == nullptr) {
    throw Error(Error::Code::kInvalidArgument,
                path + " is not a PJRT plugin: it has no function table (GetPjrtApi).");
  }
  return api;
}

}  // namespace

std::shared_ptr<Plugin> Plugin::load(const std::string& path) {
  // Never destroyed, like the libraries themselves.
  static std::mutex& mutex = *new std::mutex;
  static auto& plugins = *new std::map<const c::Api*, std::shared_ptr<Plugin>>;
  std::lock_guard lock(mutex);

  const c::Api* api = open(path);
  if (auto known = plugins.find(api); known != plugins.end()) return known->second;
  require_known_version(path, api);
  c::Plugin_Initialize_Args initialize;
  check(api, api->Plugin_Initialize(&initialize));
  std::shared_ptr<Plugin> plugin(new Plugin(path, api));
  c::Plugin_Attributes_Args attributes;
  check(api, api->Plugin_Attributes(&attributes));
  plugin->attributes_ = from_c(attributes.attributes, attributes.num_attributes);
  return plugins.emplace(api, std::move(plugin)).first->second;
}

}  // namespace tpu::pjrt
