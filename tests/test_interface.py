"""`torch.tpu` beside `torch.cuda`: no name is missing without a reason, and each that works is called."""

import importlib
import pathlib
import sys

import pytest
import torch

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "tools"))
import write_interface


def call_rng_state_all():
    torch.tpu.set_rng_state_all(torch.tpu.get_rng_state_all())


def call_stream(kind):
    with torch.tpu.stream(torch.tpu.Stream()) as stream:
        assert isinstance(stream, torch.Stream)


def call_custom(name):
    """custom_fwd and custom_bwd together, as they are meant to be used."""
    from torch.tpu import amp

    class Times(torch.autograd.Function):
        @staticmethod
        @amp.custom_fwd(cast_inputs=torch.float32)
        def forward(ctx, x):
            assert x.dtype is torch.float32 and not torch.is_autocast_enabled("tpu")
            return x * 2

        @staticmethod
        @amp.custom_bwd
        def backward(ctx, grad):
            return grad * 2

    x = torch.ones(2, device="tpu", dtype=torch.bfloat16, requires_grad=True)
    with amp.autocast():
        Times.apply(x).sum().backward()
    assert x.grad.tolist() == [2, 2]


def call_scaler():
    from torch.tpu import amp

    weight = torch.nn.Parameter(torch.ones(2, device="tpu"))
    optimizer = torch.optim.SGD([weight], lr=0.5)
    scaler = amp.GradScaler(init_scale=4.0)
    scaler.scale(weight.sum()).backward()
    scaler.step(optimizer)
    scaler.update()
    assert weight.tolist() == [0.5, 0.5]


def call_autocast():
    x = torch.ones(2, 2, device="tpu")
    with torch.tpu.amp.autocast():
        assert (x @ x).dtype is torch.bfloat16


def call_deprecated(name):
    with pytest.warns(FutureWarning, match=f"torch.tpu.{name} is deprecated"):
        getattr(torch.tpu, name)()


def call_event():
    event = torch.tpu.Event()
    event.record()
    event.synchronize()
    assert event.query()


def call_device(name):
    with getattr(torch.tpu, name)(torch.ones(1, device="tpu") if name == "device_of" else 0):
        assert torch.tpu.current_device() == 0


def expect(test):
    def call():
        assert test()

    return call


