// One call of an op as the kernel sees it: its tensor operands and the key under which its program is
// cached. Collected on every call, so nothing here allocates in the common case.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>
#include <c10/util/SmallVector.h>

#include "tpu/ops/view.h"
#include "tpu/torch/cell.h"

namespace tpu {

struct OpEntry;

struct Operand {
  c10::TensorImpl* impl;
  Cell* cell;  // null: a 0-d tensor on the CPU, passed by value
  int first;   // the first operand with the same cell (often itself)
  int plan;    // index into Call::plans; -1: the buffer, reshaped
};

struct Key {
  c10::SmallVector<uint64_t, 96> words;
  uint64_t hash = 0;

  void push(uint64_t w) {
    words.push_back(w);
    hash = (hash ^ w) * 0x9e3779b97f4a7c15ull;
    hash ^= hash >> 29;
  }
  bool operator==(const Key& other) const { return hash == other.hash && words == other.words; }
};
struct KeyHash {
  size_t operator()(const Key& k) const { return k.hash; }
};

struct Call {
  // Every tensor argument in schema order, lists flattened; undefined ones are left out.
  c10::SmallVector<Operand, 8> operands;
  c10::SmallVector<ops::ViewPlan, 1> plans;
  Key key;
  c10::GeneratorImpl* generator = nullptr;
  int device = 0;
};

// args: the arguments of `entry`'s schema. Throws what PyTorch throws for tensors on several devices
// and for writes into overlapping memory.
void collect(const OpEntry& entry, c10::ArrayRef<c10::IValue> args, Call& call);

// Dimensions by descending stride: the order in which a dense tensor lies in memory.
ir::Dims memory_order(c10::IntArrayRef strides);

// Dimensions and dtype of the dense buffer that a tensor's plan is made for.
struct Dense {
  ir::DType dtype;
  ir::Dims dims;
};
Dense dense_of(const Cell& cell, size_t storage_bytes, ir::DType tensor_dtype);

// What the key says, for people: "f32[8,8], f32[8,8]^T, alpha".
std::string describe(const OpEntry& entry, c10::ArrayRef<c10::IValue> args);

}  // namespace tpu
