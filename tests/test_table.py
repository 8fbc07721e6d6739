"""The op table as it is registered."""

import torch

import torch_tpu


def test_every_row_can_be_registered():
    assert torch_tpu._C._table_problems() == []


def has(op, key):
    return torch._C._dispatch_has_kernel_for_dispatch_key(op, key)


def test_no_op_that_is_differentiated_through_its_composite_form_has_a_kernel():
    ops = [row["op"] for row in torch_tpu._C._rows() if not row["internal"]]
    assert [op for op in ops if has(op, "CompositeImplicitAutograd") and not has(op, "Autograd")] == []


def test_an_op_with_both_a_composite_form_and_a_derivative_keeps_its_gradient():
    x = torch.linspace(-2, 2, 5, dtype=torch.float64, device="tpu", requires_grad=True)
    assert torch.autograd.gradcheck(torch.nn.functional.silu, (x,)) and torch.autograd.gradgradcheck(
        torch.nn.functional.silu, (x,)
    )


def test_every_row_has_a_kernel_on_the_device():
    assert [
        row["op"] for row in torch_tpu._C._rows() if not row["internal"] and not has(row["op"], "PrivateUse1")
    ] == []


def test_view_ops_never_run_on_the_cpu():
    """Each op whose result shares memory with an argument is PyTorch's own or has a kernel of ours."""
    without = []
    for name in torch._C._dispatch_get_all_op_names():
        if not name.startswith("aten::"):
            continue
        overload = name.split("::")[1]
        op = getattr(torch.ops.aten, overload.split(".")[0])
        schema = getattr(op, overload.split(".")[1] if "." in overload else "default")._schema
        views = any(r.alias_info and not r.alias_info.is_write for r in schema.returns)
        served = any(
            has(name, key) for key in ("PrivateUse1", "CompositeImplicitAutograd", "CompositeExplicitAutograd")
        )
        # Of nested, sparse and jagged tensors; and the host's memory.
        other = (
            "_nested",
            "nested",
            "values",
            "indices",
            "crow",
            "col_",
            "row_",
            "ccol",
            "_values",
            "_indices",
            "_coalesced",
            "_sparse",
        )
        if views and not served and not overload.startswith(other) and "quantize" not in overload:
            without.append(overload)
    assert without == []


def test_derived_forms_of_a_row():
    ops = {row["op"]: row for row in torch_tpu._C._rows()}
    for derived in ("add_.Tensor", "add.out", "_foreach_add.List", "_foreach_add_.Scalar", "_foreach_add_.ScalarList"):
        assert ops[f"aten::{derived}"]["row"].split(".")[0] == "add" and ops[f"aten::{derived}"]["kind"] == "derived"
    assert ops["aten::add.Tensor"]["kind"] == "native"


def test_names_of_rows_are_unique():
    names = [row["op"] for row in torch_tpu._C._rows()]
    assert len(names) == len(set(names))
