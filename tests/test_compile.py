"""torch.compile on the device, beside eager on the CPU."""

import functools
import threading
import warnings

import pytest
import torch
import torch.nn.functional as F
from beside import assert_equal, beside
from torch import nn
from torch.utils.checkpoint import checkpoint

NEAR = {"rtol": 1e-5, "atol": 1e-5}


@pytest.fixture(autouse=True)
def fresh():
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


def compiled(f, device, **options):
    return torch.compile(f, **options) if device == "tpu" else f


def numbers(*shape, device="cpu", grad=False):
    n = torch.Size(shape).numel()
    return (torch.arange(1.0, n + 1) / n).sin().reshape(shape).to(device, copy=True).requires_grad_(grad)


def compiles():
    return torch.tpu.counters()["compiles"] + torch.tpu.counters()["disk_hits"]


# Values and gradients


def test_forward_and_gradients():
    def program(d):
        w, b = numbers(5, 3, device=d, grad=True), numbers(5, device=d, grad=True)
        f = compiled(
            lambda x: F.layer_norm(F.gelu(F.linear(x, w, b)), (5,)).softmax(-1).square().sum(), d, fullgraph=True
        )
        loss = f(numbers(4, 3, device=d))
        loss.backward()
        return loss, w.grad, b.grad

    beside(program, **NEAR)


def test_training_steps_of_a_network_with_buffers():
    def program(d):
        torch.manual_seed(0)
        m = nn.Sequential(nn.Conv2d(2, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten())
        m = m.append(nn.Linear(16, 3)).to(d)
        f = compiled(m, d)
        optimizer = torch.optim.SGD(m.parameters(), lr=0.1, momentum=0.9)
        losses = []
        for _ in range(3):
            optimizer.zero_grad()
            loss = F.cross_entropy(f(numbers(6, 2, 4, 4, device=d)), torch.arange(6, device=d) % 3)
            loss.backward()
            optimizer.step()
            losses.append(loss.detach())
        m.eval()
        losses.append(f(numbers(6, 2, 4, 4, device=d)).detach())
        return losses, list(m.state_dict().values())

    beside(program, layout=False, rtol=1e-4, atol=1e-4)


def test_the_transformers_fast_path():
    def program(d):
        torch.manual_seed(0)
        layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True, norm_first=True).eval().to(d)
        mask = torch.tensor([[False, False, True], [False, False, False]]).to(d)
        causal = nn.Transformer.generate_square_subsequent_mask(3).to(d)
        x = numbers(2, 3, 8, device=d)
        with torch.no_grad():
            f = compiled(layer, d)
            attention = nn.MultiheadAttention(8, 2, batch_first=True).eval().to(d)
            y = numbers(2, 4, 8, device=d)
            return (
                f(x), f(x, src_key_padding_mask=mask), f(x, causal.bool()), attention(x, x, x), attention(x, y, y),
                attention(x, x, x, key_padding_mask=mask, average_attn_weights=False),
            )  # fmt: skip

    beside(program, layout=False, **NEAR)
    assert not [op for op in torch.tpu.counters()["fallbacks"] if "attention" in op or "encoder" in op]


def test_double_call_and_changed_module_state():
    def program(d):
        m = nn.Linear(3, 3).to(d)
        with torch.no_grad():
            m.weight.copy_(numbers(3, 3))
            m.bias.zero_()
        f = compiled(m, d)
        x = numbers(2, 3, device=d)
        first = f(x).detach()
        with torch.no_grad():
            m.weight.mul_(2)
        second = f(x).detach()
        m.weight = nn.Parameter(m.weight.detach() * 2)
        return first, second, f(x).detach()

    beside(program, **NEAR)


# Mutation and aliases


def test_inputs_are_changed_in_place():
    def program(d):
        x, y = numbers(4, device=d), numbers(4, device=d)
        view = x[1:3]

        def f(x, y):
            x.mul_(2)
            y[::2] = x[1::2] + 1
            return x + y, y[1]

        f = compiled(f, d)
        outs = [f(x, y), f(x, y)]
        return outs, x, y, view, x._version

    beside(program, layout=False, **NEAR)


