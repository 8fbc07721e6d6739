// One step of the LSTM and GRU cells, fused as on other accelerators, and their gradients.
#include "tpu/ops/rules.h"
#include "tpu/ops/table.h"

namespace tpu::ops {
namespace {

// Part k of `count` equal parts of the last dimension.
Value chunk(const Value& v, int64_t k, int64_t count) {
  const int64_t d = v.rank() - 1, width = v.dim(d) / count;
  return ir::slice_in_dim(v, d, k * width, (k + 1) * width);
}

Value concatenated(const Values& parts) { return ir::concatenate(parts, parts[0].rank() - 1); }

// x (1 - x): the slope of a sigmoid by its value.
Value sigmoid_slope(const Value& x) { return ir::multiply(x, ir::subtract(ir::full_like(x, 1), x)); }
// 1 - x^2: the slope of tanh by its value.
Value tanh_slope(const Value& x) { return ir::subtract(ir::full_like(x, 1), ir::multiply(x, x)); }

// The gates with their bias, where there is one.
Value gates(Op& o, const char* name, const char* bias) {
  const Value g = o.compute(name);
  return o.has(bias) ? ir::add(g, ir::broadcast_to(o.compute(bias), g)) : g;
}

// hy, cy, workspace (the four gates)
Values lstm_cell(Op& o) {
  const Value all = ir::add(gates(o, "input_gates", "input_bias"), gates(o, "hidden_gates", "hidden_bias"));
  const Value in = ir::logistic(chunk(all, 0, 4)), forget = ir::logistic(chunk(all, 1, 4));
  const Value cell = ir::tanh(chunk(all, 2, 4)), out = ir::logistic(chunk(all, 3, 4));
  const Value cy = ir::add(ir::multiply(forget, o.compute("cx")), ir::multiply(in, cell));
  return {ir::multiply(out, ir::tanh(cy)), cy, concatenated({in, forget, cell, out})};
}

Value bias_gradient(const Value& gates) {
  return ir::reduce(gates, ir::constant(gates.builder(), 0, Type(gates.dtype(), {})), {0}, "add");
}

// grad_gates, grad_cx, grad_bias
Values lstm_cell_backward(Op& o) {
  const Value workspace = o.compute("workspace"), cx = o.compute("cx");
  const Value in = chunk(workspace, 0, 4), forget = chunk(workspace, 1, 4);
  const Value cell = chunk(workspace, 2, 4), out = chunk(workspace, 3, 4);
  const Value top = ir::tanh(o.compute("cy"));
  const Value grad_hy = o.has("grad_hy") ? o.compute("grad_hy") : ir::zeros_like(cx);
  Value grad_cy = ir::multiply(ir::multiply(grad_hy, out), tanh_slope(top));
  if (o.has("grad_cy")) grad_cy = ir::add(grad_cy, o.compute("grad_cy"));
  const Value grad = concatenated({ir::multiply(ir::multiply(grad_cy, cell), sigmoid_slope(in)),
                                   ir::multiply(ir::multiply(grad_cy, cx), sigmoid_slope(forget)),
                                   ir::multiply(ir::multiply(grad_cy, in), tanh_slope(cell)),
                                   ir::multiply(ir::multiply(grad_hy, top), sigmoid_slope(out))});
  return {grad, ir::multiply(grad_cy, forget), o.flag("has_bias") ? bias_gradient(grad) : Value()};
}

// hy, workspace (reset, update, new, hx, hidden part of new)
Values gru_cell(Op& o) {
  const Value input = gates(o, "input_gates", "input_bias"), hidden = gates(o, "hidden_gates", "hidden_bias");
  const Value reset = ir::logistic(ir::add(chunk(input, 0, 3), chunk(hidden, 0, 3)));
  const Value update = ir::logistic(ir::add(chunk(input, 1, 3), chunk(hidden, 1, 3)));
  const Value carried = chunk(hidden, 2, 3), hx = o.compute("hx");
  const Value fresh = ir::tanh(ir::add(chunk(input, 2, 3), ir::multiply(reset, carried)));
  const Value hy = ir::add(fresh, ir::multiply(update, ir::subtract(hx, fresh)));
  return {hy, concatenated({reset, update, fresh, hx, carried})};
}

// grad_input_gates, grad_hidden_gates, grad_hx, grad_input_bias, grad_hidden_bias
Values gru_cell_backward(Op& o) {
  const Value grad = o.compute("grad_hy"), workspace = o.compute("workspace");
  const Value reset = chunk(workspace, 0, 5), update = chunk(workspace, 1, 5), fresh = chunk(workspace, 2, 5);
  const Value hx = chunk(workspace, 3, 5), carried = chunk(workspace, 4, 5);
  const Value rest = ir::subtract(ir::full_like(update, 1), update);
  const Value grad_update = ir::multiply(ir::multiply(grad, ir::subtract(hx, fresh)), sigmoid_slope(update));
  const Value grad_new = ir::multiply(ir::multiply(grad, rest), tanh_slope(fresh));
  const Value grad_reset = ir::multiply(ir::multiply(grad_new, carried), sigmoid_slope(reset));
  const Value input = concatenated({grad_reset, grad_update, grad_new});
  const Value hidden = concatenated({grad_reset, grad_update, ir::multiply(grad_new, reset)});
  const bool biased = o.flag("has_bias");
  return {input, hidden, ir::multiply(grad, update), biased ? bias_gradient(input) : Value(),
          biased ? bias_gradient(hidden) : Value()};
}

// Shaped like `v` with its last dimension `times` as wide.
Type widened(const Value& v, int64_t times) {
  Dims dims = v.dims();
  dims.back() *= times;
  return Type(v.dtype(), dims);
}

// Its Meta kernel fails where there is no bias.
std::vector<Type> lstm_cell_types(Op& o) {
  const Type state = o.in("cx").type();
  return {state, state, o.in("input_gates").type()};
}

std::vector<Type> gru_cell_types(Op& o) { return {o.in("hx").type(), widened(o.in("hx"), 5)}; }

std::vector<Type> gru_cell_backward_types(Op& o) {
  const Value grad = o.in("grad_hy");
  const Type gates = widened(grad, 3), bias(grad.dtype(), {gates.dims().back()});
  return {gates, gates, grad.type(), bias, bias};
}

const Row kRows[] = {
    {"_thnn_fused_lstm_cell", lstm_cell, {.types = lstm_cell_types}},
    {"_thnn_fused_lstm_cell_backward_impl", lstm_cell_backward},
    {"_thnn_fused_gru_cell", gru_cell, {.types = gru_cell_types}},
    {"_thnn_fused_gru_cell_backward", gru_cell_backward, {.types = gru_cell_backward_types}},
};

}  // namespace

std::span<const Row> rnn_rows() { return kRows; }

}  // namespace tpu::ops
