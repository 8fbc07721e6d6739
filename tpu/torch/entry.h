// What is known of an ATen op before it is called: its row, how its form derives from the row, and
// the programs made so far.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>

#include <mutex>
#include <unordered_map>
#include <vector>

#include "tpu/ops/table.h"
#include "tpu/torch/call.h"
#include "tpu/torch/program.h"

namespace tpu {

enum class Form {
  kFunctional,  // the row itself; also rows of in-place and out= overloads without a functional one
  kInplace,     // add_.Tensor of the row add.Tensor
  kOut,         // add.out of the row add.Tensor
  kForeach,     // _foreach_add(_).List of the row add.Tensor
  kDecomposed,  // no row: PyTorch's decomposition, recorded
};

struct ArgumentInfo {
  std::string name;
  bool is_write = false;    // by the schema or the row's `writes`
  bool is_out = false;      // an out= argument
  bool is_number = false;   // schema type Scalar, float, Scalar[] or float[]
  bool is_runtime = false;  // its value is an operand, not part of the key
  bool is_alpha = false;    // alpha, beta: the key says whether it is 0 or 1
};

struct OpEntry {
  explicit OpEntry(c10::OperatorHandle op) : op(std::move(op)) {}

  c10::OperatorHandle op;
  std::string name;  // "aten::add_.Tensor"
  std::string_view family;
  const ops::Row* row = nullptr;
  Form form = Form::kDecomposed;
  std::vector<ArgumentInfo> arguments;
  bool writes = false;
  // All elements written are equal, so that an expanded tensor may be written.
  bool may_overlap = false;
  // The op whose Meta kernel gives the result types: the row's functional overload.
  std::optional<c10::OperatorHandle> meta;
  // kForeach: the per-tensor op.
  OpEntry* element = nullptr;
  // Runs first, on the arguments on the stack: brings them into the form the row takes (masks to
  // indices), or does the whole call and returns true with the results in their place.
  bool (*prepare)(torch::jit::Stack* stack) = nullptr;

  // The program of a key, or null.
  ProgramPtr find(const Key& key);
  // Keeps a program; where another thread was faster, returns that one's.
  ProgramPtr remember(const Key& key, ProgramPtr program);

  std::mutex mutex;
  std::unordered_map<Key, ProgramPtr, KeyHash> programs;
  // kDecomposed: what could not be recorded, and why.
  std::unordered_map<Key, std::string, KeyHash> unrecordable;
};

// The entry of an op; made at first use for ops without a row.
OpEntry& entry_of(const c10::OperatorHandle& op);
// By name ("aten::copy_", ""); throws when there is no such op.
OpEntry& entry_of(const char* name, const char* overload);
// All entries that have a row.
std::vector<const OpEntry*> registered_entries();

}  // namespace tpu
