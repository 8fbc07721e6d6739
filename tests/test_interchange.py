"""Tensors from and for other libraries, files and processes: DLPack, NumPy, safetensors, multiprocessing."""

import copy
import gc
import io
import sys

import numpy as np
import pytest
import torch

DTYPES = [torch.float32, torch.float64, torch.bfloat16, torch.int64, torch.uint8, torch.bool, torch.complex64]
CPU, EXTERNAL = (1, 0), 12


def base(dtype=torch.float32, device="tpu"):
    return torch.arange(12).reshape(3, 4).to(dtype).to(device)


def host_memory(count, dtype=np.float32):
    """A NumPy array that starts at a multiple of 64 bytes."""
    size = np.dtype(dtype).itemsize * count
    memory = np.zeros(size + 64, dtype=np.uint8)
    start = -memory.ctypes.data % 64
    array = memory[start : start + size].view(dtype)
    array[:] = np.arange(count)
    return array


def test_the_device_of_a_capsule_is_not_the_host():
    assert base().__dlpack_device__() == (EXTERNAL, 0)
    assert base(device="cpu").__dlpack_device__() == CPU
    with pytest.raises((RuntimeError, BufferError)):
        np.from_dlpack(base())  # as for a CUDA tensor: NumPy must ask for the CPU


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_torch_on_the_cpu_reads_device_memory(dtype):
    x = base(dtype)
    view = torch.from_dlpack(x, device="cpu", copy=False)
    assert view.device.type == "cpu" and view.dtype is dtype and torch.equal(view, base(dtype, "cpu"))
    again = torch.from_dlpack(x, device="cpu", copy=False)
    assert again.data_ptr() == view.data_ptr()
    assert torch.from_dlpack(x, device="cpu").data_ptr() != view.data_ptr()


def test_numpy_reads_device_memory_and_cannot_write_it():
    x = base()
    array = np.from_dlpack(x, device="cpu")
    assert array.__array_interface__["data"][0] == torch.from_dlpack(x, device="cpu", copy=False).data_ptr()
    assert not array.flags.writeable and np.array_equal(array, base(device="cpu").numpy())
    copied = np.from_dlpack(x, device="cpu", copy=True)
    assert copied.flags.writeable and np.array_equal(copied, array)
    copied += 1
    assert torch.equal(x.cpu(), base(device="cpu"))


def test_a_view_of_device_memory_keeps_its_values():
    """Buffers are immutable: what the tensor is given later lies elsewhere."""
    x = base()
    view = torch.from_dlpack(x, device="cpu", copy=False)
    x.add_(1)
    x[0].mul_(2)
    assert torch.equal(view, base(device="cpu"))
    del x
    gc.collect()
    torch.tpu.synchronize()
    other = [torch.full((3, 4), 7.0, device="tpu") for _ in range(8)]
    torch.tpu.synchronize()
    assert torch.equal(view, base(device="cpu")) and other[0].sum().item() == 84


def test_device_memory_goes_back_when_the_last_view_goes():
    x = torch.ones(1 << 16, device="tpu")  # the number 1 stays on the device
    del x
    torch.tpu.synchronize()
    before = torch.tpu.memory_allocated()
    x = torch.ones(1 << 16, device="tpu")
    view = torch.from_dlpack(x, device="cpu", copy=False)
    del x
    assert torch.tpu.memory_allocated() - before == 4 << 16
    del view
    assert torch.tpu.memory_allocated() == before


@pytest.mark.parametrize(
    "program",
    [
        lambda x: x.t(),
        lambda x: x[1:, ::2],
        lambda x: x[2, 3],
        lambda x: x.expand(2, 3, 4),
        lambda x: x[:0],
        lambda x: x.view(torch.int32),
        lambda x: torch.empty_like(x).fill_(3),
    ],
)
def test_views_of_tensors_are_shared_as_they_are(program):
    got = torch.from_dlpack(program(base()), device="cpu", copy=False)
    want = program(base(device="cpu"))
    assert torch.equal(got, want) and got.stride() == want.stride() and got.dtype is want.dtype


