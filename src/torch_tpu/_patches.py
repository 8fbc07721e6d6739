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
    _default_process_group()
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


def _default_process_group() -> None:
    """A group made without naming a backend has the default backend GLOO for torch, also where "tpu" is its only one:
    DDP then asks for a backend that is not there."""
    if not torch.distributed.is_available():
        return
    from torch.distributed import distributed_c10d

    make = distributed_c10d._new_process_group_helper

    @functools.wraps(make)
    def make_and_name(*args: Any, **kwargs: Any) -> Any:
        group, store = make(*args, **kwargs)
        if isinstance(group, distributed_c10d.ProcessGroup) and group._device_types == [torch.device("tpu")]:
            group._set_default_backend(distributed_c10d.ProcessGroup.BackendType.CUSTOM)
        return group, store

    distributed_c10d._new_process_group_helper = make_and_name
