// The part of the C API that is the profiler extension. It has errors of its own, and its argument structs have a
// pointer that nobody uses where the others have their extensions.
#pragma once

#include <cstddef>
#include <cstdint>

#include "tpu/pjrt/c_api.h"

namespace tpu::pjrt::c {

struct Extension {
  size_t struct_size;
  uint32_t type;
  const Extension* next;
};
constexpr uint32_t kProfilerExtension = 1;

struct Profiler;
struct Profiler_Error;

struct Profiler_Error_Destroy_Args {
  size_t struct_size = sizeof(Profiler_Error_Destroy_Args);
  void* unused = nullptr;
  Profiler_Error* error;
};
struct Profiler_Error_Message_Args {
  size_t struct_size = sizeof(Profiler_Error_Message_Args);
  void* unused = nullptr;
  Profiler_Error* error;
  const char* message = nullptr;  // out
  size_t message_size = 0;        // out
};
struct Profiler_Create_Args {
  size_t struct_size = sizeof(Profiler_Create_Args);
  const char* options;  // a serialized tensorflow.ProfileOptions
  size_t options_size;
  Profiler* profiler = nullptr;  // out
};
// Of destroy, start and stop.
struct Profiler_Args {
  size_t struct_size = sizeof(Profiler_Args);
  Profiler* profiler;
};
struct Profiler_CollectData_Args {
  size_t struct_size = sizeof(Profiler_CollectData_Args);
  Profiler* profiler;
  uint8_t* buffer = nullptr;        // in, out
  size_t buffer_size_in_bytes = 0;  // out
};

struct Profiler_Api {
  size_t struct_size;
  void* unused;
  void (*error_destroy)(Profiler_Error_Destroy_Args*);
  void (*error_message)(Profiler_Error_Message_Args*);
  void* error_get_code;
  Profiler_Error* (*create)(Profiler_Create_Args*);
  Profiler_Error* (*destroy)(Profiler_Args*);
  Profiler_Error* (*start)(Profiler_Args*);
  Profiler_Error* (*stop)(Profiler_Args*);
  Profiler_Error* (*collect_data)(Profiler_CollectData_Args*);
};

struct Profiler_Extension {
  Extension base;
  const Profiler_Api* profiler_api;
};

}  // namespace tpu::pjrt::c
