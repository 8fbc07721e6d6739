"""Wrong calls: the CPU's type and text; and what the data of a call made wrong, at the next read."""

import pytest
import torch
import torch.nn.functional as F
from beside import beside, same_error


def ones(d, *shape, dtype=torch.float32):
    return torch.ones(shape, dtype=dtype, device=d)


WRONG_SHAPES = {
    "add": lambda d: ones(d, 3) + ones(d, 4),
    "where": lambda d: torch.where(ones(d, 3) > 0, ones(d, 4), ones(d, 3)),
    "mm": lambda d: ones(d, 2, 3) @ ones(d, 4, 2),
    "mm of vectors": lambda d: torch.mm(ones(d, 3), ones(d, 3)),
    "bmm": lambda d: torch.bmm(ones(d, 2, 2, 3), ones(d, 3, 3, 2)),
    "dot": lambda d: torch.dot(ones(d, 3), ones(d, 4)),
    "addmm": lambda d: torch.addmm(ones(d, 5), ones(d, 2, 3), ones(d, 3, 4)),
    "linear": lambda d: F.linear(ones(d, 2, 3), ones(d, 4, 5)),
    "cat": lambda d: torch.cat([ones(d, 2, 3), ones(d, 2, 4)]),
    "stack": lambda d: torch.stack([ones(d, 2), ones(d, 3)]),
    "view": lambda d: ones(d, 4).view(3),
    "view of a transpose": lambda d: ones(d, 2, 3).t().view(6),
    "reshape": lambda d: ones(d, 4).reshape(3, -1),
    "expand": lambda d: ones(d, 3).expand(4),
    "conv2d": lambda d: F.conv2d(ones(d, 1, 3, 4, 4), ones(d, 2, 4, 3, 3)),
    "conv2d too small": lambda d: F.conv2d(ones(d, 1, 3, 2, 2), ones(d, 2, 3, 3, 3)),
    "layer_norm": lambda d: F.layer_norm(ones(d, 2, 3), (4,)),
    "batch_norm": lambda d: F.batch_norm(ones(d, 2, 3), ones(d, 4), ones(d, 4)),
    "cross_entropy": lambda d: F.cross_entropy(ones(d, 2, 3), ones(d, 3, dtype=torch.int64)),
    "gather": lambda d: torch.gather(ones(d, 2, 3), 0, ones(d, 2, dtype=torch.int64)),
    "index_add": lambda d: ones(d, 3).index_add_(0, ones(d, 2, dtype=torch.int64), ones(d, 3)),
    "mask": lambda d: ones(d, 3)[ones(d, 4, dtype=torch.bool)],
    "masked_fill": lambda d: ones(d, 3).masked_fill(ones(d, 2, dtype=torch.bool), 0),
    "max_pool2d": lambda d: F.max_pool2d(ones(d, 1, 2, 2), 3),
    "embedding": lambda d: F.embedding(ones(d, 2, dtype=torch.int64), ones(d, 2)),
    "as_strided": lambda d: ones(d, 4).as_strided((3,), (2,)),
    "tril": lambda d: torch.tril(ones(d, 3)),
    "unfold": lambda d: ones(d, 3).unfold(0, 4, 1),
    "split": lambda d: ones(d, 5).split([2, 2]),
    "permute": lambda d: ones(d, 2, 3).permute(0, 0),
    "mse_loss": lambda d: F.mse_loss(ones(d, 3), ones(d, 2, 4)),
    "lerp": lambda d: torch.lerp(ones(d, 3), ones(d, 3), ones(d, 4)),
    "cdist": lambda d: torch.cdist(ones(d, 2, 3), ones(d, 2, 4)),
    "max of nothing": lambda d: ones(d, 0).max(),
    "argmax of nothing": lambda d: ones(d, 0, 3).argmax(0),
    "negative size": lambda d: torch.zeros(-1, device=d),
    "topk": lambda d: ones(d, 3).topk(4),
    "narrow": lambda d: ones(d, 3).narrow(0, 2, 2),
    "select": lambda d: ones(d, 3).select(0, 3),
}


