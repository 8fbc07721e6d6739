"""Reductions and scans against the CPU."""

import pytest
import torch
from ops.samples import case_id, cases, check

OPS = [
    "sum",
    "mean",
    "prod",
    "amax",
    "amin",
    "aminmax",
    "argmax",
    "argmin",
    "all",
    "any",
    "var",
    "std",
    "var_mean",
    "std_mean",
    "logsumexp",
    "norm",
    "linalg.vector_norm",
    "nansum",
    "count_nonzero",
    "trace",
    "cumsum",
    "cumprod",
    "logcumsumexp",
    "cummax",
    "cummin",
]
EXTREMA = ("max", "min")
NAN, INF = float("nan"), float("inf")


@pytest.mark.parametrize("case", [c for c in cases(*OPS, *EXTREMA) if c[0].variant_test_name != "nuc"], ids=case_id)
def test_samples_as_on_cpu(case):
    # The gradient of logcumsumexp takes logarithms of differences: ill-conditioned on any device.
    check(*case, grad=case[0].name != "logcumsumexp")


def same(function, *inputs):
    got, want = function(*(t.to("tpu") for t in inputs)), function(*inputs)
    for g, w in zip(*(r if isinstance(r, tuple) else (r,) for r in (got, want)), strict=True):
        assert g.dtype == w.dtype
        torch.testing.assert_close(g.cpu(), w, equal_nan=True)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
@pytest.mark.parametrize("name", ["max", "min", "cummax", "cummin"])
def test_extrema_keep_nan_and_break_ties(name, dtype):
    x = torch.tensor([[1.0, NAN, 3.0, NAN], [2.0, 5.0, 5.0, -1.0], [-INF, INF, 0.0, -0.0]], dtype=dtype)
    for dim in (0, 1):
        same(lambda t, d=dim: getattr(t, name)(d), x)


@pytest.mark.parametrize("name", ["argmax", "argmin"])
def test_position_of_the_first_nan_or_tie(name):
    x = torch.tensor([[1.0, NAN, 3.0, NAN], [5.0, 5.0, 2.0, 2.0]])
    same(lambda t: getattr(t, name)(1), x)
    same(lambda t: getattr(t, name)(), x)
    same(lambda t: getattr(t, name)(None, True), x)


def test_empty_dimensions_give_the_identity():
    x = torch.empty(2, 0)
    for name in ("sum", "prod", "mean", "nansum", "all", "any"):
        same(lambda t, n=name: getattr(t, n)(1) if n != "prod" else t.prod(1), x)
    same(lambda t: t.amax(0), torch.empty(3, 0, 4))
    with pytest.raises(RuntimeError, match="Expected reduction dim"):
        x.to("tpu").max()


def test_bf16_sums_accumulate_in_f32():
    x = torch.full((4096,), 1.0, dtype=torch.bfloat16)
    assert x.to("tpu").sum().item() == 4096
    assert x.to("tpu").cumsum(0)[-1].item() == 4096


def test_integer_sums_are_64_bits():
    x = torch.tensor([2**62, 2**62 - 1, -5])
    same(torch.sum, x)
    same(torch.sum, torch.full((300,), 255, dtype=torch.uint8))


@pytest.mark.parametrize("n", [16, 17, 255, 1000, 5000])
def test_scans_longer_than_a_block(n):
    x = torch.randint(-9, 9, (3, n))
    same(lambda t: t.cumsum(1), x)
    same(lambda t: t.cummax(1), x)
    same(lambda t: t.cumsum(0), x.t())


def test_variance_of_large_offsets():
    x = torch.randn(1000) + 1e4
    same(lambda t: torch.var_mean(t), x)
    same(lambda t: torch.std(t, correction=0), x)
