"""Programs of several processes for test_distributed.py, which runs this file once: python ranks.py WORLD STORE OUT.

Each program runs with CPU tensors, which Gloo serves, and with tensors on the device; the results must be equal.
"""

import datetime
import json
import os
import sys
import traceback

import torch
import torch.distributed as dist
import torch.multiprocessing as mp

PROGRAMS = {}


def program(f):
    PROGRAMS[f.__name__] = f
    return f


def values(rank, *shape, dtype=torch.float32, device):
    t = torch.arange(1, 1 + torch.Size(shape).numel()).reshape(shape)
    return (t % 5 + rank + 1).to(dtype).to(device)


REDUCTIONS = (dist.ReduceOp.SUM, dist.ReduceOp.PRODUCT, dist.ReduceOp.MIN, dist.ReduceOp.MAX)
DTYPES = (
    torch.float32,
    torch.float64,
    torch.float16,
    torch.bfloat16,
    torch.int64,
    torch.int32,
    torch.int8,
    torch.uint8,
)


@program
def all_reduce(rank, world, d):
    out = []
    for dtype in DTYPES:
        for op in REDUCTIONS:
            t = values(rank, 3, 4, dtype=dtype, device=d)
            dist.all_reduce(t, op)
            out.append(t)
    for op in (dist.ReduceOp.BAND, dist.ReduceOp.BOR, dist.ReduceOp.BXOR):
        t = values(rank, 5, dtype=torch.int64, device=d)
        dist.all_reduce(t, op)
        out.append(t)
    return out


@program
def strides_windows_and_no_elements(rank, world, d):
    base = values(rank, 6, 8, device=d)
    for window, collective in (
        (base.t()[1:5, ::2], dist.all_reduce),
        (base[:, 7], lambda t: dist.broadcast(t, 1)),
    ):
        # Gloo itself takes whatever lies in memory.
        dense = window if d == "tpu" else window.contiguous()
        collective(dense)
        window.copy_(dense)
    empty = torch.empty(0, 3, device=d)
    dist.all_reduce(empty)
    number = values(rank, device=d)
    dist.all_reduce(number)
    c = torch.complex(values(rank, 3, device=d), values(rank, 3, device=d))
    dist.all_reduce(c)
    return [base, empty, number, c]


@program
def rooted(rank, world, d):
    out = []
    for root in range(world):
        t = values(rank, 4, device=d)
        dist.reduce(t, root)
        if rank == root:
            out.append(t)
        b = values(rank, 2, 2, dtype=torch.bool, device=d) & (rank == root)
        dist.broadcast(b, root)
        gathered = [torch.zeros(3, device=d) for _ in range(world)] if rank == root else None
        dist.gather(values(rank, 3, device=d), gathered, root)
        piece = torch.zeros(2, device=d)
        dist.scatter(piece, [values(r + root, 2, device=d) for r in range(world)] if rank == root else None, root)
        out += [b, piece, *(gathered or [])]
    return out


@program
def gathers_and_scatters(rank, world, d):
    one = torch.zeros(2 * world, 3, device=d)
    dist.all_gather_into_tensor(one, values(rank, 2, 3, device=d))
    several = [torch.zeros(3, 2, device=d).t() for _ in range(world)]
    dist.all_gather(several, values(rank, 2, 3, device=d))
    piece = torch.zeros(2, 3, device=d)
    dist.reduce_scatter_tensor(piece, values(rank, 2 * world, 3, device=d))
    part = torch.zeros(4, dtype=torch.int64, device=d)
    dist.reduce_scatter(part, [values(rank + r, 4, dtype=torch.int64, device=d) for r in range(world)])
    return [one, *several, piece, part]


@program
def exchanges(rank, world, d):
    even = torch.zeros(world, 2, device=d)
    dist.all_to_all_single(even, values(rank, world, 2, device=d))
    sizes = [r + 1 for r in range(world)]
    uneven = torch.zeros(world * (rank + 1), device=d)
    dist.all_to_all_single(uneven, values(rank, sum(sizes), device=d), [rank + 1] * world, sizes)
    lists = [torch.zeros(rank + 1, 2, device=d) for _ in range(world)]
    if d == "cpu":  # which has no list form: the same, row by row
        flat = torch.zeros(world * (rank + 1), 2)
        sent = torch.cat([values(10 * rank + r, r + 1, 2, device=d) for r in range(world)])
        dist.all_to_all_single(flat, sent, [rank + 1] * world, sizes)
        lists = list(flat.split(rank + 1))
    else:
        dist.all_to_all(lists, [values(10 * rank + r, r + 1, 2, device=d) for r in range(world)])
    return [even, uneven, *lists]


@program
def messages(rank, world, d):
    there, back = torch.zeros(100_000, device=d), torch.zeros(3, device=d)
    ops = [
        dist.P2POp(dist.isend, values(rank, 100_000, device=d), (rank + 1) % world),
        dist.P2POp(dist.irecv, there, (rank - 1) % world),
    ]
    for work in dist.batch_isend_irecv(ops):
        work.wait()
    if rank == 0:
        sources = {dist.recv(back) for _ in range(world - 1)}
        assert sources == set(range(1, world)), sources
        return [there]
    dist.send(values(rank, 3, device=d), 0)
    return [there]


