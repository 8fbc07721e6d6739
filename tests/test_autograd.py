"""Autograd over views, in-place writes, hooks, higher derivatives and checkpoints."""

import pytest
import torch
import torch.nn.functional as F
from beside import beside, same_error
from torch.utils.checkpoint import checkpoint

NEAR = {"rtol": 1e-6, "atol": 1e-6, "layout": False}


def leaf(device, *shape, shift=0.0):
    n = torch.Size(shape).numel()
    return (torch.arange(1.0, n + 1).div(n) + shift).reshape(shape).to(device, copy=True).requires_grad_()


def test_gradients_through_views():
    def program(d):
        x = leaf(d, 3, 4, 2)
        y = x.transpose(0, 2)[1:].reshape(-1)[::3] * torch.arange(4.0, device=d)
        z = x.view(6, 4)[1::2, 1:3].t() ** 2
        w = x.permute(1, 0, 2)[2].expand(2, 3, 2) * 3 + x.unfold(1, 2, 1).sum(-1)[:2, :, 0].t()[..., None].mean()
        u = x.diagonal(0, 0, 1) * x.as_strided((2, 3), (5, 2), 1) + x[:, -1, 0].squeeze()
        (y.sum() + z.sum() + w.sum() + u.sum()).backward()
        return x.grad

    beside(program, **NEAR)


def test_in_place_writes_on_views_enter_the_graph_of_the_base():
    def program(d):
        x, v = leaf(d, 3, 4), leaf(d, 4)
        y = x * 2
        y[1].mul_(v)
        y.t()[0].copy_(v[:3] ** 2)
        y.view(-1)[::5].add_(y.view(-1)[1::5].detach()[:3])
        y[:, 2:].sin_()
        y[y > 1.9] = 0
        y[2, None].zero_()
        y.sum().backward()
        return y.detach(), x.grad, v.grad

    beside(program, **NEAR)


def test_the_graph_of_a_view_made_before_the_write():
    def program(d):
        x = leaf(d, 4)
        y = x * 1
        v = y[1:3]
        y.mul_(3)
        v.add_(1)
        w = v.square()
        (w.sum() + y.sum()).backward()
        return x.grad, v.grad_fn is not None, type(v.grad_fn).__name__

    beside(program, **NEAR)


def test_writes_that_autograd_forbids():
    same_error(lambda d: leaf(d, 3).add_(1))
    same_error(lambda d: leaf(d, 3)[1:].add_(1))

    def modified(d):
        x = leaf(d, 3)
        y = (x * 1).sigmoid()
        y.add_(1)
        y.sum().backward()

    def modified_through_a_view(d):
        x = leaf(d, 3)
        y = (x * 1).exp()
        y.detach()[0] = 5
        y.sum().backward()

    def modified_through_foreach(d):
        x = leaf(d, 3)
        y = (x * 1).exp()
        with torch.no_grad():
            torch._foreach_mul_([y.view(3)], 2.0)
        y.sum().backward()

    def view_of_many(d):
        (leaf(d, 4) * 1).chunk(2)[0].mul_(2)

    def twice(d):
        y = leaf(d, 3).exp().sum()
        y.backward()
        y.backward()

    for wrong in (modified, modified_through_a_view, modified_through_foreach, view_of_many, twice):
        kind, text = same_error(wrong, text=False)
        assert kind is RuntimeError, text
    assert "is at version 1; expected version 0" in same_error(modified_through_foreach, text=False)[1]


def test_double_backward():
    def program(d):
        x, w = leaf(d, 3, 4), leaf(d, 4, 2, shift=0.5)
        y = F.softmax((x @ w).tanh() * 2, -1)[:, 0].log().sum() + F.layer_norm(x, (4,)).pow(3).sum()
        first = torch.autograd.grad(y, (x, w), create_graph=True)
        penalty = sum(g.square().sum() for g in first)
        penalty.backward()
        return *first, x.grad, w.grad

    beside(program, rtol=2e-5, atol=2e-5, layout=False)


def test_double_backward_through_in_place_writes_on_views():
    def program(d):
        x = leaf(d, 2, 3)
        y = x.clone()
        y[0].mul_(x[1])
        y.t()[1].pow_(3)
        (g,) = torch.autograd.grad(y.prod(), x, create_graph=True)
        (h,) = torch.autograd.grad(g.square().sum(), x)
        return g, h

    beside(program, rtol=1e-5, atol=1e-5, layout=False)


def test_gradcheck_in_double_precision():
    x = torch.randn(3, 4, dtype=torch.float64, device="tpu", requires_grad=True)
    w = torch.randn(4, 2, dtype=torch.float64, device="tpu", requires_grad=True)
    assert torch.autograd.gradcheck(lambda a, b: (a[1:] @ b).sigmoid().cumsum(0), (x, w))
    assert torch.autograd.gradgradcheck(lambda a: a[:2, ::2].tanh() * a[1:, 1::2], (x,))