@pytest.mark.parametrize("name", WRONG_SHAPES)
def test_wrong_shapes(name):
    for _ in range(2):
        same_error(lambda d: WRONG_SHAPES[name](d), text=name not in ("mse_loss",))


WRONG_DTYPES = {
    "mm": lambda d: ones(d, 2, 2) @ ones(d, 2, 2, dtype=torch.float64),
    "linear": lambda d: F.linear(ones(d, 2, 2), ones(d, 2, 2, dtype=torch.bfloat16)),
    "conv2d": lambda d: F.conv2d(ones(d, 1, 1, 3, 3), ones(d, 1, 1, 2, 2, dtype=torch.float64)),
    "embedding": lambda d: F.embedding(ones(d, 2), ones(d, 3, 3)),
    "index": lambda d: ones(d, 3)[ones(d, 2)],
    "gather": lambda d: torch.gather(ones(d, 3), 0, ones(d, 3)),
    "index_select": lambda d: ones(d, 3).index_select(0, ones(d, 3)),
    "cross_entropy": lambda d: F.cross_entropy(ones(d, 2, 3), ones(d, 2, dtype=torch.int32)),
    "bitwise_and": lambda d: ones(d, 3) & ones(d, 3),
    "mean of integers": lambda d: ones(d, 3, dtype=torch.int64).mean(),
    "softmax of integers": lambda d: ones(d, 3, dtype=torch.int64).softmax(0),
    "minus of bools": lambda d: ones(d, 3, dtype=torch.bool) - ones(d, 3, dtype=torch.bool),
    "neg of a bool": lambda d: -ones(d, 3, dtype=torch.bool),
    "index_put": lambda d: ones(d, 3).index_put_((ones(d, 1, dtype=torch.int64),), ones(d, 1, dtype=torch.float64)),
    "scatter": lambda d: ones(d, 3).scatter(0, ones(d, 3, dtype=torch.int64), ones(d, 3, dtype=torch.float64)),
    "masked_fill mask": lambda d: ones(d, 3).masked_fill(ones(d, 3, dtype=torch.int64), 0),
    "where": lambda d: torch.where(ones(d, 3), 1.0, 2.0),
    "layer_norm": lambda d: F.layer_norm(ones(d, 2, 3, dtype=torch.int64), (3,)),
    "requires_grad": lambda d: ones(d, 3, dtype=torch.int64).requires_grad_(),
    "clamp of complex": lambda d: ones(d, 3, dtype=torch.complex64).clamp(0, 1),
    "less of complex": lambda d: ones(d, 3, dtype=torch.complex64) < 1,
    "sort of complex": lambda d: ones(d, 3, dtype=torch.complex64).sort(),
    "fill with complex": lambda d: ones(d, 3).fill_(1j),
    "fill with too much": lambda d: ones(d, 3).fill_(1e300),
    "full of too much": lambda d: torch.full((3,), 300, dtype=torch.int8, device=d),
    "float16 of too much": lambda d: ones(d, 3, dtype=torch.float16).fill_(70000),
    "uniform": lambda d: ones(d, 3).uniform_(2, 1),
    "normal": lambda d: ones(d, 3).normal_(0, -1),
    "exponential": lambda d: ones(d, 3).exponential_(-1),
    "log_normal": lambda d: ones(d, 3).log_normal_(0, -1),
    "cauchy": lambda d: ones(d, 3).cauchy_(0, -1),
    "geometric": lambda d: ones(d, 3).geometric_(1.5),
    "random": lambda d: ones(d, 3).random_(3, 2),
    "randint": lambda d: torch.randint(3, 2, (2,), device=d),
    "random of nothing": lambda d: ones(d, 3).random_(0),
    "bmm": lambda d: torch.bmm(ones(d, 1, 2, 2), ones(d, 1, 2, 2, dtype=torch.int64)),
    "lerp": lambda d: torch.lerp(ones(d, 2), ones(d, 2, dtype=torch.float64), 0.5),
    "dropout": lambda d: F.dropout(ones(d, 3), 1.5),
    "bernoulli": lambda d: ones(d, 3).bernoulli_(1.5),
}


@pytest.mark.parametrize("name", WRONG_DTYPES)
def test_wrong_dtypes_and_numbers(name):
    same_error(lambda d: WRONG_DTYPES[name](d))


