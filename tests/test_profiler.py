"""torch.profiler with the device's activities: what is recorded, when, and what it is linked to."""

import collections
import json
import threading

import pytest
import torch
from torch.autograd import DeviceType
from torch.profiler import ProfilerActivity, profile, record_function

BOTH = [ProfilerActivity.CPU, ProfilerActivity.PrivateUse1]
DEVICE_CATEGORIES = ("kernel", "gpu_memcpy")


@pytest.fixture
def traced(tmp_path):
    """traced(function, **options of profile): the profiler, and the complete and flow events of its Chrome trace."""

    def trace(function, **options):
        torch.tpu.synchronize()
        with profile(**{"activities": BOTH, **options}) as prof:
            function()
        path = tmp_path / "trace.json"
        prof.export_chrome_trace(str(path))
        return prof, [e for e in json.loads(path.read_text())["traceEvents"] if e["ph"] in "Xsf"]

    return trace


def of(events, category):
    return [e for e in events if e["ph"] == "X" and e.get("cat") == category]


def names(events, category):
    return collections.Counter(e["name"] for e in of(events, category))


def end(event):
    return event["ts"] + event["dur"]


def is_within(inner, outer):
    # Times are printed in microseconds with three decimals.
    return inner["ts"] >= outer["ts"] - 0.002 and end(inner) <= end(outer) + 0.002


@pytest.fixture
def x():
    t = torch.arange(64.0, device="tpu").reshape(8, 8)
    t + t, t @ t, t.relu(), t.sum().item()  # known from now on
    return t


def test_is_a_supported_activity():
    assert ProfilerActivity.PrivateUse1 in torch.profiler.supported_activities()
    assert ProfilerActivity.TPU is ProfilerActivity.PrivateUse1


def test_counts_runs_and_names_them(traced, x):
    def work():
        for _ in range(5):
            x + x
        x @ x

    _, events = traced(work)
    assert names(events, "kernel") == {"XLA aten::add.Tensor": 5, "XLA aten::mm": 1}
    assert names(events, "privateuse1_runtime")["PJRT_LoadedExecutable_Execute"] == 6
    assert not of(events, "gpu_memcpy")


def test_links_each_activity_to_its_op(traced, x):
    _, events = traced(lambda: [x + x, (x @ x).relu(), (x + x).cpu()])
    ops = {e["args"]["External id"]: e for e in of(events, "cpu_op")}
    expected = {
        "XLA aten::add.Tensor": "aten::add",
        "XLA aten::mm": "aten::mm",
        "XLA aten::relu": "aten::relu",
        "Memcpy DtoH": "aten::_copy_from",
    }
    device_events = [e for category in DEVICE_CATEGORIES for e in of(events, category)]
    assert len(device_events) == 5
    for e in device_events:
        assert ops[e["args"]["External id"]]["name"] == expected[e["name"]]
        assert e["ts"] >= ops[e["args"]["External id"]]["ts"] - 0.002
    calls = of(events, "privateuse1_runtime")
    assert calls
    for call in calls:
        op = ops[call["args"]["External id"]]
        assert is_within(call, op) and (call["pid"], call["tid"]) == (op["pid"], op["tid"])


def test_flows_lead_from_calls_to_the_device(traced, x):
    _, events = traced(lambda: [x + x, (x @ x).cpu()])
    starts = {e["id"]: e for e in events if e["ph"] == "s" and e["cat"] == "ac2g"}
    finishes = {e["id"]: e for e in events if e["ph"] == "f" and e["cat"] == "ac2g"}
    device_events = {e["args"]["correlation"]: e for c in DEVICE_CATEGORIES for e in of(events, c)}
    calls = {e["args"]["correlation"]: e for e in of(events, "privateuse1_runtime")}
    assert len(device_events) == 3 and starts.keys() == finishes.keys() == device_events.keys()
    for key, e in device_events.items():
        assert (finishes[key]["pid"], finishes[key]["tid"], finishes[key]["ts"]) == (e["pid"], e["tid"], e["ts"])
        assert (starts[key]["tid"], starts[key]["ts"]) == (calls[key]["tid"], calls[key]["ts"])


