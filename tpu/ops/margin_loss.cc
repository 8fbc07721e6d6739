// multi_margin_loss and its gradient.
#include "tpu/ops/indexing.h"
#include "tpu/ops/reduction.h"
#include "tpu/ops/rules.h"
#include "tpu/ops/table.h"

namespace tpu::ops {
namespace {

std::string sizes_text(const Value& v) {
  std::string s = "[";
  for (int64_t d = 0; d < v.rank(); ++d) s += (d ? ", " : "") + std::to_string(v.dim(d));
  return s + "]";
}

struct Margins {
  Value excess;     // [rows, classes]: margin - x[target] + x where that is positive, else 0
  Value is_target;  // i1 [rows, classes]
  Value weight;     // of the target's class [rows, classes], 1 where none is given
};

Margins margins(Op& o, const Value& x) {
  const Value self = o.in("self"), target = o.in("target");
  const int64_t rows = x.dim(0), classes = x.dim(1);
  if ((self.rank() != 2 || classes == 0) && (self.rank() > 1 || self.type().numel() == 0)) {
    throw UserError("Expected non-empty vector or matrix with optional 0-dim batch size, but got: " + sizes_text(self));
  }
  if (target.rank() > 1 || target.type().numel() != rows) {
    throw UserError("inconsistent target size, expected " + std::to_string(rows) + " but got " + sizes_text(target));
  }
  if (target.dtype() != DType::kI64) {
    throw UserError(std::string("expected scalar type Long but found ") + (target.dtype() == DType::kF32 ? "Float"
                                                                           : target.dtype() == DType::kI32
                                                                               ? "Int"
                                                                               : "another"));
  }
  const double p = o.number("p");
  if (p != 1 && p != 2) throw UserError("only p == 1 and p == 2 supported", "ValueError");
  Margins m;
  const Value wanted = ir::reshape(target, {rows, 1});
  const Value index = checked_index(o, wanted, x, 1, Negative::kError, {"target out of range", "RuntimeError"});
  const Value at = ir::broadcast_in_dim(ir::reshape(index, {rows}), Type(index.dtype(), x.dims()), {0});
  m.is_target = ir::compare(ir::iota(o.builder(), at.type(), 1), at, "EQ");
  const Value own = ir::broadcast_in_dim(ir::reshape(take_elements(x, 1, index), {rows}), x.type(), {0});
  const Value margin = ir::broadcast_to(o.scalar("margin", x.dtype()), x.dims());
  const Value gap = ir::add(ir::subtract(margin, own), x);
  const Value counts = ir::and_(ir::not_(m.is_target), ir::compare(gap, ir::zeros_like(gap), "GT"));
  m.excess = ir::select(counts, gap, ir::zeros_like(gap));
  m.weight = ir::full_like(x, 1);
  if (o.has("weight")) {
    const Value weight = ir::convert(o.in("weight"), x.dtype());
    if (weight.rank() > 1 || weight.type().numel() != classes) {
      throw UserError("inconsistent weight size, expected " + std::to_string(classes) + " but got " +
                      sizes_text(o.in("weight")));
    }
    m.weight = take_slices(ir::reshape(weight, {classes}), 0, at);
  }
  return m;
}

Value as_rows(const Value& v) {
  if (v.rank() == 2) return v;
  return ir::reshape(v, {1, v.type().numel()});
}

std::vector<Type> loss_types(Op& o) {
  const Type self = o.in("self").type();
  if (o.integer("reduction") != 0 || self.rank() < 2) return {Type(self.dtype(), {})};
  return {Type(self.dtype(), {self.dim(0)})};
}

enum Reduction { kNone = 0, kMean = 1 };

Value multi_margin_loss(Op& o) {
  const Value x = as_rows(o.compute("self"));
  const Margins m = margins(o, x);
  const Value power = o.number("p") == 1 ? m.excess : ir::multiply(m.excess, m.excess);
  const Value sum = sum_over(ir::multiply(power, m.weight), {1});
  const Value each = ir::divide(sum, ir::full_like(sum, x.dim(1)));
  const int64_t reduction = o.integer("reduction");
  if (reduction == kNone) return ir::reshape(each, o.out().dims());
  return reduction == kMean ? mean_over(each, {0}) : sum_over(each, {0});
}

Value multi_margin_loss_backward(Op& o) {
  const Value x = as_rows(o.compute("self"));
  if (x.type().numel() == 0) return o.in("self");
  const Margins m = margins(o, x);
  const Value is_over = ir::compare(m.excess, ir::zeros_like(m.excess), "GT");
  const Value slope = o.number("p") == 1 ? ir::convert(is_over, x.dtype()) : ir::add(m.excess, m.excess);
  const int64_t reduction = o.integer("reduction");
  const double count = static_cast<double>(x.dim(1)) * static_cast<double>(reduction == kMean ? x.dim(0) : 1);
  const Value part = ir::divide(ir::multiply(slope, m.weight), ir::full_like(slope, count));
  const Value own = ir::negate(stretch(sum_over(part, {1}), {1}, part));
  const Value grad = ir::convert(o.in("grad_output"), x.dtype());
  const Value by_row = grad.type().numel() == 1 ? ir::broadcast_to(ir::reshape(grad, {}), x.dims())
                                                : ir::broadcast_in_dim(ir::reshape(grad, {x.dim(0)}), x.type(), {0});
  return ir::reshape(ir::multiply(ir::select(m.is_target, own, part), by_row), o.out().dims());
}

std::vector<Type> like_self(Op& o) { return {o.in("self").type()}; }

const Row kRows[] = {
    {"multi_margin_loss", multi_margin_loss, {.static_args = {"p"}, .types = loss_types}},
    {"multi_margin_loss_backward", multi_margin_loss_backward, {.static_args = {"p"}, .types = like_self}},
};

}  // namespace

std::span<const Row> margin_loss_rows() { return kRows; }

}  // namespace tpu::ops
