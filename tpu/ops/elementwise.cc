// Pointwise arithmetic: unary, binary and ternary ops, activations and their gradients.
#include "tpu/ops/rules.h"
#include "tpu/ops/table.h"

namespace tpu::ops {
namespace {

const Row kRows[] = {
    {"add.Tensor", [](Op& o) { return ir::add(o.x(0), scaled(o, o.x(1), "alpha")); }},
    {"sub.Tensor", [](Op& o) { return ir::subtract(o.x(0), scaled(o, o.x(1), "alpha")); }},
    {"mul.Tensor", binary(ir::multiply)},
    {"exp", unary(ir::exponential)},
    {"tanh", unary(ir::tanh)},
    {"relu", [](Op& o) { return ir::maximum(o.x(0), ir::zeros_like(o.x(0))); }},
};

}  // namespace

std::span<const Row> elementwise_rows() { return kRows; }

}  // namespace tpu::ops
