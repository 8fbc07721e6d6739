"""Values made from numbers, against the CPU."""

import pytest
import torch

FLOATS = (torch.float32, torch.float64, torch.bfloat16, torch.float16)
INTS = (torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8)


def made(function, *args, rtol=1e-6, **kwargs):
    want, got = function(*args, **kwargs), function(*args, device="tpu", **kwargs)
    assert got.device.type == "tpu" and got.dtype == want.dtype
    torch.testing.assert_close(got.cpu(), want, rtol=rtol, atol=rtol, equal_nan=True)


@pytest.mark.parametrize("dtype", (*FLOATS, *INTS))
def test_ranges(dtype):
    for start, end, step in (
        (0, 10, 1),
        (0, 0, 1),
        (0, 300, 1),
        (3, 9, 2),
        (5, 0, -1),
        (-3, 3, 2),
        (0, 1, 0.1),
        (0.1, 1.1, 0.3),
    ):
        if dtype in INTS and isinstance(step, float):
            continue
        if dtype in (torch.int8, torch.uint8) and (end > 127 or min(start, end, step) < 0):
            continue
        made(torch.arange, start, end, step, dtype=dtype, rtol=1e-2 if dtype.itemsize == 2 else 1e-6)


@pytest.mark.parametrize("dtype", (*FLOATS, *INTS))
def test_linspace_meets_both_ends(dtype):
    for start, end, steps in (
        (4.3, -3, 50),
        (4.6, -2, 20),
        (-4.9, 4.9, 7),
        (7.8, 120.3, 9),
        (0, 10, 11),
        (0, 1, 0),
        (0, 1, 1),
        (0, 1, 2),
    ):
        if dtype == torch.uint8 and min(start, end) < 0:
            continue
        made(
            torch.linspace,
            start,
            end,
            steps,
            dtype=dtype,
            rtol=0 if dtype in INTS else 1e-2 if dtype.itemsize == 2 else 1e-6,
        )
    made(torch.linspace, 2**40, 2**40 + 8, 9, dtype=torch.int64)


def test_logspace():
    for dtype in (torch.float32, torch.float64, torch.int64):
        made(torch.logspace, 0, 3, 4, dtype=dtype)
        made(torch.logspace, 0, 2, 5, base=2.0, dtype=dtype)


def test_lengths_follow_double_arithmetic():
    assert len(torch.arange(0, 1, 1 / 49, device="tpu")) == len(torch.arange(0, 1, 1 / 49))
    for n in range(20):
        assert torch.arange(n, n + 3, device="tpu").tolist() == [n, n + 1, n + 2]


def test_a_moving_range_needs_no_new_program():

    torch.arange(5, 9, device="tpu")
    before = torch.tpu.counters()["compiles"]
    for k in range(10, 20):
        assert torch.arange(k, k + 4, device="tpu").tolist() == list(range(k, k + 4))
    assert torch.tpu.counters()["compiles"] - before <= 1


def test_fills():
    for dtype in (*FLOATS, *INTS, torch.bool, torch.complex64):
        made(torch.full, (2, 3), 1, dtype=dtype)
        made(torch.zeros, 2, 0, dtype=dtype)
        made(torch.ones, (), dtype=dtype)
    x = torch.empty(3, 4, device="tpu")
    x.fill_(2.5)[:, 1].zero_()
    x[2].fill_(torch.tensor(7.0))
    assert x.tolist() == [[2.5, 0, 2.5, 2.5]] * 2 + [[7.0] * 4]


def test_identity_matrices():
    for dtype in (torch.float32, torch.int64, torch.bool, torch.bfloat16):
        made(torch.eye, 3, dtype=dtype)
        made(torch.eye, 2, 5, dtype=dtype)
    made(torch.eye, 0)


@pytest.mark.parametrize("function", [torch.tril_indices, torch.triu_indices])
def test_triangle_indices(function):
    for rows, columns in ((0, 3), (3, 0), (1, 1), (3, 3), (5, 2), (2, 6), (8, 7)):
        for offset in (-9, -2, -1, 0, 1, 3, 9):
            made(function, rows, columns, offset)
    made(function, 700, 500, 3, dtype=torch.int32)


def test_out_tensors_are_written_and_resized():
    out = torch.empty(0, device="tpu")
    assert torch.arange(4, out=out) is out and out.tolist() == [0, 1, 2, 3]
    torch.linspace(0, 1, 3, out=out.resize_(0))
    assert out.tolist() == [0, 0.5, 1]
    view = torch.zeros(4, 2, device="tpu")[:, 0]
    torch.arange(4, out=view)
    assert view.tolist() == [0, 1, 2, 3]
