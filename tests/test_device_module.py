"""`torch.tpu`: the names that torch and its users ask a device module for."""

import io

import pytest
import torch

NAMES = """
device_count is_available _lazy_init is_initialized current_device _is_in_bad_fork manual_seed_all get_rng_state
set_rng_state device get_amp_supported_dtype _utils synchronize set_device Stream Event stream current_stream
memory_summary default_generators _get_generator seed seed_all initial_seed manual_seed get_rng_state_all
set_rng_state_all empty_cache memory_allocated max_memory_allocated memory_reserved max_memory_reserved
memory_stats reset_peak_memory_stats mem_get_info get_device_name get_device_properties get_device_capability
is_bf16_supported default_stream set_stream device_of init counters reset_counters
"""


def test_everything_that_torch_asks_for_is_there():
    assert [name for name in NAMES.split() if not hasattr(torch.tpu, name)] == []
    assert torch.get_device_module("tpu") is torch.tpu


def test_public_functions_have_docstrings():
    undocumented = [n for n in dir(torch.tpu) if not n.startswith("_") and not getattr(torch.tpu, n).__doc__]
    assert undocumented == []


def test_torch_knows_the_accelerator():
    assert torch.accelerator.current_accelerator() == torch.device("tpu")
    assert torch.accelerator.device_count() == torch.tpu.device_count()
    assert torch.accelerator.is_available()
    assert "tpu" in torch._utils._get_available_device_type()


def test_streams_and_functions_are_those_that_dynamo_knows():
    assert torch.tpu.Stream is torch.Stream and torch.tpu.Event is torch.Event
    assert torch.tpu.current_device is torch.accelerator.current_device_index
    assert torch.tpu.synchronize is torch.accelerator.synchronize
    assert torch.tpu.current_stream is torch.accelerator.current_stream


@pytest.mark.parametrize("device", [None, "tpu", "tpu:0", 0, torch.device("tpu"), torch.device("tpu", 0)])
def test_every_form_of_a_device_argument(device):
    assert torch.tpu._utils._get_device_index(device, optional=True) == 0
    assert torch.tpu.get_device_name(device).startswith("TPU")
    assert torch.tpu.memory_allocated(device) >= 0
    torch.tpu.synchronize(device)


@pytest.mark.parametrize("device", ["tpu:7", 7, torch.device("tpu", 7)])
def test_an_index_that_does_not_exist_is_a_sentence(device):
    for use in (torch.tpu.set_device, torch.tpu.device, torch.tpu.get_device_properties, torch.tpu.get_rng_state):
        with pytest.raises(RuntimeError, match=r"The device tpu:7 does not exist: this process has"):
            use(device)


def test_another_device_type_is_an_error():
    with pytest.raises(ValueError, match="Expected a tpu device, but got: cpu"):
        torch.tpu._utils._get_device_index("cpu")
    assert torch.tpu._utils._get_device_index("cpu", allow_cpu=True) == -1
    with pytest.raises(ValueError, match="with an index"):
        torch.tpu._utils._get_device_index("tpu")


def test_tensors_on_an_index_that_does_not_exist_are_an_error():
    with pytest.raises(RuntimeError, match="tpu:7"):
        torch.ones(2, device="tpu:7")
    saved = io.BytesIO()
    torch.save(torch.ones(2), saved)
    saved.seek(0)
    with pytest.raises(RuntimeError, match=r"TPU device 7 but torch.tpu.device_count\(\) is"):
        torch.load(saved, map_location="tpu:7")


def test_device_contexts_nest_and_restore():
    with torch.tpu.device(0), torch.tpu.device("tpu"), torch.tpu.device(None), torch.tpu.device(-1):
        assert torch.tpu.current_device() == 0
    with torch.tpu.device_of(torch.ones(2)), torch.tpu.device_of(torch.ones(2, device="tpu")):
        assert torch.tpu.current_device() == 0
    torch.tpu.set_device(0)
    torch.tpu.set_device(-1)
    assert torch.tpu.current_device() == 0


