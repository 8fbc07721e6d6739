"""Special functions against the CPU: samples, edges, and known values far out."""

import math

import pytest
import torch
from ops.samples import case_id, cases, check, same

SPECIAL = ["erfinv", "igamma", "igammac"]
SPECIAL += [f"special.{name}" for name in ("erfcx", "log_ndtr", "ndtri", "i0e", "i1", "i1e", "zeta", "airy_ai")]
SPECIAL += [f"special.bessel_{name}" for name in ("j0", "j1", "y0", "y1")]
SPECIAL += [f"special.modified_bessel_{name}" for name in ("i0", "i1", "k0", "k1")]
SPECIAL += [f"special.scaled_modified_bessel_{name}" for name in ("k0", "k1")]
SPECIAL += ["special.spherical_bessel_j0"]
POLYNOMIALS = [f"{shifted}chebyshev_polynomial_{k}" for shifted in ("", "shifted_") for k in "tuvw"]
POLYNOMIALS += ["hermite_polynomial_h", "hermite_polynomial_he", "laguerre_polynomial_l", "legendre_polynomial_p"]


@pytest.mark.parametrize("case", cases(*SPECIAL, dtypes=(torch.float32, torch.float64, torch.int64)), ids=case_id)
def test_samples(case):
    # log_ndtr and erfinv divide by what is next to nothing: their gradients are compared in float64 only.
    check(*case, samples=2, grad=False)


EDGES = [-math.inf, -1e5, -30.0, -8.5, -5.0, -2.09, -1.0, -0.5, -0.0, 0.0, 1e-8, 0.3, 0.5, 1.0, 2.0, 2.09, 5.0]
EDGES += [7.9, 8.0, 8.1, 26.0, 60.0, 104.0, 1e5, math.inf, math.nan]


@pytest.mark.parametrize(
    "name", [n.removeprefix("special.") for n in SPECIAL if n not in ("special.zeta", "igamma", "igammac")]
)
def test_edges(name):
    function = getattr(torch.special, name, None) or getattr(torch, name)
    same(function, torch.tensor(EDGES, dtype=torch.float64), rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("name", ["igamma", "igammac"])
def test_incomplete_gamma_functions(name):
    a = torch.tensor([0.0, 1e-3, 0.5, 1.0, 3.0, 30.0, 250.0, 1e4, math.inf, -1.0, math.nan], dtype=torch.float64)
    x = torch.tensor([0.0, 1e-6, 0.1, 1.0, 2.9, 29.0, 31.0, 260.0, 9900.0, 10100.0, math.inf, -1.0, math.nan])
    same(getattr(torch, name), a[:, None], x.double()[None], rtol=1e-8, atol=1e-12)


@pytest.mark.parametrize("name", POLYNOMIALS)
def test_polynomials_of_each_degree(name):
    x = torch.tensor([-2.5, -1.0, -0.7, 0.0, 0.2, 0.5, 0.9, 1.0, 1.4, math.nan], dtype=torch.float64)
    n = torch.tensor([-1.0, 0.0, 1.0, 2.0, 5.0, 6.0, 7.0, 9.0, 20.0], dtype=torch.float64)
    same(getattr(torch.special, name), x[:, None], n[None], rtol=1e-9, atol=1e-9)