def test_a_changed_input_keeps_its_version_counter():
    def program(d):
        w, s = numbers(3, device=d, grad=True), numbers(3, device=d)
        kept = (w * s).sum()
        compiled(lambda s: s.mul_(2), d)(s)
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            kept.backward()

    beside(lambda d: program(d) or 0)


def test_an_input_read_by_the_loss_and_then_changed():
    def program(d):
        w, s = numbers(3, device=d, grad=True), numbers(3, device=d)

        def f(w, s):
            loss = (w * (s / 5).exp() * s.view(-1).flip(0)).sum()
            s.mul_(2)
            return loss

        compiled(f, d)(w, s).backward()
        return w.grad, s

    beside(program, **NEAR)


def test_inputs_that_share_memory():
    def program(d):
        base = numbers(8, device=d)

        def f(a, b):
            a.add_(1)
            return a * b, b.neg()

        return compiled(f, d)(base[:4], base[2:6]), base

    beside(program, layout=False, **NEAR)


def test_outputs_that_are_views_of_inputs_of_outputs_and_inputs_themselves():
    def program(d):
        x = numbers(2, 6, device=d)

        def f(x):
            y = x * 2
            return x.view(3, 4)[1:], x, y, y.t()[1:3], x[1].unflatten(0, (2, 3)), x.expand(2, 2, 6)

        outs = compiled(f, d)(x)
        outs[0].add_(1)
        outs[3].zero_()
        return outs, x, [o.stride() for o in outs], [o.storage_offset() for o in outs], outs[1] is x

    beside(program)


def test_an_output_view_that_is_changed_under_autograd():
    def program(d):
        x = numbers(4, device=d, grad=True)
        w = compiled(lambda t: t.view(2, 2).t(), d)(x.clone())
        w.mul_(3)
        w.sum().backward()
        return x.grad

    beside(program, **NEAR)


def test_windows_of_one_size_share_a_program():
    data = numbers(64, 6, device="tpu")
    host = numbers(64, 6)

    def f(x):
        y = x[1:] - x[:-1]
        return y * 2, x.sum(0)

    g = torch.compile(f)
    for window in (
        lambda t, k: t[k : k + 8],
        lambda t, k: t[:, k % 5 : k % 5 + 2],
        lambda t, k: t[2 * k : 2 * k + 8 : 2],
    ):
        for k in (3, 1):  # how a column's buffer is cut up may differ once
            assert_equal(g(window(data, k)), f(window(host, k)), **NEAR)
        before = compiles()
        for k in (4, 6, 17):
            assert_equal(g(window(data, k)), f(window(host, k)), **NEAR)
        assert compiles() == before


def test_a_window_is_changed_in_its_place():
    def program(d):
        base = numbers(6, 4, device=d)

        def f(x):
            x[1:].mul_(2)
            x.t()[0] += 1
            return x.sum()

        f = compiled(f, d)
        return f(base[1:3]), f(base[2:4]), f(base[::2]), f(base[:, 1:3]), base

    beside(program, **NEAR)


def test_conjugate_transposed_and_expanded_inputs():
    def program(d):
        z = torch.view_as_complex(numbers(3, 4, 2, device=d))
        f = compiled(lambda z, t: (z * t, z.real + 1, torch.view_as_real(z.resolve_conj())), d)
        x = numbers(1, 4, device=d).expand(3, 4)
        return f(z.conj(), x), f(z.t().conj().t(), numbers(4, 3, device=d).t())

    beside(program, layout=False, **NEAR)


# Numbers, constants, the host


def test_a_number_that_changes_is_no_new_program():
    x = numbers(8, device="tpu")
    f = torch.compile(lambda t, lr: t - lr * t.exp())
    for lr in (0.5, 0.25):
        f(x, lr)
    before = compiles()
    for k in range(5):
        lr = 0.1 / (k + 1)
        assert_equal(f(x, lr), numbers(8) - lr * numbers(8).exp(), **NEAR)
    assert compiles() == before


