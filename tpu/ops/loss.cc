#include "tpu/ops/table.h"

namespace tpu::ops {

std::span<const Row> loss_rows() { return {}; }

}  // namespace tpu::ops
