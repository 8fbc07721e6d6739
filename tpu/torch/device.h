// Devices, streams and events as PyTorch's device-generic interfaces ask for them.
#pragma once

#include <c10/core/Device.h>

namespace tpu {

// Of this thread.
int current_device();
// Of this thread, on a device: what is enqueued goes there.
int current_stream(int device);
// Throws where no plugin is found.
int device_count();
// `index` when such a device exists (-1: the current one), else an error that says how many there are.
int check_device_index(int index);

// Registers guard, hooks and allocators; called once when the library is loaded.
void register_device();

}  // namespace tpu
