"""Distances between rows against the CPU."""

import pytest
import torch
from ops.samples import case_id, cases, check


@pytest.mark.parametrize("case", cases("cdist", "dist", "nn.functional.pairwise_distance"), ids=case_id)
def test_samples_as_on_cpu(case):
    check(*case, samples=6)


@pytest.mark.parametrize("p", [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, torch.inf])
def test_cdist_and_gradients(p):
    x, y = torch.randn(2, 3, 4), torch.randn(2, 5, 4)
    y[:, 0] = x[:, 1]  # equal rows: distance 0
    y[:, 1, 2] = x[:, 2, 2]
    results = []
    for device in ("cpu", "tpu"):
        a, b = x.to(device, copy=True).requires_grad_(), y.to(device, copy=True).requires_grad_()
        out = torch.cdist(a, b, p, compute_mode="donot_use_mm_for_euclid_dist")
        out.backward(torch.linspace(-1, 1, out.numel()).view(out.shape).to(device))
        results.append([t.detach().cpu() for t in (out, a.grad, b.grad)])
    for got, want in zip(*results[::-1], strict=True):
        torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-5)