def test_rows_are_ordered_and_do_not_overlap(traced, x):
    big = torch.ones(300, 300, device="tpu")

    def work():
        for _ in range(30):
            x + x
            big @ big
        big.cpu()

    _, events = traced(work)
    window = next(e for e in events if e.get("cat") == "Trace" and e["name"].startswith("tpu"))
    rows = collections.defaultdict(list)
    for category in DEVICE_CATEGORIES:
        for e in of(events, category):
            assert e["dur"] > 0 and is_within(e, window)
            rows[e["pid"], e["tid"]].append(e)
    assert len(rows) == 2
    for row in rows.values():
        row.sort(key=lambda e: e["ts"])
        for a, b in zip(row, row[1:]):
            assert end(a) <= b["ts"] + 0.002


def test_key_averages(traced, x):
    prof, events = traced(lambda: [x @ x, x @ x, x + x])
    table = prof.key_averages()
    rows = {(row.key, row.device_type): row for row in table}
    device_us = sum(e["dur"] for e in of(events, "kernel") if e["name"] == "XLA aten::mm")
    on_host, on_device = rows["aten::mm", DeviceType.CPU], rows["XLA aten::mm", DeviceType.PrivateUse1]
    assert on_host.count == on_device.count == 2
    assert on_host.self_device_time_total == pytest.approx(device_us, abs=0.01)
    assert on_device.self_device_time_total == pytest.approx(device_us, abs=0.01)
    assert rows["aten::matmul", DeviceType.CPU].device_time_total == pytest.approx(device_us, abs=0.01)
    assert rows["aten::matmul", DeviceType.CPU].self_device_time_total == 0
    text = table.table(sort_by="self_device_time_total")
    assert "Self TPU" in text and "TPU time avg" in text and "Self TPU time total" in text


def test_tells_what_is_compiled_and_why(run_python, tmp_path):
    code = f"""
import json, torch
from torch.autograd import DeviceType
from torch.profiler import ProfilerActivity, profile
x = torch.ones(3, device="tpu")
with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.PrivateUse1]) as prof:
    x.exp(), x.exp()
    x[:2].exp()
prof.export_chrome_trace({str(tmp_path / "t.json")!r})
"""
    run = run_python(code, TORCH_TPU_CACHE="0")
    assert run.returncode == 0, run.stderr
    events = [e for e in json.loads((tmp_path / "t.json").read_text())["traceEvents"] if e["ph"] == "X"]
    compiles = [e for e in events if e["name"] == "PJRT_Client_Compile"]
    assert [e["args"]["op"] for e in compiles] == ["aten::exp", "aten::exp"]
    assert "first call" in compiles[0]["args"]["reason"] and "nearest known" in compiles[1]["args"]["reason"]
    assert names(events, "kernel") == {"XLA aten::exp": 3}


def test_reading_a_program_from_disk_is_no_compile(run_python, tmp_path):
    code = f"""
import json, torch
from torch.autograd import DeviceType
from torch.profiler import ProfilerActivity, profile
x = torch.ones(3, device="tpu")
with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.PrivateUse1]) as prof:
    x.expm1()
prof.export_chrome_trace({str(tmp_path / "t.json")!r})
"""
    for expected in ("PJRT_Client_Compile", "PJRT_Executable_DeserializeAndLoad"):
        run = run_python(code, TORCH_TPU_CACHE_DIR=str(tmp_path / "cache"))
        assert run.returncode == 0, run.stderr
        events = [e for e in json.loads((tmp_path / "t.json").read_text())["traceEvents"] if e["ph"] == "X"]
        found = [e["name"] for e in events if e.get("args", {}).get("op") == "aten::expm1"]
        assert found == [expected, "PJRT_LoadedExecutable_Execute"]


def test_copies(traced):
    host = torch.ones(1000)

    def work():
        t = host.to("tpu")
        t.cpu()
        t[0].item()

    traced(work)
    _, events = traced(work)
    copies = [(e["name"], e["args"]["bytes"]) for e in sorted(of(events, "gpu_memcpy"), key=lambda e: e["ts"])]
    # The start of the view t[0] is a run-time number, which the device knows already.
    assert copies == [("Memcpy HtoD", 4000), ("Memcpy DtoH", 4000), ("Memcpy DtoH", 4)]


def test_copies_that_return_early(traced):
    host = torch.ones(1000).pin_memory()
    back = torch.empty(1000).pin_memory()

    def work():
        t = host.to("tpu", non_blocking=True)
        back.copy_(t, non_blocking=True)
        torch.tpu.synchronize()

    _, events = traced(work)
    assert names(events, "gpu_memcpy") == {"Memcpy HtoD": 1, "Memcpy DtoH": 1}
    assert torch.equal(back, host)