def test_tensors_of_the_host_take_part():
    def program(d):
        x = numbers(4, device=d)
        scale, table, index = torch.tensor(3.0), numbers(4), torch.tensor(2)

        def f(x, scale, table, index):
            host = (table * 2).sum()
            moved = table.to(x.device) + x
            return x * scale * host, moved, x[index], x + torch.tensor([1.0, 2, 3, 4]).to(x.device)

        f = compiled(f, d)
        outs = [f(x, scale, table, index)]
        scale.fill_(5.0)
        table.add_(1)
        index.fill_(1)
        return outs, f(x, scale, table, index)

    beside(program, layout=False, **NEAR)


def test_results_on_the_host():
    f = torch.compile(lambda x: (x.cpu() + 1, (x * 2).sum(), torch.ones(2)))
    host, total, ones = f(numbers(4, device="tpu"))
    assert (host.device.type, total.device.type, ones.device.type) == ("cpu", "tpu", "cpu")
    assert_equal([host, total, ones], [numbers(4) + 1, (numbers(4) * 2).sum(), torch.ones(2)], **NEAR)


def test_a_constant_that_is_returned_is_a_new_tensor_each_time():
    f = torch.compile(lambda t: torch.tensor([1.0, 2.0], device=t.device))
    x = numbers(2, device="tpu")
    f(x).add_(1)
    assert f(x).tolist() == [1, 2]


def test_a_graph_break_on_a_value():
    def f(x):
        if x.sum().item() > 0:
            return x * 2
        return x - 1

    with pytest.raises(torch._dynamo.exc.TorchDynamoException):
        torch.compile(f, fullgraph=True)(numbers(3, device="tpu"))
    torch._dynamo.reset()
    beside(lambda d: [compiled(f, d)(numbers(3, device=d)), compiled(f, d)(-numbers(3, device=d))])


def test_what_only_the_cpu_can_do_is_cut_out_with_one_warning():
    @torch.library.custom_op("tpu_tests::halve", mutates_args=())
    def halve(x: torch.Tensor) -> torch.Tensor:
        return torch.from_numpy(x.cpu().numpy() / 2).to(x.device)

    halve.register_fake(torch.empty_like)
    f = torch.compile(lambda x: (halve(x * 3) + 1, x * 2), fullgraph=True)
    x = numbers(3, device="tpu")
    with pytest.warns(UserWarning, match=r"cut around an op .*tpu_tests\.halve"):
        assert_equal(f(x), [numbers(3) * 3 / 2 + 1, numbers(3) * 2], **NEAR)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert_equal(f(x + 1), [(numbers(3) + 1) * 3 / 2 + 1, (numbers(3) + 1) * 2], **NEAR)


def test_the_hosts_part_and_changed_inputs_keep_their_order():
    def program(d):
        x, table = numbers(4, device=d), numbers(4)

        def f(x, table):
            before = x.sum().cpu()
            y = x * table.to(x.device)
            x.add_(before.to(x.device))
            table.mul_(2)
            return y, x.cpu() + table, x * 1

        f = compiled(f, d)
        return f(x, table), f(x, table), x, table

    want, got = program("cpu"), program("tpu")
    assert_equal(got, want, layout=False, **NEAR)


def test_an_index_out_of_range_is_raised_at_the_next_read():
    f = torch.compile(lambda x, i: x[i] * 2)
    with pytest.raises(IndexError, match="out of bounds"):
        f(numbers(3, device="tpu"), torch.tensor([1, 7]).to("tpu")).cpu()


def test_capturing_what_depends_on_data():
    x = torch.tensor([3.0, -1.0, 2.0])
    with torch._dynamo.config.patch(capture_scalar_outputs=True, capture_dynamic_output_shape_ops=True):
        f = torch.compile(lambda x: (x[x > 0] * 2, x + x.sum().item()), fullgraph=True)
        for k in range(3):
            assert_equal(f((x + k).to("tpu")), [(x + k)[x + k > 0] * 2, x + k + (x + k).sum()], **NEAR)


