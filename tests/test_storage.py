"""Storages: sizes, addresses, sharing, and tensors whose memory nobody wrote yet."""

import copy
import gc
import itertools
import threading

import pytest
import torch
from beside import assert_equal, beside, same_error


def base(device, *shape, dtype=torch.float32):
    n = torch.Size(shape).numel()
    return torch.arange(1, n + 1, dtype=dtype).reshape(shape).to(device)


def test_resize_keeps_the_elements_in_memory_order():
    def program(d):
        x = base(d, 3, 4)
        v = x[1]
        x.resize_(2, 3)
        smaller = x.clone(), x.untyped_storage().nbytes()
        x.resize_(3, 4)
        again = x.clone()
        x.resize_(5, 4)
        x.view(-1)[12:].fill_(7)
        v[0] = 100
        return *smaller, again, x, v, x.untyped_storage().nbytes(), x.is_contiguous()

    beside(program)


def test_resize_of_views_and_formats():
    def program(d):
        x = base(d, 12)[4:]
        x.resize_(2, 2)
        y = base(d, 2, 3, 2, 2)
        y.resize_(1, 3, 2, 2, memory_format=torch.channels_last)
        z = torch.empty(0, device=d).resize_(3).fill_(1)
        n = torch.zeros(4, device=d)
        n.resize_as_(base(d, 2, 2)).add_(1)
        e = base(d, 4).resize_(0)
        return x, x.storage_offset(), y, y.stride(), z, n, e, e.untyped_storage().nbytes()

    beside(program)
    same_error(lambda d: base(d, 4).resize_(-1), text=False)
    same_error(lambda d: base(d, 4).requires_grad_().resize_(2))


def test_a_resized_tensor_loses_no_alias():
    def program(d):
        x = base(d, 4)
        v = x.view(2, 2).t()
        x.resize_(8)
        x[4:] = 0
        v.add_(1)
        x[3] = 50
        return x, v

    beside(program)


def test_set_makes_tensors_share():
    def program(d):
        x = base(d, 4, 3)
        y = torch.empty(0, device=d)
        y.set_(x)
        z = torch.empty(0, device=d).set_(x.untyped_storage(), 3, (2, 2), (4, 1))
        w = torch.empty(0, dtype=torch.float32, device=d).set_(x.untyped_storage())
        i = torch.empty(0, dtype=torch.int32, device=d).set_(x.untyped_storage(), 0, (12,))
        z.fill_(9)
        y[0].mul_(2)
        same = [t.data_ptr() - x.data_ptr() for t in (x, y, z, w, i)]
        gone = x.clone().set_()
        return x, y, z, w, i, same, gone, y.is_set_to(x), z.is_set_to(x)

    beside(program)


def test_set_grows_a_storage_that_is_too_small():
    def program(d):
        x = base(d, 4)
        y = torch.empty(0, device=d).set_(x.untyped_storage(), 2, (2, 3))
        y[1].fill_(3)
        return x, y[1], x.untyped_storage().nbytes()

    beside(program)
    same_error(lambda d: torch.empty(0, device=d).set_(base(d, 4).untyped_storage(), -1, (2,)))
    with pytest.raises(RuntimeError, match="storage"):
        torch.empty(0, device="tpu").set_(base("cpu", 4).untyped_storage())


def test_set_data_swaps_content_for_all_who_hold_the_tensor():
    def program(d):
        p = torch.nn.Parameter(base(d, 3))
        held = [p]
        version = p._version
        p.data = base(d, 4) * 2
        p.data.add_(1)
        detached = p.detach()
        detached.mul_(2)
        return held[0].detach(), p._version - version, p.data, p.requires_grad

    beside(program)


