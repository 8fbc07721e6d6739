// The end of the process, while other threads may still use the device.
#pragma once

namespace tpu::runtime {

// Waits for the compiles and runs in progress. From then on only the calling thread may start others:
// another one that tries stops there for good, since what the plugin needs is about to be destroyed.
void shut_down();

}  // namespace tpu::runtime
