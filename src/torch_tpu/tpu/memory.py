"""Memory of the device, in bytes. The numbers are of this process, and of the logical sizes that XLA allocates.

PJRT allocates for each buffer and caches none, so what is reserved is what is allocated, and there is nothing for
``empty_cache`` to free.
"""

import warnings
from typing import Any

import torch

from torch_tpu import _C
from torch_tpu.tpu._utils import existing_index

empty_cache = torch.accelerator.empty_cache
memory_stats = torch.accelerator.memory_stats
memory_allocated = torch.accelerator.memory_allocated
max_memory_allocated = torch.accelerator.max_memory_allocated
memory_reserved = torch.accelerator.memory_reserved
max_memory_reserved = torch.accelerator.max_memory_reserved
reset_accumulated_memory_stats = torch.accelerator.reset_accumulated_memory_stats
reset_peak_memory_stats = torch.accelerator.reset_peak_memory_stats
mem_get_info = torch.accelerator.get_memory_info

_DTYPES = {
    "i1": torch.bool,
    "i8": torch.int8,
    "i16": torch.int16,
    "i32": torch.int32,
    "i64": torch.int64,
    "ui8": torch.uint8,
    "ui16": torch.uint16,
    "ui32": torch.uint32,
    "ui64": torch.uint64,
    "f16": torch.float16,
    "bf16": torch.bfloat16,
    "f32": torch.float32,
    "f64": torch.float64,
    "complex<f32>": torch.complex64,
    "complex<f64>": torch.complex128,
    "f8E4M3FN": torch.float8_e4m3fn,
    "f8E5M2": torch.float8_e5m2,
}


def memory_stats_as_nested_dict(device: Any = None) -> dict[str, Any]:
    """:func:`memory_stats` with a dict for each part of its names: ``["allocated_bytes"]["all"]["peak"]``."""
    nested: dict[str, Any] = {}
    for name, value in memory_stats(device).items():
        *parts, last = name.split(".")
        at = nested
        for part in parts:
            at = at.setdefault(part, {})
        at[last] = value
    return nested


def device_memory_used(device: Any = None) -> int:
    """Bytes of the device's memory that are in use, by any process. On the CPU plugin, of the host's."""
    free, total = mem_get_info(existing_index(device))
    return total - free


def set_per_process_memory_fraction(fraction: float, device: Any = None) -> None:
    """Limits what this process may use of a device's memory.

    What would go beyond raises ``torch.OutOfMemoryError``, after waiting for work in flight to give its memory back;
    1.0 takes the limit away. Counted are results and copies, not what a program needs while it runs.

    Args:
        fraction: of the device's total memory, from 0.0 to 1.0.

    Raises:
        TypeError: it is no float.
        ValueError: it is out of range.
    """
    if not isinstance(fraction, float):
        raise TypeError(f"set_per_process_memory_fraction: the fraction must be a float, but got {type(fraction)}.")
    _C._set_memory_fraction(fraction, existing_index(device))


def get_per_process_memory_fraction(device: Any = None) -> float:
    """What :func:`set_per_process_memory_fraction` set; 1.0 where nothing was."""
    return _C._memory_fraction(existing_index(device))


def memory_snapshot(device: Any = None) -> list[dict[str, Any]]:
    """Who holds what: one dict for each storage that has memory on the device, the biggest first.

    Keys: ``device`` (index), ``address`` (the storage's ``data_ptr()``), ``total_size`` (bytes of its buffer),
    ``dtype`` and ``shape`` of the buffer as XLA sees it, ``producer`` (the ATen op that computed it, or "a copy from
    the CPU"), ``frames`` (in debug mode, see :func:`torch.tpu.set_eager_mode`: one dict of ``filename``, ``line`` and
    ``name``, the call that did), ``shared_with`` (how many other storages hold the same buffer). ``segment_type``,
    ``allocated_size``, ``active_size`` and ``blocks`` are there for readers of ``torch.cuda.memory_snapshot``: a
    buffer is a segment with one block. The device is not waited for.
    """
    index = existing_index(device)
    held = [b for b in _C._held_buffers() if b["device"] == index]
    owners: dict[int, int] = {}
    for b in held:
        owners[b["buffer"]] = owners.get(b["buffer"], 0) + 1
    return [
        _segment(b, owners[b["buffer"]] - 1) for b in sorted(held, key=lambda b: (-b["buffer_bytes"], b["address"]))
    ]


