"""embedding_bag against the CPU."""

import pytest
import torch
import torch.nn.functional as F
from ops.samples import case_id, cases, check


@pytest.mark.parametrize(
    "case", cases("nn.functional.embedding_bag", dtypes=(torch.float32, torch.float64)), ids=case_id
)
def test_samples_as_on_cpu(case):
    check(*case, samples=100)


@pytest.mark.parametrize("mode", ["sum", "mean", "max"])
@pytest.mark.parametrize("padding", [None, 2])
@pytest.mark.parametrize("last", [False, True])
def test_empty_bags_padding_and_gradient(mode, padding, last):
    table = torch.randn(6, 3, generator=torch.Generator().manual_seed(0))
    indices = torch.tensor([0, 2, 2, 5, 0, 1, 2])
    offsets = torch.tensor([0, 3, 3, 6] + ([7] if last else []))
    results = []
    for device in ("cpu", "tpu"):
        weight = table.to(device, copy=True).requires_grad_()
        out = F.embedding_bag(
            indices.to(device), weight, offsets.to(device), mode=mode, padding_idx=padding, include_last_offset=last
        )
        out.mul(torch.arange(1.0, out.numel() + 1, device=device).reshape(out.shape)).sum().backward()
        results.append((out.detach().cpu(), weight.grad.cpu()))
    for want, got in zip(*results, strict=True):
        torch.testing.assert_close(got, want)


def test_gradients_scaled_by_frequency():
    # As of F.embedding: the CPU's own embedding_bag divides by the count of another index.
    table, indices = torch.randn(6, 3, generator=torch.Generator().manual_seed(0)), torch.tensor([0, 2, 2, 5, 0, 1, 2])
    want = table.clone().requires_grad_()
    F.embedding(indices, want, scale_grad_by_freq=True).sum().backward()
    got = table.to("tpu").requires_grad_()
    offsets = torch.tensor([0, 3, 3, 6], device="tpu")
    F.embedding_bag(indices.to("tpu"), got, offsets, mode="sum", scale_grad_by_freq=True).sum().backward()
    torch.testing.assert_close(got.grad.cpu(), want.grad)


def test_wrong_indices_and_offsets_are_errors():
    table = torch.randn(6, 3, device="tpu")
    with pytest.raises(RuntimeError, match="Expected idx >= 0 && idx < num_embeddings but found idx to be 7"):
        F.embedding_bag(torch.tensor([0, 7], device="tpu"), table, torch.tensor([0], device="tpu")).cpu()
    with pytest.raises(RuntimeError, match=r"offsets\[0\] has to be 0"):
        F.embedding_bag(torch.tensor([0, 1], device="tpu"), table, torch.tensor([1], device="tpu")).cpu()
