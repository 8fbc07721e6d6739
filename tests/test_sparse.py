"""Sparse COO tensors: the same programs as on the CPU."""

import pytest
import torch
from beside import beside, same_error

pytestmark = pytest.mark.filterwarnings("ignore:Sparse invariant checks")


def parts(device, dtype=torch.float64):
    indices = torch.tensor([[0, 2, 2, 0], [1, 3, 3, 0]], device=device)
    values = torch.tensor([1, 2, 3, 4], dtype=dtype, device=device)
    return indices, values, torch.arange(12, dtype=dtype, device=device).reshape(3, 4)


PROGRAMS = {
    "indices": lambda s, d: s.coalesce().indices(),
    "values": lambda s, d: s.coalesce().values(),
    "to_dense": lambda s, d: s.to_dense(),
    "dense + sparse": lambda s, d: d + s,
    "dense += sparse": lambda s, d: d.add_(s, alpha=3),
    "transposed += sparse": lambda s, d: d.t().contiguous().t().add_(s),
    "sparse + sparse": lambda s, d: (s + s).to_dense(),
    "sparse += sparse": lambda s, d: s.add_(s, alpha=2).to_dense(),
    "sparse * number": lambda s, d: (s * 2).to_dense(),
    "sparse * dense": lambda s, d: (s * d).to_dense(),
    "sparse * sparse": lambda s, d: (s * d.to_sparse()).to_dense(),
    "sparse / number": lambda s, d: (s / 4).to_dense(),
    "neg": lambda s, d: (-s).to_dense(),
    "sqrt": lambda s, d: s.sqrt().to_dense(),
    "pow": lambda s, d: (s**2).to_dense(),
    "sum": lambda s, d: torch.sparse.sum(s),
    "mm": lambda s, d: torch.sparse.mm(s, d.t().contiguous()),
    "addmm": lambda s, d: torch.addmm(d[:, :2], s, d.t()[:, :2].contiguous(), beta=2, alpha=3),
    "matmul": lambda s, d: s @ d.t(),
    "dense masked": lambda s, d: d.sparse_mask(s.coalesce()).to_dense(),
    "sparse masked": lambda s, d: (s * 3).sparse_mask(d.relu().to_sparse()).to_dense(),
    "to_sparse": lambda s, d: [d.to_sparse().indices(), d.to_sparse().values()],
    "to_sparse rows": lambda s, d: [d.to_sparse(1).indices(), d.to_sparse(1).values()],
    "clone, zero_": lambda s, d: [s.clone().zero_().to_dense(), s.to_dense()],
    "empty": lambda s, d: torch.sparse_coo_tensor((2, 3), device=d.device).to_dense(),
}


@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=str)
def test_equals_the_cpu(name, dtype):
    def program(device):
        indices, values, dense = parts(device, dtype)
        return PROGRAMS[name](torch.sparse_coo_tensor(indices, values, (3, 4)), dense)

    # The CPU's coalesced indices are a window of a larger tensor.
    beside(program, layout=False, rtol=1e-6, atol=1e-6)
    assert torch.tpu.counters()["fallbacks"].keys().isdisjoint({"aten::_coalesce", "aten::add.Tensor"})


def test_dense_dimensions_and_masks():
    def program(device):
        indices, values, _ = parts(device)
        blocks = torch.stack([values, -values], 1)
        hybrid = torch.sparse_coo_tensor(indices, blocks, (3, 4, 2))
        mask = torch.sparse_coo_tensor(indices, values > 2, (3, 4)).coalesce()
        return [hybrid.to_dense(), hybrid.coalesce().values(), mask.values(), mask.indices()]

    beside(program, layout=False)


def test_gradients_flow_through():
    def program(device):
        indices, values, dense = parts(device)
        values.requires_grad_()
        dense.requires_grad_()
        s = torch.sparse_coo_tensor(indices, values, (3, 4))
        (((dense + s) ** 2).sum() + (s.to_dense() ** 3).sum() + torch.sparse.mm(s, dense.t()).sin().sum()).backward()
        return [values.grad, dense.grad]

    beside(program, rtol=1e-12)


@pytest.mark.parametrize("optimizer", [torch.optim.SGD, torch.optim.Adagrad, torch.optim.SparseAdam])
def test_embeddings_with_sparse_gradients_train(optimizer):
    def program(device):
        embedding = torch.nn.Embedding(5, 3, sparse=True)
        with torch.no_grad():
            embedding.weight.copy_(torch.arange(15.0).reshape(5, 3) / 10)
        embedding.to(device)
        o = optimizer(embedding.parameters(), lr=0.1)
        words = torch.tensor([1, 1, 4], device=device)
        for _ in range(3):
            o.zero_grad()
            (embedding(words) ** 2).sum().backward()
            assert embedding.weight.grad.is_sparse
            o.step()
        return [embedding.weight.detach(), embedding.weight.grad.coalesce().values()]

    beside(program, rtol=1e-6, atol=1e-6)


def test_moves_between_devices_and_prints():
    indices, values, _ = parts("cpu")
    s = torch.sparse_coo_tensor(indices, values, (3, 4))
    there = s.to("tpu")
    assert there.device.type == "tpu" and there.is_sparse and not there.is_coalesced()
    torch.testing.assert_close(there.cpu().to_dense(), s.to_dense())
    assert repr(there).replace("device='tpu:0', ", "").split() == repr(s).split()


def test_errors_are_those_of_the_cpu():
    def shapes(device):
        indices, values, dense = parts(device)
        return dense[:2] + torch.sparse_coo_tensor(indices, values, (3, 4))

    def order(device):
        indices, values, dense = parts(device)
        return torch.sparse_coo_tensor(indices, values, (3, 4)) + dense

    def uncoalesced(device):
        indices, values, _ = parts(device)
        return torch.sparse_coo_tensor(indices, values, (3, 4)).indices()

    def outside(device):
        indices, values, _ = parts(device)
        return torch.sparse_coo_tensor(indices, values, (2, 2), check_invariants=True)

    same_error(shapes, text=False)
    same_error(order)
    same_error(uncoalesced)
    same_error(outside)
