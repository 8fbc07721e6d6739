"""Bad surroundings: a cache that cannot be used, forks, interrupts, the end of the process, too little memory.

Each scenario runs in a process of its own, forked from one that has imported torch and not started the device.
"""

import json
import pathlib
import re
import subprocess
import sys
import textwrap

import pytest
import torch

FORKER = """
import os, sys, json, resource, signal, threading, time, gc
import torch

def start(environment, code, out):
    pid = os.fork()
    if pid:
        return pid
    os.environ.update(environment)
    for number, name in enumerate(("out", "err"), 1):
        os.dup2(os.open(f"{out}.{name}", os.O_CREAT | os.O_WRONLY, 0o600), number)
    # Not inside this function's frames: the scenario ends as a script does.
    return (code,)

for step in json.load(sys.stdin):
    pids = []
    for environment, code, out in step:
        started = start(environment, code, out)
        if isinstance(started, tuple):
            exec(compile(started[0], "scenario", "exec"), {**globals(), "__name__": "__main__"})
            sys.exit()
        pids.append((started, out))
    for pid, out in pids:
        status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        open(out + ".status", "w").write(str(status))
"""

# Few and small programs: (4, 3) tensors and what reads them.
WORK = """
x = torch.arange(12, dtype=torch.float32).reshape(4, 3).to("tpu")
assert torch.equal((x * 2 + 1).cpu(), torch.arange(12, dtype=torch.float32).reshape(4, 3) * 2 + 1)
assert x.softmax(1).argmax(1).tolist() == [2, 2, 2, 2]
print(json.dumps({k: v for k, v in torch.tpu.counters().items() if isinstance(v, int)}))
"""

# One program that takes long to compile.
LONG_COMPILE = """
def tensors(value):
    return [torch.full((2 + i, 3), value).to("tpu") for i in range(30)]
parameters, gradients, first, second = tensors(1.0), tensors(1.0), tensors(0.0), tensors(0.0)
steps = [torch.ones(()).to("tpu") for _ in parameters]
torch.tpu.synchronize()
def long_compile():
    torch._fused_adamw_(
        parameters, gradients, first, second, [], steps,
        lr=1e-3, beta1=0.9, beta2=0.99, weight_decay=0.1, eps=1e-8, amsgrad=False, maximize=False,
    )
"""


class Done:
    def __init__(self, path: str):
        self.status, self.out, self.err = ((pathlib.Path(f"{path}.{n}")).read_text() for n in ("status", "out", "err"))
        self.status = int(self.status)

    def check(self) -> "Done":
        assert (self.status, self.err) == (0, ""), (self.status, self.out, self.err)
        return self

    @property
    def counters(self) -> dict[str, int]:
        return json.loads(self.check().out)


@pytest.fixture
def scenarios(tmp_path):
    """scenarios(*steps): each step is a list of (code, environment) that run at once; returns lists of Done."""

    def run(*steps: list[tuple[str, dict[str, str]]], timeout: float = 120) -> list[list[Done]]:
        plan = [
            [
                (environment, textwrap.dedent(code), str(tmp_path / f"{i}.{j}"))
                for j, (code, environment) in enumerate(step)
            ]
            for i, step in enumerate(steps)
        ]
        subprocess.run(
            [sys.executable, "-c", FORKER], cwd=tmp_path, input=json.dumps(plan), text=True, check=True, timeout=timeout
        )
        return [[Done(out) for _, _, out in step] for step in plan]

    return run


def test_two_processes_fill_one_cache_at_once_and_a_third_compiles_nothing(scenarios, tmp_path):
    cache = {"TORCH_TPU_CACHE_DIR": str(tmp_path / "cache")}
    (one, other), (third,) = scenarios([(WORK, cache), (WORK, cache)], [(WORK, cache)])
    assert one.counters["disk_failures"] == other.counters["disk_failures"] == 0
    assert third.counters["compiles"] == 0 < third.counters["disk_hits"]


def test_a_cache_that_cannot_be_used_costs_compiles_only(scenarios, tmp_path):
    shared = tmp_path / "shared"
    shared.mkdir()
    shared.chmod(0o777)
    full = "resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))\n" + WORK
    steps = scenarios(
        [(WORK, {"TORCH_TPU_CACHE_DIR": str(shared)})],
        [(full, {"TORCH_TPU_CACHE_DIR": str(tmp_path / "full")})],
        # Not even root can write there.
        [(WORK, {"TORCH_TPU_CACHE_DIR": "/proc/self/fdinfo"})],
        [(WORK, {"TORCH_TPU_CACHE_DIR": "/proc/absent/cache"})],
        [(WORK, {"TORCH_TPU_CACHE": "0"})],
    )
    not_private, full_disk, read_only, impossible, off = (step[0].counters for step in steps)
    for counters in (not_private, full_disk, read_only, impossible, off):
        assert counters["compiles"] > 0 and counters["disk_hits"] == counters["disk_stores"] == 0
    assert list(shared.iterdir()) == [] == list((tmp_path / "full").iterdir())
    assert full_disk["disk_failures"] == full_disk["compiles"]
    assert read_only["disk_failures"] == read_only["compiles"]


