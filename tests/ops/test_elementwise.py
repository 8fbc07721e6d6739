"""Arithmetic of one to three operands against the CPU."""

import itertools

import pytest
import torch
from ops.samples import case_id, cases, check, same

OPS = [
    "add",
    "sub",
    "rsub",
    "mul",
    "div",
    "true_divide",
    "floor_divide",
    "remainder",
    "fmod",
    "pow",
    "float_power",
    "atan2",
    "hypot",
    "gcd",
    "lcm",
    "copysign",
    "nextafter",
    "heaviside",
    "logaddexp",
    "logaddexp2",
    "xlogy",
    "special.xlog1py",
    "bitwise_and",
    "bitwise_or",
    "bitwise_xor",
    "bitwise_left_shift",
    "bitwise_right_shift",
    "__radd__",
    "__rsub__",
    "__rmul__",
    "__rdiv__",
    "__rmod__",
    "__rpow__",
    "addcmul",
    "addcdiv",
    "lerp",
    "clamp",
    "clamp_min",
    "clamp_max",
    "where",
    "masked_fill",
    "square",
    "deg2rad",
    "ldexp",
]
NAN, INF = float("nan"), float("inf")
FLOATS = (torch.float32, torch.float64, torch.bfloat16, torch.float16)
INTS = (torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8)
ODD = torch.tensor([NAN, INF, -INF, 0.0, -0.0, 1, -1, 0.5, -0.5, 2, -2, 3, -3, 7.3, -7.3, 1e4, 1e-30, 2.5, -100, 88.8])


def pairs(values):
    return torch.cartesian_prod(values, values).unbind(1)


@pytest.mark.parametrize("case", cases(*OPS), ids=case_id)
def test_samples_as_on_cpu(case):
    check(*case, samples=2 if case[1] is torch.float32 else 1)


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize(
    "name",
    [
        "add",
        "sub",
        "mul",
        "div",
        "floor_divide",
        "remainder",
        "fmod",
        "pow",
        "atan2",
        "hypot",
        "copysign",
        "heaviside",
        "logaddexp",
        "xlogy",
        "nextafter",
    ],
)
def test_nan_infinity_and_signed_zero(name, dtype):
    same(getattr(torch, name), *pairs(ODD.to(dtype)))


@pytest.mark.parametrize("dtype", FLOATS)
def test_rounding_modes_of_division(dtype):
    for mode in ("floor", "trunc", None):
        same(lambda a, b, mode=mode: torch.div(a, b, rounding_mode=mode), *pairs(ODD.to(dtype)))


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("exponent", [0, 1, 2, 3, -1, -2, 0.5, -0.5, 1.5, 4])
def test_powers_that_have_formulas(dtype, exponent):
    same(lambda x: x**exponent, ODD.to(dtype))


@pytest.mark.parametrize("dtype", INTS)
def test_integer_arithmetic_wraps_as_on_cpu(dtype):
    values = torch.tensor([0, 1, 2, 3, 5, 7, 100, 127, -1, -2, -7, -100, -128]).to(dtype)
    a, b = pairs(values)
    for f in (torch.add, torch.sub, torch.mul, torch.gcd, torch.pow, torch.maximum, torch.bitwise_xor, torch.atan2):
        same(f, a, b)
    for f in (torch.bitwise_left_shift, torch.bitwise_right_shift):
        same(f, a, b)
    a, b = a[b != 0], b[b != 0]
    for f in (torch.floor_divide, torch.remainder, torch.fmod, torch.lcm, torch.div):
        same(f, a, b)
    same(lambda x, y: torch.div(x, y, rounding_mode="trunc"), a, b)


def test_integers_are_64_bits():
    x = torch.tensor([2**62 + 3, 2**53 + 1, -(2**53) - 1])
    same(lambda t: t // 2, x)
    same(lambda t: t % 2**40, x)
    same(lambda t: t * 3, x)


def test_integer_division_by_zero_is_an_error():
    x = torch.tensor([1, 2], device="tpu") // torch.tensor([1, 0], device="tpu")
    with pytest.raises(RuntimeError, match="ZeroDivisionError"):
        x.cpu()


@pytest.mark.parametrize("dtype", FLOATS)
def test_clamp_keeps_nan_and_prefers_the_upper_bound(dtype):
    x = ODD.to(dtype)
    for low, high in ((-1, 2), (None, 0.3), (0.3, None), (3, 1), (NAN, 1.0)):
        same(lambda t, low=low, high=high: t.clamp(low, high), x)
    same(torch.clamp, x, x.flip(0), None)
    same(torch.clamp, x, None, x.flip(0))


def test_choices_move_values_of_any_dtype():
    mask = torch.tensor([True, False, True])
    for dtype in (*FLOATS, *INTS, torch.bool, torch.complex64):
        x, y = torch.tensor([0, 1, 2]).to(dtype), torch.tensor([3, 0, 1]).to(dtype)
        same(torch.where, mask, x, y)
        same(lambda m, t: t.masked_fill(m, 1), mask, x)
        same(lambda m, t: t.clone().masked_fill_(m, 1), mask, x)
    same(torch.where, mask[:, None], torch.rand(3, 4), torch.tensor(2.0))


def test_scalars_of_16_bit_floats_are_not_rounded_first():
    x = torch.arange(-300, 300, dtype=torch.float32).div(7).bfloat16()
    same(lambda t: t * 0.1, x)
    same(lambda t: t / 128**0.5, x)


def test_new_scalars_need_no_new_program():
    x = torch.rand(4, device="tpu")
    before = []
    for k in range(6):
        before.append(torch.tpu.counters()["compiles"])
        (x * (0.7 + k) + (2.3 + k)).clamp(-k, k + 0.5).add_(x, alpha=0.25 + k).addcmul_(x, x, value=-k - 0.5)
    assert before[1] == before[-1]


def test_foreach_takes_its_scalars_at_run_time():
    for k in range(3):
        for f in (torch._foreach_mul, torch._foreach_add, torch._foreach_div, torch._foreach_sub):
            same(lambda a, b, f=f, k=k: f([a, b], 1.5 + k), torch.rand(3), torch.rand(2, 2))
            same(lambda a, b, f=f, k=k: f([a, b], [0.5 + k, 2.5 * k + 1]), torch.rand(3), torch.rand(2, 2))


def test_type_promotion_of_every_pair():
    dtypes = (torch.bool, torch.uint8, torch.int32, torch.int64, torch.bfloat16, torch.float32, torch.float64)
    for a, b in itertools.product(dtypes, dtypes):
        same(torch.mul, torch.ones(2, dtype=a), torch.ones((), dtype=b))
