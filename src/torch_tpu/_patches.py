"""The places where torch is changed because it has no hook there. Nothing else in the package changes torch."""

import functools
import types
from typing import Any

import torch

from torch_tpu._compile import tpu
from torch_tpu._imports import when_imported


def apply() -> None:
    """Makes the changes, each when the module concerned is there."""
    _route_compile()
    when_imported("torch._dynamo.backends.registry", _register_backend)


def _route_compile() -> None:
    """Plain ``torch.compile(f)`` means Inductor, which compiles for "tpu" through Pallas and needs JAX. Graphs with
    tensors on the device go to the backend "tpu" instead; all others go on to Inductor as they came."""
    inductor = torch._TorchCompileInductorWrapper.__call__

    @functools.wraps(inductor)
    def call(self: Any, model_: Any, inputs_: Any, **more: Any) -> Any:
        from torch_tpu._compile import backend

        if backend.touches_device(model_, inputs_):
            return tpu(model_, inputs_)
        return inductor(self, model_, inputs_, **more)

    torch._TorchCompileInductorWrapper.__call__ = call


def _register_backend(registry: types.ModuleType) -> None:
    """Dynamo would find the backend by its entry point, but two threads that do so at once fail there."""
    if "tpu" not in registry._COMPILER_FNS:
        registry.register_backend(tpu, name="tpu")
