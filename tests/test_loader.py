"""`import torch` with the package installed: it knows the device, says nothing, and costs little."""

import json
import resource
import shutil
import statistics

import pytest
import torch
from conftest import ROOT

import torch_tpu


def test_import_torch_is_enough_and_says_nothing(run_python):
    done = run_python("import torch; assert torch.device('tpu:0').type == 'tpu'; torch.tpu, torch.backends.tpu")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_import_starts_no_device_and_no_dynamo_and_opens_no_socket(run_python):
    code = """
import socket, sys
def no(*a, **k): raise AssertionError("a socket was opened")
socket.socket.connect = socket.getaddrinfo = no
import torch
assert torch.tpu.is_available() and torch.accelerator.is_available()
assert torch.tpu.device_count() >= 1
torch.manual_seed(1)
assert not torch.tpu.is_initialized()
assert "torch._dynamo" not in sys.modules and "torch._inductor" not in sys.modules
"""
    done = run_python(code)
    assert (done.returncode, done.stderr) == (0, "")


def test_import_costs_at_most_200_ms_more(run_python):
    def seconds(autoload):  # of processor time, which other processes on the machine change less
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        run_python("import torch", TORCH_DEVICE_BACKEND_AUTOLOAD=autoload)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime

    seconds("1")
    pairs = [(seconds("1"), seconds("0")) for _ in range(5)]
    assert statistics.median(a - b for a, b in pairs) < 0.2, pairs


def test_load_is_idempotent_and_works_without_autoload(run_python):
    code = "import torch_tpu._loader as l; l.load(); l.load(); import torch; print(torch.tpu.device_count())"
    done = run_python(code, TORCH_DEVICE_BACKEND_AUTOLOAD="0")
    assert (done.returncode, done.stdout, done.stderr) == (0, "1\n", "")


def test_the_version_is_the_installed_one():
    import importlib.metadata

    assert torch_tpu.__version__ == importlib.metadata.version("torchtpu")


def test_the_build_knows_its_torch_series():
    from torch_tpu import _build

    assert torch.__version__.startswith(_build.TORCH_SERIES + ".")


@pytest.mark.parametrize("code", ["import torch", "import torch_tpu, torch"])
def test_a_source_folder_in_the_way_is_one_sentence_and_torch_works(run_python, tmp_path, code):
    shutil.copytree(ROOT / "src/torch_tpu", tmp_path / "torch_tpu")
    done = run_python(code + "; print((torch.ones(2) + 1).sum().item())", PYTHONPATH=str(tmp_path))
    assert (done.returncode, done.stdout) == (0, "4.0\n")
    assert f"source folder {tmp_path / 'torch_tpu'}" in done.stderr
    assert "Traceback" not in done.stderr


def test_another_torch_series_is_one_sentence_and_torch_works(run_python):
    code = """
import torch
torch.__version__ = "9.9.0"
import torch

import torch_tpu
assert not hasattr(torch, "tpu")
print((torch.ones(2) + 1).sum().item())
"""
    done = run_python(code, TORCH_DEVICE_BACKEND_AUTOLOAD="0")
    assert (done.returncode, done.stdout) == (0, "4.0\n")
    assert "but torch 9.9.0 is installed: pip install" in done.stderr


def test_plugin_messages_do_not_reach_the_user(run_python):
    code = "import torch, json; print(json.dumps((torch.ones(2, device='tpu') + 1).tolist()))"
    done = run_python(code, TORCH_TPU_PLUGIN_LOG=None)
    assert (done.returncode, done.stderr) == (0, "")
    assert json.loads(done.stdout) == [2.0, 2.0]
