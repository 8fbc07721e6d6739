"""An FX graph of ATen ops as programs: what the device computes is recorded together, the host does the rest."""

import functools
import logging
import operator
import threading
import warnings
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import torch
from torch import fx
from torch.utils._python_dispatch import _disable_current_modes

from torch_tpu import _C
from torch_tpu._compile.report import note

log = logging.getLogger(__name__)

aten = torch.ops.aten


class NotRecordable(Exception):
    """A node cannot be part of a program. ``node`` is its name; the cause says why."""

    def __init__(self, node: fx.Node, why: BaseException) -> None:
        super().__init__(f"{node.target} ({node.name}): {str(why).splitlines()[0] if str(why) else type(why).__name__}")
        self.node = node.name
        self.target = node.target


@functools.cache
def _with_rows() -> set[str]:
    """The ops that have a row in the op table: "aten::add"."""
    return {row["op"].split(".")[0] for row in _C._rows()}


class CompiledGraph:
    """A graph that runs as one program, or as several with the host's work between them.

    Called as AOTAutograd calls it: with one list of inputs, which it empties; it returns a list. A program is made at
    the first call with inputs of a kind (dtypes, sizes, layouts, numbers). Where an op turns out not to be recordable,
    the graph is cut around it, with a warning, and the op runs as it does in eager.
    """

    def __init__(self, gm: fx.GraphModule, name: str, *, is_piece: bool = False) -> None:
        self.gm = gm
        self.name = name
        self.is_piece = is_piece
        self._boxed_call = True  # of the instance: wrappers copy those
        self._eager: set[str] = set()
        self._cuts: list[str] = []
        self._lock = threading.Lock()
        self._run = self._plan()
        note(self)
        log.debug("%s:\n%s", name, gm.print_readable(print_output=False) if log.isEnabledFor(logging.DEBUG) else "")

    def programs(self) -> list[tuple[str, list[str]]]:
        """Its programs: the name of the piece, and for people the kinds of inputs that there is one for."""
        if isinstance(self._run, _Pieces):
            return [x for piece in self._run.compiled() for x in piece.programs()]
        return [(self.name, self._run.programs)]

    def cuts(self) -> list[str]:
        """What runs by itself although it was to be part of a program, and why."""
        pieces = self._run.compiled() if isinstance(self._run, _Pieces) else []
        return self._cuts + [cut for piece in pieces for cut in piece.cuts()]

    def __call__(self, inputs: list) -> list:
        run = self._run
        try:
            return run(inputs)
        except NotRecordable as problem:
            with self._lock:
                if self._run is run:  # else another thread was here first
                    self._cut(problem)
        return self(inputs)

    def _cut(self, problem: NotRecordable) -> None:
        target = problem.target
        if isinstance(target, torch._ops.OpOverload) and target._schema.name not in _with_rows():
            # Nothing of this op can be recorded, wherever else it stands.
            self._eager |= {node.name for node in self.gm.graph.nodes if node.target is target}
        self._eager.add(problem.node)
        warnings.warn(
            f"{self.name} is cut around an op that cannot be part of a program and runs by itself: {problem}",
            stacklevel=3,
        )
        log.info("%s: cut around %s", self.name, problem)
        self._cuts.append(str(problem))
        self._run = self._plan()

    def _plan(self) -> Callable[[list], list]:
        levels = _levels(self.gm.graph, self._eager)
        placeholders = self.gm.graph.find_nodes(op="placeholder")
        if set(levels.values()) == {1} and all(p.users for p in placeholders) and not _device_attributes(self.gm):
            return _program(self.gm, self.name)
        return _Pieces(self.gm, levels, self.name)


def _program(gm: fx.GraphModule, name: str) -> Callable[[list], list]:
    return _C.Graph(name, len(gm.graph.find_nodes(op="placeholder")), _Recorder(gm, name))


