#include "tpu/ops/table.h"

namespace tpu::ops {

std::span<const Row> create_rows() { return {}; }

}  // namespace tpu::ops
