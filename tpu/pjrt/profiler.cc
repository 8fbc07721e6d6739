#include "tpu/pjrt/profiler.h"

#include <string_view>

#include "tpu/pjrt/error.h"
#include "tpu/pjrt/profiler_c_api.h"

namespace tpu::pjrt {
namespace {

// A ProfileOptions: without one the device is not traced. Fields by number: version 1, what runs on the host is not
// asked for (2), the device is (3), the programs' text is not (7).
constexpr char kOptions[] = {2 << 3, 0, 3 << 3, 1, 5 << 3, 1, 7 << 3, 0};

void check(const c::Profiler_Api* api, c::Profiler_Error* error) {
  if (error == nullptr) return;
  c::Profiler_Error_Message_Args told{.error = error};
  api->error_message(&told);
  const std::string message(told.message, told.message_size);
  c::Profiler_Error_Destroy_Args destroy{.error = error};
  api->error_destroy(&destroy);
  throw Error(Error::Code::kUnknown, "The PJRT plugin's profiler failed: " + message);
}

const c::Profiler_Api* find(const c::Api* api) {
  for (auto* e = static_cast<const c::Extension*>(api->head.extension_start); e != nullptr; e = e->next) {
    if (e->type != c::kProfilerExtension) continue;
    const c::Profiler_Api* found = reinterpret_cast<const c::Profiler_Extension*>(e)->profiler_api;
    return found != nullptr && found->struct_size >= sizeof(c::Profiler_Api) ? found : nullptr;
  }
  return nullptr;
}

}  // namespace

std::unique_ptr<Profiler> Profiler::create(std::shared_ptr<const Plugin> plugin) {
  const c::Profiler_Api* api = find(plugin->api());
  if (api == nullptr) return nullptr;
  std::unique_ptr<Profiler> profiler(new Profiler(std::move(plugin), api));
  c::Profiler_Create_Args args{.options = kOptions, .options_size = sizeof kOptions};
  check(api, api->create(&args));
  profiler->raw_ = args.profiler;
  return profiler;
}

Profiler::~Profiler() {
  if (raw_ == nullptr) return;
  c::Profiler_Args args{.profiler = raw_};
  try {
    check(api_, api_->destroy(&args));
  } catch (const Error&) {
    // Nobody to report to.
  }
}

void Profiler::start() {
  c::Profiler_Args args{.profiler = raw_};
  check(api_, api_->start(&args));
}

void Profiler::stop() {
  c::Profiler_Args args{.profiler = raw_};
  check(api_, api_->stop(&args));
}

std::string Profiler::collect() {
  // The first call tells the size, and may give a buffer of the profiler's own, which the second fills.
  c::Profiler_CollectData_Args args{.profiler = raw_};
  check(api_, api_->collect_data(&args));
  std::string bytes(args.buffer_size_in_bytes, '\0');
  if (args.buffer == nullptr) args.buffer = reinterpret_cast<uint8_t*>(bytes.data());
  check(api_, api_->collect_data(&args));
  if (args.buffer != reinterpret_cast<uint8_t*>(bytes.data())) {
    bytes.assign(reinterpret_cast<const char*>(args.buffer), args.buffer_size_in_bytes);
  }
  return bytes;
}

}  // namespace tpu::pjrt
