"""Numbers of `_foreach_*` ops are operands: the same program serves every value, with that value."""

import pytest
import torch

OPS = {
    "add": (torch._foreach_add_, [2.0, 8.0]),
    "sub": (torch._foreach_sub_, [2.0, 8.0]),
    "mul": (torch._foreach_mul_, [2.0, 8.0]),
    "div": (torch._foreach_div_, [2.0, 8.0]),
    "pow": (torch._foreach_pow_, [2.0, 3.0]),
    "add of lists": (torch._foreach_add_, [[2.0, 3.0], [8.0, 5.0]]),
    "mul of lists": (torch._foreach_mul_, [[2.0, 3.0], [8.0, 5.0]]),
    "div of lists": (torch._foreach_div_, [[2.0, 3.0], [8.0, 5.0]]),
    "addcdiv": (lambda a, v: torch._foreach_addcdiv_(a, a, a, v), [2.0, 8.0]),
    "addcdiv of lists": (lambda a, v: torch._foreach_addcdiv_(a, a, a, v), [[2.0, 3.0], [8.0, 5.0]]),
    "addcmul": (lambda a, v: torch._foreach_addcmul_(a, a, a, v), [2.0, 8.0]),
    "lerp": (lambda a, v: torch._foreach_lerp_(a, [x * 3 for x in a], v), [0.25, 0.75]),
    "clamp": (torch._foreach_clamp_max_, [1.0, 3.0]),
    "mul, integers": (lambda a, v: torch._foreach_mul_(a, v), [2, 8]),
}


@pytest.mark.parametrize(("op", "values"), OPS.values(), ids=OPS.keys())
def test_a_second_value_is_used_and_compiles_nothing(op, values):
    def run(device, value):
        tensors = [torch.full((3,), 2.0).to(device), torch.full((2, 2), 4.0).to(device)]
        op(tensors, value)
        return [x.cpu() for x in tensors]

    torch.testing.assert_close(run("tpu", values[0]), run("cpu", values[0]))
    compiles = torch.tpu.counters()["compiles"]
    torch.testing.assert_close(run("tpu", values[1]), run("cpu", values[1]))
    if op is not torch._foreach_pow_:
        assert torch.tpu.counters()["compiles"] == compiles
