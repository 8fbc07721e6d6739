"""Distributions that are drawn by rejection: mean, variance, single probabilities, edges, and reproducibility."""

import math

import pytest
import torch

N = 60_000


def seeded(program, seed=11):
    torch.manual_seed(seed)
    return program().cpu().double()


def assert_moments(x, mean, variance):
    """Within six standard errors; that of the variance takes the fourth moment from the sample."""
    n = x.shape[0]
    assert abs(x.mean() - mean) < 6 * math.sqrt(variance / n) + 1e-9
    fourth = ((x - mean) ** 4).mean().item()
    assert abs(x.var() - variance) < 6 * math.sqrt(max(fourth - variance**2, 0) / n) + 1e-9


def assert_frequencies(x, log_prob, values):
    """The frequency of each value is its probability, within six standard errors."""
    for k in values:
        p = math.exp(log_prob(torch.tensor(float(k), dtype=torch.float64)))
        assert abs((x == k).double().mean() - p) < 6 * math.sqrt(p * (1 - p) / len(x)) + 1e-6, k


@pytest.mark.parametrize("rate", [0.05, 1.0, 9.9, 10.0, 60.0, 1e5])
def test_poisson(rate):
    x = seeded(lambda: torch.poisson(torch.full((N,), rate, device="tpu")))
    assert (x == x.floor()).all() and x.min() >= 0
    assert_moments(x, rate, rate)
    near = range(max(0, int(rate - 3)), int(rate + 4))
    assert_frequencies(x, torch.distributions.Poisson(torch.tensor(rate, dtype=torch.float64)).log_prob, near)


@pytest.mark.parametrize(("count", "p"), [(1, 0.3), (20, 0.2), (20, 0.9), (100, 0.5), (1000, 0.03), (10**6, 0.7)])
def test_binomial(count, p):
    n, prob = torch.full((N,), float(count), device="tpu"), torch.tensor([p], device="tpu")
    x = seeded(lambda: torch.binomial(n, prob.expand(N)))
    assert (x == x.floor()).all() and x.min() >= 0 and x.max() <= count
    p = prob.item()
    assert_moments(x, count * p, count * p * (1 - p))
    mode = int((count + 1) * p)
    log_prob = torch.distributions.Binomial(count, torch.tensor(p, dtype=torch.float64)).log_prob
    assert_frequencies(x, log_prob, range(max(0, mode - 2), min(count, mode + 2) + 1))


@pytest.mark.parametrize("alpha", [0.05, 0.6, 1.0, 7.5, 1000.0])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_gamma(alpha, dtype):
    x = seeded(lambda: torch._standard_gamma(torch.full((N,), alpha, dtype=dtype, device="tpu")))
    assert (x > 0).all()
    assert_moments(x, alpha, alpha)
    if alpha < 0.1 and dtype is torch.float32:
        return  # a part of it is below the smallest float
    # The distribution function at its own quantiles.
    cdf = torch.igamma(torch.full((N,), alpha, dtype=torch.float64), x).sort()[0]
    steps = torch.arange(1, N + 1) / N
    assert (cdf - steps).abs().max() < 2.5 / math.sqrt(N)


def test_dirichlet():
    alpha = torch.tensor([0.01, 0.5, 2.0, 10.0], device="tpu")
    x = seeded(lambda: torch._sample_dirichlet(alpha.expand(N, 4)))
    torch.testing.assert_close(x.sum(1), torch.ones(N, dtype=torch.float64), atol=1e-5, rtol=0)
    a = alpha.cpu().double()
    for i in range(4):
        mean = a[i] / a.sum()
        assert_moments(x[:, i], mean.item(), (mean * (1 - mean) / (a.sum() + 1)).item())
    # Of small concentrations one takes nearly all; none is NaN.
    tiny = seeded(lambda: torch._sample_dirichlet(torch.full((1000, 3), 1e-3, device="tpu")))
    assert tiny.isfinite().all() and (tiny.max(1)[0] > 0.9).double().mean() > 0.95


def test_distributions_of_torch():
    torch.manual_seed(3)
    concentration = torch.tensor([2.0], device="tpu")
    x = torch.distributions.Beta(concentration, concentration + 1).sample((N,)).cpu().double()
    assert abs(x.mean() - 0.4) < 0.01
    x = torch.distributions.StudentT(torch.tensor([8.0], device="tpu")).sample((N,)).cpu().double()
    assert abs(x.mean()) < 0.03 and abs(x.var() - 8 / 6) < 0.1


SAMPLERS = {
    "poisson": lambda: torch.poisson(torch.linspace(0.1, 50, 64, device="tpu")),
    "binomial": lambda: torch.binomial(torch.full((64,), 40.0, device="tpu"), torch.full((64,), 0.4, device="tpu")),
    "gamma": lambda: torch._standard_gamma(torch.linspace(0.1, 9, 64, device="tpu")),
}


@pytest.mark.parametrize("name", SAMPLERS)
def test_a_seed_gives_the_same_numbers_again_and_calls_differ(name):
    first, again = seeded(SAMPLERS[name]), seeded(SAMPLERS[name])
    assert torch.equal(first, again)
    torch.manual_seed(11)
    assert not torch.equal(SAMPLERS[name]().cpu(), SAMPLERS[name]().cpu())


def test_edges():
    edges = torch.tensor([0.0, 1.0], device="tpu").repeat(100)
    assert torch.equal(torch.binomial(torch.full((200,), 5.0, device="tpu"), edges).cpu(), edges.cpu() * 5)
    assert torch.equal(torch.poisson(torch.zeros(5, device="tpu")).cpu(), torch.zeros(5))
    with pytest.raises(RuntimeError, match="invalid Poisson rate"):
        torch.poisson(torch.tensor([-1.0], device="tpu")).cpu()
    assert torch.poisson(torch.empty(0, device="tpu")).shape == (0,)
