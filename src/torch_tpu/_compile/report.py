"""What torch.compile made of a program: graphs, their programs, where and why they are cut."""

import weakref
from collections.abc import Iterator
from typing import Any

import torch
from torch import fx

_graphs: "weakref.WeakSet[Any]" = weakref.WeakSet()


def note(graph: Any) -> None:
    """Puts a compiled graph into the report for as long as it lives."""
    _graphs.add(graph)


def compile_report() -> str:
    """What ``torch.compile`` has made for the device so far and is still in use, as text.

    For each graph: the number of its ops and the FLOPs of its matrix products, convolutions and attentions at the
    sizes it was traced with; the kinds of inputs that it has a program for; the ops that run by themselves, and why.
    Then the reasons of Dynamo's graph breaks, and what the runtime compiled.
    """
    return "\n".join(_lines())


def _lines() -> Iterator[str]:
    for graph in sorted(_graphs, key=lambda g: g.name):
        if graph.is_piece:
            continue
        ops = sum(node.op == "call_function" for node in graph.gm.graph.nodes)
        yield f"{graph.name}: {ops} ops, {flops(graph.gm):,} FLOPs"
        for name, kinds in graph.programs():
            for kind in kinds:
                yield f"  program {name} {kind}"
        for cut in graph.cuts():
            yield f"  runs by itself: {cut}"
    from torch._dynamo.utils import counters

    for reason, count in counters["graph_break"].items():
        yield f"graph break ({count} times): {reason}"
    numbers = torch.tpu.counters()
    yield (
        f"XLA: {numbers['compiles']} programs compiled in {numbers['compile_seconds']:.1f} s, "
        f"{numbers['disk_hits']} found on disk, {numbers['executes']} runs"
    )


def flops(gm: fx.GraphModule) -> int:
    """FLOPs of a graph by the formulas of ``torch.utils.flop_counter``; 0 for sizes that are not known."""
    from torch.utils.flop_counter import flop_registry

    total = 0
    for node in gm.graph.nodes:
        formula = flop_registry.get(getattr(node.target, "overloadpacket", None))
        if formula is None or "val" not in node.meta:
            continue
        args, kwargs = fx.map_arg((node.args, node.kwargs), lambda n: n.meta.get("val"))
        count = formula(*args, **kwargs, out_val=node.meta["val"])
        total += count if isinstance(count, int) else 0
    return total
