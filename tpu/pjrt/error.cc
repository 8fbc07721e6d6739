// From a plugin's error to an exception.

#include "tpu/pjrt/error.h"

namespace tpu::pjrt {
namespace {

void destroy(const c::Api* api, c::Error* error) noexcept {
  c::Error_Destroy_Args args{.error = error};
  api->Error_Destroy(&args);
}

}  // namespace

Error take(const c::Api* api, c::Error* error) {
  c::Error_Message_Args message{.error = error};
  api->Error_Message(&message);
  c::Error_GetCode_Args code{.error = error};
  if (c::Error* failure = api->Error_GetCode(&code)) {
    destroy(api, failure);
    code.code = static_cast<uint32_t>(Error::Code::kUnknown);
  }
  Error result(static_cast<Error::Code>(code.code), std::string(message.message, message.message_size));
  destroy(api, error);
  return result;
}

void throw_error(const c::Api* api, c::Error* error) { throw take(api, error); }

void discard(const c::Api* api, c::Error* error) noexcept {
  if (error != nullptr) destroy(api, error);
}

}  // namespace tpu::pjrt