def test_waits(traced):
    big = torch.ones(1500, 1500, device="tpu")
    big @ big

    def work():
        big @ big
        torch.tpu.synchronize()
        (big @ big).cpu()

    _, events = traced(work)
    calls = sorted(of(events, "privateuse1_runtime"), key=lambda e: e["ts"])
    execute, wait = "PJRT_LoadedExecutable_Execute", "PJRT_Event_Await"
    # Reading a result is not part of the wait for it.
    assert [e["name"] for e in calls] == [execute, wait, execute, wait, "PJRT_Buffer_ToHostBuffer"]
    assert all(end(a) <= b["ts"] + 0.002 for a, b in zip(calls, calls[1:]))
    assert of(events, "gpu_memcpy")[0]["ts"] >= end(calls[3])


def test_ranges_appear_on_the_device(traced, x):
    def work():
        with record_function("outer"):
            x + x
            with record_function("inner"):
                x @ x
        x.relu()

    prof, events = traced(work)
    ranges = {e["name"]: e for e in of(events, "gpu_user_annotation")}
    runs = {e["name"]: e for e in of(events, "kernel")}
    assert ranges.keys() == {"outer", "inner"}
    assert is_within(runs["XLA aten::add.Tensor"], ranges["outer"]) and is_within(runs["XLA aten::mm"], ranges["inner"])
    assert is_within(ranges["inner"], ranges["outer"]) and not is_within(runs["XLA aten::relu"], ranges["outer"])
    # They take no time of their own.
    rows = {(row.key, row.device_type): row for row in prof.key_averages()}
    inside = runs["XLA aten::add.Tensor"]["dur"] + runs["XLA aten::mm"]["dur"]
    assert rows["outer", DeviceType.CPU].device_time_total == pytest.approx(inside, abs=0.01)


def test_backward(traced):
    model = torch.nn.Linear(8, 8).to("tpu")
    data = torch.ones(4, 8, device="tpu")
    model(data).sum().backward()
    _, events = traced(lambda: model(data).sum().backward())
    ops = {e["args"]["External id"]: e for e in of(events, "cpu_op")}
    by_thread = collections.Counter(ops[e["args"]["External id"]]["tid"] for e in of(events, "kernel"))
    assert len(by_thread) == 2  # the thread of the forward pass, and autograd's


def test_other_threads(traced, x):
    def work():
        thread = threading.Thread(target=lambda: [x + x for _ in range(7)])
        thread.start()
        for _ in range(5):
            x @ x
        thread.join()

    _, events = traced(work)
    assert names(events, "kernel") == {"XLA aten::add.Tensor": 7, "XLA aten::mm": 5}
    calls = collections.Counter(
        e["tid"] for e in of(events, "privateuse1_runtime") if e["name"] == "PJRT_LoadedExecutable_Execute"
    )
    assert sorted(calls.values()) == [5, 7]
    # The profiler follows ops on its own thread, so the others' runs have no op.
    assert sum("External id" in e["args"] for e in of(events, "kernel")) == 5


def test_streams_are_rows(traced, x):
    stream = torch.tpu.Stream()

    def work():
        x + x
        with torch.tpu.stream(stream):
            x @ x

    _, events = traced(work)
    rows = {e["name"]: (e["tid"], e["args"]["stream"]) for e in of(events, "kernel")}
    assert rows == {"XLA aten::add.Tensor": (0, 0), "XLA aten::mm": (stream.stream_id, stream.stream_id)}


def test_nothing_is_recorded_outside(traced, x):
    x @ x
    _, events = traced(lambda: x + x)
    x @ x
    assert names(events, "kernel") == {"XLA aten::add.Tensor": 1}
    _, events = traced(lambda: x.relu())
    assert names(events, "kernel") == {"XLA aten::relu": 1}
    _, events = traced(lambda: x + x, activities=[ProfilerActivity.CPU])
    assert not of(events, "kernel") and not of(events, "privateuse1_runtime")
    _, events = traced(lambda: x + x, activities=[ProfilerActivity.PrivateUse1])
    assert names(events, "kernel") == {"XLA aten::add.Tensor": 1} and not of(events, "cpu_op")


