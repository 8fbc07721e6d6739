// Two libraries for pjrt_test: with FAKE_API_MINOR a plugin of that version, without it none at
// all.

#include "tpu/pjrt/c_api.h"

#ifdef FAKE_API_MINOR
extern "C" __attribute__((visibility("default"))) const tpu::pjrt::c::Api* GetPjrtApi() {
  static const tpu::pjrt::c::Api api = [] {
    tpu::pjrt::c::Api old{};
    old.head.struct_size = sizeof(old);
    old.pjrt_api_version.minor_version = FAKE_API_MINOR;
    return old;
  }();
  return &api;
}
#else
extern "C" __attribute__((visibility("default"))) int answer() { return 42; }
#endif
