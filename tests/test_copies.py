"""copy_, to, clone and item across devices, dtypes and layouts."""

import warnings

import pytest
import torch
from beside import assert_equal, beside, same_error

DTYPES = (
    torch.float32,
    torch.float64,
    torch.bfloat16,
    torch.float16,
    torch.int64,
    torch.int32,
    torch.int16,
    torch.int8,
    torch.uint8,
    torch.bool,
    torch.complex64,
    torch.complex128,
    torch.uint16,
    torch.uint32,
    torch.uint64,
    torch.float8_e4m3fn,
    torch.float8_e5m2,
)

NUMPY = DTYPES[:2] + DTYPES[3:15]


def base(device, *shape, dtype=torch.float32):
    n = torch.Size(shape).numel()
    return torch.arange(1, n + 1, dtype=torch.float32).remainder(50).reshape(shape).to(dtype).to(device)


LAYOUTS = {
    "contiguous": lambda d, t: torch.zeros(3, 4, dtype=t, device=d),
    "transposed": lambda d, t: torch.zeros(4, 3, dtype=t, device=d).t(),
    "columns": lambda d, t: torch.zeros(3, 9, dtype=t, device=d)[:, 1::2],
    "rows": lambda d, t: torch.zeros(7, 4, dtype=t, device=d)[1:7:2],
    "permuted": lambda d, t: torch.zeros(4, 2, 3, dtype=t, device=d).permute(2, 1, 0)[:, 1],
    "unwritten": lambda d, t: torch.empty(3, 4, dtype=t, device=d),
}


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_every_dtype_goes_there_and_back(dtype):
    want = base("cpu", 3, 5, dtype=dtype)
    there = want.to("tpu")
    assert there.dtype is dtype and there.device == torch.device("tpu", 0)
    for view in (lambda t: t, lambda t: t.t(), lambda t: t[1:, ::2], lambda t: t[1]):
        got, meant = view(there).cpu(), view(want)
        assert (
            got.numpy(force=True).tobytes() == meant.numpy().tobytes()
            if dtype in NUMPY
            else got.tolist() == meant.tolist()
        )
    if dtype not in (torch.float8_e4m3fn, torch.float8_e5m2):
        assert there[1, 2].item() == want[1, 2].item()
    assert there.tolist() == want.tolist()


@pytest.mark.parametrize("to", LAYOUTS)
def test_copies_between_layouts_on_and_across_devices(to):
    for of in LAYOUTS:
        for source in ("cpu", "tpu"):
            for target in ("cpu", "tpu"):
                dst, src = LAYOUTS[to](target, torch.float32), LAYOUTS[of](source, torch.float32)
                src.copy_(base("cpu", 3, 4))
                assert dst.copy_(src) is dst
                assert torch.equal(dst.cpu(), base("cpu", 3, 4)), (of, source, target)
                assert dst.untyped_storage().nbytes() == LAYOUTS[to](target, torch.float32).untyped_storage().nbytes()


@pytest.mark.parametrize(
    "of", [torch.float32, torch.int64, torch.bool, torch.complex64, torch.bfloat16, torch.uint8], ids=str
)
def test_copies_convert_as_the_cpu_does(of):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # complex to real
        for to in (
            torch.float32,
            torch.int64,
            torch.bool,
            torch.complex64,
            torch.bfloat16,
            torch.uint8,
            torch.int8,
            torch.float64,
        ):
            values = (
                torch.tensor([0, 1, 2, 3.75, 100.5, 0.25])
                if of.is_floating_point or of.is_complex
                else torch.tensor([0, 1, 2, 3, 4, 99])
            )
            want = values.to(of).to(to)
            assert_equal(values.to(of).to("tpu").to(to), want)
            assert_equal(values.to(of).to("tpu", to), want)
            assert torch.equal(values.to(of).to("tpu").to("cpu", to), want)
            assert_equal(torch.zeros(6, dtype=to, device="tpu").copy_(values.to(of)), want)
            assert_equal(torch.zeros(2, 6, dtype=to, device="tpu").copy_(values.to(of))[1].clone(), want)


def test_numbers_at_the_edges_of_their_dtypes():
    def program(d):
        f = torch.tensor([float("inf"), -float("inf"), float("nan"), -0.0, 3.4e38, 1e-30, 65504, 65536])
        ints = torch.tensor([2**62, -(2**63), 2**63 - 1, 2**53 + 1, -1])
        f, ints = f.to(d), ints.to(d)
        halves = [f.to(t).to(torch.float32) for t in (torch.float16, torch.bfloat16)]
        return (
            *halves,
            f.double(),
            ints,
            ints.to(torch.int32),
            ints.to(torch.uint8),
            ints.double(),
            ints[3].item(),
            f[0].item(),
            ints.float(),
        )

    beside(program)


def test_broadcasting_copies():
    def program(d):
        x = torch.zeros(2, 3, 4, device=d)
        x.copy_(base(d, 4))
        x[1].copy_(base("cpu", 3, 1))
        x[:, 1].copy_(torch.tensor(5.0))
        x[0, 0].copy_(base(d, 1))
        return x, torch.zeros(2, 2, device=d).copy_(base("cpu", 1, 1))

    beside(program)


