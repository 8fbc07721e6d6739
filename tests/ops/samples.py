"""OpInfo samples of one op, run on the CPU and on the device and compared: plain, in-place, out= and backward."""

import torch
from torch.testing._internal.common_methods_invocations import op_db

DTYPES = (torch.float32, torch.int64, torch.bfloat16, torch.bool)
TOLERANCE = {
    torch.float32: (2e-5, 2e-5),
    torch.float64: (1e-7, 1e-7),
    torch.bfloat16: (1.6e-2, 1e-2),
    torch.float16: (2e-3, 2e-3),
    torch.complex64: (2e-5, 2e-5),
    torch.complex128: (1e-7, 1e-7),
}


def infos(*names):
    """The OpInfos of these names, in their order; a name that has none is a mistake."""
    found = [op for name in names for op in op_db if op.name == name]
    missing = set(names) - {op.name for op in found}
    assert not missing, f"no OpInfo is called {missing}"
    return found


def cases(*names, dtypes=DTYPES):
    """(op, dtype) pairs for pytest.mark.parametrize, of what the CPU supports."""
    return [(op, dtype) for op in infos(*names) for dtype in dtypes if dtype in op.dtypes]


def case_id(case):
    op, dtype = case
    return f"{op.name}{'-' + op.variant_test_name if op.variant_test_name else ''}-{str(dtype)[6:]}"


def copied(value, device):
    """The same arguments on the device, as leaves of their own; strides are kept."""
    if isinstance(value, torch.Tensor):
        there = value.detach().to(device, copy=True)
        if not value.is_contiguous() and device != "cpu":
            there = torch.empty_strided(value.shape, value.stride(), dtype=value.dtype, device=device).copy_(there)
        return there.requires_grad_(value.requires_grad)
    if isinstance(value, (list, tuple)):
        return type(value)(copied(v, device) for v in value)
    if isinstance(value, dict):
        return {k: copied(v, device) for k, v in value.items()}
    if isinstance(value, (torch.device, str)) and str(value) == "cpu":
        return device
    return value


def tensors(value):
    if isinstance(value, torch.Tensor):
        return [value]
    if isinstance(value, dict):
        value = list(value.values())
    return [t for v in value for t in tensors(v)] if isinstance(value, (list, tuple)) else []


def assert_same(got, want, what, skip=(), tolerance=None):
    got, want = tensors(got), tensors(want)
    assert len(got) == len(want), what
    for i, (g, w) in enumerate(zip(got, want, strict=True)):
        assert g.device.type == "tpu" and g.shape == w.shape and g.dtype == w.dtype, f"{what}, result {i}"
        if i in skip:
            continue
        rtol, atol = (
            tolerance if tolerance and (w.is_floating_point() or w.is_complex()) else TOLERANCE.get(w.dtype, (0, 0))
        )
        torch.testing.assert_close(
            g.detach().cpu(),
            w.detach(),
            rtol=rtol,
            atol=atol,
            equal_nan=True,
            msg=lambda m, i=i: f"{what}, result {i}: {m}",
        )


def check_determined(op, dtype, *, samples=2, grad=True, tolerance=None):
    """Runs the op's first samples and compares what PyTorch makes of the results before it takes gradients: signs and
    phases that are free are gone from it."""
    torch.manual_seed(0)
    for n, sample in enumerate(op.sample_inputs("cpu", dtype, requires_grad=grad and op.supports_autograd)):
        if n == samples:
            break
        what = f"{op.name} sample {n} {dtype}"
        determined = sample.output_process_fn_grad or (lambda out: out)
        results = []
        for device in ("tpu", "cpu"):
            out, args, kwargs = applied(op, sample, device)
            out = determined(out)
            results.append((out, gradients(out, tensors(args) + tensors(kwargs)) if grad else []))
        (got, got_grad), (want, want_grad) = results
        assert_same(got, want, what, tolerance=tolerance)
        assert_same(got_grad, want_grad, what + " gradient", tolerance=tolerance)


def applied(function, sample, device):
    args = copied([sample.input, *sample.args], device)
    kwargs = copied(sample.kwargs, device)
    return function(*args, **kwargs), args, kwargs


def gradients(out, inputs):
    leaves = [t for t in inputs if t.requires_grad]
    outs = [o for o in tensors(out) if o.requires_grad]
    if not leaves or not outs:
        return []
    # The same weights on both sides, and not all ones: a mistake in a row must not cancel out.
    weights = [torch.linspace(0.5, 1.5, max(o.numel(), 1))[: o.numel()].reshape(o.shape).to(o) for o in outs]
    found = torch.autograd.grad(outs, leaves, weights, allow_unused=True)
    return [g for g in found if g is not None]


def check(op, dtype, *, samples=2, skip=(), grad=True, grad_dtypes=(torch.float32,)):
    """Runs the op's first samples; `skip` names results that are not determined (places of equal elements)."""
    grad = grad and dtype in grad_dtypes and op.supports_autograd
    torch.manual_seed(0)
    for n, sample in enumerate(op.sample_inputs("cpu", dtype, requires_grad=grad)):
        if n == samples:
            break
        what = f"{op.name} sample {n} {dtype}"
        want, w_args, w_kwargs = applied(op, sample, "cpu")
        got, g_args, g_kwargs = applied(op, sample, "tpu")
        assert_same(got, want, what, skip)
        if grad:
            there = gradients(got, tensors(g_args) + tensors(g_kwargs))
            assert_same(there, gradients(want, tensors(w_args) + tensors(w_kwargs)), what + " gradient")
        if n == 0:
            with torch.no_grad():
                check_other_forms(op, sample, what, skip)


def check_other_forms(op, sample, what, skip):
    want = applied(op, sample, "cpu")[0]
    if op.inplace_variant:
        try:
            want_inplace = applied(op.inplace_variant, sample, "cpu")[0]
        except (RuntimeError, IndexError, TypeError):
            want_inplace = None  # not for this sample: a result of another shape or dtype
        if want_inplace is not None:
            assert_same(applied(op.inplace_variant, sample, "tpu")[0], want_inplace, what + " in place")
    if op.supports_out and isinstance(want, torch.Tensor):
        args, kwargs = copied([sample.input, *sample.args], "tpu"), copied(sample.kwargs, "tpu")
        out = torch.empty(want.shape[::-1], dtype=want.dtype, device="tpu")
        out = out.permute(tuple(reversed(range(want.dim()))))  # another memory order than the op prefers
        assert op(*args, **kwargs, out=out) is out
        assert_same(out, want, what + " out=", skip)


def same(function, *inputs, **tolerance):
    """What the function gives on the device and on the CPU is the same; None stays None."""
    want = function(*inputs)
    got = function(*(copied(v, "tpu") for v in inputs))
    got, want = tensors(got), tensors(want)
    assert len(got) == len(want)
    for g, w in zip(got, want, strict=True):
        assert g.device.type == "tpu" and g.dtype == w.dtype
        rtol, atol = TOLERANCE.get(w.dtype, (0, 0))
        arguments = {"rtol": rtol, "atol": atol, "equal_nan": True} | tolerance
        torch.testing.assert_close(g.cpu(), w.detach(), **arguments)
