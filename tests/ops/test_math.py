"""Functions of one operand against the CPU."""

import pytest
import torch
from ops.samples import case_id, cases, check, same

OPS = [
    "abs",
    "neg",
    "positive",
    "bitwise_not",
    "ceil",
    "floor",
    "trunc",
    "round",
    "frac",
    "sign",
    "sgn",
    "signbit",
    "nan_to_num",
    "frexp",
    "exp",
    "exp2",
    "expm1",
    "log",
    "log2",
    "log10",
    "log1p",
    "sqrt",
    "rsqrt",
    "reciprocal",
    "sin",
    "cos",
    "tan",
    "asin",
    "acos",
    "atan",
    "sinh",
    "cosh",
    "tanh",
    "asinh",
    "acosh",
    "atanh",
    "sinc",
    "erf",
    "erfc",
    "erfinv",
    "lgamma",
    "digamma",
    "polygamma",
    "i0",
    "special.i0e",
    "special.i1",
    "special.i1e",
    "special.entr",
    "special.zeta",
    "angle",
    "complex",
    "polar",
    "conj_physical",
    "real",
    "imag",
    "mvlgamma",
    "special.polygamma",
    "special.log_ndtr",
    "special.ndtr",
    "special.ndtri",
    "special.erfcx",
]
UNARY = [
    "abs",
    "neg",
    "ceil",
    "floor",
    "trunc",
    "round",
    "frac",
    "sign",
    "sgn",
    "signbit",
    "nan_to_num",
    "exp",
    "exp2",
    "expm1",
    "log",
    "log2",
    "log10",
    "log1p",
    "sqrt",
    "rsqrt",
    "reciprocal",
    "sin",
    "cos",
    "tan",
    "asin",
    "acos",
    "atan",
    "sinh",
    "cosh",
    "tanh",
    "asinh",
    "acosh",
    "atanh",
    "sinc",
    "erf",
    "erfc",
    "erfinv",
    "lgamma",
    "digamma",
    "i0",
    "angle",
    "isnan",
    "isinf",
    "frexp",
]
NAN, INF = float("nan"), float("inf")
ODD = torch.tensor(
    [NAN, INF, -INF, 0.0, -0.0, 1, -1, 0.5, -0.5, 2, -2, 1e-3, 7.3, -7.3, 100, 1e4, 2.5, 3.5, -2.5, 1e-30, 88.8, -100]
)


@pytest.mark.parametrize("case", cases(*OPS), ids=case_id)
def test_samples_as_on_cpu(case):
    check(*case, samples=2 if case[1] is torch.float32 else 1)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
@pytest.mark.parametrize("name", UNARY)
def test_odd_values(name, dtype):
    same(getattr(torch, name), ODD.to(dtype))


@pytest.mark.parametrize("dtype", [torch.complex64, torch.complex128])
def test_complex_functions(dtype):
    z = torch.complex(torch.tensor([0, 1, -1, 0.5, -0.3, 2, 0]), torch.tensor([0, 0, 0.3, -2, 1, 2, 1])).to(dtype)
    names = (
        "abs neg sgn exp exp2 expm1 log log2 log10 log1p sqrt reciprocal sin cos tan tanh asin atan sinc angle sigmoid"
    )
    for name in names.split():
        same(getattr(torch, name), z)
    same(torch.pow, z, z.flip(0) + 0.1)
    same(lambda t: t**2, z)
    same(torch.mul, z, z.conj())


def test_integers_become_floats_or_stay():
    for dtype in (torch.int64, torch.uint8, torch.bool):
        x = torch.tensor([0, 1, 2, 100]).to(dtype)
        for name in ("exp", "sqrt", "sigmoid", "isnan", "sign", "angle"):
            same(getattr(torch, name), x)
    same(torch.floor, torch.tensor([2**53 + 1]))


def test_log2_of_powers_of_two_is_exact():
    for dtype in (torch.float32, torch.float64):
        x = 2.0 ** torch.arange(-100, 100).to(dtype)
        assert x.to("tpu").log2().cpu().equal(torch.arange(-100, 100).to(dtype))


def test_round_to_decimals():
    for decimals in (-2, -1, 0, 1, 3):
        same(lambda t, d=decimals: torch.round(t, decimals=d), torch.tensor([1234.5678, -0.05, 2.5, 15.0, NAN]))


def test_polygamma_far_left():
    for n in (1, 2, 3, 4):
        same(
            lambda t, n=n: torch.polygamma(n, t),
            torch.tensor([-11.67, -8.3, -0.5, 0.5, 3.0, 20.0]),
            rtol=1e-4,
            atol=1e-4,
        )


def test_nan_to_num_of_every_float():
    for dtype in (torch.float32, torch.float64, torch.bfloat16, torch.float16):
        same(torch.nan_to_num, ODD.to(dtype))
        same(lambda t: torch.nan_to_num(t, 7.0, 8.0, -8.0), ODD.to(dtype))