def test_hooks():
    def program(d):
        seen = []
        x = leaf(d, 3)
        x.register_hook(lambda g: g * 2)
        x.register_post_accumulate_grad_hook(lambda p: seen.append(p.grad.clone()))
        y = x * 3
        y.register_hook(lambda g: seen.append(g.clone()))
        y.retain_grad()
        module = torch.nn.Linear(3, 2).to(d)
        with torch.no_grad():
            module.weight.fill_(0.5), module.bias.fill_(0)
        module.register_forward_hook(lambda m, i, o: o * 2)
        module.register_full_backward_hook(lambda m, gi, go: seen.append(go[0].clone()))
        module(y).sum().backward()
        return x.grad, y.grad, *seen

    beside(program, **NEAR)


def test_saved_tensor_hooks_and_offloading():
    def program(d):
        x = leaf(d, 4)
        with torch.autograd.graph.save_on_cpu():
            y = (x.exp() * x).sin()
        y.sum().backward()
        packed = []
        z = leaf(d, 4)
        with torch.autograd.graph.saved_tensors_hooks(lambda t: packed.append(t.shape) or t.cpu(), lambda t: t.to(d)):
            (z.square() * z).sum().backward()
        return x.grad, z.grad, len(packed) > 0

    beside(program, **NEAR)


@pytest.mark.parametrize("reentrant", [False, True])
def test_checkpoints_recompute_the_same_numbers(reentrant):
    torch.manual_seed(0)
    block = torch.nn.Sequential(
        torch.nn.Linear(4, 8), torch.nn.GELU(), torch.nn.Dropout(0.5), torch.nn.Linear(8, 4)
    ).to("tpu")
    x = leaf("tpu", 3, 4)

    def gradients(run):
        torch.manual_seed(7)
        block.zero_grad()
        x.grad = None
        run(x).square().sum().backward()
        return [x.grad.clone(), *(p.grad.clone() for p in block.parameters())]

    plain = gradients(block)
    again = gradients(lambda a: checkpoint(block, a, use_reentrant=reentrant))
    assert all(torch.equal(a, b) for a, b in zip(plain, again, strict=True))


def test_functions_of_ones_own():
    class Clamp(torch.autograd.Function):
        @staticmethod
        def forward(ctx, a):
            ctx.mark_dirty(a)
            ctx.save_for_backward(a.clone())
            return a.clamp_(0.3, 0.6)

        @staticmethod
        def backward(ctx, g):
            (a,) = ctx.saved_tensors
            return g * ((a > 0.3) & (a < 0.6))

    def program(d):
        x = leaf(d, 2, 4)
        y = x * 1
        z = Clamp.apply(y)
        (z * 2).sum().backward()
        return x.grad, y.detach(), z is y

    beside(program, **NEAR)


def test_gradients_accumulate_and_are_set_to_zero():
    def program(d):
        x = leaf(d, 3)
        for _ in range(3):
            (x * x).sum().backward()
        kept = x.grad
        seen = [kept.clone()]
        x.grad.zero_()
        (x[1:] * 2).sum().backward()
        return *seen, x.grad, x.grad is kept

    beside(program, **NEAR)


def test_forward_mode_and_functional_transforms():
    def program(d):
        x = leaf(d, 3).detach()

        def f(a):
            return (a.sin() * a).cumsum(0)

        jvp = torch.func.jvp(f, (x,), (torch.ones(3, device=d),))
        jac = torch.func.jacrev(f)(x)
        forward = torch.func.jacfwd(f)(x)
        hess = torch.func.hessian(lambda a: a.pow(3).sum())(x)
        batched = torch.func.vmap(lambda a, b: a.dot(b))(torch.stack([x, x * 2]), torch.stack([x, x]))
        per_sample = torch.func.vmap(torch.func.grad(lambda a: a.square().sum()))(torch.stack([x, x + 1]))
        return *jvp, jac, forward, hess, batched, per_sample

    beside(program, rtol=1e-5, atol=1e-6, layout=False)


def test_no_grad_inference_mode_and_detach():
    def program(d):
        x = leaf(d, 3)
        with torch.no_grad():
            a = x * 2
            x[0] = 9
        with torch.inference_mode():
            b = x * 2
            b[1].add_(1)
        c = x.detach()
        c[2] = 7
        flags = [a.requires_grad, b.is_inference(), c.requires_grad, x._version]
        return *flags, x.detach(), b.clone()

    beside(program, **NEAR)
    same_error(
        lambda d: torch.inference_mode()(lambda: leaf(d, 3) * 2)().requires_grad_().add(1).sum().backward(), text=False
    )


def test_sparse_free_embedding_and_index_gradients():
    def program(d):
        w = leaf(d, 5, 3)
        i = torch.tensor([[0, 2, 2], [4, 0, 1]], device=d)
        out = (
            F.embedding(i, w, padding_idx=1)
            + w[i[0]].sum()
            + w.index_select(0, i[1])[:2, None]
            + w.gather(0, i[:1]).sum()
        )
        w2 = torch.zeros(5, 3, device=d).index_put((i[0],), out[0], accumulate=True)
        (out.square().sum() + w2.square().sum()).backward()
        return w.grad

    beside(program, rtol=1e-5, atol=1e-5, layout=False)


def test_backward_in_another_thread_and_on_both_devices():
    def program(d):
        x = leaf(d, 3)
        y = leaf("cpu", 3)
        z = (x * 2 + y.to(d)).cpu() * y
        z.sum().backward()
        return x.grad, y.grad.to(d)

    beside(program, **NEAR)
