"""Which devices there are, which one is current, what they are, and what has been done on them."""

import dataclasses
from typing import Any

import torch

from torch_tpu import _C, _plugin
from torch_tpu.tpu._utils import _get_device_index, existing_index

# torch.compile traces these by identity, so they are torch's own.
current_device = torch.accelerator.current_device_index
synchronize = torch.accelerator.synchronize
get_device_capability = torch.accelerator.get_device_capability

# PJRT's name of a device -> the name that it is sold and known by (torchtitan looks its peak up by that one).
_KNOWN_AS = {"TPU v5 lite": "TPU v5e", "TPU v5": "TPU v5p", "TPU v6 lite": "TPU v6e", "TPU7x": "TPU v7x"}


def is_available() -> bool:
    """Whether a PJRT plugin can be found to run on. Starts no device and never raises."""
    return _plugin.is_present() and _C._device_count() > 0


def is_initialized() -> bool:
    """Whether this process has started the device."""
    return _C._is_initialized() and not _C._is_in_bad_fork()


def init() -> None:
    """Starts the device now instead of at its first use.

    Raises:
        RuntimeError: there is no plugin, it cannot be loaded, or this is the fork of a process that has started
            the device. The message says what to do.
    """
    _C._init()


def _lazy_init() -> None:
    """What torch calls before it makes anything on the device."""
    _C._init()


def _is_in_bad_fork() -> bool:
    """Whether this is the fork of a process that had started the device, where it cannot be used."""
    return _C._is_in_bad_fork()


def device_count() -> int:
    """The number of devices of this process; 0 where no plugin is found."""
    return _C._device_count() if _plugin.is_present() else 0


def set_device(device: Any) -> None:
    """Makes a device the current one. A negative index does nothing.

    Raises:
        RuntimeError: it does not exist.
    """
    if _get_device_index(device, optional=True) >= 0:
        torch.accelerator.set_device_index(existing_index(device))


class device:
    """Context manager: another current device inside it. A negative index or None changes nothing."""

    def __init__(self, device: Any) -> None:
        self.idx = -1 if device is None else _get_device_index(device, optional=True)
        self._outside = -1
        if self.idx >= 0:
            existing_index(self.idx)

    def __enter__(self) -> None:
        if self.idx >= 0:
            self._outside = torch._C._accelerator_exchangeDevice(self.idx)

    def __exit__(self, *exc: object) -> bool:
        if self.idx >= 0:
            torch._C._accelerator_maybeExchangeDevice(self._outside)
        return False


class device_of(device):
    """Context manager: the current device is the one of a tensor or storage. Nothing for one on another device type."""

    def __init__(self, obj: Any) -> None:
        super().__init__(obj.device.index if obj.device.type == "tpu" else None)


@dataclasses.dataclass(frozen=True)
class DeviceProperties:
    """What :func:`get_device_properties` returns."""

    name: str
    """As of :func:`get_device_name`."""
    kind: str
    """PJRT's name of the device, for example "TPU v5 lite" or "cpu"."""
    total_memory: int
    """Bytes of the device's own memory; on the CPU plugin, of the host's."""
    multi_processor_count: int = 1
    """Cores that one program runs on: a PJRT device is one core to its user."""
    major: int = 0
    minor: int = 0


def get_device_name(device: Any = None) -> str:
    """The device's name; it starts with "TPU". On the CPU plugin it is "TPU (on cpu)". Starts the device.

    Raises:
        RuntimeError: it does not exist.
    """
    return get_device_properties(device).name


def get_device_properties(device: Any = None) -> DeviceProperties:
    """Name, kind and memory of a device. Starts the device.

    Raises:
        RuntimeError: it does not exist.
    """
    _C._init()
    index = existing_index(device)
    kind = _C._platform_info()["devices"][index]["kind"]
    name = _KNOWN_AS.get(kind, kind)
    if not name.startswith("TPU"):
        name = f"TPU (on {name})"
    return DeviceProperties(name, kind, torch.accelerator.get_memory_info(index)[1])


def can_device_access_peer(device: Any, peer_device: Any) -> bool:
    """Whether a program of one device can read the memory of another: never, copies go through the runtime."""
    existing_index(device)
    existing_index(peer_device)
    return False


def is_tf32_supported() -> bool:
    """False: the format is NVIDIA's. ``torch.set_float32_matmul_precision`` chooses bfloat16 passes instead."""
    return False


def is_current_stream_capturing() -> bool:
    """False: nothing is captured; ``torch.compile`` makes one program of many ops."""
    return False


def ipc_collect() -> None:
    """Does nothing: device memory is not shared between processes."""


def is_bf16_supported(including_emulation: bool = True) -> bool:
    """True: every TPU computes in bfloat16, and XLA does so on the CPU."""
    return True


def get_amp_supported_dtype() -> list[torch.dtype]:
    """The dtypes that ``torch.autocast("tpu", dtype=...)`` takes. The default is bfloat16."""
    return [torch.bfloat16, torch.float16]


def counters() -> dict[str, Any]:
    """What this process has done on the device since it started, or since :func:`reset_counters`.

    Returns a dict. Counts: ``compiles``, ``memory_hits`` and ``disk_hits`` (programs found in the compile cache),
    ``executes``; ``compile_seconds``; ``bytes_to_device`` and ``bytes_to_host``; and ``fallbacks``, a dict of the
    ATen ops that ran on the CPU and how often.
    """
    return _C._counters()


def reset_counters() -> None:
    """Sets all of :func:`counters` to zero."""
    _C._reset_counters()