def test_errors_inside(traced, x):
    def work():
        x + x
        with pytest.raises(RuntimeError, match="must match"):
            x + torch.ones(3, device="tpu")
        with pytest.raises(IndexError):
            x[torch.tensor([100], device="tpu")].cpu()
        x @ x

    traced(work)
    prof, events = traced(work)
    runs = names(events, "kernel")
    assert runs["XLA aten::add.Tensor"] == 1 and runs["XLA aten::mm"] == 1
    with pytest.raises(ValueError):
        traced(lambda: [x + x, int("x")])
    _, events = traced(lambda: x + x)
    assert names(events, "kernel") == {"XLA aten::add.Tensor": 1}


def test_schedule(x, tmp_path):
    seen = []
    schedule = torch.profiler.schedule(wait=1, warmup=1, active=2, repeat=2)
    handler = torch.profiler.tensorboard_trace_handler(str(tmp_path), worker_name="w")

    def ready(prof):
        seen.append(collections.Counter(e.name for e in prof.events() if e.device_type == DeviceType.PrivateUse1))
        handler(prof)

    with profile(activities=BOTH, schedule=schedule, on_trace_ready=ready) as prof:
        for _ in range(8):
            x + x
            torch.tpu.synchronize()
            prof.step()
    assert [s["XLA aten::add.Tensor"] for s in seen] == [2, 2]
    assert len(list(tmp_path.glob("w.*.pt.trace.json"))) == 2


@pytest.mark.parametrize("use_kineto", [True, False])
def test_autograd_profiler(x, use_kineto):
    with torch.autograd.profiler.profile(use_device="tpu", use_kineto=use_kineto) as prof:
        x @ x
    row = next(r for r in prof.key_averages() if r.key == "aten::mm" and r.device_type == DeviceType.CPU)
    assert 0 < row.self_device_time_total <= row.device_time_total and row.cpu_time_total > 0


def test_shapes_and_stacks(traced, x):
    import torch.profiler._cupti_monitor  # noqa: F401  (torch names a module wrongly that is imported meanwhile)

    prof, _ = traced(lambda: x @ x, record_shapes=True, with_stack=True)
    row = next(r for r in prof.key_averages(group_by_input_shape=True) if r.key == "aten::mm")
    assert row.input_shapes == [[8, 8], [8, 8]] and row.self_device_time_total > 0


def test_memory(traced):
    kept = []

    def work():
        x = torch.arange(1000.0, device="tpu")
        y = x + x
        kept.append(y @ y)
        kept.append(y.relu())
        del x

    work()
    kept.clear()
    before = torch.tpu.memory_stats()["allocated_bytes.all.current"]
    prof, _ = traced(work, profile_memory=True)
    after = torch.tpu.memory_stats()["allocated_bytes.all.current"]
    events = [e for e in prof.profiler.kineto_results.events() if e.name() == "[memory]"]
    events = [e for e in events if e.device_type() == DeviceType.PrivateUse1]
    assert sum(e.nbytes() for e in events) == after - before == 4004
    assert sorted(e.nbytes() for e in events) == [-4000, -4000, 4, 4000, 4000, 4000]
    rows = {r.key: r for r in prof.key_averages()}
    assert rows["aten::add"].self_device_memory_usage == 4000
    assert "TPU Mem" in prof.key_averages().table()


def test_memory_totals_and_addresses(tmp_path):
    from torch._C._profiler import _EventType

    with profile(activities=BOTH, profile_memory=True, record_shapes=True, with_stack=True) as prof:
        x = torch.arange(1000.0, device="tpu")
        y = x + x
        held = torch.tpu.memory_allocated()
    nodes, found = list(prof.profiler.kineto_results.experimental_event_tree()), []
    while nodes:
        node = nodes.pop()
        nodes.extend(node.children)
        if node.tag == _EventType.Allocation and node.extra_fields.device.type == "tpu":
            found.append((node.start_time_ns, node.extra_fields))
    found.sort(key=lambda f: f[0])
    assert [(f.ptr, f.alloc_size) for _, f in found] == [(x.data_ptr(), 4000), (y.data_ptr(), 4000)]
    assert found[-1][1].total_allocated == held
    path = tmp_path / "memory.json"
    prof.export_memory_timeline(str(path), device="tpu:0")
    times, sizes = json.loads(path.read_text())
    assert len(times) == len(sizes) and max(sum(s) for s in sizes) >= 8000
