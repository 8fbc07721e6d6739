"""Interpolation against the CPU."""

import pytest
import torch
from ops.samples import same

SIZES = [(10, 14, 8), (3, 2, 9), (5, 7, 4), (1, 1, 1)]
LINEAR = {1: "linear", 2: "bilinear", 3: "trilinear"}


def interpolated(**arguments):
    def run(x):
        x = x.clone().requires_grad_()
        y = torch.nn.functional.interpolate(x, **arguments)
        weight = torch.linspace(0.5, 1.5, y.numel()).reshape(y.shape).to(y)
        return y.detach(), torch.autograd.grad((y * weight).sum(), x)[0]

    return run


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("axes", [1, 2, 3])
def test_to_a_size(axes, size):
    x = torch.rand(2, 3, *(5, 7, 4)[:axes])
    for mode in ("nearest", "nearest-exact"):
        same(interpolated(size=size[:axes], mode=mode), x)
    for corners in (False, True):
        same(interpolated(size=size[:axes], mode=LINEAR[axes], align_corners=corners), x, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("mode", ["bilinear", "bicubic"])
@pytest.mark.parametrize("antialias", [False, True])
def test_filters_of_images(mode, antialias):
    x = torch.rand(2, 3, 9, 8)
    for size in ((18, 16), (4, 3), (9, 8), (5, 20)):
        for corners in (False, True):
            arguments = {"size": size, "mode": mode, "align_corners": corners, "antialias": antialias}
            same(interpolated(**arguments), x, rtol=1e-4, atol=1e-5)
            same(interpolated(**arguments), x.double(), rtol=1e-6, atol=1e-6)


def test_by_a_factor():
    x = torch.rand(1, 2, 6, 5)
    for factor in (2, 0.5, 1.7, (1.3, 2.9)):
        for recompute in (None, True):
            for mode in ("nearest", "nearest-exact", "bilinear"):
                same(
                    interpolated(scale_factor=factor, mode=mode, recompute_scale_factor=recompute),
                    x,
                    rtol=1e-4,
                    atol=1e-5,
                )


def test_16_bits_and_bytes():
    x = torch.rand(1, 3, 6, 5)
    same(lambda t: torch.nn.functional.interpolate(t, scale_factor=2), x.bfloat16())
    same(lambda t: torch.nn.functional.interpolate(t, scale_factor=2), (x * 255).byte())
    got = torch.nn.functional.interpolate(x.bfloat16().to("tpu"), scale_factor=2, mode="bilinear").cpu()
    want = torch.nn.functional.interpolate(x.bfloat16().double(), scale_factor=2, mode="bilinear")
    torch.testing.assert_close(got.double(), want, rtol=1e-2, atol=1e-2)


def test_infinity_stays_where_it_is_sampled():
    x = torch.zeros(1, 1, 4, 4)
    x[0, 0, 0, 0] = float("inf")
    same(lambda t: torch.nn.functional.interpolate(t, scale_factor=2), x)
