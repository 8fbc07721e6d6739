#include "tpu/ops/table.h"

namespace tpu::ops {

std::span<const Row> reduce_rows() { return {}; }

}  // namespace tpu::ops
