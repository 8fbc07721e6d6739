"""Index tensors: whole slices (index.cc) and single elements (scatter.cc), against the CPU."""

import pytest
import torch
import torch.nn.functional as F
from ops.samples import case_id, cases, check

OPS = [
    "__getitem__",
    "index_put",
    "index_select",
    "index_add",
    "index_copy",
    "index_fill",
    "index_reduce",
    "take",
    "put",
    "gather",
    "scatter",
    "scatter_add",
    "scatter_reduce",
    "masked_scatter",
    "nn.functional.embedding",
    "nonzero_static",
    "searchsorted",
    "bucketize",
    "histc",
    "take_along_dim",
    "bincount",
    "repeat_interleave",
]


@pytest.mark.parametrize("case", cases(*OPS), ids=case_id)
def test_samples_as_on_cpu(case):
    # index_fill's gradient calls unique.
    check(*case, grad=case[0].name != "index_fill")


def tensor(*values):
    return torch.tensor(values)


INDICES = {
    "neighbours": (slice(None), tensor(1, -1, 0), tensor(0, 3, -2)),
    "apart": (tensor(1, -1, 0), slice(None), tensor(0, 3, -2)),
    "broadcast": (slice(None), torch.tensor([[0], [2]]), slice(None), tensor(0, 3, -2)),
    "number": (torch.tensor(1), slice(None), torch.tensor(0)),
    "none": (slice(None), torch.empty(0, dtype=torch.long)),
    "int32": (slice(None), tensor(2, 2).int()),
    "last": (Ellipsis, tensor(4, -5)),
}


@pytest.mark.parametrize("name", INDICES)
def test_indexing_reads_writes_and_accumulates(name):
    x = torch.randn(2, 3, 4, 5, generator=torch.Generator().manual_seed(0))
    here = INDICES[name]
    there = tuple(i.to("tpu") if isinstance(i, torch.Tensor) else i for i in here)
    d = x.to("tpu")
    assert torch.equal(d[there].cpu(), x[here])
    values = torch.randn(x[here].shape)
    got, want = d.clone(), x.clone()
    got[there], want[here] = values.sum().to("tpu"), values.sum()
    assert torch.equal(got.cpu(), want)
    # The gradient of reading adds up where an element was read twice.
    grads = []
    for device, index in (("cpu", here), ("tpu", there)):
        a = x.to(device, copy=True).requires_grad_()
        (a[index] * values.to(device)).sum().backward()
        grads.append(a.grad.cpu())
    torch.testing.assert_close(grads[1], grads[0])


ERRORS = {
    "index": (lambda x, i: x[i], IndexError, "index 9 is out of bounds for dimension 0 with size 3"),
    "gather": (
        lambda x, i: x.gather(0, i[:, None]),
        RuntimeError,
        "index 9 is out of bounds for dimension 0 with size 3",
    ),
    "index_select": (lambda x, i: x.index_select(0, i), IndexError, "index out of range in self"),
    "embedding": (lambda x, i: F.embedding(i, x), IndexError, "index out of range in self"),
    "scatter": (lambda x, i: x.scatter(0, i[:, None], 1.0), RuntimeError, "index 9 is out of bounds"),
    "take": (lambda x, i: x.take(i + 90), IndexError, "tried to access index 99 on a tensor of 12 elements"),
}


@pytest.mark.parametrize("name", ERRORS)
def test_index_out_of_range(name):
    function, error, message = ERRORS[name]
    x, i = torch.randn(3, 4).to("tpu"), torch.tensor([9, 0], device="tpu")
    with pytest.raises(error, match=message):
        function(x, i).cpu()


@pytest.mark.parametrize("reduce", ["sum", "prod", "mean", "amax", "amin"])
@pytest.mark.parametrize("include_self", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.int64, torch.bfloat16])
def test_scatter_reduce_kinds(reduce, include_self, dtype):
    x = torch.tensor([[3, -7, 2, 5], [0, 1, -2, 9]], dtype=dtype)
    index = torch.tensor([[0, 0, 3, 3, 3], [1, 1, 1, 0, 0]])
    source = torch.tensor([[1, -4, 2, 2, 9], [-1, -2, -4, 7, 6]], dtype=dtype)
    got = x.to("tpu").scatter_reduce(1, index.to("tpu"), source.to("tpu"), reduce, include_self=include_self)
    torch.testing.assert_close(got.cpu(), x.scatter_reduce(1, index, source, reduce, include_self=include_self))


@pytest.mark.parametrize("dtype", [torch.bool, torch.uint8, torch.int16, torch.bfloat16])
def test_repeated_indices_accumulate(dtype):
    for name in ("scatter_add_", "index_add_"):
        outs = []
        for device in ("cpu", "tpu"):
            base = torch.zeros(8, dtype=dtype, device=device)
            index, ones = torch.tensor([0, 2, 2], device=device), torch.ones(3, dtype=dtype, device=device)
            getattr(base.narrow(0, 3, 4), name)(0, index, ones)
            outs.append(base.cpu())
        assert torch.equal(*outs)


@pytest.mark.parametrize("padding", [None, 1, -1])
@pytest.mark.parametrize("by_frequency", [False, True])
def test_embedding_gradient(padding, by_frequency):
    index = torch.tensor([[1, 1, 9], [0, 1, 2]])
    grads = []
    for device in ("cpu", "tpu"):
        w = torch.linspace(0, 1, 30).view(10, 3).to(device).requires_grad_()
        out = F.embedding(index.to(device), w, padding_idx=padding, scale_grad_by_freq=by_frequency)
        (out * torch.linspace(-1, 1, 18).view(2, 3, 3).to(device)).sum().backward()
        grads.append(w.grad.cpu())
    torch.testing.assert_close(grads[1], grads[0])


def test_masked_scatter_wants_enough_elements():
    x = torch.zeros(4, device="tpu")
    with pytest.raises(RuntimeError, match="Number of elements of source < number of ones in mask"):
        x.masked_scatter(x == 0, torch.ones(2, device="tpu")).cpu()


@pytest.mark.parametrize("right", [False, True])
def test_search_with_nan_and_infinities(right):
    edges, values = torch.tensor([1.0, 3, 3, 5]), torch.tensor([0.0, 3, 6, torch.nan, torch.inf, -torch.inf])
    got = torch.searchsorted(edges.to("tpu"), values.to("tpu"), right=right, out_int32=True)
    assert torch.equal(got.cpu(), torch.searchsorted(edges, values, right=right, out_int32=True))