WRONG_DIMS = {
    "sum": lambda d: ones(d, 2, 3).sum(2),
    "softmax": lambda d: ones(d, 2, 3).softmax(-3),
    "cat": lambda d: torch.cat([ones(d, 2), ones(d, 2)], 1),
    "transpose": lambda d: ones(d, 2, 3).transpose(0, 2),
    "cumsum": lambda d: ones(d, 2, 3).cumsum(5),
    "select": lambda d: ones(d, 2, 3)[2],
    "too many": lambda d: ones(d, 2, 3)[0, 0, 0],
    "sum twice": lambda d: ones(d, 2, 3).sum((0, 0)),
    "unsqueeze": lambda d: ones(d, 2).unsqueeze(3),
    "index_select": lambda d: ones(d, 2).index_select(1, ones(d, 1, dtype=torch.int64)),
    "gather": lambda d: ones(d, 2).gather(1, ones(d, 2, dtype=torch.int64)),
    "flip": lambda d: ones(d, 2).flip(1),
    "argmax": lambda d: ones(d, 2).argmax(1),
    "sort": lambda d: ones(d, 2).sort(1),
    "unbind": lambda d: ones(d, 2).unbind(1),
    "step": lambda d: ones(d, 4)[::-1],
}


@pytest.mark.parametrize("name", WRONG_DIMS)
def test_wrong_dimensions(name):
    same_error(lambda d: WRONG_DIMS[name](d))


def test_other_devices():
    there, here = ones("tpu", 2), ones("cpu", 2)
    for wrong in (
        lambda: there + here,
        lambda: here + there,
        lambda: torch.mm(ones("tpu", 2, 2), ones("cpu", 2, 2)),
        lambda: torch.cat([there, here]),
        lambda: F.linear(there, ones("cpu", 2, 2)),
        lambda: there.add_(here),
        lambda: torch.where(here > 0, there, there),
        lambda: F.embedding(ones("cpu", 2, dtype=torch.int64), ones("tpu", 3, 3)),
        lambda: torch.stack([here, there]),
    ):
        with pytest.raises(RuntimeError, match=r"Expected all tensors to be on the same device|same device|device"):
            wrong()
    assert (there + torch.tensor(2.0)).tolist() == [3, 3] and (torch.tensor(2) * there).tolist() == [2, 2]
    with pytest.raises(RuntimeError):
        here.add_(torch.tensor(2.0, device="tpu").view(1))


OUT_OF_RANGE = {
    "index": lambda d, i: torch.arange(5.0, device=d)[i],
    "index of the second dimension": lambda d, i: ones(d, 7, 5)[:, i],
    "index_put": lambda d, i: torch.arange(5.0, device=d).index_put_((i,), ones(d, 1)),
    "setitem": lambda d, i: torch.arange(5.0, device=d).__setitem__(i, 0.0),
    "accumulate": lambda d, i: torch.arange(5.0, device=d).index_put_((i,), ones(d, 1), accumulate=True),
    "index_select": lambda d, i: torch.arange(5.0, device=d).index_select(0, i),
    "gather": lambda d, i: torch.arange(5.0, device=d).gather(0, i),
    "scatter": lambda d, i: torch.arange(5.0, device=d).scatter_(0, i, 1.0),
    "scatter_add": lambda d, i: torch.arange(5.0, device=d).scatter_add_(0, i, ones(d, 1)),
    "index_add": lambda d, i: torch.arange(5.0, device=d).index_add_(0, i, ones(d, 1)),
    "index_copy": lambda d, i: torch.arange(5.0, device=d).index_copy_(0, i, ones(d, 1)),
    "index_fill": lambda d, i: torch.arange(5.0, device=d).index_fill_(0, i, 1.0),
    "take": lambda d, i: torch.arange(5.0, device=d).take(i),
    "put": lambda d, i: torch.arange(5.0, device=d).put_(i, ones(d, 1)),
    "embedding": lambda d, i: F.embedding(i, ones(d, 5, 2)),
    "cross_entropy": lambda d, i: F.cross_entropy(ones(d, 1, 5), i),
    "nll_loss": lambda d, i: F.nll_loss(ones(d, 1, 5), i),
}


