"""Memory of the device: what it is said to hold, limits, and running out of it."""

import contextlib
import gc

import pytest
import torch

MIB = 1 << 20


def settled():
    torch.tpu.synchronize()
    return torch.tpu.memory_allocated()


@contextlib.contextmanager
def limit(more_bytes):
    """This process may use so much more than it does."""
    total = torch.tpu.mem_get_info()[1]
    torch.tpu.set_per_process_memory_fraction((settled() + more_bytes) / total)
    try:
        yield
    finally:
        torch.tpu.set_per_process_memory_fraction(1.0)


def mine(tensor):
    """The tensor's entry in the snapshot."""
    found = [s for s in torch.tpu.memory_snapshot() if s["address"] == tensor.untyped_storage().data_ptr()]
    assert len(found) == 1
    return found[0]


def test_statistics_have_the_names_of_cuda():
    x = torch.ones(1000, device="tpu")
    stats = torch.tpu.memory_stats()
    for name in (
        "active_bytes.all.peak",
        "reserved_bytes.all.peak",
        "allocated_bytes.all.current",
        "num_alloc_retries",
        "num_ooms",
    ):
        assert name in stats
    nested = torch.tpu.memory_stats_as_nested_dict()
    assert nested["allocated_bytes"]["all"]["current"] == stats["allocated_bytes.all.current"] >= x.nbytes
    assert nested["num_ooms"] == stats["num_ooms"]
    assert torch.tpu.memory_reserved() == torch.tpu.memory_allocated() == stats["allocated_bytes.all.current"]
    assert 0 < torch.tpu.device_memory_used() <= torch.tpu.mem_get_info()[1]


def test_what_is_written_in_place_takes_no_more():
    x = torch.ones(MIB, device="tpu").add_(1)  # the number 1 stays on the device
    before = settled()
    for _ in range(4):
        x.add_(1)
    assert settled() == before
    view = torch.from_dlpack(x, device="cpu", copy=False)
    x.add_(1)  # the old values are still looked at
    assert settled() == before + 4 * MIB
    assert view[0].item() == 6


@pytest.mark.parametrize(
    "dtype", [torch.float32, torch.bfloat16, torch.int64, torch.uint8, torch.bool, torch.complex64]
)
def test_a_snapshot_says_who_holds_what(dtype):
    x = torch.ones(3, 5).to(dtype).to("tpu")
    y = x.clone()
    held = mine(y)
    assert held["shape"] == (3, 5) and held["dtype"] is dtype and held["total_size"] == y.nbytes
    assert held["device"] == 0 and held["producer"].startswith("aten::") and held["frames"] == []
    assert held["blocks"] == [
        {
            "size": y.nbytes,
            "requested_size": y.nbytes,
            "address": y.data_ptr(),
            "state": "active_allocated",
            "frames": [],
        }
    ]
    assert mine(x)["producer"] == "a copy from the CPU"
    address = y.data_ptr()
    del y
    assert address not in {s["address"] for s in torch.tpu.memory_snapshot()}


def test_a_snapshot_lists_all_that_tensors_hold():
    x = torch.ones(MIB, device="tpu")
    kept = [x * i for i in range(3)]
    snapshot = torch.tpu.memory_snapshot()
    sizes = [s["total_size"] for s in snapshot]
    assert sizes == sorted(sizes, reverse=True)
    # Besides: numbers that are passed to programs.
    assert 0 <= settled() - sum(sizes) < 1 << 16
    assert torch.empty(MIB, device="tpu").data_ptr() not in {s["address"] for s in snapshot}
    assert "aten::mul" in torch.tpu.memory_summary()
    assert "aten::mul" not in torch.tpu.memory_summary(abbreviated=True)
    del kept


def test_a_snapshot_outlives_the_program():
    x = torch.ones(3, 5, device="tpu")
    compiled = torch.compile(lambda x: x * 2 + 1, backend="tpu")
    y = compiled(x)
    producer = mine(y)["producer"]
    del compiled
    torch._dynamo.reset()
    gc.collect()
    assert producer and mine(y)["producer"] == producer


def test_storages_that_share_a_buffer_say_so():
    x = torch.ones(MIB, device="tpu")
    before = settled()
    other = x.untyped_storage().clone()
    assert settled() == before and mine(x)["shared_with"] == 1
    x.add_(1)
    assert settled() == before + 4 * MIB and mine(x)["shared_with"] == 0
    del other


def test_beyond_the_fraction_is_out_of_memory():
    assert torch.tpu.get_per_process_memory_fraction() == 1.0
    x = torch.ones(MIB // 4, device="tpu")
    torch.tpu.reset_accumulated_memory_stats()
    with limit(3 * MIB):
        assert 0 < torch.tpu.get_per_process_memory_fraction() < 1
        y = x + 1
        with pytest.raises(torch.OutOfMemoryError) as error:
            torch.cat([x] * 8)
        text = str(error.value)
        assert text.startswith("The tpu device is out of memory in aten::cat: it needs 8.00 MiB")
        assert "set_per_process_memory_fraction allows" in text and "aten::add.Tensor" in text
        with pytest.raises(torch.tpu.OutOfMemoryError, match=r"in a copy from the CPU: it needs 8\.00 MiB"):
            torch.ones(2 * MIB).to("tpu")
        assert torch.tpu.memory_stats()["num_ooms"] == 2
        # Nothing was changed, and there is room where something goes.
        assert (x + y)[:2].tolist() == [3, 3]
        del y
        assert (x * 5).sum().item() == 5 * x.numel()
    torch.tpu.reset_accumulated_memory_stats()
    assert torch.tpu.memory_stats()["num_ooms"] == 0
    assert torch.cat([x] * 8).numel() == 2 * MIB


def test_in_place_ops_need_no_room():
    x = torch.zeros(MIB, device="tpu")
    (x + 1).sum().item()
    with limit(MIB):
        for _ in range(4):
            x.add_(1)
        x[:10].mul_(2)
        with pytest.raises(torch.OutOfMemoryError):
            x + 1
        assert x[8:12].tolist() == [8, 8, 4, 4]


def test_out_of_memory_in_a_training_step_leaves_it_repeatable():
    module = torch.nn.Linear(256, 256).to("tpu")
    big, small = torch.randn(8192, 256).to("tpu"), torch.randn(4, 256).to("tpu")

    def step(x):
        module.zero_grad()
        module(x).square().sum().backward()
        return module.weight.grad.cpu()

    want = step(small)
    module.zero_grad()
    with limit(2 * MIB):
        with pytest.raises(torch.OutOfMemoryError):
            step(big)
        torch.testing.assert_close(step(small), want)


@pytest.mark.parametrize(
    ("fraction", "error"), [(1.5, ValueError), (-0.1, ValueError), ("half", TypeError), (1, TypeError)]
)
def test_fractions_that_mean_nothing(fraction, error):
    with pytest.raises(error, match="set_per_process_memory_fraction: the fraction must be"):
        torch.tpu.set_per_process_memory_fraction(fraction)
    with pytest.raises(RuntimeError, match="tpu:7 does not exist"):
        torch.tpu.set_per_process_memory_fraction(0.5, 7)
