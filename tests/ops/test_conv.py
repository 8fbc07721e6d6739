"""Convolutions and their gradients against the CPU."""

import pytest
import torch
import torch.nn.functional as F
from ops.samples import case_id, cases, check

NAMES = [f"nn.functional.conv{kind}{rank}d" for kind in ("", "_transpose") for rank in (1, 2, 3)]


@pytest.mark.parametrize("case", cases(*NAMES, dtypes=(torch.float32, torch.int64)), ids=case_id)
def test_samples_as_on_cpu(case):
    check(*case, samples=3)


CONFIGURATIONS = {
    "strided": dict(stride=2, padding=1),
    "dilated": dict(dilation=2, padding=(2, 1)),
    "grouped": dict(groups=2, padding=1),
    "depthwise": dict(groups=4),
}


@pytest.mark.parametrize("name", CONFIGURATIONS)
@pytest.mark.parametrize("transposed", [False, True])
def test_gradients_that_are_asked_for(name, transposed):
    keywords = CONFIGURATIONS[name]
    groups = keywords.get("groups", 1)
    f = F.conv_transpose2d if transposed else F.conv2d
    torch.manual_seed(0)
    shape = (4, 8 // groups) if transposed else (8, 4 // groups)
    data = torch.randn(2, 4, 7, 9), torch.randn(*shape, 3, 2), torch.randn(8)
    for wanted in ((1, 1, 1), (1, 0, 0), (0, 1, 0), (0, 0, 1)):
        found = []
        for device in ("cpu", "tpu"):
            leaves = [t.to(device, copy=True).requires_grad_(bool(w)) for t, w in zip(data, wanted, strict=True)]
            y = f(*leaves, **keywords)
            y.backward(torch.arange(y.numel()).reshape(y.shape).to(y) / y.numel())
            found.append([t.grad for t in leaves])
        for want, got in zip(*found, strict=True):
            assert (want is None) == (got is None)
            if want is not None:
                torch.testing.assert_close(got.cpu(), want, rtol=1e-4, atol=1e-4)


def test_large_output_padding_is_not_part_of_the_gradient():
    torch.manual_seed(0)
    data = torch.randn(2, 2, 4, 4), torch.randn(2, 2, 4, 5)
    found = []
    for device in ("cpu", "tpu"):
        leaves = [t.to(device, copy=True).requires_grad_() for t in data]
        y = F.conv_transpose2d(*leaves, stride=(3, 2), padding=(1, 2), output_padding=(2, 3), groups=2, dilation=4)
        y.square().sum().backward()
        found.append([y.detach(), *(t.grad for t in leaves)])
    for want, got in zip(*found, strict=True):
        torch.testing.assert_close(got.cpu(), want, rtol=1e-4, atol=1e-3)


def test_empty_batch_gives_zero_gradients():
    x = torch.empty(0, 2, 5, 5, device="tpu", requires_grad=True)
    w = torch.ones(3, 2, 3, 3, device="tpu", requires_grad=True)
    b = torch.ones(3, device="tpu", requires_grad=True)
    y = F.conv2d(x, w, b)
    assert y.shape == (0, 3, 3, 3)
    y.sum().backward()
    assert x.grad.shape == x.shape and not w.grad.cpu().any() and not b.grad.cpu().any()


def test_bfloat16_accumulates_in_32():
    x, w = torch.randn(2, 64, 6, 6).bfloat16(), torch.randn(8, 64, 3, 3).bfloat16()
    want = F.conv2d(x.double(), w.double()).bfloat16()
    torch.testing.assert_close(F.conv2d(x.to("tpu"), w.to("tpu")).cpu(), want)
