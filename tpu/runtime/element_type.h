// The same element types in the words of StableHLO and of PJRT.
#pragma once

#include "tpu/ir/dtype.h"
#include "tpu/pjrt/c_api.h"

namespace tpu::runtime {

pjrt::ElementType element_type(ir::DType dtype);

}  // namespace tpu::runtime
