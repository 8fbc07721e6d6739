"""scaled_dot_product_attention, fused and composite, against float64 on the CPU."""

import math

import pytest
import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

FUSED = torch.ops.aten._scaled_dot_product_fused_attention_overrideable


def reference(q, k, v, bias=None, causal=False, scale=None):
    repeats = q.size(1) // k.size(1)
    k, v = k.repeat_interleave(repeats, 1), v.repeat_interleave(repeats, 1)
    scores = q @ k.transpose(-1, -2) * (q.size(-1) ** -0.5 if scale is None else scale)
    if bias is not None:
        scores = scores + bias
    if causal:
        scores = scores.masked_fill(~torch.ones(scores.shape[-2:], dtype=torch.bool).tril(), -math.inf)
    top = scores.amax(-1, keepdim=True)
    p = torch.exp(scores - torch.where(top == -math.inf, 0.0, top))
    total = p.sum(-1, keepdim=True)
    return p / torch.where(total == 0, 1.0, total) @ v


BIASES = {"none": None, "full": (2, 4, 5, 7), "row": (2, 1, 1, 7), "dead row": (1, 1, 5, 7), "two dimensions": (5, 7)}


@pytest.mark.parametrize("bias", BIASES)
@pytest.mark.parametrize("heads", [4, 2, 1])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_values_and_gradients(bias, heads, dtype):
    g = torch.Generator().manual_seed(0)
    data = [torch.randn(s, generator=g).to(dtype) for s in ((2, 4, 5, 8), (2, heads, 7, 8), (2, heads, 7, 6))]
    if BIASES[bias]:
        data.append(torch.randn(BIASES[bias], generator=g).to(dtype))
        if bias == "dead row":
            data[3][:, :, 0] = -math.inf
    wide = [t.double().requires_grad_() for t in data]
    there = [t.to("tpu").requires_grad_() for t in data]
    for scale in (None, 0.3):
        want = reference(*wide, scale=scale)
        got = F.scaled_dot_product_attention(*there, scale=scale, enable_gqa=heads < 4)
        weight = torch.randn(want.shape, generator=g).to(dtype)
        want_grads = torch.autograd.grad(want, wide, weight.double())
        got_grads = torch.autograd.grad(got, there, weight.to("tpu"))
        tolerance = {"rtol": 5e-2, "atol": 5e-2} if dtype is torch.bfloat16 else {"rtol": 1e-5, "atol": 1e-5}
        torch.testing.assert_close(got.detach().cpu().double(), want.detach(), **tolerance)
        for x, y in zip(got_grads, want_grads, strict=True):
            torch.testing.assert_close(x.cpu().double(), y.nan_to_num(), **tolerance)


@pytest.mark.parametrize("lengths", [(5, 5), (3, 7), (7, 3), (1, 6)])
def test_causal_is_aligned_to_the_top_left(lengths):
    q, k, v = torch.randn(1, 2, lengths[0], 8), torch.randn(1, 2, lengths[1], 8), torch.randn(1, 2, lengths[1], 8)
    want = reference(q.double(), k.double(), v.double(), causal=True).float()
    got = F.scaled_dot_product_attention(q.to("tpu"), k.to("tpu"), v.to("tpu"), is_causal=True)
    torch.testing.assert_close(got.cpu(), want, rtol=1e-5, atol=1e-5)


def test_logsumexp_is_what_softmax_divides_by():
    q = torch.randn(1, 2, 4, 8)
    result = FUSED(q.to("tpu"), q.to("tpu"), q.to("tpu"))
    want = torch.logsumexp(q @ q.transpose(-1, -2) / math.sqrt(8), -1)
    torch.testing.assert_close(result[1].cpu(), want, rtol=1e-5, atol=1e-5)
    assert result[4:6] == (4, 4)


def test_dropout_gradient_is_that_of_the_same_mask():
    torch.manual_seed(0)
    data = [torch.randn(1, 2, 6, 8, device="tpu") for _ in range(3)]

    def loss(*tensors):
        torch.manual_seed(3)
        return F.scaled_dot_product_attention(*tensors, dropout_p=0.5).square().sum()

    leaves = [t.clone().requires_grad_() for t in data]
    loss(*leaves).backward()
    for i, t in enumerate(leaves):
        direction = torch.randn(t.shape).to("tpu")
        ends = [loss(*(d + s * 1e-2 * direction if j == i else d for j, d in enumerate(data))) for s in (1, -1)]
        slope = (ends[0] - ends[1]).item() / 2e-2
        assert slope == pytest.approx((t.grad * direction).sum().item(), rel=2e-2, abs=2e-2)


def test_the_composite_form_can_be_asked_for():
    q = torch.randn(1, 2, 4, 8, device="tpu", requires_grad=True)
    with sdpa_kernel(SDPBackend.MATH):
        slow = F.scaled_dot_product_attention(q, q, q)
    torch.testing.assert_close(slow.detach().cpu(), F.scaled_dot_product_attention(q, q, q).detach().cpu())
    # Only it can be differentiated twice.
    g = torch.autograd.grad(slow.square().sum(), q, create_graph=True)[0]
    assert torch.autograd.grad(g.sum(), q)[0].isfinite().all()
