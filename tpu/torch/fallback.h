// What has no row: PyTorch's decomposition as one program, else the CPU, announced and counted.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>

namespace tpu {

// Runs the op on the CPU and copies the results back. One warning per op; TORCH_TPU_FALLBACK=error
// makes it NotImplementedError, =silent keeps only the counter. `why`: one sentence.
void fall_back(const c10::OperatorHandle& op, torch::jit::Stack* stack, const std::string& why);

// The boxed fallback of the dispatch key: decomposition, then the CPU.
void fallback_kernel(const c10::OperatorHandle& op, torch::jit::Stack* stack);

}  // namespace tpu
