"""Views read and written through: the elements they take, whatever their strides."""

import pytest
import torch
from beside import assert_equal, beside, same_error


def base(device, *shape, dtype=torch.float32):
    n = torch.Size(shape).numel()
    return torch.arange(1, n + 1, dtype=dtype).reshape(shape).to(device)


VIEWS = {
    "the whole": lambda x: x,
    "select": lambda x: x[1],
    "select from the end": lambda x: x[:, -1],
    "slice": lambda x: x[1:3],
    "slice of the last dimension": lambda x: x[..., 1:3],
    "every second": lambda x: x[:, ::2],
    "every third from one": lambda x: x[:, :, 1::3],
    "steps in all dimensions": lambda x: x[1::2, ::3, 1::2],
    "an empty slice": lambda x: x[:, 2:2],
    "a corner": lambda x: x[2:, 3:, 1:5],
    "transpose": lambda x: x.transpose(0, 2),
    "permute": lambda x: x.permute(1, 2, 0),
    "transpose of a slice": lambda x: x[1:, 1:4].transpose(1, 2),
    "flattened": lambda x: x.view(-1),
    "dimensions joined": lambda x: x.view(4, 36),
    "a dimension split": lambda x: x.view(4, 6, 2, 3),
    "split, taken and permuted": lambda x: x.view(4, 6, 2, 3)[:, 1:, 1].permute(2, 0, 1),
    "a window across rows": lambda x: x.view(-1)[10:50].view(4, 10),
    "odd steps across rows": lambda x: x.view(-1)[5:100:7],
    "diagonal": lambda x: x[:, :4, 0].diagonal(),
    "an upper diagonal": lambda x: x.diagonal(1, 1, 2),
    "unsqueezed": lambda x: x[1].unsqueeze(1).unsqueeze(0),
    "apart windows": lambda x: x.unfold(2, 2, 3),
    "a single element": lambda x: x[3, 5, 5],
    "split": lambda x: x.split([1, 3, 2], 1)[1],
    "chunk": lambda x: x.chunk(4, 2)[1],
    "unbind": lambda x: x.unbind(1)[2],
    "as_strided": lambda x: x.as_strided((2, 3), (7, 30), 4),
    "as_strided without order": lambda x: x.as_strided((3, 2, 2), (2, 50, 19), 1),
    "movedim": lambda x: x.movedim(2, 0)[1:],
}
OVERLAPPING = {
    "expand": lambda x: x[:, :1].expand(4, 5, 6),
    "expand to a new dimension": lambda x: x[0].expand(3, 6, 6),
    "expand of one element": lambda x: x[1, 1, 1].expand(2, 3),
    "overlapping windows": lambda x: x.unfold(1, 3, 1),
    "as_strided with repeats": lambda x: x.as_strided((4, 5), (1, 2), 3),
    "as_strided with stride 0": lambda x: x.as_strided((3, 4), (0, 5), 2),
}


@pytest.mark.parametrize("name", [*VIEWS, *OVERLAPPING])
def test_reading_a_view_gives_its_elements(name):
    view = (VIEWS | OVERLAPPING)[name]
    beside(lambda d: view(base(d, 4, 6, 6)))
    beside(lambda d: view(base(d, 4, 6, 6)) * 2, layout=False)


@pytest.mark.parametrize("name", VIEWS)
def test_writing_a_view_changes_its_elements_only(name):
    def write(d):
        x = base(d, 4, 6, 6)
        v = VIEWS[name](x)
        v.add_(1000)
        v.copy_(v * 2 + 1)
        return x, v, VIEWS[name](x)

    beside(write)


@pytest.mark.parametrize("name", ["slice", "every second", "permute", "an upper diagonal", "as_strided"])
@pytest.mark.parametrize(
    "dtype", [torch.bool, torch.uint8, torch.int64, torch.bfloat16, torch.complex64, torch.float64]
)
def test_views_of_every_dtype(name, dtype):
    def write(d):
        x = base(d, 4, 6, 6, dtype=torch.int64).remainder(7).to(dtype)
        VIEWS[name](x).copy_(VIEWS[name](base(d, 4, 6, 6, dtype=torch.int64).remainder(5)))
        return x, VIEWS[name](x)

    beside(write)


@pytest.mark.parametrize("name", [n for n in OVERLAPPING if "expand" in n or "stride 0" in n])
def test_writing_an_expanded_tensor_is_the_error_it_is_on_the_cpu(name):
    same_error(lambda d: OVERLAPPING[name](base(d, 4, 6, 6)).add_(1))


@pytest.mark.parametrize("name", ["overlapping windows", "as_strided with repeats"])
def test_elements_that_a_tensor_has_twice_may_be_filled(name):
    def program(d):
        x = base(d, 4, 6, 6)
        OVERLAPPING[name](x[1:]).fill_(5)
        return x

    beside(program)


