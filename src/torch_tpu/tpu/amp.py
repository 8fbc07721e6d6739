"""``torch.amp`` with this device filled in: the names of ``torch.cuda.amp``."""

import functools
from typing import Any

import torch


class autocast(torch.amp.autocast_mode.autocast):
    """``torch.autocast("tpu", ...)``. The default dtype is bfloat16."""

    def __init__(self, enabled: bool = True, dtype: torch.dtype = torch.bfloat16, cache_enabled: bool = True) -> None:
        super().__init__("tpu", enabled=enabled, dtype=dtype, cache_enabled=cache_enabled)


class GradScaler(torch.amp.GradScaler):
    """``torch.amp.GradScaler("tpu", ...)``. bfloat16 needs none: it has the range of float32."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__("tpu", *args, **options)


def amp_definitely_not_available() -> bool:
    """False where a device can be found."""
    return not torch.tpu.is_available()


custom_fwd = functools.partial(torch.amp.custom_fwd, device_type="tpu")
custom_bwd = functools.partial(torch.amp.custom_bwd, device_type="tpu")
