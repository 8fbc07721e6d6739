"""Every derived `_foreach_*` op against the CPU."""

import pytest
import torch
from beside import beside, same_error

import torch_tpu

OPS = sorted(row["op"].removeprefix("aten::") for row in torch_tpu._C._rows() if row["family"] == "foreach")
TOLERANCE = {"rtol": 2e-6, "atol": 2e-6}


def tensors(device, shift=0.0):
    """Mixed shapes, among them a scalar, an empty one and a view; inside the domain of every op."""
    made = [
        torch.tensor([[0.25, 0.5, 0.75], [0.125, 0.625, 0.875]]) + shift,
        torch.tensor(0.375) + shift,
        torch.empty(0, 2),
        torch.arange(1.0, 13).div(16).reshape(3, 4).t()[1:] + shift,
    ]
    return [t.to(device) for t in made]


def overload_of(name):
    packet, _, overload = name.partition(".")
    return getattr(getattr(torch.ops.aten, packet), overload or "default")


def arguments(op, device):
    numbers = iter((0.5, 0.25, 2.0))
    args = [tensors(device)]
    for a in op._schema.arguments[1:]:
        kind = str(a.type)
        if kind == "List[Tensor]":
            args.append(tensors(device, 0.0625) if "mm" not in op._schema.name else None)
        elif kind in ("List[number]", "List[float]"):
            args.append([0.5, 1.0, 2.0, 0.25])
        elif kind == "Tensor":
            args.append(torch.tensor(0.5, device=device))
        elif a.has_default_value():
            break
        else:
            args.append(next(numbers))
    return args


@pytest.mark.parametrize("name", OPS)
def test_as_on_the_cpu(name):
    op = overload_of(name)

    def program(device):
        if name == "_foreach_mm":
            pairs = [(torch.ones(2, 3), torch.arange(6.0).reshape(3, 2)), (torch.eye(2), torch.ones(2, 4))]
            return torch._foreach_mm(*([t.to(device) for t in side] for side in zip(*pairs, strict=True)))
        args = arguments(op, device)
        if name == "_foreach_max":
            args[0] = [t for t in args[0] if t.numel()]
        results = op(*args)
        return [list(results) if results is not None else [], args[0]]

    beside(program, **TOLERANCE)


@pytest.mark.parametrize(
    "name", ["add.List", "mul.List", "add.Scalar", "mul.ScalarList", "neg", "maximum.Scalar", "div.Scalar", "sub.List"]
)
def test_dtypes_may_differ_from_element_to_element(name):
    op = overload_of("_foreach_" + name)

    def program(device):
        lists = [
            [
                torch.tensor([1, 2, 3]),
                torch.tensor([1.5, 2.5]),
                torch.tensor([4.0], dtype=torch.bfloat16),
                torch.tensor([1, 9], dtype=torch.uint8),
            ]
            for _ in range(2)
        ]
        a, b = [[t.to(device) for t in one] for one in lists]
        second = {"List": [b], "Scalar": [2], "ScalarList": [[2, 0.5, 2, 3]]}.get(name.partition(".")[2], [])
        return list(op(a, *second))

    beside(program)


def test_numbers_promote_as_in_the_single_op():
    def program(device):
        ints, floats = torch.tensor([1, 2]).to(device), torch.tensor([1.0, 2.0]).to(device)
        results = list(torch._foreach_add([ints, floats], 1.5)) + list(torch._foreach_mul([ints, floats], [2, 3]))
        results += list(torch._foreach_div([ints, floats], 2)) + list(torch._foreach_add([ints, floats], [True, 1]))
        results += list(torch._foreach_add([ints, floats], [floats, ints], alpha=2)) + list(
            torch._foreach_pow([ints, floats], 2)
        )
        return results

    beside(program)


def test_one_program_serves_the_whole_list_and_every_number():
    a = [torch.ones(3, device="tpu"), torch.ones(2, 2, device="tpu"), torch.ones((), device="tpu")]
    torch._foreach_add_(a, 1.0)
    torch._foreach_mul_(a, [1.0, 2.0, 3.0])
    torch.tpu.synchronize()
    before = torch.tpu.counters()
    for i in range(5):
        torch._foreach_add_(a, float(i))
        torch._foreach_mul_(a, [1.0, float(i), 2.0])
    after = torch.tpu.counters()
    assert after["compiles"] == before["compiles"] and after["executes"] == before["executes"] + 10


def test_a_tensor_that_is_twice_in_the_list_is_worked_on_twice():
    def program(device):
        x = torch.arange(6.0, device=device).reshape(2, 3)
        y = torch.ones(2, 3, device=device)
        torch._foreach_add_([x, x, y], 1)
        torch._foreach_mul_([x, y, x], [2.0, 3.0, 4.0])
        torch._foreach_add_([x, y], [y, x])
        return x, y, x._version, y._version

    beside(program)