def test_version_counters_count_as_on_the_cpu():
    def program(d):
        x = base(d, 4, 4)
        v, w = x[1], x.detach()
        seen = []

        def note():
            seen.append([t._version for t in (x, v, w)])

        for act in (
            lambda: x.add_(1),
            lambda: v.zero_(),
            lambda: w.mul_(2),
            lambda: x.data.add_(1),
            lambda: x.copy_(base(d, 4, 4)),
            lambda: torch.add(x, 1, out=w),
            lambda: x.__setitem__(0, 1),
            lambda: x.fill_diagonal_(3),
            lambda: x.resize_(4, 4),
            lambda: torch._foreach_add_([x, v], 1),
            lambda: torch._foreach_copy_([x, w], [x + 1, w + 1]),
            lambda: x.uniform_(),
            lambda: x + 1,
            lambda: x.masked_fill_(x > 0, 1),
            lambda: x.index_add_(0, torch.tensor([1], device=d), x[:1].clone()),
            lambda: x.clamp_(0, 1),
            lambda: x.t_(),
            lambda: torch._foreach_mul_([x.detach()], [2.0]),
            lambda: x.tril_(),
            lambda: x.cpu(),
        ):
            act()
            note()
        return seen

    assert program("tpu") == program("cpu")


def test_addresses_tell_which_tensors_share_memory():
    x, y = base("tpu", 4, 6), base("tpu", 4, 6)
    s = x.untyped_storage()
    assert x.data_ptr() == s.data_ptr() != 0
    assert x[1].data_ptr() == x.data_ptr() + 24 and x[:, 2:].data_ptr() == x.data_ptr() + 8
    assert x.view(-1).view(torch.uint8)[5:].data_ptr() == x.data_ptr() + 5
    assert not s.data_ptr() <= y.data_ptr() < s.data_ptr() + s.nbytes()
    assert torch.empty(0, device="tpu").data_ptr() == 0
    x.add_(1), x.copy_(y)
    assert x.data_ptr() == s.data_ptr()
    assert torch._C._is_alias_of(x, x[1]) and not torch._C._is_alias_of(x, y)
    assert x.untyped_storage()._cdata == x.t().untyped_storage()._cdata != y.untyped_storage()._cdata


def test_living_storages_never_overlap():
    gc.collect()
    alive, ranges = [], []
    for i in range(300):
        t = torch.empty(1 + i * 37 % 5000, dtype=torch.uint8, device="tpu")
        if i % 3 == 2:
            alive.pop(i % len(alive))
        alive.append(t)
    ranges = sorted((t.data_ptr(), t.data_ptr() + t.untyped_storage().nbytes()) for t in alive)
    assert all(a[1] <= b[0] for a, b in itertools.pairwise(ranges))
    assert all(p % 16 == 0 for p, _ in ranges)


def test_an_unwritten_tensor_takes_no_memory():
    torch.tpu.synchronize()
    before = torch.tpu.memory_allocated()
    x = torch.empty(1 << 28, device="tpu")
    y = x.view(1 << 14, -1)[5:, 3:].t()
    assert torch.tpu.memory_allocated() == before
    assert y.shape == ((1 << 14) - 3, (1 << 14) - 5)
    del x, y
    z = torch.empty(1 << 16, device="tpu")
    z[7] = 1
    torch.tpu.synchronize()
    assert 0 <= torch.tpu.memory_allocated() - before - (4 << 16) <= 64
    assert z.sum().item() == 1


def test_unwritten_tensors_read_as_zeros_in_every_form():
    for dtype in (torch.float32, torch.bool, torch.int8, torch.complex64, torch.bfloat16):
        x = torch.empty(3, 4, dtype=dtype, device="tpu")
        assert torch.equal(x.cpu(), torch.zeros(3, 4, dtype=dtype))
        assert torch.equal(torch.empty(3, 4, dtype=dtype, device="tpu")[1:, ::2].cpu(), torch.zeros(2, 2, dtype=dtype))
        assert not torch.empty(1, dtype=dtype, device="tpu").item()
        strided = torch.empty_strided((3, 2), (1, 5), dtype=dtype, device="tpu")
        assert torch.equal(strided.clone().cpu(), torch.zeros(3, 2, dtype=dtype))
    x = torch.empty(2, 4, dtype=torch.int32, device="tpu")
    assert x.view(torch.uint8).sum().item() == 0
    assert (torch.empty(2, device="tpu") + torch.empty(2, device="tpu")).tolist() == [0, 0]
    c = torch.empty(2, dtype=torch.complex64, device="tpu").conj()
    assert c.imag.tolist() == [0, 0] and (c + 1).tolist() == [1, 1]
    assert torch.empty(4, device="tpu").expand(2, 4).sum().item() == 0