def test_properties():
    properties = torch.tpu.get_device_properties()
    assert properties.name == torch.tpu.get_device_name()
    assert properties.total_memory > 1 << 28
    assert properties.multi_processor_count >= 1
    free, total = torch.tpu.mem_get_info()
    assert 0 <= free <= total
    assert torch.tpu.is_bf16_supported()
    assert torch.bfloat16 in torch.tpu.get_device_capability()["supported_dtypes"]


def test_memory_is_counted_and_given_back():
    torch.tpu.synchronize()
    before = torch.tpu.memory_allocated()
    torch.tpu.reset_peak_memory_stats()
    x = torch.ones(1 << 20, device="tpu")
    torch.tpu.synchronize()
    assert torch.tpu.memory_allocated() - before >= 4 << 20
    assert torch.tpu.max_memory_allocated() - before >= 4 << 20
    del x
    torch.tpu.synchronize()
    torch.tpu.empty_cache()
    assert torch.tpu.memory_allocated() == before
    assert "allocated_bytes" in torch.tpu.memory_summary()
    assert torch.tpu.memory_stats()["active_bytes.all.peak"] >= 0


def test_streams_and_events():
    stream = torch.tpu.Stream()
    assert stream.device.type == "tpu"
    with torch.tpu.stream(stream):
        assert torch.tpu.current_stream() == stream
        x = torch.ones(4, device="tpu") + 1
        event = stream.record_event()
    with torch.tpu.stream(None):
        assert torch.tpu.current_stream() == torch.tpu.default_stream()
    torch.tpu.current_stream().wait_event(event)
    event.synchronize()
    assert event.query() and x.sum().item() == 8
    start, end = torch.tpu.Event(enable_timing=True), torch.tpu.Event(enable_timing=True)
    start.record()
    _ = x @ x
    end.record()
    end.synchronize()
    assert start.elapsed_time(end) >= 0


def test_autocast_is_bfloat16():
    assert torch.tpu.get_amp_supported_dtype() == [torch.bfloat16, torch.float16]
    x = torch.ones(4, 4, device="tpu")
    with torch.autocast("tpu"):
        assert (x @ x).dtype == torch.bfloat16
    assert (x @ x).dtype == torch.float32


def test_methods_that_torch_generates():
    assert torch.ones(2).tpu().is_tpu and not torch.ones(2).is_tpu
    assert next(torch.nn.Linear(2, 2).tpu().parameters()).is_tpu
    assert torch.ones(2).untyped_storage().tpu().device == torch.device("tpu", 0)


def test_counters_count_and_reset():
    torch.tpu.reset_counters()
    x = torch.ones(3, 5, device="tpu")
    (x + x).cpu()
    count = torch.tpu.counters()
    assert count["executes"] >= 1 and count["fallbacks"] == {} and count["bytes_to_host"] >= 60
    assert count["compiles"] + count["memory_hits"] + count["disk_hits"] >= 1
    torch.tpu.reset_counters()
    assert torch.tpu.counters()["executes"] == 0


def test_backends_module():
    import torch.backends.tpu

    assert torch.backends.tpu.is_built() and torch.backends.tpu.is_available()
    assert torch.backends.tpu.version().startswith("cpu")
    before = torch.get_float32_matmul_precision()
    try:
        torch.backends.tpu.float32_matmul_precision = "high"
        assert torch.get_float32_matmul_precision() == torch.backends.tpu.float32_matmul_precision == "high"
    finally:
        torch.set_float32_matmul_precision(before)


def test_a_fork_after_use_is_an_error_not_a_hang(run_python):
    code = """
import os, torch
torch.ones(2, device="tpu").sum().item()
child = os.fork()
if child == 0:
    assert torch.tpu._is_in_bad_fork() and not torch.tpu.is_initialized()
    torch.manual_seed(1)
    try: torch.ones(2, device="tpu")
    except RuntimeError as error: os._exit(0 if "fork" in str(error) else 3)
    os._exit(4)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""
    done = run_python(code, timeout=60)
    assert (done.returncode, done.stdout) == (0, "0\n"), done.stderr
