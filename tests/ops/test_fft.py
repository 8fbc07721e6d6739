"""Fourier transforms against the CPU: all of torch.fft, in any order of dimensions, and their gradients."""

import pytest
import torch
from ops.samples import case_id, cases, check, same

NAMES = [f"fft.{name}" for name in ("fft", "ifft", "rfft", "irfft", "hfft", "ihfft")]
NAMES += [f"fft.{name}{d}" for name in ("fft", "ifft", "rfft", "irfft", "hfft", "ihfft") for d in ("2", "n")]


@pytest.mark.parametrize("case", cases(*NAMES, "stft", dtypes=(torch.float32, torch.complex128)), ids=case_id)
def test_samples(case):
    check(*case, samples=3)


@pytest.mark.parametrize("norm", ["forward", "backward", "ortho"])
@pytest.mark.parametrize("n", [1, 6, 7])
def test_norms_and_lengths(norm, n):
    x = torch.randn(3, 7, dtype=torch.complex64)
    same(lambda x: torch.fft.fft(x, n, norm=norm), x)
    same(lambda x: torch.fft.ifft(x, n, dim=0, norm=norm), x)
    same(lambda x: torch.fft.irfft(x, n, norm=norm), x)
    same(lambda x: torch.fft.rfft(x.real, n, dim=0, norm=norm), x)


def test_more_dimensions_than_xla_takes_at_once():
    x = torch.randn(2, 3, 4, 5, 3, dtype=torch.complex128)
    same(lambda x: torch.fft.fftn(x), x)
    same(lambda x: torch.fft.ifftn(x, dim=(0, 4, 2, 1)), x)
    same(lambda x: torch.fft.rfftn(x.real), x)
    same(lambda x: torch.fft.irfftn(x), x)
    same(lambda x: torch.fft.fftn(x.real.transpose(0, 3), dim=(1, 0)), x)
