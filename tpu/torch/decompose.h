// PyTorch's decompositions, recorded and compiled as one program; and the Python Meta kernels.
#pragma once

#include "tpu/torch/trace.h"

namespace tpu {

// What needs the interpreter; set by the Python module, absent in C++-only programs. Each takes the GIL.
struct PythonHooks {
  // Imports PyTorch's Python Meta kernels and what they import at their first call.
  void (*import_meta_kernels)() = nullptr;
  // Whether PyTorch has a decomposition of the op, and calling it on the arguments on the stack,
  // which are replaced by its results. Throws what it throws.
  bool (*has_decomposition)(const c10::OperatorHandle& op) = nullptr;
  void (*call_decomposition)(const c10::OperatorHandle& op, torch::jit::Stack* stack) = nullptr;
  // Whether it is KeyboardInterrupt or SystemExit, which nothing may swallow.
  bool (*is_interrupt)(const std::exception& e) = nullptr;
};
void set_python_hooks(const PythonHooks& hooks);

// Imports, once, what PyTorch's Meta kernels that are written in Python need.
void prepare_meta_kernels();

// Runs the op by its decomposition; false, with the reason, when there is none or it needs real data.
bool decompose(const c10::OperatorHandle& op, torch::jit::Stack* stack, std::string& why);

// Adds the call to the recording.
void record(Trace& trace, OpEntry& entry, torch::jit::Stack* stack);

}  // namespace tpu
