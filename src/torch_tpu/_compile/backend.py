"""The Dynamo backend "tpu": an FX graph through AOTAutograd to programs. Loaded when it is first asked for."""

import copy
import functools
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import fx
from torch._dynamo.backends.common import aot_autograd
from torch._functorch._aot_autograd.utils import register_graphsafe_rng_device_type
from torch._functorch.aot_autograd import get_aot_graph_name

from torch_tpu._compile.graph import CompiledGraph
from torch_tpu._compile.partition import partition

# Checkpointed regions draw the same numbers in backward through copies of the generator.
register_graphsafe_rng_device_type("tpu")


def tpu(
    gm: fx.GraphModule,
    example_inputs: Sequence[Any],
    *,
    mode: str | None = None,
    options: dict[str, Any] | None = None,
) -> Callable[..., Any]:
    """Compiles a graph for the device: what ``torch.compile(backend="tpu")`` calls.

    Args:
        gm: a graph of torch or ATen calls.
        example_inputs: tensors (fake ones will do), ints and floats, as many as the graph has placeholders.
        mode, options: those of ``torch.compile``. They must be ones that Inductor knows; XLA does what they ask for,
            or has no use for it.

    Returns a callable of the graph's inputs that returns the graph's outputs. Programs are made at its first call
    with inputs of a kind. A graph without a tensor on the device runs as it is.

    Raises:
        RuntimeError: an unknown mode or option.
    """
    _check(mode, options)
    if not touches_device(gm, example_inputs):
        return gm.forward
    return _with_tuple_output(gm, example_inputs)


def _with_tuple_output(gm: fx.GraphModule, example_inputs: Sequence[Any]) -> Callable[..., Any]:
    """Dynamo's graphs return a tuple, as AOTAutograd wants it; others may return what they like."""
    output = gm.graph.output_node()
    if isinstance(output.args[0], list | tuple) and all(isinstance(x, fx.Node) for x in output.args[0]):
        return _backend(gm, example_inputs)
    structure = torch.utils._pytree.tree_structure(output.args[0])
    flat = fx.GraphModule(gm, copy.deepcopy(gm.graph))
    flat.graph.output_node().args = (tuple(torch.utils._pytree.tree_leaves(flat.graph.output_node().args[0])),)
    flat.recompile()
    run = _backend(flat, example_inputs)
    return lambda *inputs: torch.utils._pytree.tree_unflatten(list(run(*inputs)), structure)


def touches_device(gm: fx.GraphModule, example_inputs: Sequence[Any]) -> bool:
    """Whether a tensor of the graph is on the device."""
    if any(_is_on_device(x) for x in example_inputs):
        return True
    for node in gm.graph.nodes:
        values = [node.meta.get("example_value"), node.meta.get("val"), *node.args, *node.kwargs.values()]
        if node.op == "get_attr":
            values.append(functools.reduce(getattr, node.target.split("."), gm))
        if any(_is_on_device(x) for x in values):
            return True
    return False


def _is_on_device(x: Any) -> bool:
    if isinstance(x, list | tuple):
        return any(_is_on_device(y) for y in x)
    if isinstance(x, torch.device):
        return x.type == "tpu"
    return isinstance(x, torch.Tensor) and x.device.type == "tpu"


def _check(mode: str | None, options: dict[str, Any] | None) -> None:
    if mode is not None or options:
        torch._TorchCompileInductorWrapper(mode, options, None)


def _compile(gm: fx.GraphModule, example_inputs: Sequence[Any]) -> CompiledGraph:
    return CompiledGraph(gm, get_aot_graph_name())


_backend = aot_autograd(
    fw_compiler=_compile,
    bw_compiler=_compile,
    inference_compiler=_compile,
    partition_fn=partition,
    keep_inference_input_mutations=True,
)
