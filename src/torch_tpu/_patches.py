"""All places where torch and other packages are changed, because they have no hook there. Each says why. Nothing else
in the package changes them."""

import functools
import sys
import types
from collections.abc import Callable
from typing import Any

import torch

from torch_tpu._compile import tpu
from torch_tpu._imports import when_imported

_CPU = (1, 0)  # kDLCPU
_EXTERNAL = 12  # kDLExtDev


def apply() -> None:
    """Makes the changes, each when the module concerned is there."""
    _route_compile()
    _default_process_group()
    when_imported("torch._dynamo.backends.registry", _register_backend)
    _dlpack()
    _sharing_between_processes()
    _optimizer_steps()
    when_imported("safetensors", _safetensors)


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


def _dlpack() -> None:
    """Tensor.__dlpack_device__ knows a device by the name "privateuse1" only, which no registered device has, and takes
    all pinned memory for CUDA's, while ours is ordinary; and Tensor.__dlpack__ and torch.from_dlpack copy between
    devices, where host and device memory may be the same."""
    from torch.utils import dlpack

    device_of, capsule_of, from_dlpack = torch.Tensor.__dlpack_device__, torch.Tensor.__dlpack__, dlpack.from_dlpack

    def is_ours(x: Any) -> bool:
        return (
            isinstance(x, torch.Tensor) and x.device.type == "tpu" and not torch.overrides.has_torch_function_unary(x)
        )

    def __dlpack_device__(self):
        if is_ours(self):
            return dlpack.DLDeviceType.kDLExtDev, self.device.index
        if self.device.type == "cpu" and not torch.overrides.has_torch_function_unary(self):
            return dlpack.DLDeviceType.kDLCPU, 0
        return device_of(self)

    def __dlpack__(self, *, stream=-1, max_version=None, dl_device=None, copy=None):
        shareable = is_ours(self) and not (self.requires_grad or self.is_conj())
        if shareable and dl_device is not None and tuple(dl_device) == _CPU:
            return _capsule_for_the_host(self, max_version, copy)
        return capsule_of(self, stream=stream, max_version=max_version, dl_device=dl_device, copy=copy)

    def from_dlpack_(ext_tensor, *, device=None, copy=None):
        if copy is False and device is not None:
            target = torch.device(device)
            source = ext_tensor.__dlpack_device__()
            if is_ours(ext_tensor) and target.type == "cpu":
                return _without_copy(lambda: _C()._host_view(ext_tensor.detach()))
            if target.type == "tpu" and tuple(source) == _CPU:
                host = from_dlpack(ext_tensor, copy=False)
                return _without_copy(lambda: _C()._over_host_memory(host, -1 if target.index is None else target.index))
            if target.type == "tpu" and source[0] == _EXTERNAL and target.index in (None, source[1]):
                device = None  # torch compares the indices, and None is none
        return from_dlpack(ext_tensor, device=device, copy=copy)

    for new, old in ((__dlpack_device__, device_of), (__dlpack__, capsule_of), (from_dlpack_, from_dlpack)):
        new.__name__, new.__qualname__, new.__doc__ = old.__name__, old.__qualname__, old.__doc__
    torch.Tensor.__dlpack_device__ = __dlpack_device__
    torch.Tensor.__dlpack__ = __dlpack__
    torch.from_dlpack = dlpack.from_dlpack = from_dlpack_


def _capsule_for_the_host(t: torch.Tensor, max_version: tuple[int, int] | None, copy: bool | None) -> Any:
    """A DLPack capsule of t that the host can read, as the array API's ``__dlpack__(dl_device=(kDLCPU, 0))`` has it.

    Shared where memory and version allow: the capsule is read-only, which only DLPack 1.0 can say.
    """
    can_say_read_only = max_version is not None and tuple(max_version) >= (1, 0)
    if copy is not True and can_say_read_only and not t.is_neg():
        try:
            return _C()._read_only_capsule(_C()._host_view(t))
        except NotImplementedError as error:
            if copy is False:
                raise BufferError(str(error).split("\n")[0]) from None
    if copy is False:
        raise BufferError(
            f"Memory of {t.device} is shared read-only, which DLPack before 1.0 cannot say, and not with the negative "
            "bit set: ask for max_version=(1, 0), or call resolve_neg() first."
        )
    return t.cpu().__dlpack__(max_version=max_version)


def _without_copy(share: Callable[[], torch.Tensor]) -> torch.Tensor:
    try:
        return share()
    except NotImplementedError as error:
        raise ValueError(f"{str(error).splitlines()[0]}, or set copy=None.") from None


def _C() -> types.ModuleType:
    from torch_tpu import _C

    return _C


def _sharing_between_processes() -> None:
    """torch.multiprocessing takes every device for one whose storages lie in shared memory of the host."""
    from multiprocessing.reduction import ForkingPickler

    from torch.multiprocessing import reductions

    def refuse_ours(reduce: Callable[[Any], Any]) -> Callable[[Any], Any]:
        def reduce_unless_ours(shared: Any) -> Any:
            if shared.device.type == "tpu":
                raise RuntimeError(
                    f"A {type(shared).__name__} on {shared.device} cannot be sent to another process, which cannot "
                    "reach the device's memory: send .cpu() and move it to the device there."
                )
            return reduce(shared)

        return reduce_unless_ours

    for cls in (torch.Tensor, torch.nn.Parameter):
        ForkingPickler.register(cls, refuse_ours(reductions.reduce_tensor))
    ForkingPickler.register(torch.UntypedStorage, refuse_ours(reductions.reduce_storage))


def _optimizer_steps() -> None:
    """Optimizers count their steps on the CPU unless they are fused or capturable, since reading a count would wait
    for the device. A checkpoint that was loaded to the device has them there, and load_state_dict would keep that."""
    original = torch.optim.Optimizer._process_value_according_to_param_policy

    def process_value(param, value, param_id, param_groups, key=None):
        group = next((g for g in param_groups or () if param_id in g["params"]), {})
        on_host = key == "step" and not (group.get("fused") or group.get("capturable"))
        if on_host and value.device.type == "tpu":
            value = value.cpu()
        return original(param, value, param_id, param_groups, key)

    torch.optim.Optimizer._process_value_according_to_param_policy = staticmethod(process_value)


def _safetensors(safetensors: types.ModuleType) -> None:
    """safe_open has a list of device names, without ours; an index is of torch's current accelerator."""
    original = safetensors.safe_open

    def safe_open(filename, framework, device="cpu", **options):
        if isinstance(device, (str, torch.device)) and str(device).partition(":")[0] == "tpu":
            device = torch.tpu._utils._get_device_index(device, optional=True)
        return original(filename, framework, device=device, **options)

    safe_open.__doc__ = original.__doc__
    safetensors.safe_open = safe_open
    if (module := sys.modules.get("safetensors.torch")) is not None:
        module.safe_open = safe_open
