// The one exception type of tpu::pjrt, and how a plugin's error becomes one.
#pragma once

#include <stdexcept>
#include <string>

#include "tpu/pjrt/c_api.h"

namespace tpu::pjrt {

// what() is the plugin's own sentence, unchanged.
class Error : public std::runtime_error {
 public:
  // Values are part of the ABI.
  enum class Code : uint32_t {
    kOk = 0,
    kCancelled = 1,
    kUnknown = 2,
    kInvalidArgument = 3,
    kDeadlineExceeded = 4,
    kNotFound = 5,
    kAlreadyExists = 6,
    kPermissionDenied = 7,
    kResourceExhausted = 8,
    kFailedPrecondition = 9,
    kAborted = 10,
    kOutOfRange = 11,
    kUnimplemented = 12,
    kInternal = 13,
    kUnavailable = 14,
    kDataLoss = 15,
    kUnauthenticated = 16,
  };

  Error(Code code, const std::string& message) : std::runtime_error(message), code_(code) {}

  Code code() const noexcept { return code_; }

 private:
  Code code_;
};

// Reads and destroys the plugin's error, which must not be null.
Error take(const c::Api* api, c::Error* error);

[[noreturn]] void throw_error(const c::Api* api, c::Error* error);

// Throws what the plugin reports; null is success.
inline void check(const c::Api* api, c::Error* error) {
  if (error != nullptr) [[unlikely]] {
    throw_error(api, error);
  }
}

// For destructors, which have nobody to report to.
void discard(const c::Api* api, c::Error* error) noexcept;

}  // namespace tpu::pjrt