class _Recorder(fx.Interpreter):
    """Runs a graph's ops inside a recording."""

    def __init__(self, gm: fx.GraphModule, name: str) -> None:
        super().__init__(gm)
        self.extra_traceback = False
        self.name = name

    def __call__(self, inputs: list) -> list:
        log.info("%s: recorded for %s", self.name, [_describe(x) for x in inputs])
        with _disable_current_modes(), torch._C._DisableAutocast(), torch.no_grad():
            outputs = super().run(*inputs, enable_io_processing=False)
        self.env.clear()
        return list(outputs)

    def run_node(self, n: fx.Node) -> Any:
        try:
            return super().run_node(n)
        except Exception as error:
            self.env.clear()
            raise NotRecordable(n, error) from error


def _describe(x: Any) -> str:
    return f"{x.dtype}{list(x.shape)}" if isinstance(x, torch.Tensor) else repr(x)


class _Pieces:
    """The graph in levels: even ones run on the host op by op, odd ones as a program."""

    def __init__(self, gm: fx.GraphModule, levels: dict[fx.Node, int], name: str) -> None:
        self._inputs = [node.name for node in gm.graph.find_nodes(op="placeholder")]
        self._attributes = _device_attributes(gm)
        output = gm.graph.output_node()
        self._outputs = [x.name if isinstance(x, fx.Node) else _Literal(x) for x in output.args[0]]
        self._pieces = []
        for level in sorted(set(levels.values())):
            inside = [node for node in gm.graph.nodes if levels.get(node) == level]
            piece, takes, gives = _extract(gm, inside, self._attributes)
            run = CompiledGraph(piece, f"{name}.{level // 2}", is_piece=True) if level % 2 else _host(piece)
            self._pieces.append((run, takes, gives))
        self._drops = self._last_uses()

    def compiled(self) -> list[CompiledGraph]:
        return [run for run, _, _ in self._pieces if isinstance(run, CompiledGraph)]

    def _last_uses(self) -> list[list[str]]:
        """For each piece the values that nothing needs after it."""
        needed = {name for name in self._outputs if isinstance(name, str)}
        drops = []
        for _, takes, gives in reversed(self._pieces):
            drops.append([name for name in {*takes, *gives} if name not in needed])
            needed |= {*takes}
        return drops[::-1]

    def __call__(self, inputs: list) -> list:
        values = dict(zip(self._inputs, inputs, strict=True))
        inputs.clear()
        values |= self._attributes
        for (run, takes, gives), drops in zip(self._pieces, self._drops, strict=True):
            results = run([values[name] for name in takes])
            values.update(zip(gives, results, strict=True))
            for name in drops:
                values.pop(name, None)
        return [x.value if isinstance(x, _Literal) else values[x] for x in self._outputs]


class _Literal:
    def __init__(self, value: Any) -> None:
        self.value = value


def _host(gm: fx.GraphModule) -> Callable[[list], list]:
    def run(inputs: list) -> list:
        with torch._C._DisableAutocast(), torch.no_grad():
            return list(gm.forward(*inputs))

    return run


def _extract(
    gm: fx.GraphModule, nodes: list[fx.Node], attributes: dict[str, torch.Tensor]
) -> tuple[fx.GraphModule, list[str], list[str]]:
    """The part of a graph that `nodes` are, with the names of the values that it takes and gives."""
    inside = set(nodes)
    graph = fx.Graph()
    copies: dict[fx.Node, fx.Node] = {}
    takes: list[str] = []
    for node in nodes:
        for source in node.all_input_nodes:
            if source in inside or source in copies:
                continue
            if source.op == "get_attr" and source.name not in attributes:
                continue
            copies[source] = graph.placeholder(source.name)
            copies[source].meta = dict(source.meta)
            takes.append(source.name)
    for node in nodes:
        for source in node.all_input_nodes:
            if source not in inside and source not in copies:
                copies[source] = graph.node_copy(source)
        copies[node] = graph.node_copy(node, lambda n: copies[n])
    gives = [node for node in nodes if any(user not in inside for user in node.users)]
    graph.output(tuple(copies[node] for node in gives))
    return fx.GraphModule(gm, graph), takes, [node.name for node in gives]