def test_sharing_waits_for_the_values_and_raises_their_errors():
    x = torch.randn(64, 64, device="tpu")
    for _ in range(20):
        x = (x @ x).tanh()
    assert torch.equal(torch.from_dlpack(x, device="cpu", copy=False), x.cpu())
    wrong = base().flatten()[torch.tensor([1, 50]).to("tpu")]
    with pytest.raises(IndexError, match="index 50 is out of bounds"):
        torch.from_dlpack(wrong, device="cpu", copy=False)


def test_what_a_capsule_cannot_say_is_refused():
    with pytest.raises(BufferError, match="require gradient"):
        base().requires_grad_().__dlpack__(dl_device=CPU)
    with pytest.raises(BufferError, match="conjugate bit"):
        base(torch.complex64).conj().__dlpack__(dl_device=CPU)
    with pytest.raises(BufferError, match=r"before 1\.0"):
        base().__dlpack__(dl_device=CPU, copy=False)
    assert torch.from_dlpack(base().__dlpack__(dl_device=CPU)).sum().item() == 66  # a copy


def test_capsules_inside_torch_alias_on_the_device():
    x = base()
    for other in (
        torch.from_dlpack(x),
        torch.from_dlpack(x, device="tpu", copy=False),
        torch.utils.dlpack.from_dlpack(torch.utils.dlpack.to_dlpack(x)),
    ):
        assert other.device == x.device and other.data_ptr() == x.data_ptr()
        other.add_(1)
    assert torch.equal(x.cpu(), base(device="cpu") + 3)


@pytest.mark.parametrize("dtype", [np.float32, np.int64, np.complex64, np.bool_, np.uint8])
def test_host_memory_is_used_without_copying(dtype):
    array = host_memory(256, dtype)
    before = torch.tpu.counters()["bytes_to_device"]
    x = torch.from_dlpack(array, device="tpu", copy=False)
    assert torch.tpu.counters()["bytes_to_device"] == before
    assert torch.from_dlpack(x, device="cpu", copy=False).data_ptr() == array.ctypes.data
    assert torch.equal((x == x).cpu(), torch.ones(256, dtype=torch.bool))
    assert np.array_equal(x.cpu().numpy(), array)


def test_writes_on_the_device_leave_host_memory_alone():
    array = host_memory(256)
    kept = array.copy()
    x = torch.from_dlpack(array, device="tpu", copy=False)
    x.add_(1)
    x[:4].zero_()
    torch.tpu.synchronize()
    assert np.array_equal(array, kept)
    assert torch.equal(x.cpu(), torch.cat((torch.zeros(4), torch.from_numpy(kept)[4:] + 1)))


def test_a_transposed_array_is_used_without_copying():
    array = host_memory(64).reshape(8, 8).T
    x = torch.from_dlpack(array, device="tpu", copy=False)
    assert x.stride() == (1, 8) and np.array_equal((x + 0).cpu().numpy(), array)


def test_host_memory_is_kept_while_it_is_used_and_then_let_go():
    array = host_memory(256)
    references = sys.getrefcount(array)
    x = torch.from_dlpack(array, device="tpu", copy=False)
    y = x * 2
    assert sys.getrefcount(array) > references
    del x
    assert y.sum().item() == 2 * array.sum()
    del y
    torch.tpu.synchronize()
    for _ in range(100):  # Python runs what was left to it
        if sys.getrefcount(array) == references:
            break
        torch.tpu.synchronize()
    assert sys.getrefcount(array) == references


def test_host_memory_that_cannot_be_used_is_copied_or_refused():
    array = host_memory(32)[1:]
    with pytest.raises(ValueError, match="aligned to 64 bytes"):
        torch.from_dlpack(array, device="tpu", copy=False)
    with pytest.raises(ValueError, match="densely"):
        torch.from_dlpack(host_memory(32)[::2], device="tpu", copy=False)
    x = torch.from_dlpack(array, device="tpu")
    array[:] = 0
    assert x.sum().item() == sum(range(32))


