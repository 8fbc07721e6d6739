"""What a device argument means."""

from typing import Any

import torch

from torch_tpu import _C


def _get_device_index(device: Any, optional: bool = False, allow_cpu: bool = False) -> int:
    """The index that a device argument names: an int, a ``torch.device``, a string, a ``torch.tpu.device`` or None.

    Args:
        optional: what has no index ("tpu", None) is the current device instead of an error.
        allow_cpu: a CPU device is -1 instead of an error.

    Raises:
        ValueError: another device type, or no index where one is needed.
    """
    if isinstance(device, str):
        device = torch.device(device)
    if isinstance(device, torch.device):
        if device.type == "cpu" and allow_cpu:
            return -1
        if device.type != "tpu":
            raise ValueError(f"Expected a tpu device, but got: {device}")
        device = device.index
    elif not isinstance(device, int) and device is not None:
        device = device.idx  # torch.tpu.device
    if device is None:
        if not optional:
            raise ValueError('Expected a tpu device with an index, as in "tpu:0", but got none.')
        return torch.accelerator.current_device_index()
    return device


def existing_index(device: Any) -> int:
    """:func:`_get_device_index` of a device that this process has.

    Raises:
        RuntimeError: there is no device of that index.
    """
    index = _get_device_index(device, optional=True)
    count = _C._device_count()
    if not 0 <= index < count:
        has = "one device, tpu:0" if count == 1 else f"{count} devices, tpu:0 to tpu:{count - 1}" if count else "no tpu"
        raise RuntimeError(f"The device tpu:{index} does not exist: this process has {has}.")
    return index
