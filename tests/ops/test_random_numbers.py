"""Random numbers: known answers, distributions, and that they depend on (seed, offset, place) only."""

import math

import pytest
import torch
import torch.nn.functional as F

N = 100_000


def drawn(name, *args, dtype=torch.float32, shape=(N,)):
    torch.manual_seed(7)
    return getattr(torch.empty(shape, dtype=dtype, device="tpu"), name)(*args).cpu()


def test_known_answer_of_threefry():
    # Random123's vector for threefry2x32, 20 rounds: key 0, counter 0 gives 6b200159 99ba4efe.
    torch.manual_seed(0)
    x = torch.empty(1, dtype=torch.float64, device="tpu").uniform_().item()
    assert int(x * 2**53) == 0x6B20015999BA4EFE >> 11


def test_numbers_depend_on_place_and_not_on_shape_or_call():
    torch.manual_seed(5)
    two = [torch.rand(6, device="tpu"), torch.rand(6, device="tpu")]
    torch.manual_seed(5)
    one = torch.rand(4, 3, device="tpu")
    assert torch.equal(torch.cat(two).cpu(), one.flatten().cpu())


MOMENTS = {
    "uniform_": ((-1.0, 3.0), 1.0, 4 / math.sqrt(12)),
    "normal_": ((1.0, 2.0), 1.0, 2.0),
    "exponential_": ((2.0,), 0.5, 0.5),
    "geometric_": ((0.3,), 1 / 0.3, math.sqrt(0.7) / 0.3),
    "log_normal_": ((0.0, 0.5), math.exp(0.125), math.sqrt((math.exp(0.25) - 1) * math.exp(0.25))),
    "bernoulli_": ((0.3,), 0.3, math.sqrt(0.21)),
}


@pytest.mark.parametrize("name", MOMENTS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16])
def test_mean_and_deviation(name, dtype):
    args, mean, deviation = MOMENTS[name]
    x = drawn(name, *args, dtype=dtype).double()
    assert abs(x.mean() - mean) < 0.02 * max(1, deviation) and abs(x.std() - deviation) < 0.03 * deviation


def test_cauchy_quartiles():
    x = drawn("cauchy_", 1.0, 2.0).quantile(torch.tensor([0.25, 0.5, 0.75]))
    torch.testing.assert_close(x, torch.tensor([-1.0, 1.0, 3.0]), atol=0.06, rtol=0)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16])
def test_uniform_reaches_zero_but_not_one(dtype):
    x = drawn("uniform_", dtype=dtype).double()
    assert x.min() >= 0 and x.max() < 1
    assert (drawn("exponential_", dtype=dtype) > 0).all()
    assert drawn("normal_", dtype=dtype).isfinite().all()


@pytest.mark.parametrize("dtype", [torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8])
def test_integer_ranges(dtype):
    info = torch.iinfo(dtype)
    x = drawn("random_", dtype=dtype)
    assert x.min() >= 0 and x.max() > info.max * 0.99
    x = drawn("random_", 3, 9, dtype=dtype)
    counts = torch.bincount(x.long(), minlength=9)
    assert (counts[:3] == 0).all() and (abs(counts[3:] / N - 1 / 6) < 0.01).all()
    x = drawn("random_", 100, None, dtype=dtype)
    assert x.min() >= 100


def test_ranges_up_to_64_bits():
    low = -(2**63)
    for to in (None, 2**63 - 1):
        x = drawn("random_", low, to, dtype=torch.int64).double()
        assert abs(x.mean()) < 2**63 * 0.02 and x.min() < -(2**63) * 0.99 and x.max() > 2**63 * 0.99
    x = drawn("random_", -(2**40), 2**41, dtype=torch.int64)
    assert x.min() >= -(2**40) and x.max() < 2**41


def test_permutations():
    torch.manual_seed(0)
    p = torch.randperm(1000, device="tpu")
    assert p.dtype == torch.int64 and torch.equal(p.sort()[0].cpu(), torch.arange(1000))
    assert not torch.equal(p.cpu(), torch.randperm(1000, device="tpu").cpu())
    assert torch.randperm(0, device="tpu").numel() == 0
    assert torch.randperm(5, dtype=torch.int32, device="tpu").dtype == torch.int32


