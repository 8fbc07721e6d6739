"""Softmax and normalisation layers against the CPU."""

import pytest
import torch
import torch.nn.functional as F
from ops.samples import case_id, cases, check
from torch import nn

OPS = [
    "softmax",
    "log_softmax",
    "nn.functional.softmin",
    "nn.functional.layer_norm",
    "nn.functional.group_norm",
    "nn.functional.batch_norm",
    "nn.functional.instance_norm",
    "nn.functional.rms_norm",
]


@pytest.mark.parametrize("case", cases(*OPS), ids=case_id)
def test_samples_as_on_cpu(case):
    check(*case)


def test_softmax_of_infinities():
    rows = torch.tensor([[-torch.inf, -torch.inf], [torch.inf, 0.0], [torch.nan, 0.0], [-torch.inf, 1.0]])
    for function in (torch.softmax, torch.log_softmax, torch.ops.aten._safe_softmax):
        torch.testing.assert_close(function(rows.to("tpu"), 1).cpu(), function(rows, 1), equal_nan=True)


@pytest.mark.parametrize("shape", [(5, 4), (3, 4, 7), (2, 4, 3, 3)])
def test_batch_norm_moves_its_statistics(shape):
    kind = nn.BatchNorm2d if len(shape) == 4 else nn.BatchNorm1d
    here = kind(shape[1])
    there = kind(shape[1]).to("tpu")
    mean = there.running_mean
    for step in range(3):
        x = torch.randn(shape, generator=torch.Generator().manual_seed(step))
        a, b = x.clone().requires_grad_(), x.to("tpu").requires_grad_()
        w = torch.linspace(-1, 1, x.numel()).view(shape)
        (here(a) * w).sum().backward()
        (there(b) * w.to("tpu")).sum().backward()
        torch.testing.assert_close(b.grad.cpu(), a.grad, rtol=1e-4, atol=1e-5)
    assert there.running_mean is mean
    for name in ("running_mean", "running_var", "num_batches_tracked"):
        torch.testing.assert_close(getattr(there, name).cpu(), getattr(here, name))
    before = mean.cpu()
    torch.testing.assert_close(there.eval()(b).cpu(), here.eval()(a), rtol=1e-4, atol=1e-5)
    assert torch.equal(there.running_mean.cpu(), before), "evaluation changes no statistics"


@pytest.mark.parametrize(
    "layer", [nn.LayerNorm([6, 3, 3]), nn.GroupNorm(3, 6), nn.RMSNorm([3, 3]), nn.InstanceNorm2d(6)], ids=repr
)
def test_layer_gradients(layer):
    x = torch.randn(2, 6, 3, 3, generator=torch.Generator().manual_seed(0))
    results = []
    for device in ("cpu", "tpu"):
        module = layer.to(device)
        a = x.to(device, copy=True).requires_grad_()
        out = module(a)
        out.backward(torch.linspace(-1, 1, x.numel()).view(x.shape).to(device))
        results.append([t.detach().cpu() for t in (out, a.grad, *(p.grad for p in module.parameters()))])
        module.zero_grad()
    for got, want in zip(*results[::-1], strict=True):
        torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-5)


def test_weight_norm():
    for dim in (0, 1):
        outs = []
        for device in ("cpu", "tpu"):
            torch.manual_seed(0)
            module = nn.utils.parametrizations.weight_norm(nn.Linear(3, 4), dim=dim).to(device)
            module(torch.ones(2, 3, device=device)).square().sum().backward()
            outs.append([p.grad.cpu() for p in module.parameters()])
        for got, want in zip(*outs[::-1], strict=True):
            torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-5)


def test_bf16_layer_norm_computes_in_f32():
    x = torch.randn(64, 256, dtype=torch.bfloat16)
    got = F.layer_norm(x.to("tpu"), [256]).cpu()
    want = F.layer_norm(x.double(), [256])
    torch.testing.assert_close(got.double(), want, rtol=4e-3, atol=4e-3)


def test_statistics_of_two_parts_make_those_of_the_whole():
    """What SyncBatchNorm does with its processes."""
    aten = torch.ops.aten
    x, weight, bias, grad = torch.randn(6, 4, 5), torch.rand(4) + 0.5, torch.randn(4), torch.randn(6, 4, 5)
    here = [t.clone().requires_grad_() for t in (x, weight, bias)]
    want_mean, want_var = torch.zeros(4), torch.ones(4)
    want = F.batch_norm(here[0], want_mean, want_var, here[1], here[2], training=True)
    want.backward(grad)

    x, weight, bias, grad = (t.to("tpu") for t in (x, weight, bias, grad))
    counts = torch.tensor([10.0, 20.0], device="tpu")
    means, inverses = zip(*(aten.batch_norm_stats(part, 1e-5) for part in (x[:2], x[2:])), strict=True)
    mean, var = torch.zeros(4, device="tpu"), torch.ones(4, device="tpu")
    gather = aten.batch_norm_gather_stats_with_counts
    m, inverse = gather(x, torch.stack(means), torch.stack(inverses), mean, var, 0.1, 1e-5, counts)
    out = aten.batch_norm_elemt(x, weight, bias, m, inverse, 1e-5)
    total, dot, grad_weight, grad_bias = aten.batch_norm_backward_reduce(grad, x, m, inverse, weight, True, True, True)
    grad_x = aten.batch_norm_backward_elemt(grad, x, m, inverse, weight, total, dot, counts.int())
    for got, expected in (
        (out, want.detach()),
        (mean, want_mean),
        (var, want_var),
        (grad_weight, here[1].grad),
        (grad_bias, here[2].grad),
        (grad_x, here[0].grad),
    ):
        torch.testing.assert_close(got.cpu(), expected, rtol=1e-4, atol=1e-5)
