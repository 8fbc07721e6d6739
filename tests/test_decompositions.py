"""Ops without a row: PyTorch's decomposition as one program, else the CPU, announced and counted."""

import warnings

import pytest
import torch
import torch.nn.functional as F
from beside import beside

import torch_tpu

ROWS = {row["op"] for row in torch_tpu._C._rows()}


def counted(program):
    """(result, what the counters say of it)"""
    before = torch.tpu.counters()
    result = program()
    torch.tpu.synchronize()
    after = torch.tpu.counters()
    said = {k: after[k] - before[k] for k in ("compiles", "executes", "memory_misses")}
    for k in ("decompositions", "fallbacks"):
        said[k] = {op: n - before[k].get(op, 0) for op, n in after[k].items() if n != before[k].get(op, 0)}
    return result, said


def base(device, *shape):
    n = torch.Size(shape).numel()
    return torch.arange(1.0, n + 1).div(n).reshape(shape).to(device)


# (op that is decomposed, program)
DECOMPOSED = {
    "addr": lambda d: torch.addr(base(d, 2, 3), base(d, 2), base(d, 3), alpha=2),
    "heaviside": lambda d: torch.heaviside(base(d, 4) - 0.5, base(d, 4)),
    "logaddexp2": lambda d: torch.logaddexp2(base(d, 4), base(d, 4) * 2),
    "nan_to_num": lambda d: torch.nan_to_num(torch.tensor([float("nan"), float("inf"), 1.0]).to(d)),
    "sinc": lambda d: torch.sinc(base(d, 4)),
    "special_entr": lambda d: torch.special.entr(base(d, 4)),
    "special_xlog1py": lambda d: torch.special.xlog1py(base(d, 4), base(d, 4)),
    "hypot": lambda d: torch.hypot(base(d, 4), base(d, 4) * 2),
    "copysign.Tensor": lambda d: torch.copysign(base(d, 4), -base(d, 4)),
    "frac": lambda d: torch.frac(base(d, 4) * 3),
    "mv": lambda d: torch.mv(base(d, 3, 4), base(d, 4)),
    "vdot": lambda d: torch.vdot(base(d, 4), base(d, 4)),
    "diag_embed": lambda d: torch.diag_embed(base(d, 2, 3)),
    "renorm": lambda d: torch.renorm(base(d, 3, 4), 2, 0, 0.5),
    "pixel_shuffle": lambda d: torch.pixel_shuffle(base(d, 1, 4, 2, 2), 2),
    "im2col": lambda d: torch.nn.functional.unfold(base(d, 1, 2, 4, 4), 2),
    "glu": lambda d: torch.nn.functional.glu(base(d, 2, 4)),
    "huber_loss": lambda d: torch.nn.functional.huber_loss(base(d, 4), base(d, 4) * 3),
    "unfold_copy": lambda d: torch.unfold_copy(base(d, 6), 0, 2, 2),
    "lerp.Scalar": lambda d: torch.lerp(base(d, 4), base(d, 4) * 2, 0.25),
}


@pytest.mark.parametrize("name", DECOMPOSED)
def test_an_op_without_a_row_is_one_program(name):
    program = DECOMPOSED[name]
    beside(program, rtol=2e-6, atol=2e-6, layout=False)
    _, said = counted(lambda: program("tpu"))
    assert said["compiles"] == 0 and said["memory_misses"] == 0 and said["fallbacks"] == {}, said


def without_row():
    """A (name, program of a number) whose op is decomposed today."""
    choices = {
        "aten::addr": lambda x, v: torch.addr(x.expand(4, 4), x, x, alpha=v),
        "aten::renorm": lambda x, v: torch.renorm(x.view(2, 2), 2, 0, v),
        "aten::celu": lambda x, v: torch.celu(x - 0.5, v),
        "aten::special_xlog1py.other_scalar": lambda x, v: torch.special.xlog1py(x, v),
        "aten::nan_to_num": lambda x, v: torch.nan_to_num(x / 0, posinf=v),
    }
    for name, program in choices.items():
        if name not in ROWS:
            return name, program
    pytest.skip("every op of this test has a row by now")


def test_numbers_are_part_of_the_key_of_a_decomposition():
    _, program = without_row()
    for value in (0.25, 0.5, 0.25, 2.0):
        x = base("tpu", 4)
        torch.testing.assert_close(program(x, value).cpu(), program(base("cpu", 4), value))
    _, said = counted(lambda: program(base("tpu", 4), 0.5))
    assert said["compiles"] == 0


def test_the_offset_and_strides_of_a_view_are_part_of_the_key():
    _, program = without_row()
    x, y = base("tpu", 12), base("cpu", 12)
    for view in (
        lambda t: t[:4],
        lambda t: t[4:8],
        lambda t: t[8:],
        lambda t: t[::3],
        lambda t: t.view(3, 4).t()[:, 0][:4].repeat(2)[:4],
    ):
        torch.testing.assert_close(program(view(x), 0.5).cpu(), program(view(y), 0.5))


