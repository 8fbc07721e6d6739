"""Padding and sliding windows against the CPU."""

import pytest
import torch
from ops.samples import case_id, cases, check, same

MODES = ("constant", "reflect", "replicate", "circular")


@pytest.mark.parametrize("case", cases("nn.functional.pad", "nn.functional.unfold", "unfold"), ids=case_id)
def test_samples_as_on_cpu(case):
    check(*case, samples=6 if case[1] is torch.float32 else 1)


def gradient(function):
    def run(x):
        x = x.clone().requires_grad_()
        y = function(x)
        weight = torch.linspace(0.5, 1.5, y.numel()).reshape(y.shape).to(y)
        return y.detach(), torch.autograd.grad((y * weight).sum(), x)[0]

    return run


@pytest.mark.parametrize("mode", MODES)
def test_every_mode_forward_and_backward(mode):
    for rank, pad in ((3, (2, 1)), (4, (2, 1, 0, 3)), (5, (1, 2, 2, 1, 1, 1)), (4, (3, 3, 3, 3))):
        x = torch.rand(2, 3, *[5, 4, 6][: rank - 2])
        same(gradient(lambda t, pad=pad: torch.nn.functional.pad(t, pad, mode=mode)), x)


def test_negative_padding_cuts():
    x = torch.rand(2, 3, 7, 8)
    for mode in ("constant", "reflect", "replicate"):
        for pad in ((-1, 2, 1, -3), (-2, -2, 0, 0)):
            same(gradient(lambda t, pad=pad, mode=mode: torch.nn.functional.pad(t, pad, mode=mode)), x)


def test_constants_of_every_dtype():
    for dtype in (torch.int64, torch.bool, torch.bfloat16, torch.float16, torch.uint8):
        same(lambda t: torch.nn.functional.pad(t, (1, 0, 2, 1), value=1), torch.ones(2, 2).to(dtype))
    same(lambda t: torch.nn.functional.pad(t, (1, 1), value=float("-inf")), torch.rand(2))


@pytest.mark.parametrize(
    "kernel, dilation, padding, stride",
    [
        ((3, 3), 1, 1, 1),
        ((2, 3), (2, 1), (0, 2), (2, 1)),
        ((4, 2), 1, (2, 0), 3),
        ((1, 5), 1, 0, (1, 5)),
        ((2, 2), 1, 0, 4),
    ],
)
def test_unfold_and_fold(kernel, dilation, padding, stride):
    x = torch.rand(2, 3, 9, 11)
    arguments = {"kernel_size": kernel, "dilation": dilation, "padding": padding, "stride": stride}
    same(gradient(lambda t: torch.nn.functional.unfold(t, **arguments)), x)
    columns = torch.nn.functional.unfold(x, **arguments)
    same(gradient(lambda t: torch.nn.functional.fold(t, (9, 11), **arguments)), columns)
    same(lambda t: torch.nn.functional.fold(t, (9, 11), **arguments), columns[0])
