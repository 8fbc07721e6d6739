// A program in the making: what each cell holds so far, as values. One op that missed the cache makes
// one (single mode: scalars and view starts are run-time operands); a recording (a decomposition)
// collects many ops into one, with all of that as constants.
#pragma once

#include <unordered_map>

#include "tpu/torch/entry.h"

namespace tpu {

// A recording met something that needs real data (a read by the host): it cannot become one program.
class RecordingBroken : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

class Trace {
 public:
  enum class Mode { kSingle, kRecording, kGraph };
  // `args` and `call` must outlive the trace.
  Trace(Mode mode, const Call& call, c10::ArrayRef<c10::IValue> args);

  Mode mode() const { return mode_; }
  ir::Builder& builder() { return builder_; }
  // Whether the content of the cell is known to this trace only.
  bool holds(const Cell& cell) const { return states_.count(&cell) > 0; }
  // How often the cell was written so far.
  int writes(const Cell& cell) const {
    const auto it = states_.find(&cell);
    return it == states_.end() ? 0 : it->second.writes;
  }

  // A tensor made while recording whose content is the same in each run.
  void embed(const at::Tensor& t) { state(t).is_constant = true; }
  // What was read or written although it is neither an operand nor made while recording.
  std::vector<at::Tensor> outside() const;
  // Lets tensors that were computed while recording, and have their content in no run, say so when they are read.
  void disown(const std::string& why);

  // The logical value of a tensor (conj and neg bits applied).
  ir::Value read(const at::Tensor& t);
  void write(const at::Tensor& t, const ir::Value& v);
  // A 0-d operand from argument `argument`, element `element` of the call.
  // `held_as`: an error where this dtype cannot hold the number.
  ir::Value scalar(int argument, int element, ir::DType dtype, std::optional<ir::DType> held_as = {});
  std::pair<ir::Value, ir::Value> random_state(int64_t numbers);
  // Whether draws from that generator (null: the default one) are the ones that random_state gives.
  bool draws_from(const c10::GeneratorImpl* generator) const;
  // Numbers drawn so far, which a generator's offset counts on top of its own: a checkpoint goes back by it.
  int64_t draws() const { return draws_; }
  void set_draws(int64_t draws);
  void check(const ir::Value& failed, const ir::Value& value, std::string error, std::string message);

  // Compiles what was recorded. `returns`: what the op returns, in terms of fresh values or tensors.
  struct Return {
    // Exactly one of: nothing (undefined), a value with the meta tensor that gives its geometry, a tensor.
    ir::Value value;
    at::Tensor like;  // with `value`: sizes, strides, dtype
    at::Tensor tensor;
    bool in_list = false;
    std::optional<int64_t> number = {};  // an int among the results
  };
  ProgramPtr finish(const OpEntry& entry, std::vector<Return> returns, const std::string& why);

  // The recording of this thread, if any.
  static Trace* current();
  class Scope {
   public:
    explicit Scope(Trace& trace);
    ~Scope();

   private:
    Trace* previous_;
  };

 private:
  struct State {
    ir::Value value;  // dense, row-major over the storage
    int writes = 0;
    int parameter = -1, operand = -1;
    bool is_captured = false, is_constant = false;
  };
  State& state(const at::Tensor& t);
  ir::Value parameter(const Parameter& p, const ir::Type& type);
  struct Window {
    ir::Value dense;
    ops::ViewPlan plan;
    ir::Values starts;
  };
  Window window(const at::Tensor& t);
  int find_operand(const c10::TensorImpl* t) const;
  int find_cell(const Cell* cell) const;

  Mode mode_;
  const Call& call_;
  c10::ArrayRef<c10::IValue> args_;
  ir::Builder builder_;
  std::vector<Parameter> parameters_;
  std::vector<ir::Value> parameter_values_;
  std::unordered_map<const Cell*, State> states_;
  std::vector<const Cell*> order_;  // of first touch, so that programs are the same each time
  std::vector<at::Tensor> kept_;    // so that no cell address is reused while recording
  std::vector<Check> checks_;
  ir::Values told_;
  std::vector<runtime::BufferPtr> captured_;
  int64_t draws_ = 0;
};

// Runs `entry`'s row on args inside the trace and says what the op returns.
std::vector<Trace::Return> lower(Trace& trace, const OpEntry& entry, c10::ArrayRef<c10::IValue> args);

}  // namespace tpu