def test_copies_of_expanded_and_conjugated_tensors():
    def program(d):
        c = torch.tensor([1 + 2j, 3 - 4j], dtype=torch.complex64).to(d)
        x = torch.zeros(3, 2, dtype=torch.complex64, device=d)
        x.copy_(c.conj())
        x[0].conj().copy_(c)
        y = torch.zeros(2, device=d)
        y.copy_(c.conj().imag)
        e = base(d, 1, 4).expand(3, 4)
        return x, y, e.clone(), e.contiguous(), e.to(torch.int64), torch.zeros(3, 4, device=d).copy_(e)

    beside(program)
    c = torch.tensor([1 + 2j, 3 - 4j]).to("tpu")
    assert c.conj().cpu().tolist() == [1 - 2j, 3 + 4j]
    assert c.conj().imag.cpu().tolist() == [-2, 4]
    assert torch.tensor([0j, 0j]).copy_(c.conj()).tolist() == [1 - 2j, 3 + 4j]
    d = torch.tensor([1j, 1j]).conj()
    d.copy_(c)
    assert d.tolist() == [1 + 2j, 3 - 4j]
    t = torch.zeros(2, dtype=torch.complex64, device="tpu")
    t.copy_(torch.tensor([1 + 2j, 3 - 4j]).conj())
    assert t.tolist() == [1 - 2j, 3 + 4j]
    t.conj().copy_(torch.tensor([5j, 6j]))
    assert t.tolist() == [-5j, -6j]


def test_overlapping_copies_are_as_if_the_source_was_read_first():
    def program(d):
        x = base(d, 4, 4)
        x.copy_(x)
        y = base(d, 4, 4)
        y[:2].copy_(y[2:])
        z = base(d, 3, 3)
        z.copy_(z.t().clone())
        return x, y, z

    beside(program)
    same_error(lambda d: (t := base(d, 3, 3)).copy_(t.t()))
    same_error(lambda d: (t := base(d, 5))[1:].copy_(t[:-1]))


def test_to_returns_the_same_tensor_where_nothing_changes():
    x = base("tpu", 3)
    assert x.to("tpu") is x and x.to("tpu:0") is x and x.float() is x and x.tpu() is x if hasattr(x, "tpu") else True
    assert x.to("tpu", copy=True) is not x
    assert x.to(torch.float64).to("cpu").device.type == "cpu"
    assert torch.as_tensor(base("cpu", 3), device="tpu").device.type == "tpu"
    assert torch.tensor(base("cpu", 3).numpy(), device="tpu").tolist() == [1, 2, 3]


def test_what_was_copied_does_not_change_with_its_source():
    host = base("cpu", 4, 4)
    there = host.to("tpu", non_blocking=True)
    host.fill_(-1)
    assert torch.equal(there.cpu(), base("cpu", 4, 4))
    back = there.to("cpu", non_blocking=True)
    torch.tpu.synchronize()
    there.zero_()
    assert torch.equal(back, base("cpu", 4, 4))
    clone = there.clone()
    there.add_(1)
    assert clone.sum().item() == 0
    shared = there.detach()
    there.add_(1)
    assert shared[0, 0].item() == 2


def test_a_copy_is_differentiable_on_both_sides():
    x = base("cpu", 3).requires_grad_()
    y = x.to("tpu")
    (y * y).sum().backward()
    assert x.grad.device.type == "cpu" and x.grad.tolist() == [2, 4, 6]
    z = base("tpu", 3).requires_grad_()
    (z.cpu() * 3).sum().backward()
    assert z.grad.device.type == "tpu" and z.grad.tolist() == [3, 3, 3]
    w = base("tpu", 3).requires_grad_()
    w.to(torch.float64).to("cpu").sum().backward()
    assert w.grad.dtype is torch.float32
    t = torch.zeros(2, 3, device="tpu")
    t[1].copy_(w)
    t.sum().backward()
    assert w.grad.tolist() == [2, 2, 2]


def test_item_and_tolist_and_truth():
    x = base("tpu", 2, 2)
    assert x[1, 1].item() == 4 and isinstance(x[0, 0].item(), float)
    assert x.tolist() == [[1, 2], [3, 4]] and int(x[0, 1]) == 2 and float(x[1, 0]) == 3 and bool(x[0, 0])
    assert torch.tensor(True, device="tpu").item() is True
    assert torch.tensor([[3 + 4j]], device="tpu").item() == 3 + 4j
    assert list(range(10))[torch.tensor(4, device="tpu")] == 4
    assert f"{x[0, 0]:.2f}" == "1.00"
    same_error(lambda d: base(d, 2).item())
    same_error(lambda d: bool(base(d, 2)))
    with pytest.raises(TypeError, match="can't convert tpu:0 device type tensor to numpy"):
        x.numpy()


def test_equal():
    x = base("tpu", 3)
    assert torch.equal(x, x.clone()) and not torch.equal(x, x + 1) and not torch.equal(x, base("tpu", 2))
    assert torch.equal(torch.empty(0, device="tpu"), torch.empty(0, device="tpu"))
    nan = torch.tensor([float("nan")], device="tpu")
    assert not torch.equal(nan, nan.clone())
    with pytest.raises(RuntimeError, match="devices"):
        torch.equal(x, base("cpu", 3))


def test_printing():
    assert repr(base("tpu", 2)) == "tensor([1., 2.], device='tpu:0')"
    assert repr(torch.empty(0, 2, device="tpu")) == "tensor([], device='tpu:0', size=(0, 2))"
    assert "requires_grad=True" in repr(base("tpu", 2).requires_grad_())
    assert repr(base("tpu", 2, 2, dtype=torch.int64).t()) == "tensor([[1, 3],\n        [2, 4]], device='tpu:0')"
    assert repr(torch.tensor([1 + 2j]).to("tpu").conj()) == "tensor([1.-2.j], device='tpu:0')"
    assert "..." in repr(torch.zeros(2000, device="tpu"))
