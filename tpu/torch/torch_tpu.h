// The device "tpu" for C++ programs: what `import torch` does in Python.
#pragma once

#include <string>

namespace torch_tpu {

// Registers the device with libtorch: at::Device("tpu") and everything on it work after that. Starts no device; later
// calls do nothing. `plugin` is the path of a PJRT plugin; where it is empty, the environment variable
// TORCH_TPU_PLUGIN names it. Ops that PyTorch decomposes in Python run on the CPU here, with a warning.
//
// Call it before the first use of the device, from one thread.
void load(const std::string& plugin = "");

// Waits for the device's work at the end of a program. Call it before main returns: the plugin's threads must not
// outlive what they work on.
void shut_down();

}  // namespace torch_tpu