def test_elements_may_be_views_of_one_storage():
    def program(device):
        x = torch.arange(24.0, device=device).reshape(4, 6)
        views = [x[0], x[:, 1], x.t()[2:4], x, x[1:3, ::2]]
        torch._foreach_add_(views, 1)
        torch._foreach_mul_(views, [2.0, 3.0, 4.0, 5.0, 6.0])
        torch._foreach_copy_([x[0], x[3]], [x[1], x[2]])
        torch._foreach_addcmul_([x[0], x[1]], [x[1], x[2]], [x[2], x[3]], 0.5)
        results = list(torch._foreach_add(views, 1))
        torch._foreach_zero_([x[0], x[:, 0]])
        return x, x._version, *results

    beside(program)


def test_views_of_another_dtype_in_one_list():
    def program(device):
        x = torch.zeros(8, dtype=torch.int32, device=device)
        torch._foreach_add_([x[:4].view(torch.float32), x[4:], x[6:].view(torch.int64)], 1)
        return x

    beside(program)


def test_version_counters_and_autograd():
    def program(device):
        x = torch.ones(3, device=device, requires_grad=True)
        y = (x * 1).square()
        z = y.exp()
        with torch.no_grad():
            torch._foreach_add_([z], 1)
        try:
            z.sum().backward()
        except RuntimeError as e:
            said = str(e).split(";")[1]
        w = torch._foreach_mul([x, x * 2], [x * 3, x])
        (w[0] + w[1]).sum().backward()
        return said, x.grad, y._version, z._version

    beside(program)


def test_unwritten_elements_are_zeros():
    a = [torch.empty(3, device="tpu"), torch.empty(2, 2, device="tpu")[:, 0]]
    torch._foreach_add_(a, [1.0, 2.0])
    assert [t.tolist() for t in a] == [[1, 1, 1], [2, 2]]


def test_a_list_on_the_cpu_or_mixed():
    def program(device):
        a = [torch.ones(2, device=device), torch.ones(3, device=device)]
        torch._foreach_mul_(a, torch.tensor(3.0))
        torch._foreach_add_(a, [torch.tensor(1.0), torch.tensor(2.0)])
        return a

    beside(program)
    with pytest.raises(RuntimeError, match="device"):
        torch._foreach_add_([torch.ones(2, device="tpu")], [torch.ones(2)])


def test_copies_from_the_host():
    def program(device):
        a = [torch.zeros(2, device=device), torch.zeros(3, dtype=torch.int64, device=device)]
        torch._foreach_copy_(a, [torch.tensor([1.5, 2.5]), torch.tensor([1.0, 2, 3])])
        return a

    beside(program)


def test_errors():
    def lists(d, *sizes):
        return [torch.ones(n, device=d) for n in sizes]

    same_error(lambda d: torch._foreach_add(lists(d, 2, 3), lists(d, 2)))
    same_error(lambda d: torch._foreach_add([], 1))
    same_error(lambda d: torch._foreach_mul_(lists(d, 2, 3), [1.0]))
    same_error(lambda d: torch._foreach_add_(lists(d, 2, 3), lists(d, 2, 4)))
    same_error(lambda d: torch._foreach_add_([torch.ones(2, dtype=torch.int64, device=d)], 1.5))
    same_error(lambda d: torch._foreach_div_([torch.ones(2, dtype=torch.int64, device=d)], 2))
    same_error(lambda d: torch._foreach_addcmul_(lists(d, 2), lists(d, 2, 2), lists(d, 2), 1))
    same_error(lambda d: torch._foreach_copy_(lists(d, 2), lists(d, 3)))
    same_error(lambda d: torch._foreach_add_([torch.ones(1, device=d).expand(3)], 1))
    same_error(lambda d: torch._foreach_neg([torch.ones(2, dtype=torch.bool, device=d)]))
    same_error(lambda d: torch._foreach_sqrt_([torch.ones(2, dtype=torch.int64, device=d)]))
    same_error(lambda d: torch._foreach_mul_(lists(d, 2), torch.ones(2, device=d)))
    same_error(lambda d: torch._foreach_lerp_(lists(d, 2), lists(d, 2, 3), 0.5))


def test_slow_forms_without_a_program_of_their_own():
    def program(device):
        a = tensors(device)
        results = [
            torch._foreach_norm([t for t in a if t.numel()], 2),
            torch._foreach_pow(2.0, a),
            torch._foreach_clone(a),
        ]
        results += [torch._foreach_addcdiv(a, a, a, torch.tensor([1.0, 2, 3, 4]))]
        torch._foreach_addcmul_(a, tensors(device), tensors(device), torch.tensor([1.0, 2, 3, 4]))
        return *results, a

    beside(program, layout=False, **TOLERANCE)
