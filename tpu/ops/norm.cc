#include "tpu/ops/table.h"

namespace tpu::ops {

std::span<const Row> norm_rows() { return {}; }

}  // namespace tpu::ops