@pytest.mark.parametrize("at", [5, -6, 1 << 40])
@pytest.mark.parametrize("name", OUT_OF_RANGE)
def test_an_index_out_of_range_is_told_at_the_next_read(name, at):
    x = ones("tpu", 3)
    result = OUT_OF_RANGE[name]("tpu", torch.tensor([at], device="tpu"))
    kind = (
        IndexError
        if name not in ("gather", "scatter", "scatter_add", "index_fill", "index_select")
        else (IndexError, RuntimeError)
    )
    with pytest.raises(kind, match=rf"{at}.* out of bounds|out of range"):
        x.tolist()
    assert x.tolist() == [1, 1, 1]
    torch.tpu.synchronize()
    del result
    # The same program with an index in range.
    beside(lambda d: OUT_OF_RANGE[name](d, torch.tensor([3], device=d)), layout=False)


def test_only_the_first_of_several_failures_is_told_and_only_once():
    x = ones("tpu", 4)
    x[torch.tensor([7], device="tpu")], x[torch.tensor([9], device="tpu")]
    with pytest.raises(IndexError, match="7"):
        torch.tpu.synchronize()
    torch.tpu.synchronize()
    assert x.sum().item() == 4


def test_an_ignored_target_is_in_range():
    beside(
        lambda d: F.cross_entropy(torch.arange(10.0, device=d).view(2, 5), torch.tensor([-100, 3], device=d)),
        rtol=1e-6,
        atol=0,
    )


def test_failures_of_an_earlier_op_do_not_reach_later_results():
    i = torch.tensor([9], device="tpu")
    x = torch.zeros(4, device="tpu")
    x.index_add_(0, i, ones("tpu", 1))
    with pytest.raises(IndexError):
        x.cpu()
    assert x.cpu().tolist() == [0, 0, 0, 0]


def test_a_failed_op_is_not_remembered():
    a, b = ones("tpu", 2, 3), ones("tpu", 4, 5)
    for _ in range(3):
        with pytest.raises(RuntimeError):
            a @ b
    before = torch.tpu.counters()
    with pytest.raises(RuntimeError):
        a @ b
    assert torch.tpu.counters()["compiles"] == before["compiles"]
    assert (a @ b[:3]).tolist() == [[3.0] * 5] * 2


def test_dtypes_that_the_device_does_not_have():
    with pytest.raises(NotImplementedError, match="no element type"):
        torch.zeros(2, dtype=torch.complex32, device="tpu")
    with pytest.raises((NotImplementedError, RuntimeError)):
        torch.quantize_per_tensor(ones("cpu", 2), 0.1, 0, torch.qint8).to("tpu")


def test_work_on_compressed_sparse_tensors_is_refused_in_a_sentence():
    sparse = torch.eye(2).to_sparse_csr().to("tpu")
    for work in (sparse.to_dense, lambda: sparse @ ones("tpu", 2, 2), lambda: sparse + sparse):
        with pytest.raises((NotImplementedError, RuntimeError)):
            work()
    assert ones("tpu", 2).sum().item() == 2


def test_addresses_of_the_device_are_not_memory():
    x = torch.arange(4.0, device="tpu")
    whole = torch._C._construct_storage_from_data_pointer(x.data_ptr(), torch.device("tpu:0"), 16)
    alias = torch.empty(0, device="tpu").set_(whole, 0, (4,))
    alias.add_(1)
    assert alias.tolist() == x.tolist() == [1, 2, 3, 4]
    part = torch._C._construct_storage_from_data_pointer(x.data_ptr() + 4, torch.device("tpu:0"), 8)
    with pytest.raises(RuntimeError, match="not that of a whole storage"):
        torch.empty(0, device="tpu").set_(part, 0, (2,)).add_(1)


def test_an_error_in_the_middle_of_a_program_leaves_the_rest():
    x = torch.arange(6.0, device="tpu")
    try:
        x[2:].mul_(2)
        x.view(7)
    except RuntimeError:
        x[:2].add_(5)
    assert x.tolist() == [5, 6, 4, 6, 8, 10]


