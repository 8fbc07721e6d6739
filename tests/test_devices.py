"""Several devices in one process: the tests in four_devices.py, in a process that has four."""

import pathlib


def test_in_a_process_with_four_devices(run_python):
    file = pathlib.Path(__file__).with_name("four_devices.py")
    done = run_python(
        ["-m", "pytest", "-q", "-p", "no:cacheprovider", str(file)], timeout=600, TORCH_TPU_CPU_DEVICES="4"
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_number_of_devices_that_makes_no_sense_is_an_error(run_python):
    done = run_python("import torch; torch.ones(1, device='tpu')", TORCH_TPU_CPU_DEVICES="many")
    assert "TORCH_TPU_CPU_DEVICES is 'many': set it to a number of devices from 1 to 64." in done.stderr
