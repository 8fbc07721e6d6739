"""Activations and their gradients against the CPU."""

import pytest
import torch
from ops.samples import case_id, cases, check, same

FUNCTIONS = [
    "relu",
    "relu6",
    "leaky_relu",
    "prelu",
    "hardtanh",
    "hardswish",
    "hardsigmoid",
    "hardshrink",
    "softshrink",
    "tanhshrink",
    "silu",
    "gelu",
    "mish",
    "softplus",
    "softsign",
    "elu",
    "celu",
    "selu",
    "logsigmoid",
    "glu",
    "threshold",
]
OPS = ["sigmoid", "logit", *("nn.functional." + name for name in FUNCTIONS)]
# These take more than the tensor.
OTHERS = [*("nn.functional." + name for name in ("glu", "prelu", "threshold", "gelu")), "logit"]
ODD = torch.tensor([float("inf"), -float("inf"), 0.0, -0.0, 1, -1, 0.5, -0.5, 3, -3, 6, 20.5, -20.5, 88.8, -100, 1e-30])


@pytest.mark.parametrize("case", cases(*OPS), ids=case_id)
def test_samples_as_on_cpu(case):
    check(*case, samples=2)


@pytest.mark.parametrize("name", [name for name in OPS if name not in OTHERS])
def test_values_and_slopes_at_the_corners(name):
    f = torch
    for part in name.split("."):
        f = getattr(f, part)
    found = []
    for device in ("cpu", "tpu"):
        x = ODD.to(device, copy=True).requires_grad_()
        y = f(x)
        y.backward(torch.ones_like(y))
        found.append((y.detach().cpu(), x.grad.cpu()))
    for want, got in zip(*found, strict=True):
        torch.testing.assert_close(got, want, rtol=2e-5, atol=2e-6, equal_nan=True)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16])
def test_nan_goes_through(dtype):
    x = torch.tensor([float("nan"), 1.0]).to(dtype)
    for name in [
        "relu",
        "relu6",
        "leaky_relu",
        "hardtanh",
        "hardswish",
        "hardsigmoid",
        "silu",
        "gelu",
        "mish",
        "softplus",
        "elu",
        "logsigmoid",
    ]:
        assert getattr(torch.nn.functional, name)(x.to("tpu")).isnan().tolist() == [True, False], name


def test_gelu_of_both_kinds():
    x = torch.linspace(-6, 6, 101, dtype=torch.float64)
    for kind in ("none", "tanh"):
        same(lambda t, kind=kind: torch.nn.functional.gelu(t, approximate=kind), x)
        same(lambda t, kind=kind: torch.ops.aten.gelu_backward(t, t, approximate=kind), x)


def test_rrelu_draws_slopes_within_its_bounds_while_training():
    x = torch.linspace(-3, 3, 1001)
    torch.manual_seed(0)
    there = x.to("tpu").requires_grad_()
    y = torch.nn.functional.rrelu(there, 0.1, 0.5, training=True)
    y.sum().backward()
    slopes = (y.detach().cpu() / x)[x < 0]
    assert torch.equal(y.detach().cpu()[x > 0], x[x > 0])
    assert 0.1 <= slopes.min() < 0.12 and 0.48 < slopes.max() <= 0.5
    torch.testing.assert_close(there.grad.cpu()[x < 0], slopes)
    torch.manual_seed(0)
    again = x.to("tpu")
    assert torch.nn.functional.rrelu_(again, 0.1, 0.5, training=True) is again
    assert torch.equal(again, y.detach())


def test_rrelu_has_the_middle_slope_otherwise():
    same(lambda t: torch.nn.functional.rrelu(t, 0.1, 0.5), torch.linspace(-3, 3, 101))
