"""``torch.tpu``: the device module, with the names that ``torch.cuda`` has.

Devices, streams and memory go through ``torch.accelerator``: most names here are its functions, so that
``torch.compile`` knows them. Wherever a device is an argument, None means the current one.
"""

from torch_tpu.tpu import _utils, memory, random
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
    is_available,
    is_bf16_supported,
    is_initialized,
    reset_counters,
    set_device,
    synchronize,
)
from torch_tpu.tpu._streams import Event, Stream, StreamContext, current_stream, default_stream, set_stream, stream
from torch_tpu.tpu.memory import (
    empty_cache,
    max_memory_allocated,
    max_memory_reserved,
    mem_get_info,
    memory_allocated,
    memory_reserved,
    memory_stats,
    memory_summary,
    reset_accumulated_memory_stats,
    reset_peak_memory_stats,
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


def __getattr__(name: str) -> bool:
    if name == "_initialized":  # torch.utils.checkpoint asks for it before it saves the generator's state
        return is_initialized()
    raise AttributeError(f"module 'torch.tpu' has no attribute {name!r}")
