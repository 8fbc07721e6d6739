"""LSTM and GRU against the CPU."""

import pytest
import torch


@pytest.mark.parametrize("kind", ["LSTM", "GRU"])
@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("bidirectional", [False, True])
def test_values_and_gradients(kind, bias, bidirectional):
    torch.manual_seed(0)
    net = getattr(torch.nn, kind)(5, 4, num_layers=2, bias=bias, bidirectional=bidirectional)
    x = torch.randn(3, 2, 5)
    found = []
    for device in ("cpu", "tpu"):
        net = net.to(device)
        net.zero_grad()
        a = x.to(device, copy=True).requires_grad_()
        y, state = net(a)
        last = state[0] + state[1] if kind == "LSTM" else state
        (y.square().sum() + last.sum()).backward()
        found.append([t.detach().cpu() for t in (y, last, a.grad, *(p.grad for p in net.parameters()))])
    for want, got in zip(*found, strict=True):
        torch.testing.assert_close(got, want, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("kind", ["LSTMCell", "GRUCell"])
def test_cells(kind):
    torch.manual_seed(0)
    cell = getattr(torch.nn, kind)(5, 4)
    x = torch.randn(2, 5)
    want = cell(x)
    got = cell.to("tpu")(x.to("tpu"))
    for w, g in zip((want,) if kind == "GRUCell" else want, (got,) if kind == "GRUCell" else got, strict=True):
        torch.testing.assert_close(g.cpu(), w, rtol=1e-5, atol=1e-5)


def test_second_derivative_of_an_lstm_cell():
    torch.manual_seed(0)
    cell, x = torch.nn.LSTMCell(3, 2).double(), torch.randn(2, 3, dtype=torch.float64)
    found = []
    for device in ("cpu", "tpu"):
        a = x.to(device, copy=True).requires_grad_()
        g = torch.autograd.grad(cell.to(device)(a)[0].sum(), a, create_graph=True)[0]
        found.append(torch.autograd.grad(g.square().sum(), a)[0].cpu())
    torch.testing.assert_close(found[1], found[0])