def test_damaged_files_in_the_cache_are_compiled_anew(scenarios, tmp_path):
    cache = tmp_path / "cache"
    environment = {"TORCH_TPU_CACHE_DIR": str(cache)}
    damage = f"""
    import pathlib
    for i, path in enumerate(sorted(pathlib.Path({str(cache)!r}).iterdir())):
        content = path.read_bytes()
        half = len(content) // 2
        changed = content[:half], content[:half] + bytes([content[half] ^ 1]) + content[half + 1 :], b"", b"#!/bin/sh"
        path.write_bytes(changed[i % 4])
    """
    (first,), (damaged,), (again,), (after,) = scenarios(
        [(WORK, environment)], [(damage, {})], [(WORK, environment)], [(WORK, environment)]
    )
    damaged.check()
    assert again.counters["disk_hits"] == 0 and again.counters["compiles"] == first.counters["compiles"]
    assert after.counters["compiles"] == 0


def test_an_interrupt_in_a_long_compile(scenarios, tmp_path):
    interrupted = """
    threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGINT)).start()
    try:
        long_compile()
        time.sleep(10)
    except KeyboardInterrupt:
        print("interrupted")
    assert (torch.ones(3, device="tpu") + 1).tolist() == [2, 2, 2]
    """
    killed = """
    threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGKILL)).start()
    long_compile()
    time.sleep(10)
    """
    value = "\nlong_compile()\nprint(parameters[0][0].tolist())\n"
    cache = {"TORCH_TPU_CACHE_DIR": str(tmp_path / "cache")}
    (dead,), (stopped,), (after,) = scenarios(
        [(LONG_COMPILE + textwrap.dedent(killed), cache)],
        [(LONG_COMPILE + textwrap.dedent(interrupted), cache)],
        [(LONG_COMPILE + value, cache)],
    )
    assert dead.status == -9
    assert stopped.check().out == "interrupted\n"
    expected = 1 - 1e-3 * 0.1 - 1e-3
    assert json.loads(after.check().out) == pytest.approx([expected] * 3, rel=1e-6)


def test_an_interrupt_while_a_decomposition_is_recorded_is_not_lost(scenarios):
    code = """
    def sample(n):
        return torch.renorm(torch.full((n, 4), 3.0, device="tpu"), 2, 0, 2.0)
    sample(1)
    assert torch.tpu.counters()["decompositions"]
    for n in range(2, 18):
        try:
            threading.Timer(0.002 * n, os.kill, (os.getpid(), signal.SIGINT)).start()
            sample(n)
            time.sleep(5)
            raise AssertionError("the interrupt was lost")
        except KeyboardInterrupt:
            pass
    assert torch.allclose(sample(3).cpu(), torch.ones(3, 4))
    assert torch.tpu.counters()["fallbacks"] == {}
    """
    scenarios([(code, {"TORCH_TPU_CACHE": "0"})])[0][0].check()


def test_the_process_ends_while_another_thread_compiles_or_works(scenarios):
    compiling = """
    threading.Thread(target=long_compile, daemon=True).start()
    time.sleep(0.1)
    """
    compiling_always = """
    def work():
        for n in range(1, 10000):
            torch.ones(n, device="tpu").exp()
    for _ in range(3):
        threading.Thread(target=work, daemon=True).start()
    time.sleep(0.3)
    """
    # Ours is not the last of the functions that run at exit.
    used_at_exit = """
    import atexit
    from torch_tpu import _loader
    x = torch.ones(3, device="tpu")
    atexit.unregister(_loader._shut_down)
    atexit.register(lambda: print((x + 1).tolist()))
    atexit.register(_loader._shut_down)
    threading.Thread(target=long_compile, daemon=True).start()
    """
    off = {"TORCH_TPU_CACHE": "0"}
    (first,), (second,), (third,) = scenarios(
        [(LONG_COMPILE + textwrap.dedent(compiling), off)],
        [(compiling_always, off)],
        [(LONG_COMPILE + textwrap.dedent(used_at_exit), off)],
    )
    first.check()
    second.check()
    assert third.check().out == "[2.0, 2.0, 2.0]\n"


