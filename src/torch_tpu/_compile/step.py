"""A whole training step as one program: model, loss, backward, clipping and optimizer."""

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.utils._pytree import TreeSpec, tree_flatten, tree_map_only, tree_unflatten

from torch_tpu import _C


def compile_step(step: Callable[..., Any], *optimizers: torch.optim.Optimizer) -> Callable[..., Any]:
    """Compiles a training step on the device to one program.

    The first call runs ``step`` as it is. A call with inputs of a new kind (dtypes, sizes, other arguments, settings of
    the optimizers) records what the step does on the device, whatever that is: forward, ``backward()``, clipping,
    ``optimizer.step()``. Other calls run that record, in which parameters, buffers, gradients that are kept and the
    optimizer's state are changed in place. Python does not run then: what the step does besides, counting or branching
    on its own variables, happens while it is recorded only.

    Args:
        step: takes and returns tensors on the device and anything else, in any nesting; what it returns is detached.
            It must read no values (``.item()``, ``.cpu()``, printing).
        optimizers: those that the step uses. Their learning rates become tensors, which a scheduler fills with the next
            value: call its ``step()`` outside of the compiled step. Where an optimizer has ``capturable``, it is set.

    After a step a parameter's ``grad`` is None, unless the step keeps gradients (``zero_grad(set_to_none=False)``).

    Raises:
        RuntimeError: what the step does cannot be one program. Nothing was changed; the message says why.
        TypeError: an argument that is neither a tensor on the device nor hashable.

    Example::

        def step(x, y):
            optimizer.zero_grad()
            loss = F.cross_entropy(model(x), y)
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            return loss

        step = torch_tpu.compile_step(step, optimizer)
        for x, y in batches:
            loss = step(x, y)
            scheduler.step()
    """
    return CompiledStep(step, optimizers)


class CompiledStep:
    """What :func:`compile_step` returns."""

    def __init__(self, step: Callable[..., Any], optimizers: tuple[torch.optim.Optimizer, ...]) -> None:
        self._step = step
        self._name = getattr(step, "__name__", type(step).__name__)
        self._optimizers = optimizers
        self._has_run = False
        self._records: dict[Any, _Record] = {}

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if not self._has_run:
            # Optimizers make their state at the first step.
            for optimizer in self._optimizers:
                _make_capturable(optimizer)
            result = self._step(*args, **kwargs)
            self._has_run = True
            return tree_map_only(torch.Tensor, torch.Tensor.detach, result)
        leaves, structure = tree_flatten((args, kwargs))
        tensors = [x for x in leaves if _is_on_device(x)]
        others = tuple(_OnDevice if _is_on_device(x) else x for x in leaves)
        if any(isinstance(x, torch.Tensor) for x in others):
            raise TypeError(
                f"{self._name}: a compiled step takes tensors on the device only; move the others to it first."
            )
        key = (structure, others, tuple(_kind(t) for t in tensors), self._settings())
        record = self._records.get(key)
        if record is None:
            record = _Record(self._step, self._name, self._optimizers, others, structure, tensors)
            result = record(tensors)
            self._records[key] = record
            return result
        return record(tensors)

    def _settings(self) -> tuple:
        """What optimizers hold as Python values: constants of the program."""
        return tuple(
            (name, value)
            for optimizer in self._optimizers
            for group in optimizer.param_groups
            for name, value in group.items()
            if name not in ("params", "initial_lr", "param_names") and not isinstance(value, torch.Tensor)
        )


class _OnDevice:
    """Stands for a tensor among the arguments."""


class _Record:
    """The program of one kind of arguments."""

    def __init__(
        self,
        step: Callable[..., Any],
        name: str,
        optimizers: tuple[torch.optim.Optimizer, ...],
        others: tuple,
        structure: TreeSpec,
        tensors: list[torch.Tensor],
    ) -> None:
        self._step, self._name, self._optimizers = step, name, optimizers
        self._others, self._structure = others, structure
        self._result: tuple[list, TreeSpec] | None = None
        probe = _C.Graph(name, len(tensors), self._run, is_step=True)
        self._state = self._recording(probe.outside, tensors)
        self._graph = _C.Graph(name, len(tensors) + len(self._state), self._run, is_step=True)

    def __call__(self, tensors: list[torch.Tensor]) -> Any:
        results = self._recording(self._graph, [*tensors, *self._state])
        leaves, structure = self._result
        results = iter(results)
        return tree_unflatten([next(results) if x is _OnDevice else x for x in leaves], structure)

    def _recording(self, graph: Callable[[list], list], tensors: list[torch.Tensor]) -> list:
        if self._result is not None:
            return graph(list(tensors))
        try:
            return graph(list(tensors))
        except RuntimeError as error:
            raise RuntimeError(
                f"{self._name} cannot be one program: {error}\n"
                "A compiled step must not read values or leave the device; move such work out of it."
            ) from error

    def _run(self, tensors: list[torch.Tensor]) -> list[torch.Tensor]:
        """The step itself, inside a recording."""
        given = iter(tensors)
        args, kwargs = tree_unflatten([next(given) if x is _OnDevice else x for x in self._others], self._structure)
        gradients = [(p, p.grad) for p in self._parameters()]
        rates = [(rate, rate._version) for rate in self._rates()]
        try:
            # Backward in this thread, where the recording is; optimizers keep their numbers in tensors.
            with torch.autograd.set_multithreading_enabled(False), _compiling():
                result = self._step(*args, **kwargs)
        finally:
            for p, before in gradients:
                if p.grad is not before:
                    p.grad = None
        if any(rate._version != version for rate, version in rates):
            raise RuntimeError("it changes a learning rate: call the scheduler's step() outside")
        leaves, structure = tree_flatten(result)
        self._result = [_OnDevice if isinstance(x, torch.Tensor) else x for x in leaves], structure
        return [x for x in leaves if isinstance(x, torch.Tensor)]

    def _parameters(self) -> Iterator[torch.Tensor]:
        return (p for optimizer in self._optimizers for group in optimizer.param_groups for p in group["params"])

    def _rates(self) -> Iterator[torch.Tensor]:
        rates = (group["lr"] for optimizer in self._optimizers for group in optimizer.param_groups)
        return (rate for rate in rates if isinstance(rate, torch.Tensor))


class _compiling:
    """torch.compiler.is_compiling() is true inside."""

    def __enter__(self) -> None:
        self._before = torch.compiler._is_compiling_flag
        torch.compiler._is_compiling_flag = True

    def __exit__(self, *exc: object) -> None:
        torch.compiler._is_compiling_flag = self._before


def _make_capturable(optimizer: torch.optim.Optimizer) -> None:
    """Lets an optimizer keep on the device what changes from step to step."""
    for group in optimizer.param_groups:
        device = group["params"][0].device
        if "capturable" in group:
            group["capturable"] = True
        if "lr" in group:
            group["lr"] = torch.as_tensor(group["lr"], dtype=torch.float32).to(device)
    for parameter, state in optimizer.state.items():
        if isinstance(state.get("step"), torch.Tensor):
            state["step"] = state["step"].to(parameter.device)


def _is_on_device(x: Any) -> bool:
    return isinstance(x, torch.Tensor) and x.device.type == "tpu"


def _kind(t: torch.Tensor) -> tuple:
    return t.dtype, t.shape, t.stride(), t.requires_grad
