"""Streams, events, and copies that return before they are done."""

import pytest
import torch

SIZE = 4 << 20  # elements: enough that a copy takes a while


def work():
    x = torch.rand(500, 500, device="tpu")
    for _ in range(8):
        x = (x @ x).softmax(0)
    return x


def test_the_classes_are_those_that_torch_compile_knows():
    assert torch.tpu.Stream is torch.Stream and torch.tpu.Event is torch.Event


def test_streams_are_handed_out_in_turn_by_priority():
    low = {torch.Stream(device="tpu").stream_id for _ in range(80)}
    high = {torch.Stream(device="tpu", priority=-1).stream_id for _ in range(80)}
    assert len(low) == len(high) == 32 and not low & high and 0 not in low | high


def test_work_is_of_the_stream_it_was_enqueued_on():
    busy, idle = torch.Stream(device="tpu"), torch.Stream(device="tpu")
    torch.tpu.synchronize()
    with busy:
        x = work()
        assert torch.tpu.current_stream() == busy
    started = busy.query()
    assert idle.query()
    busy.synchronize()
    assert busy.query() and x.isfinite().all()
    assert started in (False, True)  # a fast device may be done


def test_waiting_covers_the_other_streams_work():
    a, b, c = (torch.Stream(device="tpu") for _ in range(3))
    with a:
        work()
    marked = a.record_event()
    b.wait_event(marked)
    c.wait_stream(b)
    end = c.record_event()
    end.synchronize()
    assert marked.query() and end.query() and b.query()


def test_an_event_can_be_recorded_again_and_asked_before():
    e = torch.Event(device="tpu")
    assert e.query()  # nothing recorded is done
    e.synchronize()
    for _ in range(3):
        work()
        e.record()
    e.synchronize()
    assert e.query()


def test_elapsed_times_add_up():
    events = [torch.Event(enable_timing=True) for _ in range(3)]
    for e in events:
        work()
        e.record()
    torch.tpu.synchronize()
    for e in events:
        e.synchronize()
    first, second = events[0].elapsed_time(events[1]), events[1].elapsed_time(events[2])
    assert first >= 0 and second >= 0
    assert events[0].elapsed_time(events[2]) == pytest.approx(first + second)
    assert events[2].elapsed_time(events[0]) == pytest.approx(-first - second)


def test_elapsed_time_needs_events_that_tell_it():
    a, b = torch.Event(device="tpu"), torch.Event(device="tpu", enable_timing=True)
    a.record()
    b.record()
    torch.tpu.synchronize()
    with pytest.raises(ValueError, match="enable_timing=True"):
        a.elapsed_time(b)


def test_values_follow_the_program_whatever_the_stream():
    side = torch.Stream(device="tpu")
    x = torch.zeros(1000, device="tpu")
    for i in range(50):
        if i % 2:
            with side:
                x.add_(1)
        else:
            x.add_(1)
    x.record_stream(side)
    assert x.sum().item() == 50_000


def test_a_pinned_copy_to_the_device_arrives():
    host = torch.arange(SIZE, dtype=torch.float32).pin_memory()
    x = host.to("tpu", non_blocking=True)
    y = torch.empty(SIZE, device="tpu")
    y.copy_(host, non_blocking=True)
    want = host.sum(dtype=torch.float64).item()
    del host  # the copy keeps it
    torch.empty(SIZE).fill_(-1)
    assert x.sum(dtype=torch.float64).item() == y.sum(dtype=torch.float64).item() == want


def test_a_pinned_copy_from_the_device_is_there_after_the_event():
    x = torch.arange(SIZE, dtype=torch.float32, device="tpu")
    host = torch.zeros(SIZE).pin_memory()
    side = torch.Stream(device="tpu")
    with side:
        host.copy_(x, non_blocking=True)
        e = side.record_event()
    x.zero_()  # the copy is of the value before
    e.synchronize()
    assert torch.equal(host, torch.arange(SIZE, dtype=torch.float32))
    x.fill_(3)
    other = torch.empty(SIZE).pin_memory().copy_(x, non_blocking=True)
    torch.tpu.synchronize()
    assert other.eq(3).all()


def test_what_is_not_pinned_or_not_plain_waits():
    x = torch.arange(24.0, device="tpu").reshape(4, 6)
    pageable = torch.zeros(4, 6)
    assert torch.equal(pageable.copy_(x, non_blocking=True), torch.arange(24.0).reshape(4, 6))
    host = torch.zeros(6, 4, dtype=torch.float64).pin_memory()
    host.t().copy_(x, non_blocking=True)
    assert torch.equal(host, torch.arange(24.0, dtype=torch.float64).reshape(4, 6).t())


def test_to_the_cpu_without_waiting_gives_pinned_memory_to_wait_for():
    x = torch.arange(SIZE, device="tpu")
    host = x.to("cpu", non_blocking=True)
    torch.tpu.synchronize()
    assert host.is_pinned() and torch.equal(host, torch.arange(SIZE))


def test_a_failed_computation_is_raised_by_the_copy_or_the_event():
    x = torch.ones(4, device="tpu")[torch.tensor([9], device="tpu")]
    host = torch.zeros(1).pin_memory()
    with pytest.raises(IndexError, match="index 9 is out of bounds"):
        host.copy_(x, non_blocking=True)
        e = torch.tpu.current_stream().record_event()
        e.synchronize()


def test_a_loader_with_pinned_batches():
    data = torch.utils.data.TensorDataset(torch.arange(64.0).reshape(32, 2), torch.arange(32))
    loader = torch.utils.data.DataLoader(data, batch_size=8, num_workers=2, pin_memory=True)
    total = 0.0
    for x, y in loader:
        assert x.is_pinned() and y.is_pinned()
        total += (x.to("tpu", non_blocking=True).sum(1) * y.to("tpu", non_blocking=True)).sum().item()
    want = (torch.arange(64.0).reshape(32, 2).sum(1) * torch.arange(32)).sum().item()
    assert total == want
