"""The same program on the CPU and on the device: equal results, or equal errors."""

import torch


def flat(value):
    if isinstance(value, dict):
        value = list(value.values())
    return [v for e in value for v in flat(e)] if isinstance(value, (list, tuple)) else [value]


def assert_equal(got, want, *, layout=True, **tolerance):
    """Bit for bit (NaN equals NaN), and of the same shape, dtype and strides; within rtol/atol where given."""
    got, want = flat(got), flat(want)
    assert len(got) == len(want)
    for i, (g, w) in enumerate(zip(got, want, strict=True)):
        if not isinstance(w, torch.Tensor):
            assert g == w, f"result {i}: {g!r} instead of {w!r}"
            continue
        assert (g.shape, g.dtype) == (w.shape, w.dtype), f"result {i}"
        if layout:
            assert (g.stride(), g.storage_offset()) == (w.stride(), w.storage_offset()), f"result {i}"
        near = {"rtol": 0, "atol": 0} | tolerance
        torch.testing.assert_close(
            g.detach().cpu(), w.detach(), **near, equal_nan=True, msg=lambda m, i=i: f"result {i}: {m}"
        )


def beside(program, *, layout=True, **tolerance):
    """Runs program("cpu") and program("tpu") and compares what they return, tensors or plain values."""
    want = program("cpu")
    got = program("tpu")
    for t in flat(got):
        assert not isinstance(t, torch.Tensor) or t.device.type == "tpu"
    assert_equal(got, want, layout=layout, **tolerance)
    return got


def error_of(program, device):
    try:
        result = program(device)
        if device == "tpu":
            torch.tpu.synchronize()
    except Exception as e:
        return type(e), str(e).split("\n")[0].replace("tpu:0", "cpu")
    raise AssertionError(f"no error on {device}, but {result!r}")


def same_error(program, *, text=True):
    """program(device) raises on both, with the same type and (first line of the) text."""
    want, got = error_of(program, "cpu"), error_of(program, "tpu")
    assert got == want if text else got[0] is want[0], f"{got}\ninstead of\n{want}"
    return got
