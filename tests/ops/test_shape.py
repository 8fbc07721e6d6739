"""Joining, reordering, triangles, diagonals and gradients of views against the CPU."""

import pytest
import torch
from ops.samples import case_id, cases, check, same

OPS = [
    "cat",
    "stack",
    "hstack",
    "vstack",
    "dstack",
    "flip",
    "fliplr",
    "flipud",
    "roll",
    "rot90",
    "repeat",
    "tile",
    "tril",
    "triu",
    "diag_embed",
    "diagflat",
    "diag",
    "block_diag",
    "slice_scatter",
    "select_scatter",
    "diagonal_scatter",
    "nn.functional.pixel_shuffle",
    "nn.functional.pixel_unshuffle",
    "nn.functional.channel_shuffle",
    "narrow",
    "unfold",
    "split",
    "chunk",
    "unbind",
    "expand",
    "diagonal",
    "as_strided",
]


@pytest.mark.parametrize("case", cases(*(n for n in OPS if n != "as_strided")), ids=case_id)
def test_samples_as_on_cpu(case):
    check(*case, samples=3 if case[1] is torch.float32 else 1)


def test_cat_of_empties_and_mixed_dtypes():
    x = torch.arange(6.0).view(2, 3)
    same(lambda e, t: torch.cat([e, t]), torch.empty(0), x)
    same(lambda e, t: torch.cat([e, e]), torch.empty(0), x)
    same(lambda a, b, c: torch.cat([a, b, c], -1), x, x.int(), x.bfloat16())
    same(lambda a, b: torch.stack([a, b], -1), x, x.int())
    same(lambda a: torch.cat([a.t(), a.t()[:, :1]], 1), x)


def test_rolls():
    x = torch.arange(24).view(2, 3, 4)
    for shifts, dims in ((1, None), (-5, None), (1, 0), ((1, -2), (1, 2)), ((7, 3), (-1, 0)), (0, 1), (10**6, 2)):
        same(lambda t, s=shifts, d=dims: torch.roll(t, s, d), x)
    same(lambda t: torch.roll(t, 1), torch.tensor(3.0))
    same(lambda t: torch.roll(t, 1, 0), torch.empty(0, 3))


def test_triangles():
    x = torch.rand(2, 3, 4)
    for k in (-10, -1, 0, 1, 10, 2**40):
        same(lambda t, k=k: t.tril(k), x)
        same(lambda t, k=k: t.triu(k), x)
    same(torch.tril, torch.ones(3, 3, dtype=torch.bool))
    same(torch.tril, torch.full((3, 3), float("inf")))


def test_repeats():
    x = torch.arange(6).view(2, 3)
    for times in ((2, 3), (2, 1, 3), (1, 0), (1, 1)):
        same(lambda t, times=times: t.repeat(times), x)
    same(lambda t: t.repeat(3), torch.tensor(2))
    same(lambda t: t.flip(()), x)


@pytest.mark.parametrize(
    "view",
    [
        lambda t: t[:, 2:5],
        lambda t: t[:, -3:],
        lambda t: t[:, ::3],
        lambda t: t[:, 1:1],
        lambda t: t[1],
        lambda t: t[..., -1],
        lambda t: t.diagonal(1, 0, 2),
        lambda t: t.diagonal(-1, 1, 2),
        lambda t: t.unfold(1, 3, 2),
        lambda t: t.unfold(1, 2, 4),
        lambda t: t.transpose(0, 2)[1:3, ::2],
    ],
)
def test_gradients_of_views(view):
    def gradient(t):
        t = t.clone().requires_grad_()
        y = view(t)
        return torch.autograd.grad((y * y).sum(), t)[0]

    same(gradient, torch.rand(3, 7, 4))


def test_moving_slices_have_one_gradient_program():

    x = torch.rand(12, 3, device="tpu", requires_grad=True)
    seen = []
    for k in range(6):
        before = torch.tpu.counters()["compiles"]
        (g,) = torch.autograd.grad(x[k : k + 4].sum() + x[k].sum(), x)
        seen.append(torch.tpu.counters()["compiles"] - before)
        assert g.sum(1).tolist() == [3.0 * ((k <= i < k + 4) + (i == k)) for i in range(12)]
    assert sum(seen[2:]) == 0, seen
