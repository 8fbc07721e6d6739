"""In-place and out= forms: what is written, where it lies, and which errors come first."""

import warnings

import pytest
import torch
from beside import beside, same_error


def base(device, *shape, dtype=torch.float32):
    n = torch.Size(shape).numel()
    return torch.arange(1, n + 1, dtype=dtype).reshape(shape).to(device)


OUTS = {
    "contiguous": lambda d: torch.zeros(3, 4, device=d),
    "unwritten": lambda d: torch.empty(3, 4, device=d),
    "transposed": lambda d: torch.zeros(4, 3, device=d).t(),
    "a slice": lambda d: torch.zeros(5, 4, device=d)[1:4],
    "every second column": lambda d: torch.zeros(3, 8, device=d)[:, ::2],
    "a window of columns": lambda d: torch.zeros(3, 9, device=d)[:, 2:6],
    "a diagonal plane": lambda d: torch.zeros(4, 3, 4, device=d).diagonal(0, 0, 2),
    "permuted": lambda d: torch.zeros(2, 4, 3, device=d).permute(0, 2, 1)[1],
    "as_strided": lambda d: torch.zeros(60, device=d).as_strided((3, 4), (19, 4), 3),
    "wider dtype": lambda d: torch.zeros(3, 4, dtype=torch.float64, device=d),
    "narrower dtype": lambda d: torch.zeros(3, 4, dtype=torch.bfloat16, device=d)[:, :],
    "complex": lambda d: torch.zeros(3, 4, dtype=torch.complex64, device=d),
    "the imaginary part": lambda d: torch.zeros(3, 4, dtype=torch.complex64, device=d).imag,
    "reinterpreted": lambda d: torch.zeros(3, 4, dtype=torch.int32, device=d).view(torch.float32),
}


@pytest.mark.parametrize("name", OUTS)
def test_out_lies_where_it_lay(name):
    def program(d):
        out = OUTS[name](d)
        stride, pointer = out.stride(), out.data_ptr()
        assert torch.add(base(d, 3, 4), base(d, 4), alpha=2, out=out) is out
        assert (out.stride(), out.data_ptr()) == (stride, pointer)
        whole = torch.empty(0, dtype=out.dtype, device=d).set_(out.untyped_storage())
        return out, whole

    beside(program)


@pytest.mark.parametrize(
    "op",
    [
        lambda d, o: torch.cumsum(base(d, 3, 4), 1, out=o),
        lambda d, o: torch.mm(base(d, 3, 2), base(d, 2, 4), out=o),
        lambda d, o: torch.cat([base(d, 1, 4), base(d, 2, 4)], out=o),
        lambda d, o: torch.clamp(base(d, 3, 4), 2, 6, out=o),
        lambda d, o: torch.where(base(d, 3, 4) > 3, base(d, 3, 4), base(d, 4), out=o),
        lambda d, o: torch.sum(base(d, 2, 3, 4), 0, out=o),
        lambda d, o: torch.index_select(base(d, 5, 4), 0, torch.tensor([1, 4, 0], device=d), out=o),
        lambda d, o: torch.arange(12.0, out=o.view(-1) if o.is_contiguous() else torch.empty(12, device=d)),
        lambda d, o: torch.gather(base(d, 3, 4), 1, torch.tensor([[0, 3, 1, 1]] * 3, device=d), out=o),
        lambda d, o: torch.tril(base(d, 3, 4), out=o),
        lambda d, o: torch.pow(2, base(d, 3, 4), out=o),
        lambda d, o: torch.lerp(base(d, 3, 4), base(d, 3, 4) * 3, 0.5, out=o),
    ],
    ids=["cumsum", "mm", "cat", "clamp", "where", "sum", "index_select", "arange", "gather", "tril", "pow", "lerp"],
)
def test_out_of_many_ops_in_another_order_than_they_prefer(op):
    def program(d):
        outs = [OUTS[n](d) for n in ("transposed", "every second column", "unwritten")]
        return [op(d, o) for o in outs] + outs

    beside(program)


def test_out_of_two_results():
    def program(d):
        values = torch.zeros(3, 4, device=d)[:, 1]
        indices = torch.zeros(5, dtype=torch.int64, device=d)[1:4]
        torch.max(base(d, 3, 4).flip(1), 1, out=(values, indices))
        grown = torch.empty(0, device=d), torch.empty(0, dtype=torch.int64, device=d)
        torch.sort(base(d, 3, 4).flip(0), 0, out=grown)
        return values, indices, *grown

    beside(program)