def test_a_fork_of_a_process_that_used_the_device(scenarios):
    code = """
    x = torch.ones(3, device="tpu") + 1
    lazy = torch.empty(3, device="tpu")
    torch.tpu.synchronize()
    pid = os.fork()
    if pid == 0:
        uses = [
            lambda: x + 1, lambda: x.cpu(), lambda: x[0].item(), lambda: str(x), lambda: lazy.tolist(),
            lambda: torch.ones(2, device="tpu"), lambda: torch.ones(2).to("tpu"), lambda: torch.rand(2, device="tpu"),
            lambda: torch.tpu.synchronize(), lambda: torch.tpu.init(), lambda: torch.tpu.memory_allocated(),
        ]
        for use in uses:
            try:
                use()
            except RuntimeError as error:
                assert "in a forked process" in str(error) and "spawn" in str(error), error
            else:
                raise AssertionError(uses.index(use))
        torch.manual_seed(1)
        assert torch.tpu._is_in_bad_fork() and not torch.tpu.is_initialized()
        assert torch.tpu.is_available() and torch.tpu.device_count() == 1
        del uses, use, x, lazy
        gc.collect()
        assert (torch.ones(2) + 1).tolist() == [2, 2]
        sys.exit(7)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 7
    assert (x + 1).tolist() == [3, 3, 3]
    """
    scenarios([(code, {})])[0][0].check()


def test_data_loader_workers_beside_a_device_in_use(scenarios):
    code = """
    from torch.utils.data import DataLoader, TensorDataset
    total = torch.zeros((), device="tpu")
    kept = [torch.ones(4, device="tpu") for _ in range(10)]
    data = TensorDataset(torch.arange(16.0))
    for _ in range(2):
        for (batch,) in DataLoader(data, batch_size=4, num_workers=2):
            del kept[:1]
            total += batch.to("tpu").sum()
    assert total.item() == 240
    # What touches the device in a worker is one clear error here.
    try:
        list(DataLoader(TensorDataset(torch.arange(16.0).to("tpu")), batch_size=4, num_workers=1))
    except RuntimeError as error:
        assert "Cannot use the tpu device in a forked process" in str(error), error
    else:
        raise AssertionError("no error")
    """
    scenarios([(code, {})])[0][0].check()


def test_a_plugin_that_does_not_work_is_one_sentence(scenarios, tmp_path):
    (tmp_path / "broken.so").write_bytes(b"\x7fELF nothing")
    code = """
    for use in (lambda: torch.ones(1, device="tpu"), lambda: torch.ones(1).to("tpu"), lambda: torch.tpu.init()):
        try:
            use()
        except RuntimeError as error:
            print(error)
        else:
            raise AssertionError("no error")
    assert (torch.ones(2) + 1).tolist() == [2, 2]
    """
    library = f"{torch.__path__[0]}/lib/libc10.so"
    paths = (str(tmp_path / "none.so"), str(tmp_path / "broken.so"), library)
    steps = scenarios(*([(code, {"TORCH_TPU_PLUGIN": path})] for path in paths))
    for path, (done,) in zip(paths, steps, strict=True):
        lines = done.check().out.splitlines()
        assert len(lines) == 3 and len(set(lines)) == 1, done.out
        assert path in lines[0]


HUGE = 1 << 41  # elements: more bytes than any machine has, less than it can address


@pytest.mark.parametrize(
    "use",
    [
        lambda: torch.ones(3, device="tpu").resize_(HUGE),
        lambda: torch.zeros(HUGE, device="tpu"),
        lambda: torch.full((HUGE,), 2.0, device="tpu"),
        lambda: torch.rand(HUGE, device="tpu").sum().item(),
        lambda: torch.ones(1, device="tpu").expand(HUGE).contiguous(),
        lambda: torch.empty(HUGE, device="tpu").add_(1),
        lambda: torch.empty(1 << 60, device="tpu"),
        lambda: torch.ones(1, device="tpu").expand(1 << 62).sum(),
    ],
    ids=[
        "resize",
        "zeros",
        "full",
        "found while it runs",
        "contiguous",
        "in place",
        "empty",
        "more than can be counted",
    ],
)
def test_too_little_memory_is_an_error_after_which_all_goes_on(use):
    before = torch.tpu.memory_allocated()
    with pytest.raises(torch.OutOfMemoryError, match=r"^The tpu device"):
        use()
    assert (torch.ones(3, device="tpu") + 1).tolist() == [2, 2, 2]
    assert torch.tpu.memory_allocated() <= before + 1024


def test_a_failed_op_in_place_changes_nothing():
    x = torch.ones(3, device="tpu")
    with pytest.raises(torch.OutOfMemoryError):
        x.resize_(HUGE).add_(1)
    x.resize_(3)
    assert torch.equal(x.cpu(), torch.ones(3))


def resident_bytes() -> int:
    return int(re.search(r"VmRSS:\s+(\d+)", pathlib.Path("/proc/self/status").read_text())[1]) * 1024


def test_memory_stays_flat_over_many_small_ops():
    x = torch.ones(8, 8, device="tpu")

    def work(n):
        y = x
        for i in range(n):
            y = y * 0.5 + i  # another number each time
            y[i % 8].add_(1)
        return y.sum().item()

    work(2000)
    allocated, resident = torch.tpu.memory_allocated(), resident_bytes()
    work(16000)  # three ops and more each
    assert torch.tpu.memory_allocated() <= allocated + 64 * 1024
    assert resident_bytes() - resident < 4 << 20