def _segment(held: dict[str, Any], shared_with: int) -> dict[str, Any]:
    size, frames = held["buffer_bytes"], []
    if held["line"]:
        place, _, name = held["line"].partition(" in ")
        file, _, line = place.rpartition(":")
        frames = [{"filename": file, "line": int(line), "name": name} if line.isdigit() else {"name": held["line"]}]
    block = {"size": size, "requested_size": size, "address": held["address"], "state": "active_allocated"}
    return {
        "device": held["device"],
        "address": held["address"],
        "total_size": size,
        "allocated_size": size,
        "active_size": size,
        "segment_type": "large",
        "dtype": _DTYPES.get(held["dtype"], held["dtype"]),
        "shape": tuple(held["dims"]),
        "producer": held["producer"],
        "frames": frames,
        "shared_with": shared_with,
        "blocks": [{**block, "frames": frames}],
    }


def memory_summary(device: Any = None, abbreviated: bool = False) -> str:
    """A table of :func:`memory_stats` (current, peak and total of allocations and bytes) and, unless abbreviated, of
    the ten ops whose results hold the most."""
    stats = memory_stats(device)
    lines = [f"{'':24}{'current':>16}{'peak':>16}{'allocated':>16}{'freed':>16}"]
    for row in ("allocated_bytes", "active_bytes", "reserved_bytes", "allocation"):
        values = [stats.get(f"{row}.all.{column}") for column in ("current", "peak", "allocated", "freed")]
        if any(v is not None for v in values):
            lines.append(f"{row:24}" + "".join(f"{v or 0:>16,}" for v in values))
    if abbreviated:
        return "\n".join(lines)
    lines.append(f"retries {stats.get('num_alloc_retries', 0)}, out of memory {stats.get('num_ooms', 0)}")
    lines.append(f"{'held by results of':40}{'buffers':>16}{'bytes':>16}")
    for producer, buffers, size in holders(device)[:10]:
        lines.append(f"{producer:40}{buffers:>16,}{size:>16,}")
    return "\n".join(lines)


def holders(device: Any = None) -> list[tuple[str, int, int]]:
    """(producer, buffers, bytes) of the buffers that :func:`memory_snapshot` lists, the biggest first."""
    index = existing_index(device)
    buffers = {b["buffer"]: b for b in _C._held_buffers() if b["device"] == index}
    sums: dict[str, list[int]] = {}
    for b in buffers.values():
        total = sums.setdefault(b["producer"] or "other", [0, 0])
        total[0] += 1
        total[1] += b["buffer_bytes"]
    return sorted(((name, n, size) for name, (n, size) in sums.items()), key=lambda row: -row[2])


def get_allocator_backend() -> str:
    """ "pjrt": the PJRT plugin allocates."""
    return "pjrt"


def _deprecated(old: str, new: str) -> None:
    warnings.warn(f"torch.tpu.{old} is deprecated; use torch.tpu.{new}", FutureWarning, stacklevel=3)


def reset_max_memory_allocated(device: Any = None) -> None:
    """:func:`reset_peak_memory_stats`, deprecated as in ``torch.cuda``."""
    _deprecated("reset_max_memory_allocated", "reset_peak_memory_stats")
    reset_peak_memory_stats(device)


def reset_max_memory_cached(device: Any = None) -> None:
    """:func:`reset_peak_memory_stats`, deprecated as in ``torch.cuda``."""
    _deprecated("reset_max_memory_cached", "reset_peak_memory_stats")
    reset_peak_memory_stats(device)


def memory_cached(device: Any = None) -> int:
    """:func:`memory_reserved`, deprecated as in ``torch.cuda``."""
    _deprecated("memory_cached", "memory_reserved")
    return memory_reserved(device)


def max_memory_cached(device: Any = None) -> int:
    """:func:`max_memory_reserved`, deprecated as in ``torch.cuda``."""
    _deprecated("max_memory_cached", "max_memory_reserved")
    return max_memory_reserved(device)
