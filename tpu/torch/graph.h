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
  enum class Kind {
    kFunction,  // a graph as AOTAutograd gives it: below autograd, and only its inputs are touched
    kStep,      // anything the device runs, autograd and all; see `outside`
  };

  Graph(std::string name, size_t num_inputs, Kind kind = Kind::kFunction);

  // kStep: runs `record` without making a program and returns the tensors that it touches besides its inputs. They
  // must be among the inputs of run().
  std::vector<at::Tensor> outside(const Values& inputs, const Recorder& record);

  // Runs the graph on `inputs`; written inputs have their next content when it returns. Throws what `record` throws.
  Values run(const Values& inputs, const Recorder& record);

  const std::string& name() const { return entry_.name; }
  // For people: the kinds of inputs that there are programs for.
  std::vector<std::string> programs();

 private:
  bool is_moving_window(const Call& call, const Operand& o) const;
  void complete_key(Call& call) const;
  ProgramPtr make_program(const Call& call, const Values& inputs, const Recorder& record);

  OpEntry entry_;
  Kind kind_;
};

}  // namespace tpu
