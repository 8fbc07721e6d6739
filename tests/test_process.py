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
