"""CTC loss against the CPU."""

import pytest
import torch
import torch.nn.functional as F
from ops.samples import case_id, cases, check


@pytest.mark.parametrize("case", cases("nn.functional.ctc_loss", dtypes=(torch.float32, torch.float64)), ids=case_id)
def test_samples_as_on_cpu(case):
    # Sums over all alignments in single precision: only the loss itself is as exact as elsewhere.
    check(*case, samples=20, grad_dtypes=(torch.float64,))


@pytest.mark.parametrize("form", ["padded", "joined"])
@pytest.mark.parametrize("zero_infinity", [False, True])
@pytest.mark.parametrize("blank", [0, 4])
def test_lengths_repeats_and_impossible_targets(form, zero_infinity, blank):
    scores = torch.randn(7, 4, 5, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    targets = torch.tensor([[1, 1, 2], [3, 2, 0], [1, 1, 1], [2, 0, 0]])
    targets = targets if blank == 0 else torch.where(targets == 0, 3, targets)
    lengths, target_lengths = [7, 5, 4, 6], [3, 2, 3, 0]  # 1 1 1 needs five steps
    if form == "joined":
        targets = torch.cat([t[:n] for t, n in zip(targets, target_lengths, strict=True)])
    results = []
    for device in ("cpu", "tpu"):
        x = scores.to(device, copy=True).requires_grad_()
        loss = F.ctc_loss(x.log_softmax(2), targets.to(device), lengths, target_lengths, blank=blank,
                          reduction="none", zero_infinity=zero_infinity)  # fmt: skip
        loss.mul(torch.arange(1, 5, device=device, dtype=x.dtype)).sum().backward()
        results.append((loss.detach().cpu(), x.grad.cpu()))
    for want, got in zip(*results, strict=True):
        torch.testing.assert_close(got, want, equal_nan=True)


def test_wrong_lengths_are_errors():
    x, targets = torch.randn(7, 2, 5).log_softmax(2).to("tpu"), torch.tensor([[1, 2], [3, 1]], device="tpu")
    with pytest.raises(RuntimeError, match="Expected input_lengths to have value at most 7, but got value 8"):
        F.ctc_loss(x, targets, [7, 8], [2, 2])
    with pytest.raises(RuntimeError, match="blank must be in label range"):
        F.ctc_loss(x, targets, [7, 7], [2, 2], blank=9)
