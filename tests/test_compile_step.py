"""torch_tpu.compile_step: whole training steps as one program, beside eager steps on the CPU."""

import pytest
import torch
import torch.nn.functional as F
from beside import assert_equal
from torch import nn
from torch.nn.utils import clip_grad_norm_
from torch.utils.checkpoint import checkpoint

from torch_tpu import compile_step

OPTIMIZERS = {
    "sgd": lambda p: torch.optim.SGD(p, lr=0.1),
    "sgd-momentum": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, nesterov=True, weight_decay=0.01),
    "adam": lambda p: torch.optim.Adam(p, lr=0.01, amsgrad=True),
    "adam-loop": lambda p: torch.optim.Adam(p, lr=0.01, foreach=False),
    "adamw": lambda p: torch.optim.AdamW(p, lr=0.01, weight_decay=0.1),
    "rmsprop": lambda p: torch.optim.RMSprop(p, lr=0.01, centered=True, momentum=0.5),
}


def network(device):
    torch.manual_seed(0)
    # No bias before the norm: its gradient is rounding noise, which Adam would blow up.
    return nn.Sequential(nn.Linear(8, 16, bias=False), nn.BatchNorm1d(16), nn.GELU(), nn.Linear(16, 3)).to(device)


def batch(k, n=6):
    generator = torch.Generator().manual_seed(k)
    return torch.randn(n, 8, generator=generator), torch.randint(3, (n,), generator=generator)


def train(device, make_optimizer, *, steps=6, keep_gradients=False):
    model = network(device)
    optimizer = make_optimizer(model.parameters())
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 10)

    def step(x, y):
        optimizer.zero_grad(set_to_none=not keep_gradients)
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        norm = clip_grad_norm_(model.parameters(), 0.5)
        optimizer.step()
        return {"loss": loss, "norm": norm}

    run = compile_step(step, optimizer) if device == "tpu" else step
    results, executes = [], 0
    for k in range(steps):
        x, y = (t.to(device) for t in batch(k))
        before = torch.tpu.counters()["executes"]
        result = run(x, y)
        executes = torch.tpu.counters()["executes"] - before
        scheduler.step()
        results.append([result["loss"].detach(), result["norm"].detach()])
    gradients = [p.grad for p in model.parameters()] if keep_gradients else []
    return [results, list(model.state_dict().values()), gradients], executes


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_stock_optimizers_with_clipping_and_a_schedule(name):
    want, _ = train("cpu", OPTIMIZERS[name])
    got, executes = train("tpu", OPTIMIZERS[name])
    assert_equal(got, want, layout=False, rtol=2e-4, atol=2e-5)
    assert executes == 1, "a whole step is one program"


def test_gradients_that_are_kept():
    want, _ = train("cpu", OPTIMIZERS["sgd"], keep_gradients=True)
    got, _ = train("tpu", OPTIMIZERS["sgd"], keep_gradients=True)
    assert_equal(got, want, layout=False, rtol=2e-4, atol=2e-5)


def test_a_learning_rate_is_no_new_program_but_another_setting_is():
    model = nn.Linear(8, 3).to("tpu")
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)

    @lambda f: compile_step(f, optimizer)
    def step(x, y):
        optimizer.zero_grad()
        F.cross_entropy(model(x), y).backward()
        optimizer.step()

    x, y = (t.to("tpu") for t in batch(0))
    step(x, y)
    step(x, y)
    before = torch.tpu.counters()["memory_misses"]
    for rate in (0.05, 0.0):
        optimizer.param_groups[0]["lr"].fill_(rate)
        weight = model.weight.detach().clone()
        step(x, y)
    assert torch.tpu.counters()["memory_misses"] <= before + 2  # fill_ and clone
    assert torch.equal(weight, model.weight), "a learning rate of 0"
    optimizer.param_groups[0]["lr"].fill_(0.1)
    optimizer.param_groups[0]["weight_decay"] = 5.0
    step(x, y)
    assert model.weight.abs().sum() < weight.abs().sum()


def test_other_sizes_and_other_arguments_are_recorded_again():
    model = network("tpu").eval()

    @compile_step
    def step(x, scale, *, names):
        return model(x).sum() * scale, names["y"] + 1

    for n, scale in ((4, 1.0), (4, 1.0), (5, 1.0), (4, 3.0), (5, 1.0)):
        x = torch.randn(n, 8, device="tpu")
        got = step(x, scale, names={"y": x})
        assert_equal(
            [got[0].cpu(), got[1].cpu()], [(model(x).sum() * scale).detach().cpu(), (x + 1).cpu()], rtol=1e-5, atol=1e-5
        )


