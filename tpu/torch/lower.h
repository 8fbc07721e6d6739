// Running rows: see lower.cc.
#pragma once

#include "tpu/torch/trace.h"

namespace tpu {

// Thrown when an out= tensor has another size than the result: the caller resizes it and starts again.
struct ResizeOut {
  std::vector<at::Tensor> metas;  // the form of each result
};
// Resizes (with PyTorch's warning) every out= tensor of the call to its result's size.
void resize_outputs(const OpEntry& entry, c10::ArrayRef<c10::IValue> args, const std::vector<at::Tensor>& metas);

// "add.Tensor" in aten.
c10::OperatorHandle find_op(const std::string& name);

}  // namespace tpu