def test_host_memory_of_torch_tensors():
    host = torch.arange(1024.0)
    x = torch.from_dlpack(host, device="tpu:0", copy=False)
    assert torch.from_dlpack(x, device="cpu", copy=False).data_ptr() == host.data_ptr()
    assert torch.from_dlpack(host, device="tpu").sum().item() == host.sum().item()


def test_pinned_memory_is_memory_of_the_host():
    host = torch.arange(64.0).pin_memory()
    assert host.is_pinned() and host.__dlpack_device__() == CPU
    assert np.from_dlpack(host).sum() == 2016
    assert torch.from_dlpack(host, device="tpu", copy=False).sum().item() == 2016


def test_numpy_conversions_are_errors_that_name_cpu():
    for convert in (np.asarray, lambda x: x.numpy(), lambda x: x.__array__()):
        with pytest.raises(TypeError, match=r"Use Tensor.cpu\(\)"):
            convert(base())
    assert base().numpy(force=True).sum() == 66


def test_other_tensors_are_left_to_torch():
    assert torch.from_dlpack(np.arange(3)).tolist() == [0, 1, 2]
    assert torch.from_dlpack(torch.arange(3), copy=True).tolist() == [0, 1, 2]
    with pytest.raises(AssertionError, match="already a DLPack capsule"):
        torch.from_dlpack(torch.arange(3).__dlpack__(), device="cpu")

    class Sub(torch.Tensor):
        pass

    x = torch.from_dlpack(base().as_subclass(Sub), device="cpu", copy=True)
    assert x.tolist() == base(device="cpu").tolist()


def compiled(use):
    """How many programs `use` needs that were not in memory yet."""
    before = torch.tpu.counters()
    use()
    after = torch.tpu.counters()
    return sum(after[name] - before[name] for name in ("compiles", "disk_hits"))


def test_files_and_copies_of_storages_compile_nothing():
    x = torch.randn(7, 11).to("tpu")
    want = (x + 1).cpu()
    file = io.BytesIO()
    assert compiled(lambda: torch.save({"x": x, "part": x[2:]}, file)) == 0
    file.seek(0)
    loaded = {}
    assert compiled(lambda: loaded.update(torch.load(file))) == 0
    assert compiled(lambda: loaded["x"].cpu()) == 0
    assert compiled(lambda: torch.testing.assert_close((loaded["x"] + 1).cpu(), want)) == 0
    cloned = [copy.deepcopy(x)]
    assert compiled(lambda: cloned.append(copy.deepcopy(loaded["x"]))) == 0
    for c in cloned:
        assert compiled(lambda c=c: torch.testing.assert_close((c + 1).cpu(), want)) == 0


def test_copies_of_storages_are_apart_once_either_is_written():
    x = base()
    y, z = copy.deepcopy(x), copy.deepcopy(x)
    assert y.data_ptr() != x.data_ptr()
    x.add_(1)
    y[0].zero_()
    assert torch.equal(x.cpu(), base(device="cpu") + 1)
    assert y[0].sum().item() == 0 and torch.equal(y[1:].cpu(), base(device="cpu")[1:])
    assert torch.equal(z.cpu(), base(device="cpu"))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_a_loaded_storage_reads_as_any_dtype(dtype):
    host = base(dtype, "cpu")
    file = io.BytesIO()
    torch.save(host, file)
    file.seek(0)
    x = torch.load(file, map_location="tpu")
    assert torch.equal((x == base(dtype)).cpu(), torch.ones(3, 4, dtype=torch.bool))
    assert torch.equal(x.view(torch.uint8).cpu(), host.view(torch.uint8))
    assert torch.equal(x.t().contiguous().cpu(), host.t())


def test_one_loaded_storage_under_two_dtypes():
    storage = torch.arange(6, dtype=torch.int64).untyped_storage().tpu()
    longs = torch.empty(0, dtype=torch.int64, device="tpu").set_(storage)
    halves = torch.empty(0, dtype=torch.int16, device="tpu").set_(storage)
    assert (longs + 1).tolist() == [1, 2, 3, 4, 5, 6]
    assert (halves + 0)[::4].tolist() == [0, 1, 2, 3, 4, 5]
    halves[4] = 9
    assert longs.tolist() == [0, 9, 2, 3, 4, 5]


