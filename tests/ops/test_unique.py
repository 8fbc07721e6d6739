"""unique, unique_consecutive and histograms against the CPU: results whose size the data decides."""

import pytest
import torch
from ops.samples import case_id, cases, check, copied, tensors

NAN = float("nan")
VECTORS = {
    "int": torch.tensor([3, 1, 2, 1, 1, 3]),
    "double": torch.tensor([3.0, -0.0, 0.0, 1.0, 3.0], dtype=torch.float64),
    "nan": torch.tensor([NAN, 1.0, NAN, 2.0, 1.0]),
    "bool": torch.tensor([True, False, True]),
    "uint8": torch.tensor([255, 0, 255], dtype=torch.uint8),
    "matrix": torch.tensor([[3, 1], [1, 3]]),
    "number": torch.tensor(4),
    "empty": torch.tensor([], dtype=torch.int32),
    "empty matrix": torch.zeros(0, 2),
}
MATRICES = {
    "int": torch.tensor([[1, 2], [0, 5], [1, 2], [0, 7], [0, 7]]),
    "float": torch.tensor([[1.5, -2.0, 1.5], [0.0, 5.0, -0.0]]),
    "bool": torch.tensor([[True, False], [True, False]]),
    "3d": torch.tensor([[[1, 2], [3, 4]], [[1, 2], [3, 4]], [[0, 9], [3, 4]]]),
    "no rows": torch.zeros(0, 2),
    "nothing": torch.zeros(0, 0, 2),
}


def outcome(function, *args):
    try:
        return function(*args)
    except (RuntimeError, IndexError, NotImplementedError) as error:
        return type(error), str(error)


def as_on_cpu(function, *args):
    want, got = outcome(function, *args), outcome(function, *copied(list(args), "tpu"))
    if isinstance(want, tuple) and want and isinstance(want[0], type):
        assert got == want
        return
    for g, w in zip(tensors(list(got)), tensors(list(want)), strict=True):
        torch.testing.assert_close(g.cpu(), w, equal_nan=True)


@pytest.mark.parametrize("case", cases("unique", "unique_consecutive", "histogram", "histogramdd"), ids=case_id)
def test_samples_as_on_cpu(case):
    check(*case, samples=8, grad=False)


@pytest.mark.parametrize("inverse", [False, True])
@pytest.mark.parametrize("counts", [False, True])
@pytest.mark.parametrize("name", VECTORS)
def test_unique_elements(name, inverse, counts):
    as_on_cpu(lambda v: torch.ops.aten._unique2(v, True, inverse, counts), VECTORS[name])
    as_on_cpu(lambda v: torch.ops.aten.unique_consecutive(v, inverse, counts), VECTORS[name])


@pytest.mark.parametrize("dim", [0, 1, -1, 5])
@pytest.mark.parametrize("name", MATRICES)
def test_unique_slices(name, dim):
    as_on_cpu(lambda v: torch.ops.aten.unique_dim(v, dim, True, True, True), MATRICES[name])
    as_on_cpu(lambda v: torch.ops.aten.unique_consecutive(v, True, True, dim), MATRICES[name])


def test_complex_has_no_order():
    as_on_cpu(torch.ops.aten._unique2, torch.zeros(2, dtype=torch.complex64))


HISTOGRAMS = {
    "bins": lambda x: torch.histogram(x, 3),
    "nothing": lambda x: torch.histogram(x[:0], 3),
    "one value": lambda x: torch.histogram(x * 0, 3),
    "NaN": lambda x: torch.histogram(x * NAN, 3),
    "no bins": lambda x: torch.histogram(x, 0),
    "no edges": lambda x: torch.histogram(x, x[:0]),
    "one edge": lambda x: torch.histogram(x, x[:1]),
    "edges": lambda x: torch.histogram(x, x[:3], density=True),
    "range": lambda x: torch.histogram(x, 2, range=(1.0, 2.0), density=True),
    "range upside down": lambda x: torch.histogram(x, 2, range=(3.0, 1.0)),
    "weights": lambda x: torch.histogram(x, 4, weight=x * x),
    "too few weights": lambda x: torch.histogram(x, 2, weight=x[:2]),
    "weights of another dtype": lambda x: torch.histogram(x, 2, weight=x.double()),
    "integers": lambda x: torch.histogram(x.long(), 3),
    "integer edges": lambda x: torch.histogram(x, x.long()),
    "a matrix of edges": lambda x: torch.histogram(x, x.reshape(2, 2)),
}


@pytest.mark.parametrize("name", HISTOGRAMS)
def test_histogram(name):
    as_on_cpu(HISTOGRAMS[name], torch.tensor([1.0, 2.0, 3.0, 4.5]))


def test_histogramdd():
    points = torch.rand(9, 2, generator=torch.Generator().manual_seed(0))
    edges = [points[:, 0].sort().values, points[:, 1].sort().values]
    as_on_cpu(lambda x: torch.histogramdd(x, [2, 3]), points)
    as_on_cpu(lambda x, a, b: torch.histogramdd(x, [a, b], density=True), points, *edges)
    as_on_cpu(lambda x: torch.histogramdd(x, [2, 2], range=[0.0, 1.0, 0.0, 1.0], weight=x[:, 0]), points)
    as_on_cpu(lambda x: torch.histogramdd(x, [2]), points)
    as_on_cpu(lambda x: torch.histogramdd(x, [2, 2], range=[0.0, 1.0]), points)
    as_on_cpu(lambda x: torch.histogramdd(x[:, 0], [2]), points)