def test_multinomial():
    torch.manual_seed(0)
    weights = torch.tensor([0.0, 1.0, 3.0, 0.0], device="tpu")
    m = torch.multinomial(weights, N, replacement=True).cpu()
    assert (abs(torch.bincount(m, minlength=4) / N - torch.tensor([0, 0.25, 0.75, 0])) < 0.01).all()
    rows = torch.tensor([1.0, 2.0, 3.0, 4.0], device="tpu").expand(20000, 4)
    m = torch.multinomial(rows, 3).cpu()
    assert (m.sort(1)[0].diff(dim=1) > 0).all()
    assert (abs(torch.bincount(m[:, 0]) / 20000 - torch.tensor([0.1, 0.2, 0.3, 0.4])) < 0.02).all()
    with pytest.raises(RuntimeError, match="cannot sample"):
        torch.multinomial(weights, 5)
    with pytest.raises(RuntimeError, match="inf`, `nan` or element < 0"):
        torch.multinomial(torch.tensor([1.0, -1.0], device="tpu"), 1).cpu()
    with pytest.raises(RuntimeError, match="sum of probabilities <= 0"):
        torch.multinomial(torch.zeros(3, device="tpu"), 1).cpu()


@pytest.mark.parametrize("p", [0.1, 0.5, 0.9])
def test_dropout_and_its_gradient_share_the_mask(p):
    torch.manual_seed(0)
    x = torch.ones(N, device="tpu", requires_grad=True)
    y = F.dropout(x, p)
    y.sum().backward()
    kept = y.detach().cpu() != 0
    assert abs(kept.double().mean() - (1 - p)) < 0.01
    torch.testing.assert_close(y.detach().cpu(), kept / (1 - p))
    assert torch.equal(x.grad.cpu(), y.detach().cpu())


def test_normal_of_tensors_and_bernoulli_at_the_ends():
    mean, std = torch.arange(3.0, device="tpu") * 100, torch.full((3,), 0.1, device="tpu")
    assert (abs(torch.normal(mean, std) - mean) < 1).all()
    assert (abs(torch.normal(mean, 0.1) - mean) < 1).all()
    assert (abs(torch.normal(5.0, std) - 5) < 1).all()
    ends = torch.tensor([0.0, 1.0], device="tpu").repeat(1000)
    assert torch.equal(torch.bernoulli(ends).cpu(), ends.cpu())
    assert torch.equal(torch.empty(2000, dtype=torch.int32, device="tpu").bernoulli_(ends).cpu(), ends.int().cpu())


def test_complex_normal_has_unit_variance():
    torch.manual_seed(0)
    z = torch.view_as_real(torch.randn(N, dtype=torch.complex64, device="tpu").cpu())
    assert (abs(z.var(0) - 0.5) < 0.01).all() and abs(torch.corrcoef(z.T)[0, 1]) < 0.01


REFUSED = {
    "uniform bounds": lambda d: torch.empty(3, device=d).uniform_(2, 1),
    "uniform integers": lambda d: torch.empty(3, dtype=torch.int64, device=d).uniform_(),
    "normal deviation": lambda d: torch.empty(3, device=d).normal_(0, -1),
    "exponential rate": lambda d: torch.empty(3, device=d).exponential_(-1),
    "bernoulli": lambda d: torch.empty(3, device=d).bernoulli_(1.5),
    "empty range": lambda d: torch.empty(3, device=d).random_(3, 3),
    "range beyond the dtype": lambda d: torch.empty(3, dtype=torch.int8, device=d).random_(0, 300),
    "samples": lambda d: torch.multinomial(torch.ones(3, device=d), 4),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused_on_every_call_as_on_cpu(name):
    with pytest.raises((RuntimeError, NotImplementedError)) as cpu:
        REFUSED[name]("cpu")
    for _ in range(2):
        with pytest.raises(type(cpu.value)) as tpu:
            REFUSED[name]("tpu")
        assert str(tpu.value).splitlines()[0] == str(cpu.value).splitlines()[0]


def test_bernoulli_checks_a_tensor_of_probabilities():
    with pytest.raises(RuntimeError, match="Expected p_in"):
        torch.bernoulli(torch.tensor([0.5, 1.5], device="tpu")).cpu()