def test_positions_of_a_slice_are_not_compiled():
    x = base("tpu", 40, 6)
    want = base("cpu", 40, 6)
    x[0].add_(1), (x[0] + 1).cpu(), x[0].cpu(), (x[1:3] * 2).cpu()
    before = torch.tpu.counters()["compiles"]
    for i in range(1, 40):
        x[i].add_(i)
        want[i].add_(i)
        assert torch.equal(x[i].cpu(), want[i])
    assert torch.tpu.counters()["compiles"] == before


def test_a_view_of_a_view_of_a_view():
    def program(d):
        x = base(d, 6, 6, 6)
        v = x[1:][:, ::2].transpose(0, 2)[2:4].reshape(2, -1)
        w = x.permute(2, 0, 1)[1:5:2].permute(1, 2, 0)[3].t()
        w.mul_(-1)
        return x, v, w

    beside(program)


@pytest.mark.parametrize("rank", [9, 12, 17, 20, 25])
def test_many_dimensions(rank):
    shape = [2 if d % 3 == 0 else 1 for d in range(rank)]

    def program(d):
        x = base(d, *shape)
        y = x.permute(*reversed(range(rank)))
        z = x.transpose(0, -1)[..., 0]
        y.select(rank - 1, 1).mul_(3)
        return x, y, z, y + 1, x.sum(0), y.contiguous()

    beside(program)


def test_more_walked_dimensions_than_a_window_has():
    def program(d):
        x = torch.arange(2.0**17, device=d).view([2] * 17)
        y = x.permute(*reversed(range(17)))
        v = y[1, :, 0]
        w = v + 1
        v.zero_()
        return x.view(-1), w

    beside(program, layout=False)


def test_views_of_one_storage_read_and_written_in_one_op():
    def program(d):
        x = base(d, 8, 8)
        results = []
        x[:4].add_(x[4:])
        x[:, ::2].mul_(x[:, 1::2])
        x[2].copy_(x[:, 3])
        torch.add(x[0], x[1], alpha=2, out=x[7])
        results.append(x.clone())
        torch.mul(x[::2], x[1::2], out=torch.empty(4, 8, device=d))
        x.t().sub_(x.t())
        results.append(x)
        return results

    beside(program)


def test_each_half_swaps_through_a_copy():
    def program(d):
        x = base(d, 6, 4)
        x[:3], x[3:] = x[3:].clone(), x[:3].clone()
        return x

    beside(program)


def test_every_alias_sees_a_write_through_any_other():
    def program(d):
        x = base(d, 4, 6)
        aliases = [
            x,
            x.t(),
            x[1:3],
            x.view(-1)[::5],
            x[:, 2],
            x.view(2, 2, 6)[1, 0],
            x.detach(),
            x.as_strided((3,), (7,), 1),
        ]
        seen = []
        for i, a in enumerate(aliases):
            a.add_(100 * (i + 1))
            seen += [b.clone() for b in aliases]
        return seen

    beside(program)


def test_writing_through_one_alias_while_reading_others_of_another_dtype():
    def program(d):
        x = torch.zeros(4, 4, dtype=torch.int32, device=d)
        f, b = x.view(torch.float32), x.view(torch.uint8)
        f[1].fill_(1.5)
        b[2, ::4].fill_(7)
        x[3].copy_(b[2, :4])
        f[0].copy_(b[1, :4])
        x[0, 2:].fill_(-1)
        return x, b, f[1:3], b.view(torch.int16), b[:, 8:].view(torch.int64)

    beside(program)


@pytest.mark.parametrize(
    "to", [torch.uint8, torch.int16, torch.int32, torch.int64, torch.float64, torch.complex64, torch.bfloat16]
)
@pytest.mark.parametrize("of", [torch.int32, torch.int64, torch.uint8, torch.float16, torch.complex128])
def test_bytes_seen_as_another_dtype(of, to):
    def program(d):
        numbers = [i * 37 % 100 for i in range(48)]
        x = torch.tensor(numbers, dtype=of, device=d).view(3, 16)
        v = x.view(to)
        w = x[1:, 8:].view(to)
        w.fill_(3)
        v[0, :2].copy_(v[2, :2].clone())
        return x.view(torch.uint8), v.view(torch.uint8), w.contiguous().view(torch.uint8)

    beside(program, layout=False)


def test_a_bool_seen_as_bytes_and_back():
    def program(d):
        x = torch.tensor([[True, False, True], [False, False, True]], device=d)
        x.view(torch.uint8)[1].fill_(1)
        y = torch.tensor([0, 1, 1, 0], dtype=torch.uint8, device=d).view(torch.bool)
        return x, x.view(torch.uint8) + 1, y, ~y

    beside(program)


def test_view_dtype_refuses_what_the_cpu_refuses():
    same_error(lambda d: base(d, 3, 3).view(torch.float64))
    same_error(lambda d: base(d, 4, 4).t().view(torch.int64))
    same_error(lambda d: base(d, 8)[1:].view(torch.float64))
    same_error(lambda d: base(d, 4)[0].view(torch.float64))