@program
def async_work(rank, world, d):
    a, b = values(rank, 1000, device=d), values(rank, 1000, device=d)
    first = dist.all_reduce(a, async_op=True)
    second = dist.all_reduce(b, dist.ReduceOp.MAX, async_op=True)
    then = second.get_future().then(lambda f: f.value()[0].sum())
    second.wait()
    first.wait()
    assert first.is_completed() and second.is_completed()
    return [a, b, then.wait()]


@program
def subgroups(rank, world, d):
    half = world // 2
    groups = [dist.new_group(list(range(half))), dist.new_group(list(range(half, world)))]
    mine = groups[rank // half]
    t = values(rank, 3, device=d)
    dist.all_reduce(t, group=mine)
    dist.barrier(mine)
    return [t]


@program
def objects(rank, world, d):
    everyone = [None] * world
    dist.all_gather_object(everyone, {"rank": rank, "t": values(rank, 2, device=d).tolist()})
    said = [f"from {rank}"]
    dist.broadcast_object_list(said, 1, device=torch.device(d))
    return [
        torch.tensor([e["rank"] for e in everyone]),
        torch.tensor([e["t"] for e in everyone]),
        torch.tensor(len(said[0])),
    ]


@program
def functional_collectives(rank, world, d):
    import torch.distributed._functional_collectives as f

    t = values(rank, 4, device=d)
    return [
        f.all_reduce(t, "sum", dist.group.WORLD) * 1,
        f.all_gather_tensor(t, 0, dist.group.WORLD) * 1,
        f.reduce_scatter_tensor(values(rank, 2 * world, device=d), "sum", 0, dist.group.WORLD) * 1,
        f.all_to_all_single(values(rank, world, device=d), None, None, dist.group.WORLD) * 1,
        f.broadcast(t, 1, dist.group.WORLD) * 1,
    ]


def network(d):
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(6, 9), torch.nn.Tanh(), torch.nn.Linear(9, 3)).to(d)


@program
def ddp(rank, world, d):
    model = torch.nn.parallel.DistributedDataParallel(network(d), bucket_cap_mb=1)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.05)
    for step in range(3):
        optimizer.zero_grad()
        with model.no_sync() if step == 1 else torch.enable_grad():
            model(values(rank, 4, 6, device=d)).square().mean().backward()
        optimizer.step()
    return [p.detach() for p in model.parameters()]


@program
def fsdp2(rank, world, d):
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    model = network(d)
    mesh = init_device_mesh(d, (world,))
    for layer in (model[0], model[2]):
        fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.05)
    for _ in range(3):
        optimizer.zero_grad()
        model(values(rank, 4, 6, device=d)).square().mean().backward()
        optimizer.step()
    return [p.detach().full_tensor() for p in model.parameters()]


@program
def dtensor_and_tensor_parallel(rank, world, d):
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import Replicate, Shard, distribute_tensor
    from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

    mesh = init_device_mesh(d, (world,))
    t = distribute_tensor(values(0, 8, 4, device=d), mesh, [Shard(0)])
    moved = (t @ t.redistribute(mesh, [Replicate()]).t()).redistribute(mesh, [Shard(1)])
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(6, 8), torch.nn.ReLU(), torch.nn.Linear(8, 4)).to(d)
    parallelize_module(model, mesh, {"0": ColwiseParallel(), "2": RowwiseParallel()})
    out = model(values(0, 5, 6, device=d))
    out.square().mean().backward()
    return [moved.full_tensor(), out.detach(), model[0].weight.grad.full_tensor()]


def same(got, want, near):
    assert len(got) == len(want)
    for g, w in zip(got, want, strict=True):
        assert g.device.type in ("tpu", "cpu")
        torch.testing.assert_close(g.cpu(), w, **near)


def run(rank, world, store, out):
    os.environ["LOCAL_RANK"] = "0"
    dist.init_process_group(
        "cpu:gloo,tpu:tpu",
        init_method=f"file://{store}",
        rank=rank,
        world_size=world,
        timeout=datetime.timedelta(seconds=60),
    )
    results = {}
    for name, f in PROGRAMS.items():
        try:
            near = {"rtol": 1e-5, "atol": 1e-6} if name in ("ddp", "fsdp2", "dtensor_and_tensor_parallel") else {}
            same(f(rank, world, "tpu"), f(rank, world, "cpu"), near)
            results[name] = "ok"
        except Exception:
            results[name] = traceback.format_exc()
            break  # the other ranks may wait for this one
    with open(f"{out}.{rank}", "w") as file:
        json.dump({"results": results, "fallbacks": torch.tpu.counters()["fallbacks"]}, file)
    dist.destroy_process_group()


if __name__ == "__main__":
    mp.spawn(run, args=(int(sys.argv[1]), sys.argv[2], sys.argv[3]), nprocs=int(sys.argv[1]))
