"""What training scripts use around ops: torch.func, recurrent layers, checkpoints, hooks, gradient scaling."""

import copy

import pytest
import torch
import torch.autograd.forward_ad as fw
from beside import beside
from torch import nn
from torch.func import functional_call, grad, hessian, jacfwd, jacrev, jvp, stack_module_state, vjp, vmap
from torch.utils.checkpoint import checkpoint


def randn(*sizes):
    return torch.randn(*sizes, dtype=torch.float64)


def same(program):
    """The program on both devices, in float64 so that only wrong formulas differ."""

    def seeded(device):
        torch.manual_seed(0)
        default = torch.get_default_dtype()
        torch.set_default_dtype(torch.float64)
        try:
            return program(device)
        finally:
            torch.set_default_dtype(default)

    before = torch.tpu.counters()["fallbacks"]
    beside(seeded, layout=False, rtol=1e-9, atol=1e-10)
    assert torch.tpu.counters()["fallbacks"] == before


def vmap_of_products(d):
    a, b = randn(4, 3, 5).to(d), randn(4, 5, 2).to(d)
    return [vmap(torch.mm)(a, b), vmap(lambda x: x.softmax(0).sum(), in_dims=1)(a)]


def vmap_of_convolutions(d):
    w, x = randn(3, 2, 4, 3, 3).to(d), randn(3, 1, 4, 8, 8).to(d)
    return vmap(lambda x, w: nn.functional.conv2d(x, w, padding=1))(x, w)


def vmap_of_reductions(d):
    x = randn(3, 4, 4).to(d)
    largest = vmap(lambda a: torch.where(a > 0, a, 0).max(0).values)(x)
    return [vmap(lambda a: (a @ a.t() + 4 * torch.eye(4, device=a.device)).trace())(x), largest]


def per_sample_gradients(d):
    m = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1)).to(d)
    x, y = randn(6, 4).to(d), randn(6, 1).to(d)

    def loss(p, x, y):
        return ((functional_call(m, p, (x[None],)) - y[None]) ** 2).mean()

    return vmap(grad(loss), in_dims=(None, 0, 0))(dict(m.named_parameters()), x, y)


def ensembles(d):
    models = [nn.Linear(3, 2).to(d) for _ in range(4)]
    p, b = stack_module_state(models)
    base = copy.deepcopy(models[0]).to("meta")
    x = randn(5, 3).to(d)
    return vmap(lambda p, b, x: functional_call(base, (p, b), (x,)), in_dims=(0, 0, None))(p, b, x)


def products_with_jacobians(d):
    x, t = randn(5).to(d), randn(5).to(d)
    return [*jvp(lambda x: (x.sin() * x).cumsum(0), (x,), (t,)), *vjp(lambda x: x.exp(), x)[1](t)]


def jacobians_and_hessians(d):
    x = randn(4).to(d)

    def f(x):
        return (x**3).sum() * x.prod()

    return [hessian(f)(x), jacrev(f)(x), jacfwd(lambda x: x.outer(x))(x)]


def forward_mode(d):
    with fw.dual_level():
        x = fw.make_dual(randn(3).to(d), randn(3).to(d))
        return fw.unpack_dual(x.sin() * x).tangent


def packed_sequences(d):
    m = nn.LSTM(4, 5, batch_first=True).to(d)
    x = nn.utils.rnn.pack_padded_sequence(randn(3, 7, 4).to(d), torch.tensor([7, 5, 2]), batch_first=True)
    y, (h, c) = m(x)
    o, lengths = nn.utils.rnn.pad_packed_sequence(y, batch_first=True)
    o.sum().backward()
    return [o, h, c, m.weight_ih_l0.grad, *lengths.tolist()]


def recurrent_cells(d):
    x = randn(3, 4).to(d)
    return [*nn.LSTMCell(4, 5).to(d)(x), nn.GRUCell(4, 5).to(d)(x), nn.RNNCell(4, 5).to(d)(x)]


def projected_lstm(d):
    m = nn.LSTM(4, 6, proj_size=3, num_layers=2).to(d)
    y, (h, c) = m(randn(5, 2, 4).to(d))
    y.sum().backward()
    return [y, h, c, m.weight_hr_l0.grad]


