"""Process groups of several processes (ranks.py), and what goes wrong between them."""

import json
import pathlib

import pytest
from ranks import PROGRAMS

WORLD = 4


@pytest.fixture(scope="module")
def ranks(tmp_path_factory):
    import subprocess
    import sys

    folder = tmp_path_factory.mktemp("ranks")
    file = pathlib.Path(__file__).with_name("ranks.py")
    done = subprocess.run(
        [sys.executable, str(file), str(WORLD), str(folder / "store"), str(folder / "out")],
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )
    files = sorted(folder.glob("out.*"))
    assert len(files) == WORLD, done.stdout[-2000:] + done.stderr[-4000:]
    return [json.loads(f.read_text()) for f in files]


@pytest.mark.parametrize("name", PROGRAMS)
def test_equals_gloo_on_cpu_tensors(ranks, name):
    for rank, said in enumerate(ranks):
        assert said["results"].get(name, "not reached") == "ok", f"rank {rank}: {said['results'].get(name)}"


def test_nothing_ran_on_the_cpu(ranks):
    assert all(said["fallbacks"] == {} for said in ranks)


ONE_RANK = """
import torch, torch.distributed as dist, tempfile
dist.init_process_group({backend}init_method="file://" + tempfile.mktemp(), rank=0, world_size=1)
print(dist.get_backend_config())
t = torch.ones(3, device="tpu")
dist.all_reduce(t)
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(2, 2).to("tpu"))
model(torch.ones(1, 2, device="tpu")).sum().backward()
print(t.tolist(), model.module.bias.grad.tolist())
dist.destroy_process_group()
"""


@pytest.mark.parametrize("backend", ["", '"tpu", ', '"tpu_dist", ', '"cpu:gloo,tpu:tpu_dist", '])
def test_the_backends_names(run_python, backend):
    done = run_python(ONE_RANK.format(backend=backend))
    assert done.returncode == 0, done.stderr
    assert "tpu:tpu" in done.stdout and "[1.0, 1.0, 1.0] [1.0, 1.0]" in done.stdout


LOST = """
import datetime, os, sys, tempfile, time, torch, torch.distributed as dist, torch.multiprocessing as mp

def run(rank, store):
    dist.init_process_group("tpu", init_method="file://" + store, rank=rank, world_size=2,
                            timeout=datetime.timedelta(seconds=5))
    t = torch.ones(3, device="tpu")
    dist.all_reduce(t)
    if rank == 1:
        if {dies}:
            os._exit(0)
        time.sleep(12)
        os._exit(0)
    begin = time.monotonic()
    try:
        dist.all_reduce(t)
    except Exception as e:
        print(type(e).__name__, "after", round(time.monotonic() - begin), "s:", str(e)[:200], flush=True)
        assert time.monotonic() - begin < 10
        os._exit(0)
    os._exit(3)

if __name__ == "__main__":
    mp.spawn(run, args=(tempfile.mktemp(),), nprocs=2)
"""


@pytest.mark.parametrize("dies", [True, False])
def test_a_lost_rank_is_an_error_in_time(run_python, tmp_path, dies):
    file = tmp_path / "lost.py"
    file.write_text(LOST.format(dies=dies))
    done = run_python([str(file)], timeout=100)
    assert done.returncode == 0, done.stderr
    assert "Error after" in done.stdout


def test_averages_need_floating_point(run_python):
    code = """
import torch, torch.distributed as dist, tempfile
dist.init_process_group("tpu", init_method="file://" + tempfile.mktemp(), rank=0, world_size=1)
x = torch.full((2,), 3.0, device="tpu")
dist.all_reduce(x, dist.ReduceOp.AVG)
print(x.tolist())
dist.all_reduce(torch.ones(2, dtype=torch.int64, device="tpu"), dist.ReduceOp.AVG)
"""
    done = run_python(code)
    assert "[3.0, 3.0]" in done.stdout
    assert "all_reduce by ReduceOp.AVG needs floating-point tensors, but got Long" in done.stderr
