#include "tpu/torch/graph.h"

#include <ATen/Context.h>
#include <ATen/MemoryOverlap.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <torch/library.h>

#include "tpu/pjrt/error.h"
#include "tpu/runtime/shutdown.h"
#include "tpu/torch/kernel.h"
#include "tpu/torch/trace.h"

namespace tpu {
namespace {

// Stands for a graph wherever an op is asked for. Nothing calls it.
const c10::OperatorHandle& graph_op() {
  static const auto* op =
      new c10::OperatorHandle(c10::Dispatcher::singleton().findSchemaOrThrow("torch_tpu::graph", ""));
  return *op;
}

bool shares_storage(const Call& call) {
  for (size_t i = 0; i < call.operands.size(); ++i) {
    if (call.operands[i].cell && call.operands[i].first != static_cast<int>(i)) return true;
  }
  return false;
}

// Whatever a recording leaves behind in the user's hands has no content.
class Disowning {
 public:
  Disowning(Trace& trace, const std::string& name) : trace_(trace), name_(name) {}
  ~Disowning() {
    trace_.disown("it was computed while " + name_ + " was recorded, and only what that returns has a value");
  }

 private:
  Trace& trace_;
  const std::string& name_;
};

// A tensor inside the recording with the geometry and the content of an operand that is a window.
at::Tensor stand_in(Trace& trace, const at::Tensor& t) {
  int64_t last = 1;
  for (int64_t d = 0; d < t.dim(); ++d) last += (t.size(d) - 1) * t.stride(d);
  at::Tensor own =
      make_tensor(make_storage(last * t.element_size(), t.device().index()), t.scalar_type(), t.sizes(), t.strides());
  trace.write(own, trace.read(t));
  return own;
}

}  // namespace

Graph::Graph(std::string name, size_t num_inputs, Kind kind) : entry_(graph_op()), kind_(kind) {
  entry_.name = std::move(name);
  entry_.form = Form::kFunctional;
  entry_.arguments.resize(num_inputs);
}

// Whether the program takes the operand's place in its storage at run time. Its views inside the graph have their
// places relative to it, so the graph works on a tensor of its own; that is no way for operands that share memory.
bool Graph::is_moving_window(const Call& call, const Operand& o) const {
  if (kind_ == Kind::kStep || !o.cell || o.plan < 0 || o.impl->is_conj() || o.impl->is_neg()) return false;
  const ops::ViewPlan& plan = call.plans[o.plan];
  // A window takes no element twice but along an expanded dimension.
  return plan.kind == ops::ViewPlan::Kind::kWindow && plan.num_starts > 0 &&
         at::has_internal_overlap(o.impl) != at::MemOverlap::Yes;
}

// What is not in an op's key but holds for a whole graph.
void Graph::complete_key(Call& call) const {
  call.key.push(static_cast<uint64_t>(at::globalContext().float32MatmulPrecision()));
  const bool shares = shares_storage(call);
  for (const Operand& o : call.operands) {
    if (o.plan >= 0 && (shares || !is_moving_window(call, o)))
      call.key.push(static_cast<uint64_t>(o.impl->storage_offset()));
  }
}

std::vector<std::string> Graph::programs() {
  std::lock_guard lock(entry_.mutex);
  std::vector<std::string> descriptions;
  for (const auto& [key, program] : entry_.programs) descriptions.push_back(program->description);
  return descriptions;
}

std::vector<at::Tensor> Graph::outside(const Values& inputs, const Recorder& record) {
  const runtime::Busy busy;
  Call call;
  collect(entry_, inputs, call);
  Trace trace(Trace::Mode::kGraph, call, inputs);
  const Trace::Scope scope(trace);
  const Disowning disowning(trace, entry_.name);
  record(inputs);
  return trace.outside();
}

ProgramPtr Graph::make_program(const Call& call, const Values& inputs, const Recorder& record) {
  const runtime::Busy busy;  // it runs Python
  Trace trace(Trace::Mode::kGraph, call, inputs);
  std::optional<Disowning> disowning;
  if (kind_ == Kind::kStep) disowning.emplace(trace, entry_.name);
  Values own = inputs;
  std::vector<std::pair<at::Tensor, at::Tensor>> windows;  // the operand and what stands in for it
  Values outputs;
  {
    const Trace::Scope scope(trace);
    std::optional<at::AutoDispatchBelowADInplaceOrView> below_autograd;
    if (kind_ == Kind::kFunction) below_autograd.emplace();
    if (!shares_storage(call)) {
      for (const Operand& o : call.operands) {
        if (!is_moving_window(call, o)) continue;
        for (c10::IValue& v : own) {
          if (!v.isTensor() || v.unsafeToTensorImpl() != o.impl) continue;
          const at::Tensor t = v.toTensor();
          v = stand_in(trace, t);
          windows.emplace_back(t, v.toTensor());
        }
      }
    }
    outputs = record(own);
    for (const auto& [operand, stand_in] : windows) {
      if (trace.writes(cell_of(*stand_in.unsafeGetTensorImpl())) > 1) trace.write(operand, trace.read(stand_in));
    }
  }
  std::vector<Trace::Return> returns;
  for (const c10::IValue& v : outputs) {
    Trace::Return r;
    if (v.isDouble()) throw RecordingBroken(entry_.name + " returns a number that is not an int");
    if (v.isInt()) {
      r.number = v.toInt();
    } else if (v.isTensor() && v.toTensor().defined()) {
      r.tensor = v.toTensor();
      for (const auto& [operand, stand_in] : windows) {
        if (r.tensor.is_same(stand_in)) r.tensor = operand;
      }
      if (r.tensor.device().type() != c10::DeviceType::PrivateUse1)
        throw RecordingBroken(entry_.name + " returns a tensor on " + r.tensor.device().str());
    }
    returns.push_back(std::move(r));
  }
  if (kind_ == Kind::kStep && !trace.outside().empty()) {
    throw RecordingBroken(entry_.name + " touches a tensor that it did not touch before: " +
                          trace.outside()[0].toString() + c10::str(trace.outside()[0].sizes()));
  }
  std::string description = describe(entry_, inputs);
  auto program = std::const_pointer_cast<Program>(trace.finish(entry_, returns, "(" + description + ")"));
  program->description = std::move(description);
  return program;
}

Graph::Values Graph::run(const Values& inputs, const Recorder& record) {
  TORCH_CHECK(inputs.size() == entry_.arguments.size(), entry_.name, " takes ", entry_.arguments.size(),
              " inputs, but got ", inputs.size());
  if (Trace::current()) {
    // Part of a whole step that is being recorded.
    TORCH_CHECK(kind_ == Kind::kFunction, entry_.name, " was called while another step is recorded");
    const at::AutoDispatchBelowADInplaceOrView below_autograd;
    return record(inputs);
  }
  Call call;
  collect(entry_, inputs, call);
  complete_key(call);
  ProgramPtr program = entry_.find(call.key);
  if (!program) {
    try {
      program = entry_.remember(call.key, make_program(call, inputs, record));
    } catch (const pjrt::Error& e) {
      raise(entry_.name, e);
    }
  }
  std::vector<at::Tensor> results;
  launch(program, call, inputs, results);
  if (kind_ == Kind::kStep) {
    // For a function AOTAutograd does that.
    for (const Output& o : program->outputs) {
      if (o.write_operand < 0) continue;
      c10::TensorImpl* t = call.operands[o.write_operand].impl;
      if (!t->is_inference()) t->bump_version();
    }
  }
  Values outputs(std::make_move_iterator(results.begin()), std::make_move_iterator(results.end()));
  for (auto [position, number] : program->numbers) outputs.insert(outputs.begin() + position, number);
  return outputs;
}

TORCH_LIBRARY_FRAGMENT(torch_tpu, m) { m.def("graph(Tensor[] inputs) -> Tensor[]"); }

}  // namespace tpu
