// A graph of ops that torch.compile hands over: recorded once for each kind of inputs, then run as one program.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "tpu/torch/entry.h"

namespace tpu {

// Owns its programs, one for each key of inputs that it met. Any number of threads may run it. A run that throws
// leaves the inputs as they were, unless the program itself failed after it had taken their memory.
class Graph {
 public:
  // Tensors on the device, 0-d tensors on the CPU, ints and floats; None stands for an absent tensor. The numbers are
  // part of the key, what 0-d CPU tensors hold is not.
  using Values = std::vector<c10::IValue>;
  // Runs the graph's ops on the given inputs through the dispatcher and returns its outputs: tensors on the device,
  // ints, None. Called below autograd, inside a recording: it must read no tensor's content.
  using Recorder = std::function<Values(const Values& inputs)>;

  Graph(std::string name, size_t num_inputs);

  // Runs the graph on `inputs`; written inputs have their next content when it returns. Throws what `record` throws.
  Values run(const Values& inputs, const Recorder& record);

  const std::string& name() const { return entry_.name; }
  size_t num_programs();

 private:
  ProgramPtr make_program(const Call& call, const Values& inputs, const Recorder& record);

  OpEntry entry_;
};

}  // namespace tpu