def test_out_that_is_an_operand():
    def program(d):
        x, y = base(d, 4, 4), base(d, 4, 4)
        torch.add(x, y, out=x)
        torch.mul(x.t(), 2, out=x.t())
        torch.mm(x, y, out=torch.empty(4, 4, device=d))
        torch.where(x > 9, x, y, out=y)
        torch.cumsum(x, 0, out=x)
        return x, y

    beside(program)


def test_an_empty_out_takes_the_size_of_the_result():
    def program(d):
        out = torch.empty(0, device=d)
        torch.add(base(d, 3, 4), 1, out=out)
        view = torch.empty(0, device=d)
        torch.mul(base(d, 4, 3).t(), 2, out=view)
        matrix = torch.empty(0, device=d)
        torch.mm(base(d, 2, 3), base(d, 3, 5), out=matrix)
        last = torch.empty(0, device=d)
        torch.neg(base(d, 2, 3, 4, 5).contiguous(memory_format=torch.channels_last), out=last)
        return out, view, matrix, last

    beside(program)


def test_an_out_of_another_size_is_resized_with_a_warning():
    def program(d):
        out = torch.ones(2, 2, device=d)
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            torch.add(base(d, 3, 4), 1, out=out)
        smaller = torch.ones(50, device=d)
        with warnings.catch_warnings(record=True):
            torch.add(base(d, 3, 4), 1, out=smaller)
        return out, smaller, [str(w.message).split("\n")[0] for w in said], smaller.untyped_storage().nbytes()

    beside(program)


@pytest.mark.parametrize(
    "dtype", [torch.int64, torch.uint8, torch.bfloat16, torch.float64, torch.bool, torch.complex64]
)
def test_in_place_keeps_the_dtype(dtype):
    def program(d):
        x = base(d, 3, 4, dtype=torch.int64).to(dtype)
        if dtype is not torch.bool:
            x.add_(2).mul_(3)
        x[1].zero_()
        x.copy_(torch.full((4,), 2.7, device=d))
        x[0] = 1
        return x, x.masked_fill_(torch.tensor([True, False, True, False], device=d), 0)

    if dtype is torch.complex64:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            beside(program)
    else:
        beside(program)


def test_chains_of_in_place_ops_return_self():
    def program(d):
        x = base(d, 3, 4)
        y = x.add_(1).mul_(2).sub_(3).div_(4).neg_().abs_().clamp_(1, 3).sqrt_()
        z = x.t_().transpose_(0, 1).unsqueeze_(0).squeeze_(0)
        return y is x, z is x, x

    beside(program)


def test_an_in_place_op_with_itself():
    def program(d):
        x = base(d, 3, 4)
        x.add_(x)
        x.mul_(x.clone())
        x.addcmul_(x, x, value=0.5)
        x.copy_(x)
        x.sub_(x[0])
        return x

    same_error(lambda d: (x := base(d, 3, 4)).sub_(x[0]))

    def allowed(d):
        x = base(d, 3, 4)
        x.add_(x).addcmul_(x, x, value=0.5)
        return x.copy_(x)

    beside(allowed)


def test_in_place_on_an_unwritten_tensor_counts_from_zero():
    x = torch.empty(3, 4, device="tpu")
    x[1].add_(2)
    x.t()[0].sub_(1)
    assert x.tolist() == [[-1, 0, 0, 0], [1, 2, 2, 2], [-1, 0, 0, 0]]
    y = torch.empty(8, dtype=torch.int32, device="tpu")
    y.view(torch.int64)[1].fill_(1)
    y[6:].add_(5)
    assert y.tolist() == [0, 0, 1, 0, 0, 0, 5, 5]
    z = torch.empty(4, dtype=torch.bool, device="tpu")
    z.logical_not_()
    assert z.tolist() == [True] * 4


