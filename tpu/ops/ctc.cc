// Connectionist temporal classification: the loss of a sequence whose alignment is not known, and its gradient
// (Graves et al. 2006). Lengths are operands, so that programs serve all of them. Sums of probabilities are kept as
// logarithms; one loop step is one time step of all sequences.
#include <algorithm>
#include <limits>

#include "tpu/ops/indexing.h"
#include "tpu/ops/matrix.h"
#include "tpu/ops/reduction.h"
#include "tpu/ops/rules.h"
#include "tpu/ops/table.h"

namespace tpu::ops {
namespace {

// Labels with blanks between them and around: position s of a target of length n is blank where s is even, and there
// are 2 n + 1 positions. All of [batch, positions] unless said otherwise.
struct Problem {
  int64_t time, batch, classes, positions;
  Value log_probs;       // [time, batch, classes]
  Value labels;          // i32: the class at each position
  Value may_skip;        // i1: a label that differs from the label before it can follow that directly
  Value is_position;     // i1: within the target
  Value at;              // i32: the position's number
  Value lengths;         // i32 [batch]: time steps
  Value target_lengths;  // i32 [batch]
};

Value shifted(const Value& v, int64_t by, const Value& fill) {
  const int64_t n = v.dim(1);
  if (by >= n || -by >= n) return ir::broadcast_to(fill, v.dims());
  const Value part = by > 0 ? ir::slice_in_dim(v, 1, 0, n - by) : ir::slice_in_dim(v, 1, -by, n);
  return ir::pad(part, fill, {0, std::max<int64_t>(by, 0)}, {0, std::max<int64_t>(-by, 0)}, {0, 0});
}

Problem setup(Op& o, DType dtype) {
  Problem p;
  p.log_probs = ir::convert(o.in("log_probs"), dtype);
  p.time = p.log_probs.dim(0), p.batch = p.log_probs.dim(1), p.classes = p.log_probs.dim(2);
  const Value targets = o.in("targets");
  // Joined targets are not longer than all of them.
  const int64_t most = targets.dim(targets.rank() - 1);
  p.positions = 2 * most + 1;
  p.lengths = ir::convert(o.in("input_lengths"), DType::kI32);
  p.target_lengths = ir::convert(o.in("target_lengths"), DType::kI32);
  const Type type(DType::kI32, {p.batch, p.positions});
  p.at = ir::iota(o.builder(), type, 1);
  const Value ends = ir::broadcast_in_dim(ir::add(p.target_lengths, p.target_lengths), type, {0});
  p.is_position = ir::compare(p.at, ends, "LE");
  const Value blanks = ir::constant(o.builder(), o.integer("blank"), type);
  p.labels = blanks;
  const Value one = ir::full_like(p.at, 1);
  const Value is_label = ir::compare(ir::and_(p.at, one), one, "EQ");
  if (most > 0) {
    const Value order = ir::shift_right_logical(p.at, one);
    const Value inside = ir::and_(p.is_position, is_label);
    Value found;
    if (targets.rank() == 1) {
      const Value before = ir::subtract(cumulative_sum(p.target_lengths, 0), p.target_lengths);
      const Value start = ir::broadcast_in_dim(before, type, {0});
      const Value place = ir::select(inside, ir::add(start, order), ir::zeros_like(start));
      found = take_slices(targets, 0, place);
    } else {
      found = take_elements(targets, 1, ir::minimum(order, ir::full_like(order, targets.dim(1) - 1)));
    }
    p.labels = ir::select(inside, ir::convert(found, DType::kI32), blanks);
  }
  const Value other = ir::constant(o.builder(), -1, Type(DType::kI32, {}));
  p.may_skip = ir::and_(is_label, ir::compare(p.labels, shifted(p.labels, 2, other), "NE"));
  return p;
}

// log(exp(a) + exp(b) + ...); all -inf gives -inf.
Value log_sum(const Values& terms) {
  Value top = terms[0];
  for (const Value& v : terms) top = ir::maximum(top, v);
  const Value zero = ir::zeros_like(top);
  const Value shift = ir::select(ir::is_finite(top), top, zero);
  Value sum = zero;
  for (const Value& v : terms) sum = ir::add(sum, ir::exponential(ir::subtract(v, shift)));
  return ir::add(ir::log(sum), shift);
}

Value minus_infinity(const Problem& p) { return ir::lowest(p.log_probs.builder(), Type(p.log_probs.dtype(), {})); }

// log_probs of step t at each position's label, [batch, positions].
Value emissions(const Problem& p, const Value& t) {
  const Value zero = int_scalar(t.builder(), 0);
  const Value step =
      ir::reshape(ir::dynamic_slice(p.log_probs, {t, zero, zero}, {1, p.batch, p.classes}), {p.batch, p.classes});
  return take_elements(step, 1, p.labels);
}

Value put_step(const Value& all, const Value& t, const Value& step) {
  const Value zero = int_scalar(t.builder(), 0);
  return ir::dynamic_update_slice(all, ir::reshape(step, {1, step.dim(0), step.dim(1)}), {t, zero, zero});
}

Value per_row(const Value& v, const Value& like) { return ir::broadcast_in_dim(v, Type(v.dtype(), like.dims()), {0}); }

// log of the probability of all beginnings that are at a position at a time, [time, batch, positions].
Value forward_variables(const Problem& p) {
  const Value none = ir::broadcast_to(minus_infinity(p), p.at.dims());
  const Value all = ir::constant(p.at.builder(), 0, Type(p.log_probs.dtype(), {p.time, p.batch, p.positions}));
  const Value start = ir::and_(p.is_position, ir::compare(p.at, ir::full_like(p.at, 2), "LT"));
  const Values out = for_loop(p.time, {all, none}, [&](const Value& t, const Values& s) {
    const Value low = minus_infinity(p), now = emissions(p, t);
    const Value skip = ir::select(p.may_skip, shifted(s[1], 2, low), none);
    const Value grown = ir::add(log_sum({s[1], shifted(s[1], 1, low), skip}), now);
    const Value is_first = ir::broadcast_to(ir::compare(t, int_scalar(t.builder(), 0), "EQ"), p.at.dims());
    const Value step = ir::select(is_first, ir::select(start, now, none), grown);
    const Value counts = ir::and_(p.is_position, per_row(ir::compare(p.lengths, t, "GT"), p.at));
    const Value kept = ir::select(counts, step, none);
    return Values{put_step(s[0], t, kept), kept};
  });
  return out[0];
}

// neg_log_likelihood, log_alpha [batch, time, positions]
Values ctc_loss(Op& o) {
  const Problem p = setup(o, o.compute_dtype());
  const Value alpha = forward_variables(p);
  const Value by_row = ir::transpose(alpha, {1, 0, 2});
  const Value time = ir::iota(o.builder(), Type(DType::kI32, by_row.dims()), 1);
  const Value position = ir::iota(o.builder(), Type(DType::kI32, by_row.dims()), 2);
  const auto wide = [&](const Value& v) { return ir::broadcast_in_dim(v, Type(v.dtype(), by_row.dims()), {0}); };
  const Value last = wide(ir::subtract(p.lengths, ir::full_like(p.lengths, 1)));
  const Value end = wide(ir::add(p.target_lengths, p.target_lengths));
  const Value is_end =
      ir::or_(ir::compare(position, end, "EQ"), ir::compare(position, ir::subtract(end, ir::full_like(end, 1)), "EQ"));
  const Value counts = ir::and_(ir::compare(time, last, "EQ"), is_end);
  const Value low = ir::broadcast_to(minus_infinity(p), by_row.dims());
  const Value likelihood = logsumexp_over(ir::select(counts, by_row, low), {1, 2});
  Value loss = ir::negate(likelihood);
  // Without time steps only the empty target has a chance.
  const Value zero = ir::zeros_like(p.lengths);
  const Value is_sure = ir::and_(ir::compare(p.lengths, zero, "EQ"), ir::compare(p.target_lengths, zero, "EQ"));
  loss = ir::select(is_sure, ir::zeros_like(loss), loss);
  return {loss, by_row};
}

Value ctc_loss_backward(Op& o) {
  const DType dtype = o.compute_dtype();
  const Problem p = setup(o, dtype);
  const Value alpha = ir::transpose(ir::convert(o.in("log_alpha"), dtype), {1, 0, 2});
  const Value loss = ir::convert(o.in("neg_log_likelihood"), dtype), grad = ir::convert(o.in("grad"), dtype);
  const Value low = minus_infinity(p), none = ir::broadcast_to(low, p.at.dims());
  const Value end = per_row(ir::add(p.target_lengths, p.target_lengths), p.at);
  const Value is_end =
      ir::or_(ir::compare(p.at, end, "EQ"), ir::compare(p.at, ir::subtract(end, ir::full_like(end, 1)), "EQ"));
  const Value skip_from =
      ir::convert(shifted(ir::convert(p.may_skip, DType::kI32), -2, int_scalar(o.builder(), 0)), DType::kI1);
  const Value init = ir::zeros_like(p.log_probs);
  const Values out = for_loop(p.time, {init, none}, [&](const Value& i, const Values& s) {
    const Value t = ir::subtract(int_scalar(i.builder(), p.time - 1), i), now = emissions(p, t);
    const Value skip = ir::select(skip_from, shifted(s[1], -2, low), none);
    const Value grown = ir::add(log_sum({s[1], shifted(s[1], -1, low), skip}), now);
    const Value next = ir::add(t, int_scalar(t.builder(), 1));
    const Value is_last = per_row(ir::compare(p.lengths, next, "EQ"), p.at);
    const Value is_within = per_row(ir::compare(p.lengths, t, "GT"), p.at);
    const Value step = ir::select(is_last, ir::select(is_end, now, none), grown);
    const Value beta = ir::select(ir::and_(is_within, p.is_position), step, none);
    // How probable each position is at this time, given the target; both variables hold the step's own probability.
    const Value zero = int_scalar(t.builder(), 0);
    const Value a = ir::reshape(ir::dynamic_slice(alpha, {t, zero, zero}, {1, p.batch, p.positions}), p.at.dims());
    const Value both = ir::add(a, beta);
    const Value is_reached = ir::compare(both, none, "GT");
    const Value log = ir::add(ir::subtract(both, now), per_row(loss, p.at));
    const Value posterior = ir::select(is_reached, ir::exponential(log), ir::zeros_like(log));
    const Value classes = ir::constant(t.builder(), 0, Type(dtype, {p.batch, p.classes}));
    const Value by_class = put_elements(classes, 1, p.labels, posterior,
                                        [](const Value& old, const Value& update) { return ir::add(old, update); });
    const Value probability = ir::exponential(
        ir::reshape(ir::dynamic_slice(p.log_probs, {t, zero, zero}, {1, p.batch, p.classes}), {p.batch, p.classes}));
    const Value slope = ir::multiply(ir::subtract(probability, by_class), per_row(grad, by_class));
    const Value counts = per_row(ir::compare(p.lengths, t, "GT"), slope);
    return Values{put_step(s[0], t, ir::select(counts, slope, ir::zeros_like(slope))), beta};
  });
  // An impossible target has no slope: NaN in all of its steps, as on the CPU, or zero where that is asked for.
  const Value lost = ir::compare(loss, ir::highest(o.builder(), Type(dtype, {})), "EQ");
  const Type full(DType::kI1, out[0].dims());
  const Value time = ir::iota(o.builder(), Type(DType::kI32, full.dims()), 0);
  const Value steps = ir::broadcast_in_dim(p.lengths, Type(DType::kI32, full.dims()), {1});
  const Value everywhere = ir::and_(ir::broadcast_in_dim(lost, full, {1}), ir::compare(time, steps, "LT"));
  const double value = o.flag("zero_infinity") ? 0 : std::numeric_limits<double>::quiet_NaN();
  return ir::select(everywhere, ir::full_like(out[0], value), out[0]);
}

std::vector<Type> loss_types(Op& o) {
  const Type probs = o.in("log_probs").type();
  const int64_t positions = 2 * o.in("targets").dim(o.in("targets").rank() - 1) + 1;
  return {Type(probs.dtype(), {probs.dim(1)}), Type(probs.dtype(), {probs.dim(1), probs.dim(0), positions})};
}

std::vector<Type> like_log_probs(Op& o) { return {o.in("log_probs").type()}; }

const Row kRows[] = {
    {"_ctc_loss.Tensor", ctc_loss, {.types = loss_types}},
    {"_ctc_loss_backward.Tensor", ctc_loss_backward, {.types = like_log_probs}},
};

}  // namespace

std::span<const Row> ctc_rows() { return kRows; }

}  // namespace tpu::ops
