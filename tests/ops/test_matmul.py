"""Matrix products against the CPU."""

import pytest
import torch
from ops.samples import case_id, cases, check

OPS = [
    "mm",
    "bmm",
    "addmm",
    "baddbmm",
    "addbmm",
    "addmv",
    "mv",
    "dot",
    "vdot",
    "addr",
    "matmul",
    "nn.functional.linear",
    "einsum",
    "inner",
]
DTYPES = (torch.float32, torch.int64, torch.complex64, torch.uint8)


@pytest.mark.parametrize("case", cases(*OPS, dtypes=DTYPES), ids=case_id)
def test_samples_as_on_cpu(case):
    check(*case)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_16_bit_products_accumulate_in_32(dtype):
    a, b = torch.randn(8, 200).to(dtype), torch.randn(200, 8).to(dtype)
    want = (a.double() @ b.double()).to(dtype)
    torch.testing.assert_close((a.to("tpu") @ b.to("tpu")).cpu(), want)
    bias = torch.randn(8).to(dtype)
    want = (bias.double() * 0.5 + 2 * (a.double() @ b.double())).to(dtype)
    torch.testing.assert_close(torch.addmm(bias.to("tpu"), a.to("tpu"), b.to("tpu"), beta=0.5, alpha=2).cpu(), want)


def test_beta_of_zero_ignores_nan():
    nan = torch.full((2, 2), float("nan"), device="tpu")
    a = torch.ones(2, 3, device="tpu")
    assert torch.equal(torch.addmm(nan, a, a.T, beta=0).cpu(), torch.full((2, 2), 3.0))
    assert torch.equal(torch.addmv(nan[0], a, a[0], beta=0).cpu(), torch.full((2,), 3.0))


def test_products_of_64_bit_integers_wrap():
    a = torch.tensor([[2**62 + 1, -3], [5, 2**61]])
    assert torch.equal((a.to("tpu") @ a.to("tpu")).cpu(), a @ a)


@pytest.mark.parametrize("shape", [(0, 3, 2), (3, 0, 2), (3, 2, 0)])
def test_empty_products(shape):
    n, k, m = shape
    got = torch.zeros(n, k, device="tpu") @ torch.zeros(k, m, device="tpu")
    assert torch.equal(got.cpu(), torch.zeros(n, m))


def test_grouped_mm_keeps_groups_apart():
    offs = torch.tensor([0, 5, 5, 16], dtype=torch.int32)
    a, b = torch.randn(16, 32).bfloat16(), torch.randn(4, 32, 8).bfloat16()
    b[0] = float("nan")  # no row is of group 0
    want, start = torch.zeros(16, 8), 0
    for group, end in enumerate(offs.tolist()):
        want[start:end] = a[start:end].float() @ b[group].float()
        start = end
    got = torch._grouped_mm(a.to("tpu"), b.to("tpu"), offs=offs.to("tpu"))
    torch.testing.assert_close(got.cpu(), want.bfloat16())
