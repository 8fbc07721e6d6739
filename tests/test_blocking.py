"""Debug modes: ops that wait for their results, and calls that say that they wait."""

import inspect

import pytest
import torch

BLOCKING = torch.tpu.EagerMode.DEFER_NEVER_AND_LAUNCH_BLOCKING


def here(offset=0):
    """This line of this file, as errors and snapshots say it."""
    return f"{__file__}:{inspect.currentframe().f_back.f_lineno + offset}"


def test_an_error_is_raised_by_its_call_with_its_line():
    x, index = torch.ones(5).to("tpu"), torch.tensor([1, 9]).to("tpu")
    lazily = x[index]  # nobody waits
    with pytest.raises(IndexError) as late:
        lazily.cpu()
    assert "called at" not in str(late.value)
    with torch.tpu.set_eager_mode(BLOCKING), pytest.raises(IndexError) as error:
        x[index]
    assert f"index 9 is out of bounds for dimension 0 with size 5 (called at {here(-1)} in test_an_error" in str(
        error.value
    )


def test_lines_go_past_torch_to_the_user():
    index = torch.tensor([7]).to("tpu")
    embedding = torch.nn.Embedding(5, 2).to("tpu")
    with torch.tpu.set_eager_mode(BLOCKING), pytest.raises(IndexError) as error:
        embedding(index)
    assert f"(called at {here(-1)} in " in str(error.value)


def test_snapshots_know_lines():
    with torch.tpu.set_eager_mode(BLOCKING):
        x = torch.ones(1000, device="tpu", requires_grad=True)
        y = (x * 2).sum()
        line = here(-1)
        y.backward()
    frames = {s["address"]: s["frames"] for s in torch.tpu.memory_snapshot()}
    (frame,) = frames[y.data_ptr()]
    assert f"{frame['filename']}:{frame['line']}" == line and frame["name"] == "test_snapshots_know_lines"
    (frame,) = frames[x.grad.data_ptr()]
    assert "backward" in frame["name"]


def test_the_mode_is_a_context_a_decorator_and_a_property():
    assert torch.tpu.eager_mode is torch.tpu.EagerMode.DEFER_NEVER

    @torch.tpu.set_eager_mode(BLOCKING)
    def inside():
        with torch.tpu.set_eager_mode(torch.tpu.EagerMode.DEFER_AND_FUSE):
            assert torch.tpu.eager_mode is torch.tpu.EagerMode.DEFER_AND_FUSE
            assert (torch.ones(2, device="tpu") + 1).tolist() == [2, 2]
        return torch.tpu.get_eager_mode()

    assert inside() is BLOCKING and torch.tpu.eager_mode is torch.tpu.EagerMode.DEFER_NEVER
    try:
        torch.tpu.eager_mode = BLOCKING
        assert torch.tpu.eager_mode is BLOCKING
    finally:
        torch.tpu.eager_mode = torch.tpu.EagerMode.DEFER_NEVER
    with pytest.raises(TypeError, match=r"expected a torch.tpu.EagerMode, but got 'fast'"):
        torch.tpu.set_eager_mode("fast")


def test_the_environment_variable(run_python):
    code = """
import torch
print(torch.tpu.eager_mode.name)
x = torch.ones(3).to("tpu")
try:
    x[torch.tensor([5]).to("tpu")]
except IndexError as error:
    print(error)
"""
    for value, first in (("1", "DEFER_NEVER_AND_LAUNCH_BLOCKING"), ("0", "DEFER_NEVER"), (None, "DEFER_NEVER")):
        done = run_python(code, TORCH_TPU_LAUNCH_BLOCKING=value)
        lines = done.stdout.splitlines()
        assert lines[0] == first, done.stderr
        assert (len(lines) > 1 and "(called at <string>:6 in <module>)" in lines[1]) == (value == "1")


def test_values_are_the_same():
    def train():
        torch.manual_seed(0)
        module = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.Dropout(0.5), torch.nn.Linear(8, 1)).to("tpu")
        optimizer = torch.optim.AdamW(module.parameters())
        for _ in range(3):
            module(torch.ones(4, 8, device="tpu")).sum().backward()
            optimizer.step()
        return [p.detach().cpu() for p in module.parameters()]

    want = train()
    with torch.tpu.set_eager_mode(BLOCKING):
        got = train()
    assert all(torch.equal(g, w) for g, w in zip(got, want, strict=True))


def test_calls_that_wait_can_be_found():
    x = torch.ones(3, device="tpu")
    waits = (lambda: x.sum().item(), lambda: x.cpu(), lambda: str(x), lambda: bool(x[0] > 0), lambda: x.tolist())
    try:
        torch.tpu.set_sync_debug_mode("error")
        assert torch.tpu.get_sync_debug_mode() == 2
        (x + 1).mul_(2)
        for wait in waits:
            with pytest.raises(RuntimeError, match="called a synchronizing TPU operation"):
                wait()
        torch.tpu.set_sync_debug_mode(1)
        for wait in waits:
            with pytest.warns(UserWarning, match="called a synchronizing TPU operation"):
                wait()
    finally:
        torch.tpu.set_sync_debug_mode("default")
    assert torch.tpu.get_sync_debug_mode() == 0 and x.tolist() == [1, 1, 1]
    with pytest.raises(ValueError, match="expected one of"):
        torch.tpu.set_sync_debug_mode("loud")


def test_precision_is_torchs_own_setting():
    assert torch.get_float32_matmul_precision() == "highest"
    with torch.tpu.precision(torch.tpu.Precision.DEFAULT):
        assert torch.get_float32_matmul_precision() == torch.backends.tpu.float32_matmul_precision == "medium"
    assert torch.get_float32_matmul_precision() == "highest"
    with pytest.raises(TypeError, match=r"expected a torch.tpu.Precision"), torch.tpu.precision("high"):
        pass


def test_products_are_compiled_anew_for_another_precision():
    x = torch.ones(5, 13, device="tpu")
    y = torch.ones(13, 3, device="tpu")

    def looked_up():
        count = torch.tpu.counters()
        (x @ y).cpu()
        after = torch.tpu.counters()
        return sum(after[k] - count[k] for k in ("compiles", "disk_hits"))

    looked_up()
    assert looked_up() == 0
    with torch.tpu.precision(torch.tpu.Precision.DEFAULT):
        assert looked_up() == 1
        assert looked_up() == 0
    assert looked_up() == 0
