"""Run by test_devices.py where TORCH_TPU_CPU_DEVICES is 4."""

import threading

import pytest
import torch

DEVICES = [torch.device("tpu", i) for i in range(4)]


def test_they_are_counted_without_being_started(run_python):
    code = "import torch; print(torch.tpu.device_count(), torch.tpu.is_initialized())"
    assert run_python(code).stdout == "4 False\n"


@pytest.mark.parametrize("device", DEVICES, ids=str)
def test_a_model_trains_on_each(device):
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 2))
    there = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 2)).to(device)
    there.load_state_dict(model.state_dict())
    x = torch.randn(3, 4)
    for m, d in ((model, "cpu"), (there, device)):
        o = torch.optim.AdamW(m.parameters(), lr=0.1)
        for _ in range(3):
            o.zero_grad()
            m(x.to(d)).square().mean().backward()
            o.step()
    for p, q in zip(model.parameters(), there.parameters(), strict=True):
        assert q.device == q.grad.device == device
        torch.testing.assert_close(q.detach().cpu(), p.detach())


def test_a_model_split_over_two_differentiates_through_the_copy():
    a = torch.nn.Linear(4, 4).to("tpu:1")
    b = torch.nn.Linear(4, 4).to("tpu:3")
    x = torch.randn(2, 4, device="tpu:1", requires_grad=True)
    b(a(x).to("tpu:3")).sum().backward()
    want = (b.weight.detach().cpu().sum(0) @ a.weight.detach().cpu()).expand(2, 4)
    torch.testing.assert_close(x.grad.cpu(), want)
    assert a.weight.grad.device.index == 1 and b.weight.grad.device.index == 3


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int64, torch.bool, torch.complex64])
def test_copies_between_devices(dtype):
    a = (torch.arange(24) % 5).to(dtype).reshape(2, 3, 4).to("tpu:0")
    for view in (lambda t: t, lambda t: t.transpose(0, 2), lambda t: t[1], lambda t: t[:, 1:, ::2], lambda t: t[:0]):
        got = view(a).to("tpu:2")
        assert got.device == DEVICES[2] and got.stride() == view(a).cpu().to("tpu:2").stride()
        torch.testing.assert_close(got.cpu(), view(a.cpu()))
    into = torch.zeros(3, 4, dtype=dtype, device="tpu:1")
    into.t()[1:3].copy_(a[0, :, 1:3].t())
    want = torch.zeros(3, 4, dtype=dtype)
    want.t()[1:3].copy_(a.cpu()[0, :, 1:3].t())
    torch.testing.assert_close(into.cpu(), want)
    wide = torch.zeros(2, 3, 4, dtype=torch.float64, device="tpu:3") if not dtype.is_complex else None
    if wide is not None:
        wide.copy_(a[0])  # broadcast and converted
        torch.testing.assert_close(wide.cpu(), a.cpu()[0].to(torch.float64).expand(2, 3, 4))


def test_the_copy_is_of_the_moment():
    a = torch.ones(1000, device="tpu:0")
    b = a.to("tpu:1")
    a.add_(1)
    assert b.sum().item() == 1000 and a.sum().item() == 2000


def test_operands_of_two_devices_are_an_error():
    with pytest.raises(RuntimeError, match=r"Expected all tensors to be on the same device.*tpu:1 and tpu:2"):
        torch.ones(2, device="tpu:1") + torch.ones(2, device="tpu:2")


def test_the_current_device_decides_where_tensors_are_made():
    assert torch.tpu.current_device() == 0
    with torch.tpu.device(2):
        assert torch.empty(1, device="tpu").device.index == 2
        assert torch.randn(1, device="tpu").device.index == 2
        assert torch.tensor([1]).to("tpu").device.index == 2
        with torch.tpu.device("tpu:1"):
            assert torch.tpu.current_device() == 1
        assert torch.tpu.current_device() == 2
    assert torch.tpu.current_device() == 0
    with torch.device("tpu:3"):
        assert torch.zeros(2).device.index == 3
    x = torch.ones(2, device="tpu:2")
    with torch.tpu.device_of(x):
        assert torch.tpu.current_device() == 2
    # A result is where its operands are, whatever is current.
    assert (x + 1).device.index == 2 and torch.zeros_like(x).device.index == 2
    with pytest.raises(RuntimeError, match="tpu:4 does not exist: there are 4 tpu devices, the highest index is 3"):
        torch.empty(1, device="tpu:4")


