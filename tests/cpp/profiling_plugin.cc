// The plugin that REAL_PLUGIN names, with a profiler in front: for test_profiler.py. It tells of one instruction, which
// lasts from start to stop, and of one long before. With PROFILER_FAILS, start is an error.
#include <dlfcn.h>
#include <time.h>

#include <cstdlib>
#include <cstring>
#include <string>

#include "tpu/pjrt/profiler_c_api.h"

namespace c = tpu::pjrt::c;

struct c::Profiler {
  int64_t start_ns = 0, stop_ns = 0;
  std::string told;
};
struct c::Profiler_Error {};

namespace {

int64_t now_ns() {
  timespec t;
  clock_gettime(CLOCK_REALTIME, &t);
  return int64_t{1'000'000'000} * t.tv_sec + t.tv_nsec;
}

std::string varint(uint64_t v) {
  std::string s;
  for (; v >= 0x80; v >>= 7) s += static_cast<char>(v | 0x80);
  return s + static_cast<char>(v);
}
std::string number(int field, uint64_t v) { return varint(field << 3) + varint(v); }
std::string bytes(int field, const std::string& v) { return varint(field << 3 | 2) + varint(v.size()) + v; }

std::string xspace(const c::Profiler& p) {
  const std::string event = number(1, 7) + number(2, 0) + number(3, (p.stop_ns - p.start_ns) * 1000);
  const std::string before = bytes(2, "XLA Modules") + number(3, 1000) + bytes(4, event);
  const std::string line = number(1, 3) + bytes(2, "XLA Ops") + number(3, p.start_ns) + bytes(4, event);
  const std::string name = number(1, 7) + bytes(2, number(1, 7) + bytes(2, "%fusion.1 = f32[8] fusion()"));
  const std::string plane =
      number(1, 1) + bytes(2, "/device:TPU:0") + bytes(3, line) + bytes(3, before) + bytes(4, name);
  const std::string host = bytes(2, "/host:CPU") + bytes(3, line);
  return bytes(1, host) + bytes(1, plane) + bytes(4, "localhost") + '\0';  // as libtpu does
}

const c::Profiler_Api profiler_api = {
    .struct_size = sizeof(c::Profiler_Api),
    .unused = nullptr,
    .error_destroy = [](c::Profiler_Error_Destroy_Args* a) { delete a->error; },
    .error_message = [](c::Profiler_Error_Message_Args* a) { a->message = "no!", a->message_size = 2; },
    .error_get_code = nullptr,
    .create = [](c::Profiler_Create_Args* a) -> c::Profiler_Error* {
      a->profiler = new c::Profiler;
      return nullptr;
    },
    .destroy = [](c::Profiler_Args* a) -> c::Profiler_Error* {
      delete a->profiler;
      return nullptr;
    },
    .start = [](c::Profiler_Args* a) -> c::Profiler_Error* {
      a->profiler->start_ns = now_ns();
      return std::getenv("PROFILER_FAILS") ? new c::Profiler_Error : nullptr;
    },
    .stop = [](c::Profiler_Args* a) -> c::Profiler_Error* {
      a->profiler->stop_ns = now_ns();
      a->profiler->told = xspace(*a->profiler);
      return nullptr;
    },
    .collect_data = [](c::Profiler_CollectData_Args* a) -> c::Profiler_Error* {
      a->buffer_size_in_bytes = a->profiler->told.size();
      if (a->buffer) std::memcpy(a->buffer, a->profiler->told.data(), a->profiler->told.size());
      return nullptr;
    },
};

}  // namespace

extern "C" __attribute__((visibility("default"))) const c::Api* GetPjrtApi() {
  static const c::Api* const api = [] {
    void* library = dlopen(std::getenv("REAL_PLUGIN"), RTLD_NOW | RTLD_LOCAL);
    const auto* real = reinterpret_cast<const c::Api* (*)()>(dlsym(library, "GetPjrtApi"))();
    static c::Profiler_Extension extension{
        {sizeof extension, c::kProfilerExtension, static_cast<const c::Extension*>(real->head.extension_start)},
        &profiler_api};
    auto* copy = static_cast<c::Api*>(std::malloc(real->head.struct_size));
    std::memcpy(static_cast<void*>(copy), real, real->head.struct_size);
    copy->head.extension_start = &extension;
    return copy;
  }();
  return api;
}
