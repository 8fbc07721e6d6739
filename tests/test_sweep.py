"""Each OpInfo and ModuleInfo of PyTorch once: a few samples, in one of its dtypes. `tools/sweep.py` runs all of it."""

import os

import opinfo_checks
import pytest
from opinfo_reasons import reason

KINDS = ("forward", "inplace", "out", "gradient")


def one_dtype_each():
    """[(name, dtype)]: dtypes in turn, so that each gets its share; float32, which has gradients, comes once more."""
    dtypes = {}
    for name, dtype in opinfo_checks.tasks():
        dtypes.setdefault(name, []).append(dtype)
    return [(name, ["float32", *have][i % (len(have) + 1)]) for i, (name, have) in enumerate(dtypes.items())]


@pytest.fixture(autouse=True)
def silent_fallback(monkeypatch):
    monkeypatch.setitem(os.environ, "TORCH_TPU_FALLBACK", "silent")


@pytest.mark.parametrize(("name", "dtype"), one_dtype_each())
def test_agrees_with_the_cpu(name, dtype):
    if dtype not in [str(d)[6:] for d in opinfo_checks.databases()[name].supported_dtypes("cpu")]:
        pytest.skip(f"the CPU has no {dtype} for it")
    result = opinfo_checks.run(name, dtype, samples=1, kinds=KINDS)
    assert not result["broken"], result["broken"]
    wrong = {kind: v["failures"] for kind, v in result["kinds"].items() if v["ok"] < v["n"]}
    unexplained = {kind: failures for kind, failures in wrong.items() if not reason(name, dtype, kind)}
    assert not unexplained, unexplained
    if wrong:
        pytest.xfail("; ".join({reason(name, dtype, kind) for kind in wrong}))