NUMBERS = {
    "clamp": lambda x, v: x.clamp(max=v),
    "clamp_min_": lambda x, v: x.clamp_min_(v),
    "masked_fill": lambda x, v: x.masked_fill(x > 0, v),
    "threshold": lambda x, v: F.threshold(x, v, 2),
    "index_fill": lambda x, v: x.index_fill(0, torch.zeros(1, dtype=torch.int64, device=x.device), v),
    "scatter": lambda x, v: x.scatter(0, torch.zeros(1, dtype=torch.int64, device=x.device), v),
    "addcmul": lambda x, v: torch.addcmul(x, x, x, value=v),
    "alpha": lambda x, v: x.add(x, alpha=v),
    "fill": lambda x, v: x.fill_(v),
    "linspace": lambda x, v: torch.linspace(0, v, 5, dtype=x.dtype, device=x.device),
}


@pytest.mark.parametrize("dtype", [torch.int8, torch.float32, torch.float16])
@pytest.mark.parametrize("name", NUMBERS)
def test_a_number_that_the_dtype_cannot_hold_is_refused_by_known_programs_too(name, dtype):
    fits, too_much = (100, 300) if dtype is torch.int8 else (7.0, 1e300)
    beside(lambda d: NUMBERS[name](torch.ones(3, dtype=dtype, device=d), fits))
    compiles = torch.tpu.counters()["compiles"]
    # Some kernels of the CPU take the numbers of half-precision calls as floats, and name that dtype.
    same_error(lambda d: NUMBERS[name](torch.ones(3, dtype=dtype, device=d), too_much), text=dtype is not torch.float16)
    assert torch.tpu.counters()["compiles"] == compiles


def test_numbers_that_wrap_around():
    beside(lambda d: [ones(d, 3, dtype=torch.int8) + 300, ones(d, 3, dtype=torch.int8) == 257])
    beside(lambda d: ones(d, 3, dtype=torch.uint8).clamp(min=-1))


def test_writes_to_expanded_tensors():
    def fill(d):
        x = torch.arange(3.0, device=d)[:, None].expand(3, 4)
        mask = torch.tensor([[0, 1, 0, 0], [0, 0, 0, 0], [1, 1, 1, 1]], dtype=torch.bool, device=d)
        x.masked_fill_(mask, 9)
        return x, x._base

    def put(d):
        x = torch.zeros(1, device=d).expand(3)
        x[torch.tensor([0, 2], device=d)] = 5.0
        return x, x._base

    with pytest.warns(UserWarning, match="on expanded tensors is deprecated"):
        beside(fill)
    with pytest.warns(UserWarning, match="on expanded tensors is deprecated"):
        beside(put)
    same_error(lambda d: torch.zeros(1, device=d).expand(3).add_(1))


SILENT_IN_META = {
    "complex parts": lambda d: torch.complex(ones(d, 2), ones(d, 2, dtype=torch.float64)),
    "masked_scatter": lambda d: ones(d, 2).masked_scatter(ones(d, 2, dtype=torch.uint8), ones(d, 2)),
    "max of nothing": lambda d: ones(d, 2, 0).max(1),
    "out is an operand": lambda d: (lambda x: torch.ldexp(x, ones(d, 5, 5), out=x))(ones(d, 5, 1)),
    "diagonal_scatter": lambda d: torch.diagonal_scatter(ones(d, 3, 3), ones(d, 2)),
    "boundaries": lambda d: torch.bucketize(ones(d, 2), ones(d, 2, 2)),
}


@pytest.mark.parametrize("name", SILENT_IN_META)
def test_what_meta_kernels_let_through(name):
    for _ in range(2):
        same_error(SILENT_IN_META[name])


def test_the_cpu_is_asked_quietly(recwarn):
    state = torch.get_rng_state()
    torch.rand(3, device="tpu").bernoulli_()
    x = torch.ones(4, device="tpu")
    torch.add(x, x, out=torch.empty(3, device="tpu"))
    assert torch.equal(torch.get_rng_state(), state)
    assert [str(w.message)[:30] for w in recwarn].count("An output with one or more ele") == 1