def test_conj_and_neg_views():
    def program(d):
        x = torch.tensor([[1 + 2j, 3 - 4j], [5j, -6]], dtype=torch.complex64, device=d)
        c, n = x.conj(), x.conj().imag
        results = [c.is_conj(), n.is_neg(), c.resolve_conj().is_conj(), c + 1, n * 2, c @ c.t(), n.clone(), c.clone()]
        c[0].add_(1j)
        n[1].fill_(9)
        results += [x, c, n, x.real, x.imag, torch.view_as_real(x), c.conj(), x.adjoint(), c.mul_(2j)]
        x.conj().copy_(x)
        n.copy_(torch.ones(2, 2, device=d))
        results += [x, torch.add(c, 1, out=c), x.conj().sum(), torch.dot(c[0], x[0]), c[:, 0].to(torch.complex128)]
        return [r.resolve_conj().resolve_neg() if isinstance(r, torch.Tensor) else r for r in results]

    beside(program, layout=False)


def test_complex_as_pairs_and_pairs_as_complex():
    def program(d):
        x = base(d, 3, 4, 2)
        c = torch.view_as_complex(x)
        c[1].mul_(1j)
        r = torch.view_as_real(c[:, ::2])
        r[..., 1].zero_()
        return x, c, r

    beside(program)


def test_channels_last():
    def program(d):
        x = base(d, 2, 3, 4, 5).contiguous(memory_format=torch.channels_last)
        y = torch.empty_like(x).copy_(base(d, 2, 3, 4, 5))
        x[:, 1].add_(100)
        x[..., ::2].mul_(2)
        z = x + y
        w = x.to(memory_format=torch.contiguous_format)
        last = x.is_contiguous(memory_format=torch.channels_last), z.is_contiguous(memory_format=torch.channels_last)
        v = base(d, 2, 3, 2, 2, 2).contiguous(memory_format=torch.channels_last_3d)
        v[:, 2, 1].zero_()
        return [x, y, z, w, *last, x.permute(0, 2, 3, 1).reshape(-1), v, v + 1, x.clone(), x.flatten()]

    beside(program)


def test_zero_sizes_and_zero_dimensions():
    def program(d):
        empty = torch.empty(0, 3, device=d)
        scalar = torch.tensor(3.0, device=d)
        scalar.expand(2, 0)
        x = base(d, 3, 4)
        x[1:1].fill_(7)
        x[:, 4:].add_(torch.ones(3, 0, device=d))
        scalar.view(1, 1, 1).add_(1)
        scalar[None].mul_(2)
        scalar[()] = scalar + 1
        return (
            empty + 1,
            empty.sum(),
            empty.sum(0),
            empty.t(),
            empty.view(3, 0, 5),
            x,
            scalar,
            scalar.expand(2, 3),
            x[0:0, 1:],
        )

    beside(program)


def test_a_write_of_a_number_as_setitem():
    def program(d):
        x = base(d, 5, 6)
        x[1] = 0
        x[:, -1] = 7.5
        x[3, 2] = torch.tensor(9.0, device=d)
        x[4, ::2] = torch.tensor([1, 2, 3])
        x[..., 1:3][::2] = x[..., 3:5][::2]
        x[2, None, 3] = -1
        x[[0, 2], 1:3] = torch.zeros(2, device=d)
        x[x > 20] = 0.5
        return x

    beside(program)


def test_contiguous_and_reshape_share_or_copy_as_on_the_cpu():
    def program(d):
        x = base(d, 4, 6)
        same = [x.contiguous() is x, x.t().contiguous().data_ptr() == x.data_ptr()]
        same += [x.reshape(24).data_ptr() == x.data_ptr(), x.t().reshape(24).data_ptr() == x.data_ptr()]
        same += [x[:, ::2].reshape(12).data_ptr() == x.data_ptr(), x.flatten().data_ptr() == x.data_ptr()]
        return [*same, x.t().contiguous(), x.t().reshape(3, 8), x[:, ::2].reshape(-1)]

    beside(program)


def test_results_keep_the_memory_order_of_their_operands():
    def program(d):
        x, y = base(d, 4, 3, 5), base(d, 5, 4, 3).permute(1, 2, 0)
        results = [x.t() if x.dim() == 2 else x.transpose(0, 1), y]
        results = [
            f(r)
            for r in results
            for f in (torch.abs, torch.neg, lambda t: t + t, lambda t: t.clone(), torch.zeros_like)
        ]
        results += [x + y, y + x, x.expand(2, 4, 3, 5) + 1, torch.where(y > 3, y, 0), y.to(torch.int32), y.double()]
        return results

    beside(program)


def test_a_view_keeps_the_storage_after_its_base_is_gone():
    x = base("tpu", 4, 4)
    v = x[1:3].t()
    del x
    v.add_(1)
    assert_equal(v, base("cpu", 4, 4)[1:3].t().add_(1))
