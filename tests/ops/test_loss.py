"""Losses against the CPU."""

import pytest
import torch
import torch.nn.functional as F
from ops.samples import case_id, cases, check

OPS = [
    "mse_loss",
    "smooth_l1_loss",
    "huber_loss",
    "binary_cross_entropy",
    "binary_cross_entropy_with_logits",
    "nll_loss",
    "cross_entropy",
    "kl_div",
    "l1_loss",
    "soft_margin_loss",
    "poisson_nll_loss",
    "gaussian_nll_loss",
    "hinge_embedding_loss",
    "margin_ranking_loss",
    "triplet_margin_loss",
    "cosine_embedding_loss",
    "multi_margin_loss",
]


@pytest.mark.parametrize("case", cases(*("nn.functional." + name for name in OPS)), ids=case_id)
def test_samples_as_on_cpu(case):
    check(*case)


@pytest.mark.parametrize("reduction", ["none", "mean", "sum"])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("ignore_index", [-100, 2])
def test_nll_loss_and_gradient(reduction, weighted, ignore_index):
    x, target = torch.randn(6, 5, generator=torch.Generator().manual_seed(0)), torch.tensor([0, 3, 2, 4, 2, 1])
    weight = torch.tensor([1.0, 0.5, 2.0, 0.0, -1.0]) if weighted else None
    results = []
    for device in ("cpu", "tpu"):
        a = x.to(device, copy=True).requires_grad_()
        w = weight.to(device) if weighted else None
        loss = F.nll_loss(F.log_softmax(a, 1), target.to(device), w, ignore_index=ignore_index, reduction=reduction)
        loss.sum().backward()
        results.append((loss.detach().cpu(), a.grad.cpu()))
    for got, want in zip(*results[::-1], strict=True):
        torch.testing.assert_close(got, want)


def test_target_out_of_range_is_an_index_error():
    x = torch.randn(3, 5).to("tpu")
    with pytest.raises(IndexError, match="Target 7 is out of bounds"):
        F.nll_loss(x, torch.tensor([0, 7, 1], device="tpu")).item()


def test_probability_out_of_range_is_an_error():
    with pytest.raises(RuntimeError, match="input should be between 0 and 1"):
        F.binary_cross_entropy(torch.tensor([2.0], device="tpu"), torch.tensor([0.0], device="tpu")).item()


def test_nothing_counted_gives_nan():
    x, target = torch.randn(3, 5).to("tpu"), torch.full((3,), -100, device="tpu")
    assert F.cross_entropy(x, target).isnan().item()
    assert F.mse_loss(torch.empty(0, device="tpu"), torch.empty(0, device="tpu")).isnan().item()


@pytest.mark.parametrize("p", [1, 2])
@pytest.mark.parametrize("reduction", ["none", "mean", "sum"])
@pytest.mark.parametrize("weighted", [False, True])
def test_multi_margin_loss_and_gradient(p, reduction, weighted):
    x, target = torch.randn(6, 5, generator=torch.Generator().manual_seed(0)), torch.tensor([0, 3, 2, 4, 2, 1])
    weight = torch.tensor([1.0, 0.5, 2.0, 0.0, -1.0]) if weighted else None
    results = []
    for device in ("cpu", "tpu"):
        a = x.to(device, copy=True).requires_grad_()
        w = weight.to(device) if weighted else None
        loss = F.multi_margin_loss(a, target.to(device), p=p, margin=0.7, weight=w, reduction=reduction)
        loss.mul(torch.arange(1.0, loss.numel() + 1, device=device).reshape(loss.shape)).sum().backward()
        results.append((loss.detach().cpu(), a.grad.cpu()))
    for want, got in zip(*results, strict=True):
        torch.testing.assert_close(got, want)


def test_multi_margin_loss_errors():
    x = torch.randn(3, 5).to("tpu")
    with pytest.raises((RuntimeError, ValueError), match="only p == 1 and p == 2 supported"):
        F.multi_margin_loss(x, torch.tensor([0, 1, 2], device="tpu"), p=3)
    with pytest.raises(RuntimeError, match="target out of range"):
        F.multi_margin_loss(x, torch.tensor([0, 7, 1], device="tpu")).item()
    with pytest.raises(RuntimeError, match=r"target tensor should be 1-D|inconsistent target size"):
        F.multi_margin_loss(x, torch.tensor([0, 1], device="tpu"))