# Random numbers


def draws(f, device="tpu", **options):
    torch.manual_seed(7)
    out = f()
    return out, torch.tpu.get_rng_state()


def test_random_numbers_are_those_of_eager():
    x = torch.ones(5, 3, device="tpu")

    def f():
        return F.dropout(x, 0.4), torch.rand_like(x), torch.randint(9, (4,), device="tpu"), x.bernoulli(0.3)

    want, got = draws(f), draws(torch.compile(f))
    assert all(torch.equal(a, b) for a, b in zip(got[0], want[0], strict=True))
    assert torch.equal(got[1], want[1])


@pytest.mark.parametrize("again", [False, True], ids=["plain", "checkpoint"])
def test_dropout_in_training(again):
    w = numbers(4, 4, device="tpu", grad=True)

    def block(x):
        return F.dropout(F.relu(x @ w), 0.5, training=True)

    def f(x):
        x = checkpoint(block, x, use_reentrant=False) if again else block(x)
        return block(x).sum()

    def step(f):
        w.grad = None
        loss = f(numbers(8, 4, device="tpu"))
        loss.backward()
        return loss.detach(), w.grad

    want, got = draws(functools.partial(step, f)), draws(functools.partial(step, torch.compile(f)))
    assert_equal([t.cpu() for t in got[0]], [t.cpu() for t in want[0]], **NEAR)
    assert torch.equal(got[1], want[1])


# Modes of PyTorch


def test_autocast_inside_and_outside():
    w = numbers(4, 4, device="tpu", grad=True)

    def inside(x):
        with torch.autocast("tpu"):
            y = x @ w
        return y, x @ w

    x = numbers(2, 4, device="tpu")
    got, want = torch.compile(inside)(x), inside(x)
    assert [t.dtype for t in got] == [t.dtype for t in want] == [torch.bfloat16, torch.float32]
    assert_equal([t.cpu() for t in got], [t.detach().cpu() for t in want], rtol=1e-2, atol=1e-2)
    f = torch.compile(lambda x: (x @ w).sum())
    with torch.autocast("tpu"):
        loss = f(x)
    loss.backward()
    assert w.grad.dtype == torch.float32


def test_inference_mode_and_no_grad():
    f = torch.compile(lambda x: x.view(-1)[1:] * 2)
    x = numbers(2, 2, device="tpu", grad=True)
    with torch.no_grad():
        assert not f(x).requires_grad
    with torch.inference_mode():
        assert f(x).is_inference()
    assert f(x).requires_grad


