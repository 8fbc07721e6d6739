"""A process that uses the device starts, is interrupted and ends cleanly."""

import os
import signal
import subprocess
import sys

import pytest

ENDS = {
    "with work in flight": "x = torch.rand(1024, 1024, device='tpu')\nfor _ in range(20): x = x @ x",
    "with tensors in modules": "torch.kept = torch.rand(8, 8, device='tpu').exp()",
    "after a thread that used it": """
import threading
thread = threading.Thread(target=lambda: torch.rand(256, 256, device="tpu").exp())
thread.start(); thread.join()""",
    "after an error": "try: torch.ones(2, device='tpu') @ torch.ones(3, device='tpu')\nexcept RuntimeError: pass",
}


@pytest.mark.parametrize("code", ENDS.values(), ids=ENDS.keys())
def test_the_interpreter_ends_cleanly(run_python, code):
    done = run_python("import torch\n" + code, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")


def test_an_interrupt_is_a_keyboard_interrupt_and_the_device_still_works(tmp_path):
    code = """
import torch, sys
x = torch.rand(64, 64, device="tpu")
try:
    print("ready", flush=True)
    while True: x = (x @ x).tanh()
except KeyboardInterrupt:
    assert (torch.ones(3, device="tpu") + 1).sum().item() == 6
    print("continued", flush=True)
"""
    process = subprocess.Popen(
        [sys.executable, "-c", code], cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stdout.readline() == "ready\n"
    os.kill(process.pid, signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert (process.returncode, out, err) == (0, "continued\n", "")


def test_programs_that_are_no_longer_used_make_room(run_python):
    code = """
import torch
from torch_tpu import _C
hot = torch.ones(3, device="tpu")
most = 0
for n in range(1, 400):
    x = torch.ones(n, device="tpu")
    assert (x * 2 + 1).sum().item() == 3 * n
    hot.add_(1)
    most = max(most, _C._live_programs())
misses = torch.tpu.counters()["memory_misses"]
hot.add_(1)
print(hot.tolist(), most <= 110, misses == torch.tpu.counters()["memory_misses"])
"""
    done = run_python(code, TORCH_TPU_MAX_PROGRAMS="100")
    assert done.stdout == "[401.0, 401.0, 401.0] True True\n", done.stdout + done.stderr


def test_a_bound_of_programs_that_makes_no_sense_is_an_error(run_python):
    done = run_python("import torch; torch.ones(1, device='tpu')", TORCH_TPU_MAX_PROGRAMS="none")
    assert "TORCH_TPU_MAX_PROGRAMS is 'none': set it to a number above 0." in done.stderr
