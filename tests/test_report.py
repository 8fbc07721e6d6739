"""`python -m torch_tpu`: the report, and one sentence when something is wrong."""

REPORT = ["-m", "torch_tpu"]


def test_the_report_of_a_working_installation(run_python, tmp_path):
    done = run_python(REPORT, TORCH_TPU_CACHE_DIR=str(tmp_path / "cache"))
    assert (done.returncode, done.stderr) == (0, "")
    for part in (
        "versions",
        "plugin",
        "devices",
        "compile cache",
        "self-test",
        "memory",
        "counters",
        "tpu:0",
        "fallbacks",
    ):
        assert part in done.stdout
    assert "FAILED" not in done.stdout
    assert done.stdout.rstrip().endswith("Everything works.")


def test_a_second_process_compiles_nothing(run_python, tmp_path):
    cache = str(tmp_path / "cache")
    first = run_python(REPORT, TORCH_TPU_CACHE_DIR=cache).stdout
    again = run_python(REPORT, TORCH_TPU_CACHE_DIR=cache).stdout
    assert counter(first, "compiles") > 0
    assert counter(again, "compiles") == 0 < counter(again, "disk hits")


def test_a_plugin_that_is_missing(run_python, tmp_path):
    assert sentence(run_python(REPORT, TORCH_TPU_PLUGIN=str(tmp_path / "none.so"))).startswith("TORCH_TPU_PLUGIN names")


def test_a_plugin_that_is_broken(run_python, tmp_path):
    (tmp_path / "broken.so").write_bytes(b"\x7fELF nothing")
    said = sentence(run_python(REPORT, TORCH_TPU_PLUGIN=str(tmp_path / "broken.so")))
    assert "does not work" in said and "broken.so" in said


def test_a_shared_library_that_is_no_plugin(run_python):
    import torch

    path = f"{torch.__path__[0]}/lib/libc10.so"
    assert "GetPjrtApi" in sentence(run_python(REPORT, TORCH_TPU_PLUGIN=path))


def test_a_cache_that_cannot_be_used(run_python, tmp_path):
    (tmp_path / "file").write_text("not a folder")
    done = run_python(REPORT, TORCH_TPU_CACHE_DIR=str(tmp_path / "file"))
    assert "FAILED" not in done.stdout
    assert "programs are compiled anew in each process" in sentence(done)


def test_another_torch_series(run_python):
    code = """
import sys, torch
torch.__version__ = "9.9.0"
from torch_tpu._report import main
sys.exit(main([]))
"""
    done = run_python(["-W", "ignore", "-c", code], TORCH_DEVICE_BACKEND_AUTOLOAD="0")
    assert "but torch 9.9.0 is installed" in sentence(done)


def counter(report, name):
    return int(next(line for line in report.splitlines() if line.strip().startswith(name)).split()[-1])


def sentence(done):
    """The sentence that a report which found something wrong says, and all that it says on stderr."""
    assert done.returncode == 1, done.stdout
    (line,) = done.stderr.strip().splitlines()
    assert line.startswith("Not working: ") and "Traceback" not in done.stdout
    return line.removeprefix("Not working: ")
