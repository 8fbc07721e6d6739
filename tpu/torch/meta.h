// The form of an op's results: sizes, strides and dtypes by PyTorch's Meta kernels, as the CPU has them.
#pragma once

#include "tpu/torch/entry.h"

namespace tpu {

at::Tensor to_meta(const at::Tensor& t);

// The op's results on meta tensors; errors of the call come from here, mostly in CPU's words.
torch::jit::Stack infer(const c10::OperatorHandle& op, c10::ArrayRef<c10::IValue> args);

}  // namespace tpu
