"""Comparisons, logic and predicates against the CPU."""

import pytest
import torch
from ops.samples import case_id, cases, check, same

OPS = [
    "eq",
    "ne",
    "lt",
    "le",
    "gt",
    "ge",
    "logical_and",
    "logical_or",
    "logical_xor",
    "logical_not",
    "isnan",
    "isinf",
    "isposinf",
    "isneginf",
    "isfinite",
    "isreal",
    "isin",
    "maximum",
    "minimum",
    "fmax",
    "fmin",
    "isclose",
    "allclose",
    "equal",
]
NAN, INF = float("nan"), float("inf")


@pytest.mark.parametrize("case", cases(*(name for name in OPS if name not in ("equal", "allclose"))), ids=case_id)
def test_samples_as_on_cpu(case):
    check(*case, samples=2 if case[1] is torch.float32 else 1)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
def test_nan_equals_nothing_and_wins_a_maximum(dtype):
    values = torch.tensor([NAN, INF, -INF, 0.0, -0.0, 1, -1]).to(dtype)
    a, b = torch.cartesian_prod(values, values).unbind(1)
    for name in [
        "eq",
        "ne",
        "lt",
        "le",
        "gt",
        "ge",
        "maximum",
        "minimum",
        "fmax",
        "fmin",
        "logical_and",
        "logical_xor",
    ]:
        same(getattr(torch, name), a, b)
    for scalar in (0, 1.5, NAN, -INF):
        same(lambda t, s=scalar: t < s, a)
        same(lambda t, s=scalar: t == s, a)


def test_common_dtype_of_a_comparison():
    same(torch.lt, torch.tensor([2**53 + 1, 2**53]), torch.tensor([2**53, 2**53 + 1]))
    same(lambda t: t > 2.5, torch.tensor([2, 3], dtype=torch.int8))
    same(lambda t: t == 255, torch.tensor([1, 255], dtype=torch.uint8))
    same(torch.eq, torch.tensor([1 + 1j, 2.0]), torch.tensor([1.0, 2.0]))
    same(torch.eq, torch.tensor([True, False]), torch.tensor([1, 2]))


def test_isin_of_every_form():
    x = torch.arange(12).view(3, 4)
    same(lambda t, u: torch.isin(t, u), x, torch.tensor([1, 5, 70]))
    same(lambda t, u: torch.isin(t, u, invert=True), x, torch.tensor([[1, 5], [7, 8]]))
    same(lambda t: torch.isin(t, 5), x)
    same(lambda t: torch.isin(5, t), x)
    same(lambda t, u: torch.isin(t, u), x, torch.empty(0, dtype=torch.int64))
