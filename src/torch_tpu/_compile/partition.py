"""What forward keeps for backward."""

import operator
from typing import Any

import torch
from torch import fx
from torch._functorch.partitioners import min_cut_rematerialization_partition
from torch.utils.checkpoint import CheckpointPolicy


def partition(joint: fx.GraphModule, joint_inputs: Any, **options: Any) -> tuple[fx.GraphModule, fx.GraphModule]:
    """Splits a joint graph where least has to be kept: ``min_cut_rematerialization_partition``, made right for inputs
    that the graph changes and for random numbers."""
    keep_old_values(joint.graph)
    keep_draws(joint.graph)
    return min_cut_rematerialization_partition(joint, joint_inputs, **options)


def keep_old_values(graph: fx.Graph) -> None:
    """Lets whatever reads an input that the graph changes read a copy of the value from before.

    Forward writes the input, so that backward must not compute anything from it again: the partitioner would take the
    input itself for a value that costs nothing to keep. The copy is one only where backward needs it.
    """
    changed = {
        node.args[0]
        for node in graph.nodes
        if node.target is torch.ops.aten.copy_.default and node.args[0].op == "placeholder"
    }
    if not changed:
        return
    first = next(node for node in graph.nodes if node.op != "placeholder")
    for node in changed:
        with graph.inserting_before(first):
            old = graph.call_function(torch.ops.aten.clone.default, (node,))
        old.meta = dict(node.meta)
        old.meta["recompute"] = CheckpointPolicy.MUST_SAVE
        node.replace_all_uses_with(
            old, lambda user, old=old: user is not old and user.target is not torch.ops.aten.copy_.default
        )


def keep_draws(graph: fx.Graph) -> None:
    """Lets backward have the random numbers of forward instead of drawing them again, also where a checkpoint asks for
    that: PyTorch would draw both from generators of their own, which are not those of eager."""
    for node in graph.nodes:
        if torch.Tag.nondeterministic_seeded in getattr(node.target, "tags", ()):
            for drawn in (node, *node.users):
                if drawn is node or drawn.target is operator.getitem:
                    drawn.meta["recompute"] = CheckpointPolicy.MUST_SAVE
