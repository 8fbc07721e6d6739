"""Pooling against the CPU."""

import pytest
import torch
import torch.nn.functional as F
from ops.samples import case_id, cases, check

NAMES = [
    f"nn.functional.{prefix}_pool{rank}d"
    for prefix in ("max", "avg", "adaptive_avg", "adaptive_max")
    for rank in (1, 2, 3)
]


# CPU rounds the averages of bfloat16 on the way.
@pytest.mark.parametrize("case", cases(*NAMES, dtypes=(torch.float32, torch.int64)), ids=case_id)
def test_samples_as_on_cpu(case):
    check(*case, samples=3)


POOLS = {
    "max": lambda x: F.max_pool2d(x, 3, 2, 1, return_indices=True),
    "max ceil": lambda x: F.max_pool2d(x, 3, 2, 1, ceil_mode=True, return_indices=True),
    "max dilated": lambda x: F.max_pool2d(x, (3, 2), 1, 1, dilation=2, return_indices=True),
    "max3d": lambda x: F.max_pool3d(x, 2, 1, 1, return_indices=True),
    "adaptive max": lambda x: F.adaptive_max_pool2d(x, (4, 5), return_indices=True),
    "adaptive max, more than there is": lambda x: F.adaptive_max_pool2d(x, (12, 13), return_indices=True),
    "avg": lambda x: (F.avg_pool2d(x, 3, 2, 1, ceil_mode=True, count_include_pad=False),),
    "avg divisor": lambda x: (F.avg_pool2d(x, 3, 2, 1, ceil_mode=True, divisor_override=5),),
    "adaptive avg": lambda x: (F.adaptive_avg_pool2d(x, (4, 5)),),
}


@pytest.mark.parametrize("name", POOLS)
@pytest.mark.parametrize("content", ["ties", "nan", "nan and -inf"])
def test_nan_ties_and_indices_as_on_cpu(name, content):
    g = torch.Generator().manual_seed(0)
    x = torch.randint(-2, 3, (2, 3, 9, 11), generator=g).float()
    if "nan" in content:
        x[torch.rand(x.shape, generator=g) < 0.2] = float("nan")
    if "inf" in content:
        x[torch.rand(x.shape, generator=g) < 0.6] = float("-inf")
    for got, want in zip(POOLS[name](x.to("tpu")), POOLS[name](x), strict=True):
        assert got.dtype == want.dtype
        torch.testing.assert_close(got.cpu(), want, equal_nan=True)


@pytest.mark.parametrize("name", [name for name in POOLS if name != "max3d"])
def test_empty_batch(name):
    x = torch.empty(0, 3, 9, 11, device="tpu", requires_grad=True)
    y = POOLS[name](x)[0]
    assert y.shape == POOLS[name](torch.empty(0, 3, 9, 11))[0].shape
    y.sum().backward()
    assert x.grad.shape == x.shape
