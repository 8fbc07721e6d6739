// CTC loss with lengths as numbers of the host: checked here, then given to the row as tensors, so that other lengths
// are no other program.
#include <ATen/TensorUtils.h>
#include <ATen/ops/_ctc_loss.h>
#include <ATen/ops/_ctc_loss_backward.h>
#include <ATen/ops/index_select.h>
#include <ATen/ops/tensor.h>
#include <torch/library.h>

#include <algorithm>

namespace tpu {
namespace {

struct Lengths {
  at::Tensor targets, input, target;  // targets [batch, longest]
};

Lengths prepare(const at::Tensor& log_probs, const at::Tensor& targets, at::IntArrayRef input, at::IntArrayRef target,
                int64_t blank) {
  const at::CheckedFrom c = "ctc_loss_allocate_outputs";
  const at::TensorArg targets_arg{targets, "targets", 2};
  at::checkScalarTypes(c, targets_arg, {at::kLong, at::kInt});
  at::checkDim(c, at::TensorArg{log_probs, "log_probs", 1}, 3);
  at::checkDimRange(c, targets_arg, 1, 3);
  TORCH_CHECK(log_probs.numel() > 0, "log_probs tensor must not be empty");
  const int64_t time = log_probs.size(0), batch = log_probs.size(1), classes = log_probs.size(2);
  TORCH_CHECK(blank >= 0 && blank < classes, "blank must be in label range");
  TORCH_CHECK(static_cast<int64_t>(input.size()) == batch, "input_lengths must be of size batch_size");
  TORCH_CHECK(static_cast<int64_t>(target.size()) == batch, "target_lengths must be of size batch_size");
  int64_t longest = 0, sum = 0;
  std::vector<int64_t> starts;
  for (int64_t b = 0; b < batch; ++b) {
    TORCH_CHECK(target[b] >= 0, "Expected target_lengths to have value at least 0, but got value ", target[b],
                " (while checking arguments for ", c, ")");
    TORCH_CHECK(input[b] >= 0, "Expected input_lengths to have value at least 0, but got value ", input[b],
                " (while checking arguments for ", c, ")");
    TORCH_CHECK(input[b] <= time, "Expected input_lengths to have value at most ", time, ", but got value ", input[b],
                " (while checking arguments for ", c, ")");
    starts.push_back(sum);
    longest = std::max(longest, target[b]);
    sum += target[b];
  }
  at::Tensor padded = targets;
  if (targets.dim() == 1) {
    at::checkSize(c, targets_arg, 0, sum);
    std::vector<int64_t> places;
    for (int64_t b = 0; b < batch; ++b) {
      // What is beyond the length is not looked at.
      for (int64_t i = 0; i < longest; ++i) places.push_back(std::min(starts[b] + i, sum - 1));
    }
    padded = targets.index_select(0, at::tensor(places, at::kLong).to(targets.device())).reshape({batch, longest});
  } else {
    at::checkSize(c, targets_arg, 0, batch);
    TORCH_CHECK(targets.size(1) >= longest, "Expected tensor to have size at least ", longest,
                " at dimension 1, but got size ", targets.size(1),
                " for argument #2 'targets' (while checking arguments for ", c, ")");
    padded = targets.slice(1, 0, longest);
  }
  const auto on_device = [&](at::IntArrayRef v) { return at::tensor(v, at::kLong).to(targets.device()); };
  return {padded, on_device(input), on_device(target)};
}

std::tuple<at::Tensor, at::Tensor> ctc_loss(const at::Tensor& log_probs, const at::Tensor& targets,
                                            at::IntArrayRef input, at::IntArrayRef target, int64_t blank,
                                            bool zero_infinity) {
  const Lengths l = prepare(log_probs, targets, input, target, blank);
  return at::_ctc_loss(log_probs, l.targets, l.input, l.target, blank, zero_infinity);
}

at::Tensor ctc_loss_backward(const at::Tensor& grad, const at::Tensor& log_probs, const at::Tensor& targets,
                             at::IntArrayRef input, at::IntArrayRef target, const at::Tensor& neg_log_likelihood,
                             const at::Tensor& log_alpha, int64_t blank, bool zero_infinity) {
  const Lengths l = prepare(log_probs, targets, input, target, blank);
  return at::_ctc_loss_backward(grad, log_probs, l.targets, l.input, l.target, neg_log_likelihood, log_alpha, blank,
                                zero_infinity);
}

}  // namespace

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("_ctc_loss", TORCH_FN(ctc_loss));
  m.impl("_ctc_loss_backward", TORCH_FN(ctc_loss_backward));
}

}  // namespace tpu
