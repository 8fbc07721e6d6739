// Contractions as PyTorch computes them: precision by dtype, and 64-bit integers everywhere.
#pragma once

#include "tpu/ops/op.h"

namespace tpu::ops {

// a . b over `dims`, accumulated and returned in `result`.
Value contract(Op& o, const Value& a, const Value& b, const ir::DotDims& dims, DType result);

// The precision that a contraction or convolution of operands of `dtype` runs at.
std::string contraction_precision(Op& o, DType dtype);

}  // namespace tpu::ops