def test_the_current_device_and_stream_are_of_the_thread():
    torch.tpu.set_device(1)
    seen = []
    thread = threading.Thread(target=lambda: seen.append(torch.tpu.current_device()))
    thread.start()
    thread.join()
    torch.tpu.set_device(0)
    assert seen == [0]


def test_memory_is_counted_for_each():
    before = [torch.tpu.memory_allocated(i) for i in range(4)]
    x = torch.ones(1 << 20, device="tpu:2")
    torch.tpu.synchronize(2)
    grown = [torch.tpu.memory_allocated(i) - b for i, b in enumerate(before)]
    assert grown == [0, 0, 4 << 20, 0]
    del x
    assert torch.tpu.memory_allocated(2) == before[2]


def test_generators_are_of_the_device_and_draw_the_same_numbers():
    torch.manual_seed(7)
    first = [torch.randn(5, device=d).cpu() for d in DEVICES]
    assert all(torch.equal(first[0], f) for f in first)
    assert not torch.equal(torch.randn(5, device="tpu:1").cpu(), first[0])
    states = torch.tpu.get_rng_state_all()
    a = torch.randn(3, device="tpu:3")
    torch.tpu.set_rng_state_all(states)
    assert torch.equal(torch.randn(3, device="tpu:3"), a)
    with torch.random.fork_rng([0, 3], device_type="tpu"):
        torch.randn(3, device="tpu:3")
    assert torch.equal(torch.tpu.get_rng_state(3), torch.tpu.get_rng_state("tpu:3"))


def test_a_file_goes_back_where_it_was_or_where_it_is_told(tmp_path):
    x = torch.arange(4.0, device="tpu:2")
    torch.save(x, tmp_path / "x")
    assert torch.load(tmp_path / "x").device == DEVICES[2]
    assert torch.load(tmp_path / "x", map_location="tpu:1").device == DEVICES[1]
    assert torch.load(tmp_path / "x", map_location={"tpu:2": "tpu:3"}).device == DEVICES[3]


def test_streams_are_of_a_device():
    for d in DEVICES:
        s = torch.Stream(device=d)
        assert s.device == d and s != torch.tpu.default_stream(d)
        with s:
            assert torch.tpu.current_stream(d) == s and torch.tpu.current_device() == d.index
            y = torch.ones(8, device=d) * 2
        assert torch.tpu.current_stream(d) == torch.tpu.default_stream(d)
        s.synchronize()
        assert s.query() and y.sum().item() == 16


def test_an_event_of_one_device_is_waited_for_by_another():
    a = torch.rand(400, 400, device="tpu:0")
    side = torch.Stream(device="tpu:1")
    for _ in range(10):
        a = a @ a * 0.01
    e = torch.tpu.current_stream(0).record_event()
    side.wait_event(e)
    done = side.record_event()
    done.synchronize()  # what was waited for is part of what is marked
    assert e.query()


def test_all_work_at_once_from_threads():
    results = {}

    def work(d):
        with torch.tpu.device(d):
            x = torch.full((64, 64), float(d.index + 1), device="tpu")
            for _ in range(50):
                x = (x @ x).clamp(max=float(d.index + 1))
            results[d.index] = x.mean().item()

    threads = [threading.Thread(target=work, args=(d,)) for d in DEVICES]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert results == {0: 1.0, 1: 2.0, 2: 3.0, 3: 4.0}


def test_a_batch_is_split_over_all():
    model = torch.nn.Linear(4, 2).to("tpu:0")
    x = torch.randn(8, 4, device="tpu:0")
    parts = [c.to(d) for c, d in zip(x.chunk(4), DEVICES, strict=True)]
    replicas = [torch.nn.Linear(4, 2).to(d) for d in DEVICES]
    for r in replicas:
        r.load_state_dict(model.state_dict())
    out = torch.cat([r(p).to("tpu:0") for r, p in zip(replicas, parts, strict=True)])
    torch.testing.assert_close(out.detach(), model(x).detach())
