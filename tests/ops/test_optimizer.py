"""Fused optimizers and gradient scaling, by their ops, against the CPU."""

import itertools

import pytest
import torch

GENERATOR = torch.Generator()


def tensors(dtype, positive=False):
    made = [torch.randn(s, generator=GENERATOR).to(dtype) for s in ((3, 4), (5,), (), (0,))]
    return [t.abs() for t in made] if positive else made


def moved(value, device):
    if isinstance(value, torch.Tensor):
        return value.to(device, copy=True)
    if isinstance(value, (list, tuple)):
        return [moved(v, device) for v in value]
    return value


def compare(op, lists, keywords, dtype):
    here, there = moved(lists, "cpu"), moved(lists, "tpu")
    op(*here, **keywords)
    op(*there, **{k: moved(v, "tpu") for k, v in keywords.items()})
    tolerance = {"rtol": 2e-2, "atol": 2e-3} if dtype is torch.bfloat16 else {"rtol": 1e-6, "atol": 1e-6}
    for want, got in zip(itertools.chain(*here), itertools.chain(*there), strict=True):
        torch.testing.assert_close(got.cpu(), want, **tolerance)


def scaling(scale):
    return {"grad_scale": torch.tensor(scale), "found_inf": torch.tensor(0.0)} if scale else {}


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
@pytest.mark.parametrize("amsgrad,maximize,scale", [(False, False, None), (True, False, 2.0), (False, True, 2.0)])
@pytest.mark.parametrize("name", ["_fused_adam_", "_fused_adamw_"])
def test_adam(name, dtype, amsgrad, maximize, scale):
    GENERATOR.manual_seed(0)
    steps = [torch.tensor(float(i + 1)) for i in range(4)]
    states = tensors(dtype), tensors(dtype, positive=True), tensors(dtype, positive=True) if amsgrad else []
    lists = (tensors(dtype), tensors(dtype), *states, steps)
    keywords = dict(
        beta1=0.9, beta2=0.99, weight_decay=0.1, eps=1e-8, amsgrad=amsgrad, maximize=maximize, **scaling(scale)
    )
    op = getattr(torch.ops.aten, name)
    compare(op, lists, dict(keywords, lr=0.1), dtype)
    compare(op, lists, dict(keywords, lr=torch.tensor(0.1)), dtype)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("nesterov,first,momentum", [(False, False, 0.0), (False, True, 0.9), (True, False, 0.9)])
def test_sgd(dtype, nesterov, first, momentum):
    GENERATOR.manual_seed(0)
    lists = (tensors(dtype), tensors(dtype), tensors(dtype) if momentum else [])
    keywords = dict(weight_decay=0.1, momentum=momentum, dampening=0.0 if nesterov else 0.3, nesterov=nesterov)
    compare(torch.ops.aten._fused_sgd_, lists, dict(keywords, lr=0.1, maximize=False, is_first_step=first), dtype)


def test_adagrad():
    GENERATOR.manual_seed(0)
    dtype = torch.float32
    steps = [torch.tensor(float(i + 1)) for i in range(4)]
    lists = (tensors(dtype), tensors(dtype), tensors(dtype, positive=True), steps)
    keywords = dict(lr=0.1, lr_decay=0.2, weight_decay=0.1, eps=1e-8, maximize=False, **scaling(2.0))
    compare(torch.ops.aten._fused_adagrad_, lists, keywords, dtype)


def test_nothing_changes_where_found_inf_is_set():
    p = [torch.ones(3, device="tpu")]
    state = [torch.full((3,), 2.0, device="tpu")]
    g = [torch.full((3,), 4.0, device="tpu")]
    found = torch.ones((), device="tpu")
    keywords = dict(lr=0.1, beta1=0.9, beta2=0.99, weight_decay=0.1, eps=1e-8, amsgrad=False, maximize=False)
    steps = [torch.ones((), device="tpu")]
    torch._fused_adam_(p, g, state, state, [], steps, grad_scale=found, found_inf=found, **keywords)
    assert torch.equal(p[0].cpu(), torch.ones(3)) and torch.equal(state[0].cpu(), torch.full((3,), 2.0))


def test_a_changing_learning_rate_is_no_new_program():
    p = torch.nn.Parameter(torch.ones(4, device="tpu"))
    optimizer = torch.optim.AdamW([p], 0.1, fused=True)
    for k in range(6):
        optimizer.param_groups[0]["lr"] = 0.1 / (k + 1)
        p.grad = torch.full_like(p, 0.5)
        optimizer.step()
        if k == 1:
            known = torch.tpu.counters()["compiles"]
    assert torch.tpu.counters()["compiles"] == known
    q = torch.nn.Parameter(torch.ones(4))
    optimizer = torch.optim.AdamW([q], 0.1)
    for k in range(6):
        optimizer.param_groups[0]["lr"] = 0.1 / (k + 1)
        q.grad = torch.full_like(q, 0.5)
        optimizer.step()
    torch.testing.assert_close(p.detach().cpu(), q.detach())


@pytest.mark.parametrize("bad", [None, float("inf"), float("nan")])
def test_unscale(bad):
    grads = [torch.full((3,), 4.0), torch.ones(2, 2), torch.empty(0)]
    if bad is not None:
        grads[1][0, 1] = bad
    there, found = moved(grads, "tpu"), torch.zeros(1, device="tpu")
    torch._amp_foreach_non_finite_check_and_unscale_(there, found, torch.full((1,), 0.5, device="tpu"))
    assert found.item() == (bad is not None)
    for want, got in zip(grads, there, strict=True):
        torch.testing.assert_close(got.cpu(), want * 0.5, equal_nan=True)


@pytest.mark.parametrize("found,tracker,scale", list(itertools.product((0.0, 1.0), (0, 1), (1024.0, 3e38))))
def test_update_scale(found, tracker, scale):
    results = []
    for device in ("cpu", "tpu"):
        s, t = torch.tensor([scale], device=device), torch.tensor([tracker], dtype=torch.int32, device=device)
        torch._amp_update_scale_(s, t, torch.tensor([found], device=device), 2.0, 0.5, 2)
        results.append((s.item(), t.item()))
    assert results[0] == results[1]