def test_mmap_and_weights_only(tmp_path):
    module = torch.nn.Linear(64, 64)
    torch.save(module.state_dict(), tmp_path / "m.pt")
    state = torch.load(tmp_path / "m.pt", mmap=True, weights_only=True, map_location="tpu")
    assert state["weight"].device.type == "tpu" and torch.equal(state["weight"].cpu(), module.weight)
    other = torch.nn.Linear(64, 64, device="meta")
    other.load_state_dict(state, assign=True)
    x = torch.randn(3, 64)
    torch.testing.assert_close(other(x.to("tpu")).cpu(), module(x), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("device", ["tpu", "tpu:0", torch.device("tpu"), 0])
def test_safetensors_load_to_the_device(device, tmp_path):
    safetensors = pytest.importorskip("safetensors")
    from safetensors.torch import load_file, save_file

    path = tmp_path / "x.safetensors"
    save_file({"a": base().clone(), "b": base(torch.bfloat16, "cpu")}, path)
    loaded = load_file(path, device=device)
    assert {t.device for t in loaded.values()} == {torch.device("tpu", 0)}
    assert torch.equal(loaded["a"].cpu(), base(device="cpu")) and loaded["b"].dtype is torch.bfloat16
    with safetensors.safe_open(path, framework="pt", device=device) as file:
        assert file.get_tensor("a").device.type == "tpu"
        assert file.get_slice("a")[1:, :2].tolist() == base(device="cpu")[1:, :2].tolist()
    assert load_file(path)["a"].device.type == "cpu"


@pytest.mark.parametrize("first", ["import safetensors.torch, torch_tpu", "import torch_tpu, safetensors.torch"])
def test_safetensors_in_either_order_of_imports(first, run_python, tmp_path):
    pytest.importorskip("safetensors")
    code = f"""
{first}
import torch
safetensors.torch.save_file({{"a": torch.ones(3)}}, "x.safetensors")
print(safetensors.torch.load_file("x.safetensors", device="tpu")["a"].device)
"""
    done = run_python(code, TORCH_DEVICE_BACKEND_AUTOLOAD="0")
    assert done.stdout == "tpu:0\n", done.stderr


def test_tensors_cannot_be_sent_to_other_processes():
    from multiprocessing.reduction import ForkingPickler

    import torch.multiprocessing

    for thing in (base(), torch.nn.Parameter(base()), torch.nn.Linear(2, 2).to("tpu"), base().untyped_storage()):
        with pytest.raises(RuntimeError, match=r"cannot be sent to another process.*send \.cpu\(\)"):
            ForkingPickler.dumps(thing)
    ForkingPickler.dumps(base(device="cpu"))


def test_workers_of_a_dataloader_may_be_forked_after_device_work():
    assert base().sum().item() == 66
    data = torch.utils.data.TensorDataset(torch.arange(8.0))
    loader = torch.utils.data.DataLoader(data, batch_size=2, num_workers=2, multiprocessing_context="fork")
    got = torch.cat([batch.to("tpu") for (batch,) in loader])
    assert got.tolist() == list(range(8))


def test_optimizers_keep_their_step_on_the_host():
    module = torch.nn.Linear(3, 2).to("tpu")

    def trained(**options):
        optimizer = torch.optim.AdamW(module.parameters(), **options)
        module(torch.ones(1, 3, device="tpu")).sum().backward()
        optimizer.step()
        return optimizer

    file = io.BytesIO()
    torch.save(trained().state_dict(), file)
    for options, where in (({}, "cpu"), ({"foreach": True}, "cpu"), ({"capturable": True}, "tpu")):
        file.seek(0)
        state = torch.load(file, map_location="tpu")
        state["param_groups"][0].update(options)
        optimizer = trained(**options)
        optimizer.load_state_dict(state)
        assert {s["step"].device.type for s in optimizer.state.values()} == {where}
        assert {s["exp_avg"].device.type for s in optimizer.state.values()} == {"tpu"}
        optimizer.step()
        assert all(s["step"].item() == 2 for s in optimizer.state.values())
