// Finding, checking and initialising a plugin, and keeping its log quiet.

#include "tpu/pjrt/plugin.h"

#include <dlfcn.h>

#include <array>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <mutex>
#include <string_view>
#include <system_error>

#include "tpu/pjrt/error.h"

namespace tpu::pjrt {
namespace {

// Plugins read their log level once, while they are loaded. It's set for that moment only, so that
// neither child processes nor other libraries inherit it, and a level that the user chose stays.
class QuietLoad {
 public:
  QuietLoad() {
    const char* wanted = std::getenv("TORCH_TPU_PLUGIN_LOG");
    if (wanted != nullptr && std::string_view(wanted) == "1") return;
    for (size_t i = 0; i < kNames.size(); ++i) {
      if (std::getenv(kNames[i]) != nullptr) continue;
      is_set_[i] = setenv(kNames[i], kOnlyFatal, 1) == 0;
    }
  }
  ~QuietLoad() {
    for (size_t i = 0; i < kNames.size(); ++i) {
      if (is_set_[i]) unsetenv(kNames[i]);
    }
  }
  QuietLoad(const QuietLoad&) = delete;
  QuietLoad& operator=(const QuietLoad&) = delete;

 private:
  static constexpr const char* kOnlyFatal = "3";
  static constexpr std::array<const char*, 3> kNames = {"TF_CPP_MIN_LOG_LEVEL", "TPU_MIN_LOG_LEVEL",
                                                        "TPU_STDERR_LOG_LEVEL"};

  std::array<bool, kNames.size()> is_set_{};
};

void require_known_version(const std::string& path, const c::Api* api) {
  const auto [major, minor] = std::pair(api->pjrt_api_version.major_version, api->pjrt_api_version.minor_version);
  const std::string has =
      "The PJRT plugin " + path + " has API version " + std::to_string(major) + "." + std::to_string(minor);
  if (major != 0) {
    throw Error(Error::Code::kFailedPrecondition, has + ", but only versions 0.x are known. Install an older plugin.");
  }
  // The size guards against a plugin that misstates its version.
  if (minor < c::kOldestMinor || api->head.struct_size < offsetof(c::Api, Client_CreateErrorBuffer)) {
    throw Error(Error::Code::kFailedPrecondition,
                has + ", but 0." + std::to_string(c::kOldestMinor) + " or newer is needed. Install a newer plugin.");
  }
}

const c::Api* open(const std::string& path) {
  std::error_code ignored;
  if (!std::filesystem::exists(path, ignored)) {
    throw Error(Error::Code::kNotFound, "The PJRT plugin " + path + " doesn't exist.");
  }
  void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    throw Error(Error::Code::kInvalidArgument, "The PJRT plugin " + path + " can't be loaded: " + dlerror());
  }
  const auto get_api = reinterpret_cast<c::GetPjrtApi>(dlsym(library, "GetPjrtApi"));
  const c::Api* api = get_api == nullptr ? nullptr : get_api();
  if (api == nullptr) {
    throw Error(Error::Code::kInvalidArgument, path + " is not a PJRT plugin: it has no function table (GetPjrtApi).");
  }
  return api;
}

}  // namespace

std::shared_ptr<Plugin> Plugin::load(const std::string& path) {
  // Never destroyed, like the libraries themselves.
  static std::mutex& mutex = *new std::mutex;
  static auto& plugins = *new std::map<const c::Api*, std::shared_ptr<Plugin>>;
  std::lock_guard lock(mutex);

  const QuietLoad quiet;
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
