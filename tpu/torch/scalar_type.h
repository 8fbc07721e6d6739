// c10 scalar types and StableHLO element types.
#pragma once

#include <c10/core/ScalarType.h>

#include "tpu/ir/dtype.h"

namespace tpu {

// Throws NotImplementedError, naming the dtype, where there is no such element type.
ir::DType to_dtype(c10::ScalarType type);
bool has_dtype(c10::ScalarType type);
c10::ScalarType to_scalar_type(ir::DType dtype);

}  // namespace tpu
