"""Fractional max pooling against the CPU, with given samples."""

import pytest
import torch
import torch.nn.functional as F
from ops.samples import gradients


@pytest.mark.parametrize("rank", [2, 3])
@pytest.mark.parametrize("batched", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_values_places_and_gradient(rank, batched, dtype):
    pool = F.fractional_max_pool2d if rank == 2 else F.fractional_max_pool3d
    generator = torch.Generator().manual_seed(0)
    shape = (*((2,) if batched else ()), 3, *(9, 8, 7)[:rank])
    x = torch.randn(shape, dtype=dtype, generator=generator)
    x[..., 3, 3] = float("nan")
    samples = torch.rand(2 if batched else 1, 3, rank, dtype=dtype, generator=generator)
    results = []
    for device in ("cpu", "tpu"):
        leaf = x.to(device, copy=True).requires_grad_()
        out = pool(leaf, (2, 3, 2)[:rank], output_size=(4, 3, 3)[:rank], return_indices=True,
                   _random_samples=samples.to(device))  # fmt: skip
        results.append([t.detach().cpu() for t in (*out, *gradients(out[0], [leaf]))])
    for want, got in zip(*results, strict=True):
        torch.testing.assert_close(got, want, equal_nan=True)


def test_kernel_that_is_too_large_is_an_error():
    with pytest.raises(RuntimeError, match="too large relative to input"):
        F.fractional_max_pool2d(torch.randn(1, 2, 4, 4, device="tpu"), 5, output_size=2)
