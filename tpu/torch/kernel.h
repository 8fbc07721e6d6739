// The one kernel of every op with a row: key, cached program, asynchronous execute.
#pragma once

#include <ATen/core/boxing/KernelFunction.h>
#include <ATen/core/stack.h>

#include "tpu/torch/entry.h"

namespace tpu {

// Runs `entry` on the arguments on top of the stack and leaves the results there. Inside a recording
// it adds to it instead.
void run(OpEntry& entry, torch::jit::Stack* stack);

class BoxedKernel final : public c10::OperatorKernel {
 public:
  explicit BoxedKernel(OpEntry& entry) : entry_(entry) {}
  void operator()(const c10::OperatorHandle&, c10::DispatchKeySet, torch::jit::Stack* stack) { run(entry_, stack); }

 private:
  OpEntry& entry_;
};

// Calls `entry` with the given arguments.
template <typename... Args>
at::Tensor call(OpEntry& entry, Args&&... args) {
  torch::jit::Stack stack;
  torch::jit::push(stack, std::forward<Args>(args)...);
  run(entry, &stack);
  return stack.empty() ? at::Tensor() : torch::jit::pop(stack).toTensor();
}

// A tensor over a new unwritten storage.
at::Tensor make_tensor(c10::Storage storage, c10::ScalarType dtype, c10::IntArrayRef sizes, c10::IntArrayRef strides,
                       int64_t offset = 0);

// Leaves what an op returns on the stack: tensors in order, and the ints among them as (position, value).
void push_results(std::vector<at::Tensor> results, const std::vector<std::pair<int, int64_t>>& numbers,
                  const c10::FunctionSchema& schema, torch::jit::Stack* stack);

// Starts the program; results are pushed in the op's schema order. The operands are `call`'s.
void launch(const ProgramPtr& program, const Call& call, c10::ArrayRef<c10::IValue> args,
            std::vector<at::Tensor>& results);

// Held while a launch takes the buffers of its operands and gives their cells the next ones, so that no thread uses
// a buffer that another is giving away. The GIL is never taken under it.
std::mutex& launch_mutex();

// A PJRT error in the words of PyTorch: throws. Out of memory also says what the device's memory holds.
[[noreturn]] void raise(const std::string& op, const pjrt::Error& error, int device = -1);

}  // namespace tpu