def _device_attributes(gm: fx.GraphModule) -> dict[str, torch.Tensor]:
    """The tensors on the device that are attributes of the graph: inputs like others, so that they are not copied and
    a change of theirs is seen."""
    return {
        node.name: value
        for node in gm.graph.find_nodes(op="get_attr")
        if isinstance(value := operator.attrgetter(node.target)(gm), torch.Tensor) and value.device.type == "tpu"
    }


def _levels(graph: fx.Graph, eager: set[str]) -> dict[fx.Node, int]:
    """For each node that computes something, which piece it belongs to.

    A node comes after what it needs; odd levels are programs, even ones the host's. Draws of random numbers keep their
    order, and what is written to an input is written after everything else was read.
    """
    constants = _constants(graph)
    level: dict[fx.Node, int] = {}
    last_draw = 0

    def at_least(lowest: int, is_host: bool) -> int:
        return lowest if lowest % 2 != is_host else lowest + 1

    for node in graph.nodes:
        if node.op in ("placeholder", "get_attr", "output"):
            continue
        needs = max((level.get(source, 0) for source in node.all_input_nodes), default=0)
        if node.target is operator.getitem and node.args[0] in level:
            level[node] = level[node.args[0]]
            continue
        is_host = node.name in eager or _is_host_work(node, constants)
        tags = getattr(node.target, "tags", ())
        if torch.Tag.nondeterministic_seeded in tags:
            needs = max(needs, last_draw)
        if _writes(node):
            needs = max(level.values(), default=0)
        level[node] = at_least(needs, is_host)
        if torch.Tag.nondeterministic_seeded in tags:
            last_draw = level[node]
    return level


def _writes(node: fx.Node) -> bool:
    return isinstance(node.target, torch._ops.OpOverload) and node.target._schema.is_mutable


def _constants(graph: fx.Graph) -> set[fx.Node]:
    """CPU tensors that are the same in each call and that only programs use: they become constants of those."""
    constants: set[fx.Node] = set()
    for node in graph.nodes:
        if node.op == "get_attr" and isinstance(node.meta.get("val"), torch.Tensor | None):
            constants.add(node)
        elif node.op == "call_function" and isinstance(node.target, torch._ops.OpOverload):
            tags = node.target.tags
            if (
                not _writes(node)
                and torch.Tag.nondeterministic_seeded not in tags
                and _is_on_cpu(node)
                and all(source in constants for source in node.all_input_nodes)
            ):
                constants.add(node)
    for node in reversed(list(graph.nodes)):
        if node in constants and node.op != "get_attr" and any(_is_hosts(user, constants) for user in node.users):
            constants.discard(node)
    return constants


def _is_hosts(node: fx.Node, constants: set[fx.Node]) -> bool:
    return node.op == "output" or _is_host_work(node, constants)


def _is_host_work(node: fx.Node, constants: set[fx.Node]) -> bool:
    """Whether the host has to run the node itself: it computes on the CPU, or moves data to or from it."""
    if node in constants:
        return False
    if not isinstance(node.target, torch._ops.OpOverload):
        # Arithmetic with sizes is the recording's own business. Higher-order ops decide by data.
        return isinstance(node.target, torch._ops.HigherOrderOperator)
    if any(isinstance(v, torch.Generator) for source in node.all_input_nodes for v in _values(source)):
        return True
    if _is_on_cpu(node) or node.target is aten._local_scalar_dense.default:
        return True
    for source in node.all_input_nodes:
        if source in constants:
            continue
        for value in _tensors(source):
            if value.device.type == "tpu":
                continue
            # A number in a tensor is a run-time operand of pointwise ops; others look at it on the host.
            if value.dim() != 0 or torch.Tag.pointwise not in node.target.tags:
                return True
    return False


def _is_on_cpu(node: fx.Node) -> bool:
    return any(value.device.type != "tpu" for value in _tensors(node))


def _values(node: fx.Node) -> Iterable[Any]:
    value = node.meta.get("val")
    return value if isinstance(value, list | tuple) else (value,)


def _tensors(node: fx.Node) -> Iterator[torch.Tensor]:
    return (value for value in _values(node) if isinstance(value, torch.Tensor))
