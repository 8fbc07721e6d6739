"""Sorting against the CPU: NaN last, equal elements in their order."""

import pytest
import torch
from ops.samples import case_id, cases, check

NAN, INF = float("nan"), float("inf")
OPS = ["sort", "msort", "topk", "kthvalue", "median", "nanmedian", "mode"]


@pytest.mark.parametrize("case", cases(*OPS), ids=case_id)
def test_samples_as_on_cpu(case):
    check(*case, skip=(1,))


ROWS = {
    "bool": torch.tensor([True, False, True, False, True]),
    "nan": torch.tensor([1.0, NAN, 2.0, -NAN, INF, -INF]),
    "f64": torch.tensor([1.0, NAN, 2.0, NAN, 1.0], dtype=torch.float64),
    "zeros": torch.tensor([0.0, -0.0, 0.0, -0.0, 1e-40, -1e-40]),
    "int32 ends": torch.tensor([1, 2**31 - 1, 2, 2**31 - 1, -(2**31)], dtype=torch.int32),
    "int64 ends": torch.tensor([2**63 - 1, -(2**63), 0, 2**63 - 1, -1]),
    "uint8": torch.tensor([255, 0, 255, 128, 1, 255, 7], dtype=torch.uint8),
    "bf16 ties": torch.arange(37).remainder(5).to(torch.bfloat16),
    "long ties": torch.arange(1000).remainder(3),
}


@pytest.mark.parametrize("descending", [False, True])
@pytest.mark.parametrize("name", ROWS)
def test_stable_sort(name, descending):
    row = ROWS[name]
    got = row.to("tpu").sort(stable=True, descending=descending)
    want = row.sort(stable=True, descending=descending)
    torch.testing.assert_close(got.values.cpu(), want.values, rtol=0, atol=0, equal_nan=True)
    assert torch.equal(got.indices.cpu(), want.indices)
    if row.is_floating_point():
        assert torch.equal(got.values.cpu().signbit() & (want.values == 0), want.values.signbit() & (want.values == 0))


@pytest.mark.parametrize("largest", [False, True])
@pytest.mark.parametrize("name", [n for n in ROWS if n != "bool"])
def test_topk_values_and_their_places(name, largest):
    row = ROWS[name]
    got = row.to("tpu").topk(3, largest=largest)
    assert torch.equal(got.values.cpu().nan_to_num(99), row.topk(3, largest=largest).values.nan_to_num(99))
    assert torch.equal(row[got.indices.cpu()].nan_to_num(99), got.values.cpu().nan_to_num(99))


def test_topk_along_another_dimension():
    x = torch.randn(4, 7, 3, generator=torch.Generator().manual_seed(0))
    for dim in (0, 1, 2):
        got, want = x.to("tpu").topk(2, dim), x.topk(2, dim)
        assert torch.equal(got.values.cpu(), want.values) and torch.equal(got.indices.cpu(), want.indices)


def test_median_and_mode_places():
    x = torch.tensor([[3.0, 1, NAN, 2, NAN], [5, 4, 3, 2, 1]])
    for name in ("median", "nanmedian"):
        got, want = getattr(x.to("tpu"), name)(1), getattr(x, name)(1)
        torch.testing.assert_close(got.values.cpu(), want.values, equal_nan=True)
        assert torch.equal(got.indices.cpu(), want.indices)
    rows = torch.tensor([[2, 2, 1, 1, 0], [3, 3, 3, 1, 1]])
    got, want = rows.to("tpu").mode(1), rows.mode(1)
    assert torch.equal(got.values.cpu(), want.values) and torch.equal(got.indices.cpu(), want.indices)
