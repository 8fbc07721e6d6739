"""OpInfo samples compiled as one graph, forward and backward, beside eager on the CPU: a part of the database on each
run; TORCH_TPU_TEST_COMPILE=all takes all of it."""

import os

import pytest
import torch
from ops.samples import TOLERANCE, copied, tensors
from torch.testing._internal.common_methods_invocations import op_db

# What draws random numbers, or returns memory as it happens to be, cannot be compared.
NOT_COMPARABLE = {"empty", "empty_like", "empty_permuted", "empty_strided", "new_empty", "new_empty_strided"}
RANDOM = (
    "rand",
    "dropout",
    "bernoulli",
    "multinomial",
    "normal",
    "cauchy",
    "exponential",
    "geometric",
    "uniform",
    "rrelu",
)


def comparable(op):
    return torch.float32 in op.dtypes and op.name not in NOT_COMPARABLE and not any(r in op.name for r in RANDOM)


ALL = [op for op in op_db if comparable(op)]
PART = ALL if os.environ.get("TORCH_TPU_TEST_COMPILE") == "all" else ALL[5::20]


def differentiable(outputs):
    return [t for t in tensors(outputs) if t.requires_grad and t.dtype.is_floating_point]


def gradients(outputs, inputs):
    return torch.autograd.grad([t.sum() for t in differentiable(outputs)], inputs, allow_unused=True)


def assert_near(got, want):
    rtol, atol = TOLERANCE[torch.float32]
    for g, w in zip(got, want, strict=True):
        if g is None or w is None:  # PyTorch itself gives zeros for None where it has traced a graph
            assert (g is None or not g.cpu().any()) and (w is None or not w.any())
            continue
        rtol_, atol_ = TOLERANCE.get(w.dtype, (rtol, atol))
        torch.testing.assert_close(g.detach().cpu(), w.detach(), rtol=rtol_, atol=10 * atol_, equal_nan=True)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("op", PART, ids=lambda op: f"{op.name}-{op.variant_test_name}")
def test_compiled(op, monkeypatch):
    monkeypatch.setenv("TORCH_TPU_FALLBACK", "silent")
    trains = op.supports_autograd and torch.float32 in op.supported_backward_dtypes("cpu")
    sample = next(iter(op.sample_inputs("cpu", torch.float32, requires_grad=trains)), None)
    if sample is None:
        pytest.skip("no sample")

    def f(args, kwargs):
        return op(*args, **kwargs)

    args = ((sample.input, *sample.args), sample.kwargs)
    there = copied(args, "tpu")
    torch._dynamo.reset()
    try:
        want = f(*args)
        eager = f(*there)
        torch.compile(f, fullgraph=True, backend="aot_eager")(*copied(args, "cpu"))
    except Exception as e:
        pytest.skip(f"not for eager or PyTorch's own tracing: {type(e).__name__}")
    del eager
    torch._dynamo.reset()
    got = torch.compile(f, fullgraph=True)(*there)
    assert_near(tensors(got), tensors(want))
    if trains and differentiable(want):
        inputs, mine = ([t for t in tensors(list(a)) if t.requires_grad] for a in (args, there))
        assert_near(gradients(got, mine), gradients(want, inputs))