def test_shapes_that_do_not_fit_are_cpus_errors():
    same_error(lambda d: base(d, 3).add_(base(d, 2, 3)))
    same_error(lambda d: base(d, 3).add_(base(d, 4)))
    same_error(lambda d: base(d, 1, 3).mul_(base(d, 2, 3)))
    same_error(lambda d: base(d, 3).copy_(base(d, 4)))
    same_error(lambda d: base(d, 3).copy_(base(d, 2, 3)))
    same_error(lambda d: base(d, 3).copy_(torch.ones(4)))
    same_error(lambda d: base(d, 0, 3).copy_(torch.ones(4)))
    same_error(lambda d: torch.empty(0, 3, device=d).copy_(base(d, 2, 4)))
    same_error(lambda d: base(d, 2, 3).clamp_(base(d, 4)))
    same_error(lambda d: base(d, 3).masked_fill_(torch.ones(2, 3, dtype=torch.bool, device=d), 1))


def test_dtypes_that_do_not_fit_are_cpus_errors():
    same_error(lambda d: base(d, 3, dtype=torch.int64).add_(1.5))
    same_error(lambda d: base(d, 3, dtype=torch.int64).div_(2))
    same_error(lambda d: base(d, 3).add_(1j))
    same_error(lambda d: base(d, 3, dtype=torch.int64).sqrt_())
    same_error(lambda d: base(d, 3, dtype=torch.bool).add_(2))
    same_error(lambda d: torch.add(base(d, 3), 1, out=torch.empty(3, dtype=torch.int64, device=d)))
    same_error(lambda d: torch.mm(base(d, 3, 3), base(d, 3, 3), out=torch.empty(3, 3, dtype=torch.float64, device=d)))
    same_error(
        lambda d: torch.bmm(
            base(d, 1, 3, 3), base(d, 1, 3, 3), out=torch.empty(1, 3, 3, dtype=torch.bfloat16, device=d)
        )
    )
    same_error(
        lambda d: torch.index_select(
            base(d, 3), 0, torch.tensor([1], device=d), out=torch.empty(1, dtype=torch.float64, device=d)
        )
    )
    same_error(lambda d: torch.argmax(base(d, 3), 0, out=torch.empty((), device=d)))
    same_error(
        lambda d: torch.gather(
            base(d, 3), 0, torch.tensor([1], device=d), out=torch.empty(1, dtype=torch.float64, device=d)
        )
    )
    same_error(
        lambda d: torch.sort(
            base(d, 3), out=(torch.empty(3, dtype=torch.float64, device=d), torch.empty(3, dtype=torch.int64, device=d))
        )
    )
    same_error(lambda d: torch.where(base(d, 3) > 1, base(d, 3), 0.0, out=torch.empty(3, dtype=torch.int64, device=d)))
    same_error(lambda d: torch.max(base(d, 3, 3), 1, out=(torch.empty(3, device=d), torch.empty(3, device=d))))


def test_an_out_on_the_cpu_is_an_error():
    with pytest.raises(RuntimeError, match=r"Expected all tensors to be on the same device|device"):
        torch.add(base("tpu", 3), 1, out=torch.empty(3))
    with pytest.raises(RuntimeError, match=r"device"):
        torch.add(base("cpu", 3), 1, out=torch.empty(3, device="tpu"))


def test_partial_overlap_is_an_error_and_full_overlap_is_not():
    same_error(lambda d: (x := base(d, 6))[1:].add_(x[:-1]))
    same_error(lambda d: torch.add((x := base(d, 6))[1:], 1, out=x[:-1]))
    same_error(lambda d: torch.mul((x := base(d, 4, 4)), 2, out=x.t()))

    def program(d):
        x = base(d, 6)
        torch.add(x[1:], 1, out=x[1:])
        x[:3].add_(x[3:])
        return x

    beside(program)


def test_a_write_that_failed_changes_nothing_and_leaves_all_usable():
    x, y = base("tpu", 3, 4), base("tpu", 3, 4)
    for wrong in (
        lambda: x.add_(base("tpu", 5)),
        lambda: x.copy_(base("tpu", 5)),
        lambda: torch._foreach_add_([x, y], [y, base("tpu", 5)]),
    ):
        for _ in range(2):
            with pytest.raises(RuntimeError):
                wrong()
    assert torch.equal(x.cpu(), base("cpu", 3, 4)) and torch.equal(y.cpu(), base("cpu", 3, 4))
    assert torch.equal(x.add_(y).cpu(), base("cpu", 3, 4) * 2)


def test_out_may_not_require_grad():
    same_error(lambda d: torch.add(base(d, 3).requires_grad_(), 1, out=torch.empty(3, device=d)))
    same_error(lambda d: torch.add(base(d, 3), 1, out=torch.empty(3, device=d, requires_grad=True)))
