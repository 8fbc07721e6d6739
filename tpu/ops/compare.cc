#include "tpu/ops/table.h"

namespace tpu::ops {

std::span<const Row> compare_rows() { return {}; }

}  // namespace tpu::ops
