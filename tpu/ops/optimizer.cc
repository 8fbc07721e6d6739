// Fused optimizer steps and gradient scaling: one program for a whole list of parameters.
#include <algorithm>

#include "tpu/ops/rules.h"
#include "tpu/ops/table.h"

namespace tpu::ops {
namespace {

Value number(Op& o, double value, DType dtype) { return ir::constant(o.builder(), value, Type(dtype, {})); }

// Rounded to the dtype of `like`.
Value stored(const Value& v, const Value& like) { return ir::convert(v, like.dtype()); }

bool has_list(Op& o, const char* name) {
  return o.argument(name).kind == Argument::Kind::kTensorList && !o.list(name).empty();
}

// 0-d value of a one-element tensor.
Value single(const Value& v, DType dtype) { return ir::convert(ir::reshape(v, {}), dtype); }

// One parameter's step: what the update reads, in the dtype that it is computed in.
struct Step {
  Op& o;
  DType dtype;  // opmath of the parameter
  Value param, grad;

  Value operator()(const char* name) const { return o.scalar(name, dtype); }
  Value wide(const char* name) const {
    const Argument& a = o.argument(name);
    return a.kind == Argument::Kind::kTensor ? single(a.tensor, DType::kF64) : o.scalar(name, DType::kF64);
  }
  Value narrow(const Value& v) const { return ir::convert(v, dtype); }
  // An f64 number of the update, rounded once.
  Value one_minus(const char* name) const { return narrow(ir::subtract(number(o, 1, DType::kF64), wide(name))); }
  Value load(const Value& v) const { return ir::convert(v, dtype); }
};

// What all fused optimizers share: unscaled gradients are stored back, and nothing changes where
// found_inf is set. update(step, i) returns the new parameter and the new states, in the order of
// `states`.
Values fused(Op& o, const std::vector<const char*>& states, const std::function<Values(Step&, size_t)>& update) {
  const Values params = o.list("self"), grads = o.list("grads");
  std::vector<Values> results(2 + states.size());
  Value skip;
  if (o.has("found_inf")) skip = ir::compare(single(o.in("found_inf"), DType::kF32), number(o, 1, DType::kF32), "EQ");
  const auto keep = [&](const Value& before, const Value& after) {
    const Value v = stored(after, before);
    return skip ? ir::select(skip, before, v) : v;
  };
  for (size_t i = 0; i < params.size(); ++i) {
    const DType dtype = ir::opmath(params[i].dtype());
    Step step{o, dtype, ir::convert(params[i], dtype), ir::convert(grads[i], dtype)};
    if (o.has("grad_scale")) {
      step.grad = ir::divide(step.grad, ir::broadcast_to(single(o.in("grad_scale"), dtype), step.grad));
      results[1].push_back(keep(grads[i], step.grad));
    } else {
      results[1].emplace_back();  // stays as it was
    }
    if (o.flag("maximize")) step.grad = ir::negate(step.grad);
    const Values after = update(step, i);
    results[0].push_back(keep(params[i], after[0]));
    for (size_t k = 0; k < states.size(); ++k) {
      results[2 + k].push_back(keep(o.list(states[k])[i], after[1 + k]));
    }
  }
  Values all;
  for (const Values& r : results) all.insert(all.end(), r.begin(), r.end());
  return all;
}

// 1 - beta^step for every parameter, [parameters] f64: computed at once, since each is only a
// number.
Value bias_corrections(Op& o, const char* beta) {
  Values steps;
  for (const Value& s : o.list("state_steps")) steps.push_back(ir::reshape(ir::convert(s, DType::kF64), {1}));
  const Value all = ir::concatenate(steps, 0);
  const Value base = ir::broadcast_to(o.scalar(beta, DType::kF64), all);
  return ir::subtract(ir::full_like(all, 1), ir::power(base, all));
}

Value element(const Value& v, size_t i) { return ir::reshape(ir::slice_in_dim(v, 0, i, i + 1), {}); }

// bool decoupled: AdamW, whose weight decay shrinks the parameter and not the gradient.
Rule adam(bool decoupled) {
  return [decoupled](Op& o) {
    if (o.list("self").empty()) return Values{};
    const Value correction1 = bias_corrections(o, "beta1"), correction2 = ir::sqrt(bias_corrections(o, "beta2"));
    std::vector<const char*> states = {"exp_avgs", "exp_avg_sqs"};
    const bool amsgrad = o.flag("amsgrad");
    if (has_list(o, "max_exp_avg_sqs")) states.push_back("max_exp_avg_sqs");
    return fused(o, states, [&](Step& s, size_t i) {
      const Value lr = s.wide("lr");
      if (decoupled) {
        const Value shrink = s.narrow(ir::multiply(lr, s.wide("weight_decay")));
        s.param = ir::subtract(s.param, ir::multiply(s.param, shrink));
      } else {
        s.grad = ir::add(s.grad, ir::multiply(s.param, s("weight_decay")));
      }
      Value mean = s.load(o.list("exp_avgs")[i]), square = s.load(o.list("exp_avg_sqs")[i]);
      mean = ir::add(mean, ir::multiply(ir::subtract(s.grad, mean), s.one_minus("beta1")));
      square =
          ir::add(ir::multiply(square, s("beta2")), ir::multiply(ir::multiply(s.grad, s.grad), s.one_minus("beta2")));
      Values after = {Value(), mean, square};
      Value root = square;
      if (states.size() == 3) {
        Value largest = s.load(o.list("max_exp_avg_sqs")[i]);
        if (amsgrad) root = largest = ir::maximum(largest, square);
        after.push_back(largest);
      }
      root = ir::sqrt(root);
      const Value denominator =
          ir::add(ir::divide(root, ir::broadcast_to(s.narrow(element(correction2, i)), root)), s("eps"));
      const Value size = s.narrow(ir::divide(lr, element(correction1, i)));
      after[0] = ir::subtract(s.param, ir::divide(ir::multiply(mean, size), denominator));
      return after;
    });
  };
}

Values sgd(Op& o) {
  std::vector<const char*> states;
  if (has_list(o, "momentum_buffer_list")) states.push_back("momentum_buffer_list");
  return fused(o, states, [&](Step& s, size_t i) {
    s.grad = ir::add(s.grad, ir::multiply(s.param, s("weight_decay")));
    Values after = {Value()};
    if (!states.empty()) {
      Value buffer = s.grad;
      if (!o.flag("is_first_step")) {
        const Value old = s.load(o.list("momentum_buffer_list")[i]);
        buffer = ir::add(ir::multiply(old, s("momentum")), ir::multiply(s.grad, s.one_minus("dampening")));
      }
      after.push_back(buffer);
      s.grad = o.flag("nesterov") ? ir::add(s.grad, ir::multiply(buffer, s("momentum"))) : buffer;
    }
    after[0] = ir::subtract(s.param, ir::multiply(s.grad, s.narrow(s.wide("lr"))));
    return after;
  });
}

Values adagrad(Op& o) {
  Values results = fused(o, {"state_sums"}, [&](Step& s, size_t i) {
    s.grad = ir::add(s.grad, ir::multiply(s.param, s("weight_decay")));
    const Value sum = ir::add(s.load(o.list("state_sums")[i]), ir::multiply(s.grad, s.grad));
    const Value one = number(o, 1, DType::kF64);
    const Value step = ir::subtract(single(o.list("state_steps")[i], DType::kF64), one);
    const Value rate = ir::divide(s.wide("lr"), ir::add(ir::multiply(step, s.wide("lr_decay")), one));
    const Value root = ir::add(ir::sqrt(sum), s("eps"));
    return Values{ir::subtract(s.param, ir::divide(ir::multiply(s.grad, s.narrow(rate)), root)), sum};
  });
  return results;
}

// The schema of the overload with a number for lr says that state_steps is written.
Values adagrad_with_steps(Op& o) {
  Values results = adagrad(o);
  results.resize(results.size() + o.list("state_steps").size());  // which stay as they were
  return results;
}

// Multiplies every gradient by inv_scale; found_inf becomes 1 where a gradient was not finite.
Values unscale(Op& o) {
  Values results;
  const Value none = ir::constant_bool(o.builder(), false, Type(DType::kI1, {}));
  Value found = none;
  for (const Value& g : o.list("self")) {
    const Value grad = ir::convert(g, ir::opmath(g.dtype()));
    Dims all(grad.rank());
    for (int64_t d = 0; d < grad.rank(); ++d) all[d] = d;
    found = ir::or_(found, ir::reduce(ir::not_(ir::is_finite(grad)), none, all, "or"));
    results.push_back(stored(ir::multiply(grad, single(o.in("inv_scale"), grad.dtype())), g));
  }
  const Value before = o.in("found_inf");
  results.push_back(ir::select(found, ir::full_like(before, 1), before));
  return results;
}

// The new scale and the new count of steps without an overflow.
Values update_scale(Op& o) {
  const Value scale = o.in("self"), tracker = o.in("growth_tracker");
  const Value overflow = ir::compare(single(o.in("found_inf"), DType::kF32), number(o, 0, DType::kF32), "NE");
  const auto grown_by = [&](const char* factor) {
    return stored(ir::multiply(ir::convert(scale, DType::kF64), o.scalar(factor, DType::kF64)), scale);
  };
  const Value count = ir::add(tracker, ir::full_like(tracker, 1));
  const Value interval = ir::broadcast_to(o.scalar("growth_interval", tracker.dtype()), tracker);
  const Value due = ir::compare(count, interval, "EQ");
  const Value grown = grown_by("scale_growth_factor");
  const Value grows = ir::and_(ir::reshape(due, scale.dims()), ir::is_finite(grown));
  const Value zero = ir::zeros_like(tracker);
  return {ir::select(overflow, grown_by("scale_backoff_factor"), ir::select(grows, grown, scale)),
          ir::select(overflow, zero, ir::select(due, zero, count))};
}

const Row kRows[] = {
    {"_fused_adam_", adam(false)},
    {"_fused_adam_.tensor_lr", adam(false)},
    {"_fused_adamw_", adam(true)},
    {"_fused_adamw_.tensor_lr", adam(true)},
    {"_fused_sgd_", sgd},
    {"_fused_sgd_.tensor_lr", sgd},
    {"_fused_adagrad_", adagrad_with_steps},
    {"_fused_adagrad_.tensor_lr", adagrad},
    {"_amp_foreach_non_finite_check_and_unscale_", unscale},
    {"_amp_update_scale_", update_scale, {.runtime_args = {"growth_interval"}}},
};

}  // namespace

std::span<const Row> optimizer_rows() { return kRows; }

}  // namespace tpu::ops