# Each name that works, by its name alone: what it is called with and what must hold.
CALLS = {
    "Event": call_event,
    "GradScaler": call_scaler,
    "OutOfMemoryError": expect(lambda: torch.tpu.OutOfMemoryError is torch.OutOfMemoryError),
    "Stream": lambda: call_stream("Stream"),
    "StreamContext": lambda: call_stream("StreamContext"),
    "amp_definitely_not_available": expect(lambda: torch.tpu.amp.amp_definitely_not_available() is False),
    "autocast": call_autocast,
    "can_device_access_peer": expect(lambda: torch.tpu.can_device_access_peer(0, 0) is False),
    "custom_bwd": lambda: call_custom("custom_bwd"),
    "custom_fwd": lambda: call_custom("custom_fwd"),
    "default_generators": expect(lambda: torch.tpu.default_generators[0].device.type == "tpu"),
    "default_stream": expect(lambda: isinstance(torch.tpu.default_stream(), torch.Stream)),
    "device": lambda: call_device("device"),
    "device_count": expect(lambda: torch.tpu.device_count() >= 1),
    "device_memory_used": expect(lambda: torch.tpu.device_memory_used() > 0),
    "device_of": lambda: call_device("device_of"),
    "get_allocator_backend": expect(lambda: torch.tpu.get_allocator_backend() == "pjrt"),
    "get_device_name": expect(lambda: torch.tpu.get_device_name().startswith("TPU")),
    "get_device_properties": expect(lambda: torch.tpu.get_device_properties(0).total_memory > 0),
    "get_per_process_memory_fraction": expect(lambda: torch.tpu.get_per_process_memory_fraction() == 1.0),
    "get_rng_state": expect(lambda: torch.tpu.get_rng_state().shape == (16,)),
    "get_rng_state_all": expect(lambda: len(torch.tpu.get_rng_state_all()) == torch.tpu.device_count()),
    "get_sync_debug_mode": expect(lambda: torch.tpu.get_sync_debug_mode() == 0),
    "has_half": expect(lambda: torch.tpu.has_half),
    "init": lambda: torch.tpu.init(),
    "initial_seed": expect(lambda: isinstance(torch.tpu.initial_seed(), int)),
    "ipc_collect": expect(lambda: torch.tpu.ipc_collect() is None),
    "is_available": expect(lambda: torch.tpu.is_available()),
    "is_bf16_supported": expect(lambda: torch.tpu.is_bf16_supported(including_emulation=False)),
    "is_current_stream_capturing": expect(lambda: torch.tpu.is_current_stream_capturing() is False),
    "is_initialized": expect(lambda: torch.tpu.is_initialized()),
    "is_tf32_supported": expect(lambda: torch.tpu.is_tf32_supported() is False),
    "manual_seed": lambda: torch.tpu.manual_seed(3),
    "manual_seed_all": lambda: torch.tpu.manual_seed_all(3),
    "max_memory_cached": lambda: call_deprecated("max_memory_cached"),
    "memory_cached": lambda: call_deprecated("memory_cached"),
    "memory_snapshot": expect(lambda: isinstance(torch.tpu.memory_snapshot(), list)),
    "memory_stats_as_nested_dict": expect(lambda: "allocation" in torch.tpu.memory_stats_as_nested_dict()),
    "memory_summary": expect(lambda: "allocated_bytes" in torch.tpu.memory_summary(0, abbreviated=True)),
    "reset_max_memory_allocated": lambda: call_deprecated("reset_max_memory_allocated"),
    "reset_max_memory_cached": lambda: call_deprecated("reset_max_memory_cached"),
    "seed": lambda: torch.tpu.seed(),
    "seed_all": lambda: torch.tpu.seed_all(),
    "set_device": lambda: torch.tpu.set_device(0),
    "set_per_process_memory_fraction": lambda: torch.tpu.set_per_process_memory_fraction(1.0),
    "set_rng_state": lambda: torch.tpu.set_rng_state(torch.tpu.get_rng_state()),
    "set_rng_state_all": call_rng_state_all,
    "set_sync_debug_mode": lambda: torch.tpu.set_sync_debug_mode("default"),
    "stream": lambda: call_stream("stream"),
}
ROWS = write_interface.names()


def test_the_page_is_what_this_torch_has():
    assert write_interface.PAGE.read_text() == write_interface.page(), "run tools/write_interface.py"


def test_every_name_of_torch_cuda_is_there_or_has_a_reason():
    public = {f"cuda.{name}" for name in torch.cuda.__all__}
    modules = {f"cuda.{n}" for n in torch.cuda.__all__ if type(getattr(torch.cuda, n)) is type(torch.cuda)}
    assert modules <= set(write_interface.MODULES)
    assert public - modules <= {row.path for row in ROWS}
    for row in ROWS:
        assert row.status == "works" or row.status.startswith("alias of `torch.accelerator.") or len(row.status) > 10


def test_a_new_name_of_torch_cuda_would_be_noticed():
    with pytest.raises(LookupError, match=r"torch.cuda.levitate is new"):
        write_interface.status("cuda", "levitate", torch.tpu)


def test_reasons_are_of_names_that_are_missing():
    used = {row.name for row in ROWS if row.status.startswith("no")} | set(write_interface.MODULES)
    assert set(write_interface.REASONS) <= used


@pytest.mark.parametrize("name", sorted({row.name for row in ROWS if row.status == "works"}))
def test_what_works_is_called(name):
    torch.tpu.init()
    CALLS[name]()


@pytest.mark.parametrize("row", [r for r in ROWS if r.status.startswith("alias")], ids=lambda r: r.path)
def test_aliases_are_called(row):
    function = getattr(importlib.import_module("torch." + row.module.replace("cuda", "tpu", 1)), row.name)
    arguments = {"set_stream": [torch.tpu.current_stream()], "set_device_index": [0]}.get(row.name, [])
    function(*arguments)


def test_modules_are_importable_by_their_names():
    import torch.backends.tpu
    import torch.tpu.amp
    import torch.tpu.memory
    import torch.tpu.random
    import torch.tpu.streams

    assert torch.tpu.streams.Stream is torch.Stream
    for name in ("empty_cache", "memory_stats", "memory_snapshot", "set_per_process_memory_fraction"):
        assert getattr(torch.tpu.memory, name) is getattr(torch.tpu, name)
