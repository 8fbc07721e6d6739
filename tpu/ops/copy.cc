// Copies between tensors of the device; the torch layer calls these rows itself.
#include "tpu/ops/table.h"

namespace tpu::ops {
namespace {

const Row kRows[] = {
    // dst, src, non_blocking: casts and broadcasts.
    {"copy_",
     [](Op& o) { return ir::broadcast_to(ir::convert(o.in(1), o.out().dtype()), o.out().dims()); },
     {.internal = true}},
};

}  // namespace

std::span<const Row> copy_rows() { return kRows; }

}  // namespace tpu::ops
