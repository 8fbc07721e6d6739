"""torch.autocast("tpu")."""

import pytest
import torch
import torch.nn.functional as F


def x(*shape, dtype=torch.float32):
    return torch.linspace(-1, 1, torch.Size(shape).numel(), device="tpu").reshape(shape).to(dtype)


def test_matrix_products_run_in_bfloat16_by_default():
    with torch.autocast("tpu"):
        assert torch.is_autocast_enabled("tpu") and torch.get_autocast_dtype("tpu") is torch.bfloat16
        results = [x(4, 4) @ x(4, 4), F.linear(x(2, 4), x(3, 4), x(3)), torch.bmm(x(2, 3, 3), x(2, 3, 3))]
        results += [F.conv2d(x(1, 2, 5, 5), x(3, 2, 3, 3)), torch.addmm(x(4), x(4, 4), x(4, 4))]
        results += [F.scaled_dot_product_attention(x(1, 2, 4, 8), x(1, 2, 4, 8), x(1, 2, 4, 8))]
        assert [r.dtype for r in results] == [torch.bfloat16] * 6
    assert not torch.is_autocast_enabled("tpu")
    assert (x(4, 4) @ x(4, 4)).dtype is torch.float32


def test_what_needs_range_runs_in_float32():
    h = x(4, 4, dtype=torch.bfloat16)
    with torch.autocast("tpu"):
        results = [
            h.softmax(-1),
            h.log_softmax(-1),
            h.sum(),
            h.exp(),
            F.layer_norm(h, (4,)),
            F.cross_entropy(h, torch.zeros(4, dtype=torch.int64, device="tpu")),
        ]
        results += [F.mse_loss(h, h), h.norm(), h.cumsum(0), h.pow(2), torch.nn.functional.gelu(h.float())]
    assert [r.dtype for r in results] == [torch.float32] * len(results)


def test_mixed_operands_are_promoted():
    with torch.autocast("tpu"):
        assert torch.cat([x(2), x(2, dtype=torch.bfloat16)]).dtype is torch.float32
        assert torch.addcmul(x(2), x(2, dtype=torch.bfloat16), x(2)).dtype is torch.float32
        assert (x(2) + x(2, dtype=torch.bfloat16)).dtype is torch.float32
        assert (x(3, 3, dtype=torch.float64) @ x(3, 3, dtype=torch.float64)).dtype is torch.float64


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_the_dtype_can_be_chosen_and_turned_off_inside(dtype):
    with torch.autocast("tpu", dtype=dtype):
        y = x(4, 4) @ x(4, 4)
        with torch.autocast("tpu", enabled=False):
            assert (x(4, 4) @ x(4, 4)).dtype is torch.float32
            assert (y.float() @ x(4, 4)).dtype is torch.float32
        assert (y @ x(4, 4)).dtype is dtype


def test_values_are_those_of_the_low_precision():
    with torch.autocast("tpu"):
        got = x(4, 4) @ x(4, 4)
    want = x(4, 4).cpu().bfloat16() @ x(4, 4).cpu().bfloat16()
    torch.testing.assert_close(got.cpu(), want)


def test_gradients_have_the_dtype_of_the_parameters():
    module = torch.nn.Sequential(
        torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.LayerNorm(8), torch.nn.Linear(8, 2)
    ).to("tpu")
    with torch.autocast("tpu"):
        out = module(x(3, 4))
        loss = F.cross_entropy(out, torch.tensor([0, 1, 0], device="tpu"))
    assert out.dtype is torch.bfloat16 and loss.dtype is torch.float32
    loss.backward()
    assert {p.grad.dtype for p in module.parameters()} == {torch.float32}
    assert all(p.grad.isfinite().all() for p in module.parameters())


def test_a_weight_is_converted_once_in_a_region():
    w, y = torch.nn.Parameter(x(4, 4).clone()), x(2, 4).bfloat16()
    with torch.autocast("tpu"):
        y @ w
        before = torch.tpu.counters()["executes"]
        y @ w
        assert torch.tpu.counters()["executes"] == before + 1


def test_binary_cross_entropy_is_refused_as_it_is_elsewhere():
    with torch.autocast("tpu"), pytest.raises(RuntimeError, match="unsafe to autocast"):
        F.binary_cross_entropy(x(3).sigmoid(), x(3).sigmoid())
    with torch.autocast("tpu"):
        assert F.binary_cross_entropy_with_logits(x(3), x(3).sigmoid()).dtype is torch.float32


def test_custom_functions_and_the_decorator():
    class Square(torch.autograd.Function):
        @staticmethod
        @torch.amp.custom_fwd(device_type="tpu", cast_inputs=torch.float32)
        def forward(ctx, a):
            ctx.save_for_backward(a)
            return a * a

        @staticmethod
        @torch.amp.custom_bwd(device_type="tpu")
        def backward(ctx, g):
            return 2 * ctx.saved_tensors[0] * g

    @torch.autocast("tpu")
    def run(a):
        return Square.apply(a @ a)

    a = x(2, 2).requires_grad_()
    y = run(a)
    assert y.dtype is torch.float32
    y.sum().backward()
    assert a.grad.dtype is torch.float32


def test_grad_scaler_steps_and_skips():
    p = torch.nn.Parameter(torch.ones(3, device="tpu"))
    optimizer = torch.optim.SGD([p], lr=0.5)
    scaler = torch.amp.GradScaler("tpu", init_scale=4.0, growth_interval=1)
    scaler.scale((p * 2).sum()).backward()
    assert p.grad.tolist() == [8, 8, 8]
    scaler.step(optimizer)
    scaler.update()
    assert p.tolist() == [0, 0, 0] and scaler.get_scale() == 8
    optimizer.zero_grad()
    scaler.scale((p * float("inf")).sum()).backward()
    scaler.step(optimizer)
    scaler.update()
    assert p.tolist() == [0, 0, 0] and scaler.get_scale() == 4