def clipped_gradients(d):
    m = nn.Linear(5, 5).to(d)
    m(randn(3, 5).to(d)).pow(2).sum().backward()
    norm = nn.utils.clip_grad_norm_(m.parameters(), 0.1)
    nn.utils.clip_grad_value_(m.parameters(), 0.01)
    return [norm, m.weight.grad]


def normalized_weights(d):
    m = nn.utils.parametrizations.weight_norm(nn.Linear(4, 3)).to(d)
    n = nn.utils.parametrizations.spectral_norm(nn.Linear(4, 3)).to(d)
    x = randn(2, 4).to(d)
    (m(x).sum() + n(x).sum()).backward()
    return [m(x), *(p.grad for p in m.parameters())]


def averaged_models(d):
    m = nn.Linear(3, 3).to(d)
    average = torch.optim.swa_utils.AveragedModel(m, multi_avg_fn=torch.optim.swa_utils.get_ema_multi_avg_fn(0.9))
    with torch.no_grad():
        m.weight.add_(1)
    average.update_parameters(m)
    average.update_parameters(m)
    return list(average.parameters())


def offloaded_activations(d):
    x = randn(4, 4).to(d).requires_grad_()
    with torch.autograd.graph.save_on_cpu(pin_memory=d != "cpu"):
        y = (x @ x).tanh().sum()
    y.backward()
    return x.grad


@pytest.mark.parametrize(
    "program",
    [
        vmap_of_products,
        vmap_of_convolutions,
        vmap_of_reductions,
        per_sample_gradients,
        ensembles,
        products_with_jacobians,
        jacobians_and_hessians,
        forward_mode,
        packed_sequences,
        recurrent_cells,
        projected_lstm,
        clipped_gradients,
        normalized_weights,
        averaged_models,
        offloaded_activations,
    ],
    ids=lambda f: f.__name__,
)
def test_equals_the_cpu(program):
    same(program)


@pytest.mark.parametrize("bidirectional", [False, True])
@pytest.mark.parametrize("layer", [nn.LSTM, nn.GRU, nn.RNN])
def test_recurrent_layers(layer, bidirectional):
    def program(d):
        m = layer(4, 5, num_layers=2, bidirectional=bidirectional, batch_first=True).to(d)
        x = randn(3, 7, 4).to(d).requires_grad_()
        y, h = m(x)
        y.pow(2).sum().backward()
        return [y, h, x.grad, *(p.grad for p in m.parameters())]

    same(program)


@pytest.mark.parametrize("reentrant", [False, True])
def test_a_checkpoint_draws_the_same_dropout_again(reentrant):
    m = nn.Sequential(nn.Linear(4, 16), nn.Dropout(0.5), nn.Linear(16, 4)).to("tpu")
    x = torch.randn(3, 4, device="tpu", requires_grad=True)
    gradients = []
    for run in (lambda: checkpoint(m, x, use_reentrant=reentrant), lambda: m(x)):
        torch.manual_seed(3)
        run().sum().backward()
        gradients.append(x.grad.clone())
        x.grad = None
    torch.testing.assert_close(*gradients, rtol=0, atol=0)


@pytest.mark.parametrize("fused", [False, True])
@pytest.mark.parametrize("optimizer", [torch.optim.AdamW, torch.optim.Adam, torch.optim.SGD, torch.optim.Adagrad])
def test_gradient_scaling_skips_the_step_that_overflows(optimizer, fused):
    def program(d):
        m = nn.Linear(4, 4).to(d)
        o = optimizer(m.parameters(), lr=0.1, fused=fused)
        scaler = torch.amp.GradScaler(d, init_scale=16.0, growth_interval=2)
        x, out = randn(3, 4).to(d), []
        for i in range(6):
            o.zero_grad()
            loss = m(x).pow(2).mean() * (float("inf") if i == 2 else 1)
            scaler.scale(loss).backward()
            if not fused:
                scaler.unscale_(o)
            scaler.step(o)
            scaler.update()
            out += [scaler.get_scale(), m.weight.detach().clone()]
        return out

    same(program)
