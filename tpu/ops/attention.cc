// Scaled dot product attention as one program, and its gradient.
#include <cmath>

#include "tpu/ops/contract.h"
#include "tpu/ops/random.h"
#include "tpu/ops/reduction.h"
#include "tpu/ops/rules.h"
#include "tpu/ops/table.h"

namespace tpu::ops {
namespace {

using ir::DotDims;

// Scores are [batch, key heads, rows], where rows are the queries of all heads that share a key
// head. [b, h, l, s] tensors fold their heads to [b, hk, (h / hk) l, s]: nothing to do without
// grouped heads.
Value fold_heads(const Value& v, int64_t key_heads) {
  if (v.rank() == 3 || v.type().bound(1) == key_heads) return v;
  return ir::reshape(v, {v.dim(0), key_heads, v.dim(1) / key_heads * v.dim(2), v.dim(3)});
}

// A contraction over the given dimension of each, all dimensions before the last two being batches.
Value batched(Op& o, const Value& a, const Value& b, int64_t a_contracting, int64_t b_contracting) {
  DotDims dims;
  for (int64_t d = 0; d < a.rank() - 2; ++d) dims.lhs_batching.push_back(d);
  dims.rhs_batching = dims.lhs_batching;
  dims.lhs_contracting = {a.rank() - 2 + a_contracting};
  dims.rhs_contracting = {b.rank() - 2 + b_contracting};
  return contract(o, a, b, dims, ir::opmath(a.dtype()));
}

// A per-row value broadcast along the rows of `like`.
Value along_rows(const Value& v, const Value& like) { return ir::broadcast_to(ir::unsqueeze(v, v.rank()), like); }

Value sum_of_rows(const Value& v) { return sum_over(v, {v.rank() - 1}); }

Value scale_of(Op& o, const Value& query, DType dtype) {
  if (o.has("scale")) return o.scalar("scale", dtype);
  const int64_t width = query.dim(query.rank() - 1);
  return ir::constant(o.builder(), 1 / std::sqrt(static_cast<double>(width)), Type(dtype, {}));
}

// scale * query key^T + bias, -inf where a causal query may not look: [.., l, s], heads folded.
Value scores(Op& o, const Value& query, const Value& key, int64_t key_heads) {
  const Value q = fold_heads(query, key_heads);
  Value s = batched(o, q, key, 1, 1);
  s = ir::multiply(s, scale_of(o, query, s.dtype()));
  const bool causal = o.flag("is_causal"), has_bias = o.has("attn_bias");
  if (!causal && !has_bias) return s;
  const Dims folded = s.type().bounds();
  const bool grouped = query.rank() == 4 && query.type().bound(1) != key_heads;
  // Bias and causality are per query: see the scores by head.
  if (grouped) s = ir::reshape(s, {query.dim(0), query.dim(1), query.dim(2), key.dim(2)});
  if (has_bias) s = ir::add(s, ir::broadcast_to(ir::convert(o.in("attn_bias"), s.dtype()), s));
  if (causal) {
    const Type type(DType::kI32, s.type().bounds());
    const Value row = ir::iota(o.builder(), type, type.rank() - 2),
                column = ir::iota(o.builder(), type, type.rank() - 1);
    s = ir::select(ir::with_sizes_of(ir::compare(column, row, "LE"), s), s, ir::full_like(s, -INFINITY));
  }
  return grouped ? ir::reshape(s, folded) : s;
}

// 0 where v is -inf: rows that may look at nothing then give exp(-inf - 0) = 0 and not NaN.
Value finite_or_zero(const Value& v) {
  return ir::select(ir::compare(v, ir::full_like(v, -INFINITY), "EQ"), ir::zeros_like(v), v);
}

// What dropout multiplies probabilities with: 0 or 1 / (1 - p).
Value dropout_factor(Op& o, const Value& like, const Value& seed, const Value& offset) {
  const Value keep = ir::constant(o.builder(), 1 - o.number("dropout_p"), Type(DType::kF64, {}));
  const Value mask = bernoulli_mask(threefry(seed, offset, like.dims()), keep);
  const double factor = o.number("dropout_p") < 1 ? 1 / (1 - o.number("dropout_p")) : 0;
  return ir::select(mask, ir::full_like(like, factor), ir::zeros_like(like));
}

// output, logsumexp, (cum_seq_q, cum_seq_k), philox_seed, philox_offset, (debug_attn_mask)
Values attention(Op& o) {
  const Value query = o.in("query"), key = o.in("key"), value = o.in("value");
  const int64_t key_heads = key.rank() == 4 ? key.type().bound(1) : 0;
  const Value s = scores(o, query, key, key_heads);
  const Value top = finite_or_zero(max_of_numbers(s, {s.rank() - 1}));
  Value p = ir::exponential(ir::subtract(s, along_rows(top, s)));
  const Value sum = sum_of_rows(p);
  const Type word(DType::kUI64, {});
  Value seed = ir::constant(o.builder(), 0, word), offset = seed;
  if (o.number("dropout_p") > 0) {
    std::tie(seed, offset) = o.context().random_state(s.type().numel());
    p = ir::multiply(p, dropout_factor(o, p, seed, offset));
  }
  const Value weighted = batched(o, ir::convert(p, value.dtype()), value, 1, 0);
  const Value divisor = ir::select(ir::compare(sum, ir::zeros_like(sum), "EQ"), ir::full_like(sum, 1), sum);
  Value out = ir::divide(weighted, along_rows(divisor, weighted));
  Value lse = ir::add(top, ir::log(sum));
  if (query.rank() == 3) lse = ir::unsqueeze(lse, 0);
  if (out.type().bounds() != o.out().bounds()) {
    out = ir::reshape(out, o.out().dims());
    lse = ir::reshape(lse, {query.dim(0), query.dim(1), query.dim(2)});
  }
  return {out, ir::convert(lse, DType::kF32),          {},
          {},  ir::bitcast_convert(seed, DType::kI64), ir::bitcast_convert(offset, DType::kI64),
          {}};
}

// Sums a gradient of the scores down to the shape of the bias that was broadcast to them.
Value sum_to(const Value& grad, const Value& bias) {
  Dims kept, summed;
  const int64_t lead = grad.rank() - bias.rank();
  for (int64_t d = 0; d < grad.rank(); ++d) {
    if (d < lead || (bias.type().bound(d - lead) == 1 && grad.type().bound(d) != 1)) summed.push_back(d);
  }
  if (summed.empty()) return grad;
  const Value sum = ir::reduce(grad, ir::constant(grad.builder(), 0, Type(grad.dtype(), {})), summed, "add");
  return ir::reshape(sum, bias.dims());
}

// grad_query, grad_key, grad_value, grad_attn_bias
Values attention_backward(Op& o) {
  const Value query = o.in("query"), key = o.in("key"), value = o.in("value");
  const int64_t key_heads = key.rank() == 4 ? key.type().bound(1) : 0;
  const Value grad_out = fold_heads(o.in("grad_out"), key_heads), out = fold_heads(o.in("out"), key_heads);
  const Value s = scores(o, query, key, key_heads);
  Dims rows = s.type().bounds();
  rows.pop_back();
  Value lse = o.in("logsumexp");
  if (lse.type().bounds() != rows) lse = ir::reshape(lse, rows);
  const Value p = ir::exponential(ir::subtract(s, along_rows(finite_or_zero(ir::convert(lse, s.dtype())), s)));
  Value dropped = p, grad_p = batched(o, grad_out, value, 1, 1);
  if (o.number("dropout_p") > 0) {
    const auto word = [&](const char* name) { return ir::bitcast_convert(ir::reshape(o.in(name), {}), DType::kUI64); };
    const Value factor = dropout_factor(o, p, word("philox_seed"), word("philox_offset"));
    dropped = ir::multiply(p, factor);
    grad_p = ir::multiply(grad_p, factor);
  }
  const Value inner = sum_of_rows(ir::multiply(ir::convert(grad_out, p.dtype()), ir::convert(out, p.dtype())));
  const Value grad_s = ir::multiply(p, ir::subtract(grad_p, along_rows(inner, p)));
  const Value scaled_s = ir::convert(ir::multiply(grad_s, scale_of(o, query, p.dtype())), query.dtype());
  const Dims wanted = o.ints("grad_input_mask");
  Values results(4);
  if (wanted[0]) {
    const Value grad = batched(o, scaled_s, key, 1, 0);
    results[0] = grad.type().bounds() == query.type().bounds() ? grad : ir::reshape(grad, query.dims());
  }
  if (wanted[1]) results[1] = batched(o, scaled_s, fold_heads(query, key_heads), 0, 0);
  if (wanted[2]) results[2] = batched(o, ir::convert(dropped, grad_out.dtype()), grad_out, 0, 0);
  if (wanted[3] && o.has("attn_bias")) {
    const bool grouped = query.rank() == 4 && query.type().bound(1) != key_heads;
    const Value by_head =
        grouped ? ir::reshape(grad_s, {query.dim(0), query.dim(1), query.dim(2), key.dim(2)}) : grad_s;
    results[3] = sum_to(by_head, o.in("attn_bias"));
  }
  return results;
}

const Row kRows[] = {
    {"_scaled_dot_product_fused_attention_overrideable", attention, {.static_args = {"dropout_p"}, .random = true}},
    {"_scaled_dot_product_fused_attention_overrideable_backward", attention_backward, {.static_args = {"dropout_p"}}},
};

}  // namespace

std::span<const Row> attention_rows() { return kRows; }

}  // namespace tpu::ops
