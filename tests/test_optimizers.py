"""Every optimizer of torch.optim in every configuration of PyTorch's own database, beside the CPU."""

import copy

import pytest
import torch
from torch.testing._internal.common_optimizers import (
    OptimizerErrorEnum,
    _get_optim_inputs_including_global_cliquey_kwargs,
    optim_db,
)


def configurations(info):
    # The configurations that a device with capturable and fused forms has: those of cuda.
    return _get_optim_inputs_including_global_cliquey_kwargs("cuda:0", torch.float32, info)


CASES = [
    pytest.param(info, i, dtype, id=f"{info.name}-{i}-{str(dtype)[6:]}")
    for info in optim_db
    for i in range(len(configurations(info)))
    # A line search amplifies rounding, so its path is comparable in float64 only.
    for dtype in ((torch.float64,) if info.step_requires_closure else (torch.float32, torch.float64))
]


def sparse_gradient(p, factor):
    rows = torch.tensor([[0, 2]], device=p.device)
    return torch.sparse_coo_tensor(rows, p.detach()[rows[0]] * factor, p.shape)


def train(info, kwargs, device, dtype):
    """Parameters after five steps, and the optimizer."""
    kwargs = copy.deepcopy(kwargs)
    generator = torch.Generator().manual_seed(0)
    shapes = ((3, 5), (4, 2)) if info.name == "Muon" else ((3, 5), (4,), ())
    params = [torch.randn(s, generator=generator, dtype=torch.float64).to(device, dtype) for s in shapes]
    if info.only_supports_sparse_grads:
        params = params[:2]
    if kwargs.get("capturable"):
        if device == "cpu":  # which has no such form, but computes the same in a loop
            kwargs |= {"capturable": False, "foreach": False}
        else:
            kwargs = {k: v.to(device) if isinstance(v, torch.Tensor) else v for k, v in kwargs.items()}
    leaves = [p.requires_grad_() for p in params]
    if kwargs.get("differentiable"):
        params = [p.clone() for p in leaves]
    optimizer = info.optim_cls(params, **kwargs)
    factor = 1.0

    def closure():
        optimizer.zero_grad()
        loss = sum(((p - 0.3) ** 2).sum() * factor + (p * 2).sin().sum() for p in params)
        gradients = torch.autograd.grad(loss, params, retain_graph=True)
        for p, g in zip(params, gradients, strict=True):
            p.grad = sparse_gradient(p, factor) if info.only_supports_sparse_grads else g
        return loss.detach()

    for step in range(5):
        factor = 1.0 + step / 2
        if info.step_requires_closure:
            optimizer.step(closure)
        else:
            closure()
            optimizer.step()
    return params, optimizer


@pytest.mark.parametrize(("info", "index", "dtype"), CASES)
def test_steps_equal_the_cpu(info, index, dtype, recwarn):
    kwargs = configurations(info)[index].kwargs
    want, cpu_optimizer = train(info, kwargs, "cpu", dtype)
    torch.tpu.reset_counters()
    got, optimizer = train(info, kwargs, "tpu", dtype)
    assert torch.tpu.counters()["fallbacks"] == {}
    # A capturable optimizer computes its bias corrections from the step count as a float32 tensor.
    single = dtype == torch.float32 or kwargs.get("capturable")
    near = {"rtol": 2e-5, "atol": 2e-6} if single else {"rtol": 1e-10, "atol": 1e-12}
    if info.name == "Muon":  # orthogonalizes in bfloat16
        near = {"rtol": 2e-2, "atol": 2e-2 * kwargs.get("lr", 1e-3)}
    for g, w in zip(got, want, strict=True):
        assert g.device.type == "tpu"
        torch.testing.assert_close(g.detach().cpu(), w.detach(), **near)
    state, cpu_state = optimizer.state_dict()["state"], cpu_optimizer.state_dict()["state"]
    assert state.keys() == cpu_state.keys()
    for key in state:
        assert state[key].keys() == cpu_state[key].keys()
        for name, value in state[key].items():
            if info.name != "Muon" and isinstance(value, torch.Tensor):
                torch.testing.assert_close(
                    value.detach().cpu(), cpu_state[key][name].detach(), **near, check_dtype=True
                )


def on_device(params, seen):
    """The same lists, tuples and groups with each tensor on the device, gradients included; equal stays equal."""
    if isinstance(params, torch.Tensor):
        if id(params) not in seen:
            there = params.detach().to("tpu").requires_grad_(params.requires_grad)
            there.grad = None if params.grad is None else params.grad.to("tpu")
            seen[id(params)] = there
        return seen[id(params)]
    if isinstance(params, dict):
        return {k: on_device(v, seen) for k, v in params.items()}
    if isinstance(params, list | tuple):
        return type(params)(on_device(v, seen) for v in params)
    return params


@pytest.mark.parametrize("info", [i for i in optim_db if i.optim_error_inputs_func], ids=lambda i: i.name)
def test_wrong_arguments_raise_what_the_cpu_raises(info):
    for e in info.optim_error_inputs_func(device="cpu", dtype=torch.float32):
        params = on_device(e.optimizer_error_input.params, {})
        expected = pytest.warns if issubclass(e.error_type, Warning) else pytest.raises
        with expected(e.error_type, match=e.error_regex):
            optimizer = info.optim_cls(params, **e.optimizer_error_input.kwargs)
            if e.error_on == OptimizerErrorEnum.STEP_ERROR:
                optimizer.step()


@pytest.mark.parametrize("info", optim_db, ids=lambda i: i.name)
def test_a_state_goes_through_a_dict(info):
    kwargs = configurations(info)[0].kwargs
    params, optimizer = train(info, kwargs, "tpu", torch.float32)
    again = [p.detach().clone().requires_grad_() for p in params]
    other = info.optim_cls(again, **copy.deepcopy(kwargs))
    other.load_state_dict(copy.deepcopy(optimizer.state_dict()))
    for p in params + again:
        p.grad = sparse_gradient(p, 0.5) if info.only_supports_sparse_grads else torch.ones_like(p)
    if info.step_requires_closure:
        optimizer.step(lambda: sum((p**2).sum() for p in params).detach())
        other.step(lambda: sum((p**2).sum() for p in again).detach())
    else:
        optimizer.step()
        other.step()
    for p, q in zip(params, again, strict=True):
        torch.testing.assert_close(p, q, rtol=0, atol=0)
