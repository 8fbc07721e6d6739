"""grid_sample against the CPU: every mode, with gradients."""

import pytest
import torch
import torch.nn.functional as F
from ops.samples import case_id, cases, check

OPS = ["nn.functional.grid_sample", "grid_sampler_2d", "grid_sampler_3d"]


@pytest.mark.parametrize("case", cases(*OPS, dtypes=(torch.float32, torch.float64)), ids=case_id)
def test_samples_as_on_cpu(case):
    # The grid's gradient is a difference of neighbours times their number: single precision rounds it elsewhere.
    check(*case, samples=30, grad_dtypes=(torch.float64,))


@pytest.mark.parametrize("mode", ["bilinear", "nearest", "bicubic"])
@pytest.mark.parametrize("padding", ["zeros", "border", "reflection"])
@pytest.mark.parametrize("corners", [False, True])
@pytest.mark.parametrize("rank", [2, 3])
def test_places_inside_and_far_outside(mode, padding, corners, rank):
    if mode == "bicubic" and rank == 3:
        pytest.skip("PyTorch has none")
    generator = torch.Generator().manual_seed(0)
    image = torch.randn(2, 3, *(5, 4, 3)[:rank], dtype=torch.float64, generator=generator)
    grid = 4 * torch.rand(2, *(4, 6, 2)[:rank], rank, dtype=torch.float64, generator=generator) - 2
    results = []
    for device in ("cpu", "tpu"):
        x, g = (t.to(device, copy=True).requires_grad_() for t in (image, grid))
        y = F.grid_sample(x, g, mode=mode, padding_mode=padding, align_corners=corners)
        y.mul(torch.arange(1, y.numel() + 1, device=device, dtype=y.dtype).reshape(y.shape)).sum().backward()
        results.append([t.cpu() for t in (y.detach(), x.grad, g.grad)])
    for want, got in zip(*results, strict=True):
        torch.testing.assert_close(got, want)