def test_dropout_draws_what_eager_draws():
    def run(wrap):
        torch.manual_seed(3)
        w = torch.ones(4, 4, device="tpu", requires_grad=True)
        optimizer = torch.optim.SGD([w], lr=0.1)

        def step(x):
            optimizer.zero_grad()
            loss = F.dropout(x @ w, 0.5).square().sum()
            loss.backward()
            optimizer.step()
            return loss

        step = wrap(step, optimizer)
        losses = [step(torch.ones(2, 4, device="tpu")).detach().cpu() for _ in range(4)]
        return losses, w.detach().cpu(), torch.tpu.get_rng_state()

    assert_equal(run(compile_step), run(lambda f, _: f), rtol=1e-5, atol=1e-5)


def test_what_the_step_leaves_elsewhere_says_that_it_has_no_content():
    kept = []

    @compile_step
    def step(x):
        kept.append(x * 2)
        return x + 1

    x = torch.ones(3, device="tpu")
    step(x)
    step(x)
    assert kept[0].tolist() == [2, 2, 2]  # the eager call
    for use in (lambda t: t.cpu(), lambda t: t + 1, lambda t: t.sum().item()):
        with pytest.raises(RuntimeError, match="step was recorded"):
            use(kept[-1])


def test_errors_change_nothing():
    model = nn.Linear(8, 3).to("tpu")
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.5)

    def reads(x):
        optimizer.zero_grad()
        loss = model(x).sum()
        loss.backward()
        optimizer.step()
        return loss.item()

    def schedules(x):
        optimizer.zero_grad()
        model(x).sum().backward()
        optimizer.step()
        scheduler.step()

    x = torch.ones(2, 8, device="tpu")
    for step, why in ((reads, "reads a value"), (schedules, "learning rate")):
        step = compile_step(step, optimizer)
        step(x)
        weight = model.weight.detach().clone()
        with pytest.raises(RuntimeError, match=why):
            step(x)
        assert torch.equal(weight, model.weight)
        assert model.weight.grad is None or model.weight.grad.isfinite().all()
    with pytest.raises(TypeError, match="tensors on the device only"):
        step(torch.ones(2, 8))


def test_versions_count_and_autograd_notices():
    w = torch.ones(3, device="tpu", requires_grad=True)
    optimizer = torch.optim.SGD([w], lr=0.1)

    @lambda f: compile_step(f, optimizer)
    def step():
        optimizer.zero_grad()
        w.square().sum().backward()
        optimizer.step()

    step(), step()
    loss = w.square().sum()
    step()
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()


def test_a_compiled_model_inside_a_step():
    model = network("tpu")
    inner = torch.compile(model.eval())

    @compile_step
    def step(x):
        return inner(x) * 2

    x = batch(0)[0].to("tpu")
    inner(x)
    for _ in range(3):
        got = step(x)
    assert_equal(got.cpu(), (model(x) * 2).detach().cpu(), rtol=1e-5, atol=1e-5)


def test_the_report_names_graphs_programs_and_cuts():
    import torch_tpu

    torch._dynamo.reset()
    f = torch.compile(lambda x: (x @ x).exp())
    f(torch.ones(4, 4, device="tpu"))
    report = torch_tpu.compile_report()
    assert "2 ops, 128 FLOPs" in report and "program" in report and "f32[4,4]" in report


def test_a_checkpoint_in_a_step_draws_the_same_numbers_again():
    def run(wrap):
        torch.manual_seed(3)
        w = torch.ones(4, 4, device="tpu", requires_grad=True)
        optimizer = torch.optim.SGD([w], lr=0.1)

        def block(x):
            return F.dropout(x @ w, 0.5).square()

        def step(x):
            optimizer.zero_grad()
            loss = checkpoint(block, F.dropout(x, 0.2), use_reentrant=False).sum() + F.dropout(w, 0.5).sum()
            loss.backward()
            optimizer.step()
            return loss

        step = wrap(step, optimizer)
        losses = [step(torch.ones(2, 4, device="tpu")).detach().cpu() for _ in range(4)]
        return losses, w.detach().cpu(), torch.tpu.get_rng_state()

    assert_equal(run(compile_step), run(lambda f, _: f), rtol=1e-5, atol=1e-5)


def test_generators_that_a_step_cannot_record():
    own = torch.Generator("tpu")

    def draws(x):
        return x + torch.rand(3, device="tpu", generator=own)

    def seeds(x):
        torch.tpu.manual_seed(4)
        return x + torch.rand(3, device="tpu")

    for step, why in ((draws, "generator of its own"), (seeds, "seeded")):
        step = compile_step(step)
        step(torch.ones(3, device="tpu"))
        with pytest.raises(RuntimeError, match=why):
            step(torch.ones(3, device="tpu"))