@pytest.mark.parametrize("dynamic", [True, False, None])
def test_sizes_that_change(dynamic):
    def f(x, w):
        n = x.shape[0]
        return (x @ w).view(n // 2, 2, -1).sum(1) / n, x.shape[0] * 2

    g = torch.compile(f, dynamic=dynamic)
    w = numbers(3, 5)
    for n in (4, 6, 2, 10):
        x = numbers(n, 3)
        assert_equal(g(x.to("tpu"), w.to("tpu")), f(x, w), **NEAR)


def test_a_dimension_that_is_marked_dynamic():
    g = torch.compile(lambda x: x.cumsum(0) * x.shape[0], fullgraph=True)
    for n in (4, 7):
        x = numbers(n, 3, device="tpu")
        torch._dynamo.mark_dynamic(x, 0)
        assert_equal(g(x), numbers(n, 3).cumsum(0) * n, **NEAR)


def test_gradients_with_sizes_that_change():
    w = numbers(3, 3, device="tpu", grad=True)
    f = torch.compile(lambda x: (x @ w).relu().flatten().square().mean(), dynamic=True)
    for n in (4, 7, 5):
        w.grad = None
        f(numbers(n, 3, device="tpu")).backward()
        v = numbers(3, 3, grad=True)
        (numbers(n, 3) @ v).relu().square().mean().backward()
        assert_equal(w.grad, v.grad, **NEAR)


def test_threads():
    f = torch.compile(lambda x, k: (x * k).sin().sum(0))
    errors = []

    def work(k):
        try:
            for n in range(3):
                x = numbers(4 + n, 3)
                assert_equal(f(x.to("tpu"), torch.tensor(float(k))), (x * float(k)).sin().sum(0), **NEAR)
        except Exception as e:
            errors.append(e)

    threads = [threading.Thread(target=work, args=(k,)) for k in range(4)]
    [t.start() for t in threads]
    [t.join() for t in threads]
    assert not errors


# torch.compile's own arguments, and other devices


def test_arguments_of_torch_compile():
    x = numbers(3, device="tpu")
    hints = {"mode": "reduce-overhead"}, {"mode": "max-autotune"}, {"options": {"epilogue_fusion": True}}
    for backend in ({}, {"backend": "tpu"}, {"backend": "inductor"}):
        for more in (*hints, {"fullgraph": True}, {"disable": True}):
            torch._dynamo.reset()
            assert_equal(torch.compile(lambda x: x.exp() + 1, **backend, **more)(x), numbers(3).exp() + 1, **NEAR)
    with pytest.raises(RuntimeError, match="Unrecognized mode"):
        torch.compile(lambda x: x + 1, mode="fastest")(x)
    with pytest.raises(Exception, match="Unexpected optimization option"):
        torch.compile(lambda x: x + 2, backend="tpu", options={"speed": 11})(x)
    assert "tpu" in torch.compiler.list_backends()
    assert torch.compiler.get_default_backend() == "inductor"


def test_graphs_of_the_cpu_stay_inductors(monkeypatch):
    import torch._inductor.compile_fx

    seen = []

    def compile_fx(gm, inputs, config_patches=None, **_):
        seen.append(config_patches)
        return gm.forward

    monkeypatch.setattr(torch._inductor.compile_fx, "compile_fx", compile_fx)
    f = torch.compile(lambda x: x * 2, options={"max_fusion_size": 3}, dynamic=True)
    assert_equal(f(numbers(3)), numbers(3) * 2)
    assert seen == [{"max_fusion_size": 3}]
    assert_equal(f(numbers(3, device="tpu")), numbers(3) * 2)
    assert len(seen) == 1


def test_the_backend_given_a_cpu_graph_runs_it():
    assert_equal(torch.compile(lambda x: x * 2, backend="tpu")(numbers(3)), numbers(3) * 2)


def test_the_backend_takes_an_fx_graph():
    gm = torch.fx.symbolic_trace(nn.Sequential(nn.Linear(3, 2), nn.ReLU()).to("tpu"))
    x = numbers(4, 3, device="tpu")
    got = torch._dynamo.lookup_backend("tpu")(gm, [x])(x)
    assert_equal((got[0] if isinstance(got, list | tuple) else got).cpu(), gm(x).detach().cpu(), **NEAR)


def test_export_is_as_without_the_package():
    program = torch.export.export(nn.Linear(3, 2).to("tpu"), (numbers(4, 3, device="tpu"),))
    x = numbers(4, 3, device="tpu")
    assert_equal(torch.compile(program.module())(x).detach().cpu(), program.module()(x).detach().cpu(), **NEAR)


def test_a_second_process_compiles_nothing(run_python, tmp_path):
    code = (
        "import torch; torch.manual_seed(0); m = torch.nn.Linear(3, 3).to('tpu'); f = torch.compile(m)\n"
        "f(torch.ones(2, 3, device='tpu')).sum().backward(); m.weight.grad.cpu()\n"
        "print(torch.tpu.counters()['compiles'])"
    )
    cache = {"TORCH_TPU_CACHE_DIR": str(tmp_path / "cache")}
    first, second = run_python(code, **cache), run_python(code, **cache)
    assert int(first.stdout) > 0, first.stderr
    assert int(second.stdout) == 0, second.stderr


def test_importing_torch_does_not_import_dynamo(run_python):
    done = run_python("import sys, torch; assert 'torch._dynamo' not in sys.modules and hasattr(torch, 'tpu')")
    assert done.returncode == 0, done.stderr
