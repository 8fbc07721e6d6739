// A compiled program of an op and how a call feeds it and takes its results.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/util/SmallVector.h>

#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include "tpu/ops/op.h"
#include "tpu/runtime/session.h"

namespace tpu {

// Where the program's parameter comes from.
struct Parameter {
  enum class Kind : uint8_t {
    kBuffer,  // operand `index`: its cell's buffer
    kScalar,  // argument `index`, element `element`
    kHost,    // operand `index`: a 0-d tensor on the CPU
    kStart,   // operand `index`: run-time start `element` of its view
    kSeed,    // of the generator
    kOffset,
    kCaptured,  // constant tensor number `index`
  };
  Kind kind;
  int index = 0, element = 0;
  ir::DType dtype = ir::DType::kF32;
  int64_t elements = 1;
  // kScalar: an error where held_as, the dtype of the result, cannot hold the number.
  bool is_checked = false;
  ir::DType held_as = ir::DType::kF32;
  bool operator==(const Parameter&) const = default;
};

struct Output {
  ir::DType dtype;
  std::vector<int64_t> dims;
  int write_operand = -1;  // this output becomes the buffer of that operand's cell
};

// What the op returns.
struct Result {
  enum class Kind : uint8_t {
    kNone,     // an undefined tensor
    kFresh,    // a new tensor over output `index`
    kOperand,  // operand `index` itself
    kView,     // a new tensor over the storage of operand `index`
  };
  Kind kind = Kind::kNone;
  int index = -1;
  c10::ScalarType dtype = c10::ScalarType::Undefined;
  c10::SmallVector<int64_t, 5> sizes, strides;
  int64_t offset = 0;
  size_t storage_bytes = 0;
  // Of the schema: this result is element i of a returned list.
  bool in_list = false;
};

// "index {} is out of bounds ...": told by the program, raised at the next read or synchronize.
struct Check {
  std::string error, message;
};

struct Program {
  std::string op;
  const char* producer = nullptr;  // op, never freed: cells outlive programs
  std::shared_ptr<const pjrt::LoadedExecutable> executable;
  std::vector<Parameter> parameters;
  std::vector<Output> outputs;
  std::vector<Result> results;
  // Ints among what the op returns: position and value.
  std::vector<std::pair<int, int64_t>> numbers;
  // Parameter and operand whose buffer the program may take over.
  std::vector<std::pair<int, int>> donations;
  std::vector<Check> checks;  // an output [failed, value]* follows the others
  std::vector<runtime::BufferPtr> captured;
  uint64_t random_draws = 0;
  std::string description;  // of the key
  // Since programs that nobody needs were last looked for.
  mutable std::atomic<bool> is_used{true};
};
using ProgramPtr = std::shared_ptr<const Program>;

}  // namespace tpu