def test_arguments_that_a_decomposition_writes():
    def program(d):
        x = base(d, 3, 4)
        torch.renorm(base(d, 3, 4) * 3, 2, 0, 0.5, out=x)
        y = base(d, 3, 4)
        y[1:].renorm_(2, 0, 0.5)
        z = base(d, 4, 4)
        z.t()[:, 1:3].addr_(base(d, 4), base(d, 2), alpha=3)
        w = base(d, 6)
        w[::2].heaviside_(base(d, 3))
        n = torch.tensor([float("nan"), 1.0]).to(d)
        versions = [x._version, y._version, z._version, w._version]
        return x, y, z, w, n.nan_to_num_(2.0), versions

    for _ in range(2):  # recorded, then from the cache
        beside(program, rtol=2e-6, atol=2e-6)


def test_gradients_of_decomposed_ops():
    def program(d):
        x = base(d, 3, 4).requires_grad_()
        y = (
            torch.renorm(x, 2, 0, 0.5).sum()
            + torch.logaddexp2(x[0], x[1]).sum()
            + torch.hypot(x[2], x[0]).sum()
            + torch.sinc(x).sum()
        )
        y.backward()
        return x.grad

    beside(program, rtol=2e-5, atol=2e-6, layout=False)


def test_the_same_op_from_two_threads():
    import threading

    _, program = without_row()
    results, failures = {}, []

    def work(i):
        try:
            results[i] = program(base("tpu", 4), 1.0 + i % 3).cpu()
        except Exception as e:
            failures.append(e)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(6)]
    [t.start() for t in threads], [t.join() for t in threads]
    assert failures == []
    for i, got in results.items():
        torch.testing.assert_close(got, program(base("cpu", 4), 1.0 + i % 3))


FALLBACK = """
import warnings, torch
import torch_tpu
x = torch.tensor([3., 1., 2., 2.]).to("tpu")
def run(): return torch.kthvalue(x, 2).values.item(), torch.linalg.eigvals(torch.eye(2, device="tpu")).real.tolist()
with warnings.catch_warnings(record=True) as said:
    warnings.simplefilter("always")
    try:
        print(run(), run())
    except NotImplementedError as e:
        print("refused:", str(e).split("(")[0])
print([str(w.message).split(",")[0] for w in said if "runs on the CPU" in str(w.message)])
print({k: v for k, v in torch.tpu.counters()["fallbacks"].items() if "eig" in k})
"""


@pytest.mark.parametrize("policy", ["warn", "error", "silent"])
def test_what_a_fallback_says(run_python, policy):
    if "aten::_linalg_eigvals" in ROWS:
        pytest.skip("_linalg_eigvals has a row by now")
    out = run_python(FALLBACK, TORCH_TPU_FALLBACK=policy if policy != "warn" else None)
    lines = out.stdout.splitlines()
    if policy == "error":
        assert lines[0].startswith("refused: aten::") and lines[0].endswith("is not implemented on the tpu device "), (
            out
        )
        assert lines[2] == "{}"
        return
    assert lines[0] == "(2.0, [1.0, 1.0]) (2.0, [1.0, 1.0])", out
    eig = [line for line in eval(lines[1]) if "eig" in line]
    assert eig == (["aten::_linalg_eigvals runs on the CPU"] if policy == "warn" else []), out
    assert "2" in lines[2]


def test_a_decomposition_that_failed_is_not_tried_again():
    def program():
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return torch.linalg.cross(base("tpu", 2, 3), base("tpu", 2, 3).flip(1))

    program()
    _, said = counted(program)
    if not said["fallbacks"]:
        pytest.skip("linalg.cross is one program by now")
    assert said["memory_misses"] == 0


def test_a_fallback_keeps_strides_dtypes_and_writes():
    if "aten::_linalg_eigvals" in ROWS:
        pytest.skip("_linalg_eigvals has a row by now")

    def program(d):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            matrix = torch.tensor([[2.0, 1.0], [0.0, 3.0]]).to(d)
            out = torch.empty(2, dtype=torch.complex64, device=d)
            torch.linalg.eigvals(matrix, out=out)
            return out, torch.linalg.eigvals(matrix.t())

    beside(program, rtol=1e-6, atol=1e-6)


def test_wrong_calls_of_ops_without_a_row_are_cpus_errors():
    for call in (
        lambda d: torch.renorm(base(d, 3), 2, 0, 0.5),
        lambda d: torch.addr(base(d, 3), base(d, 2), base(d, 2, 2)),
    ):
        texts = []
        for d in ("cpu", "tpu"):
            with pytest.raises(RuntimeError) as e:
                call(d)
            texts.append(str(e.value).split("\n")[0])
        assert texts[0] == texts[1]


def test_an_argument_behind_one_left_at_its_default_keeps_its_place():
    x, target = torch.arange(12.0).view(3, 4) / 7, torch.tensor([1, 0, 3])

    def losses(d):
        args = x.to(d), target.to(d)
        return [F.multi_margin_loss(*args, **k) for k in ({"reduction": "sum"}, {"p": 2}, {"margin": 0.5})]

    beside(losses, rtol=1e-6, atol=1e-6)