def test_untyped_storage_is_bytes_and_can_be_copied():
    def program(d):
        x = base(d, 2, 3)
        s = x.untyped_storage()
        clone = s.clone()
        y = torch.empty(0, device=d).set_(clone, 0, (2, 3))
        x.add_(1)
        s2 = torch.UntypedStorage(24, device=d)
        s2.copy_(s)
        z = torch.empty(0, device=d).set_(s2, 0, (6,))
        s.fill_(0)
        return x, y, z, len(s), s.nbytes(), s.element_size(), s.device.type == d, clone.tolist(), s2[5]

    beside(program)


def test_storage_resize():
    def program(d):
        x = base(d, 4)
        s = x.untyped_storage()
        s.resize_(0)
        nothing = s.size()
        s.resize_(16)
        x.copy_(base(d, 4) * 3)
        s.resize_(32)
        return x, nothing, s.size()

    beside(program)


def test_storage_to_the_cpu_and_back():
    s = base("tpu", 3).untyped_storage()
    there = s.cpu()
    assert there.device.type == "cpu" and bytes(there.tolist()) == bytes(base("cpu", 3).untyped_storage().tolist())
    back = there.to(device="tpu")
    assert back.device.type == "tpu"
    assert torch.empty(0, device="tpu").set_(back, 0, (3,)).tolist() == [1, 2, 3]
    assert torch.TypedStorage(wrap_storage=s, dtype=torch.float32, _internal=True).tolist() == [1, 2, 3]


def test_copies_of_tensors_that_share_go_on_sharing():
    x = base("tpu", 4)
    pair = copy.deepcopy([x, x[1:], x.view(2, 2)])
    pair[0][2] = 50
    assert pair[1].tolist() == [2, 50, 4] and pair[2].tolist() == [[1, 2], [50, 4]]
    assert x.tolist() == [1, 2, 3, 4]
    assert_equal(copy.copy(x), base("cpu", 4))


def test_storages_of_odd_bytes():
    def program(d):
        x = torch.zeros(7, dtype=torch.uint8, device=d)
        f = x[:4].view(torch.float32)
        f.fill_(1.0)
        h = torch.empty(0, dtype=torch.int16, device=d).set_(x.untyped_storage(), 0, (3,))
        h[2] = 513
        return x, f, h

    beside(program)


def test_writes_from_many_threads_all_arrive():
    x = torch.zeros(8, 16, device="tpu")
    failures = []

    def work(row):
        try:
            for i in range(50):
                x2 = (torch.full((16,), float(row), device="tpu") + i).sum()
                assert x2.item() == 16 * (row + i)
        except Exception as e:
            failures.append(e)

    threads = [threading.Thread(target=work, args=(r,)) for r in range(8)]
    [t.start() for t in threads], [t.join() for t in threads]
    assert failures == []
    assert x.sum().item() == 0


def test_a_tensor_made_in_one_thread_is_used_in_another():
    x = base("tpu", 4, 4)
    results = []

    def work():
        x[1].add_(10)
        results.append(x.t() @ x)

    thread = threading.Thread(target=work)
    thread.start(), thread.join()
    y = base("cpu", 4, 4)
    y[1].add_(10)
    assert torch.equal(x.cpu(), y) and torch.equal(results[0].cpu(), y.t() @ y)


def test_freed_tensors_give_their_memory_back_in_loops_of_views():
    x = torch.zeros(64, 64, device="tpu")

    def work():
        for i in range(64):
            x[i].add_(i), x.t()[i].mul_(2), x[:, ::2].contiguous()
        torch.tpu.synchronize()
        gc.collect()
        return torch.tpu.memory_allocated()

    work()
    assert work() <= work()
