"""Memory of the device, in bytes. The numbers are of this process, and of the logical sizes that XLA allocates."""

from typing import Any

import torch

empty_cache = torch.accelerator.empty_cache
memory_stats = torch.accelerator.memory_stats
memory_allocated = torch.accelerator.memory_allocated
max_memory_allocated = torch.accelerator.max_memory_allocated
memory_reserved = torch.accelerator.memory_reserved
max_memory_reserved = torch.accelerator.max_memory_reserved
reset_accumulated_memory_stats = torch.accelerator.reset_accumulated_memory_stats
reset_peak_memory_stats = torch.accelerator.reset_peak_memory_stats
mem_get_info = torch.accelerator.get_memory_info


def memory_summary(device: Any = None, abbreviated: bool = False) -> str:
    """A table of :func:`memory_stats`: current, peak and total of allocations and bytes."""
    stats = memory_stats(device)
    lines = [f"{'':24}{'current':>16}{'peak':>16}{'allocated':>16}{'freed':>16}"]
    for row in ("allocated_bytes", "active_bytes", "reserved_bytes", "allocation"):
        values = [stats.get(f"{row}.all.{column}") for column in ("current", "peak", "allocated", "freed")]
        if any(v is not None for v in values):
            lines.append(f"{row:24}" + "".join(f"{v or 0:>16,}" for v in values))
    if not abbreviated:
        lines.append(f"retries {stats.get('num_alloc_retries', 0)}, out of memory {stats.get('num_ooms', 0)}")
    return "\n".join(lines)
