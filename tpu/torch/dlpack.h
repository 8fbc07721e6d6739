// Tensors on the device and on the host that share one piece of memory, where the device computes in the host's.
#pragma once

#include <ATen/core/Tensor.h>

namespace tpu {

// A CPU tensor over the memory of a tensor on the device: no copy. It holds the values that `t` has now; what `t` is
// given later is in another buffer, which the view does not see. Writing to the view is a mistake: others may read the
// same buffer. Waits for the values. Throws c10::NotImplementedError where the host cannot reach the memory.
at::Tensor host_view(const at::Tensor& t);

// A tensor on the device over the memory of a CPU tensor, which it keeps: no copy. The memory must not be written
// while the result, or a program that reads it, lives. Throws c10::NotImplementedError where the plugin does not take
// this memory (XLA wants 64-byte alignment, and all elements dense).
at::Tensor over_host_memory(const at::Tensor& host, int device);

// What the plugin gave back on one of its threads and whose destruction may need the GIL: destroyed now.
void drop_returned();
// Of the Python module: has drop_returned called soon, from a thread that may take the GIL. Takes no GIL itself.
void set_drop_later_hook(void (*hook)());

}  // namespace tpu
