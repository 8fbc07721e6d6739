"""``torch.tpu``: the device module, with the names that ``torch.cuda`` has.

Devices, streams and memory go through ``torch.accelerator``: most names here are its functions, so that
``torch.compile`` knows them. Wherever a device is an argument, None means the current one.
"""

import sys
import types

import torch

from torch_tpu.tpu import _streams as streams
from torch_tpu.tpu import _utils, amp, memory, random
from torch_tpu.tpu._device import (
    _is_in_bad_fork,
    _lazy_init,
    can_device_access_peer,
    counters,
    current_device,
    device,
    device_count,
    device_of,
    get_amp_supported_dtype,
    get_device_capability,
    get_device_name,
    get_device_properties,
    init,
    ipc_collect,
    is_available,
    is_bf16_supported,
    is_current_stream_capturing,
    is_initialized,
    is_tf32_supported,
    reset_counters,
    set_device,
    synchronize,
)
from torch_tpu.tpu._modes import (
    EagerMode,
    Precision,
    get_eager_mode,
    get_sync_debug_mode,
    precision,
    set_eager_mode,
    set_sync_debug_mode,
)
from torch_tpu.tpu._streams import Event, Stream, StreamContext, current_stream, default_stream, set_stream, stream
from torch_tpu.tpu.memory import (
    device_memory_used,
    empty_cache,
    get_allocator_backend,
    get_per_process_memory_fraction,
    max_memory_allocated,
    max_memory_cached,
    max_memory_reserved,
    mem_get_info,
    memory_allocated,
    memory_cached,
    memory_reserved,
    memory_snapshot,
    memory_stats,
    memory_stats_as_nested_dict,
    memory_summary,
    reset_accumulated_memory_stats,
    reset_max_memory_allocated,
    reset_max_memory_cached,
    reset_peak_memory_stats,
    set_per_process_memory_fraction,
)
from torch_tpu.tpu.random import (
    _get_generator,
    default_generators,
    get_rng_state,
    get_rng_state_all,
    initial_seed,
    manual_seed,
    manual_seed_all,
    seed,
    seed_all,
    set_rng_state,
    set_rng_state_all,
)

OutOfMemoryError = torch.OutOfMemoryError
has_half = True
"""Every TPU stores float16."""


class _Module(types.ModuleType):
    """A module with properties."""

    @property
    def _initialized(self) -> bool:
        # torch.utils.checkpoint asks for it before it saves the generator's state.
        return is_initialized()

    @property
    def eager_mode(self) -> EagerMode:
        """How eager ops run."""
        return get_eager_mode()

    @eager_mode.setter
    def eager_mode(self, mode: EagerMode) -> None:
        set_eager_mode(mode).__enter__()


sys.modules[__name__].__class__ = _Module
del sys, torch, types
