"""How eager ops run, and how exact matrix products are."""

import contextlib
import enum
from collections.abc import Iterator

import torch

from torch_tpu import _C


class EagerMode(enum.Enum):
    """How eager ops run."""

    DEFER_NEVER = "asynchronous"
    """Each op is started at once, and nobody waits for it. The default."""
    DEFER_NEVER_AND_LAUNCH_BLOCKING = "blocking"
    """Debug mode: each op waits for its results, so that an error is raised by the call that made it, with its Python
    line, and :func:`torch.tpu.memory_snapshot` knows lines. ``TORCH_TPU_LAUNCH_BLOCKING=1`` starts in this mode."""
    DEFER_AND_FUSE = "fused"
    """Accepted for programs that ask for it; ops run as with DEFER_NEVER, and so give the same values."""


_mode = EagerMode.DEFER_NEVER


def get_eager_mode() -> EagerMode:
    """The mode of this process; also ``torch.tpu.eager_mode``."""
    if _C._launch_blocking():
        return EagerMode.DEFER_NEVER_AND_LAUNCH_BLOCKING
    return _mode


def _enter(mode: EagerMode) -> None:
    global _mode
    blocks = mode is EagerMode.DEFER_NEVER_AND_LAUNCH_BLOCKING
    if blocks:
        torch.accelerator.synchronize()
    else:
        _mode = mode
    _C._set_launch_blocking(blocks)


class set_eager_mode(contextlib.ContextDecorator):
    """Context manager and decorator: ops run in a mode, in all threads of the process.

    Raises:
        TypeError: the mode is no :class:`EagerMode`.
    """

    def __init__(self, mode: EagerMode) -> None:
        if not isinstance(mode, EagerMode):
            raise TypeError(f"set_eager_mode: expected a torch.tpu.EagerMode, but got {mode!r}.")
        self.mode = mode

    def __enter__(self) -> None:
        self._outside = get_eager_mode()
        _enter(self.mode)

    def __exit__(self, *exc: object) -> None:
        _enter(self._outside)


_SYNC_DEBUG_MODES = ("default", "warn", "error")


def set_sync_debug_mode(debug_mode: int | str) -> None:
    """What a call does that waits for values of the device (``.item()``, ``.cpu()``, printing): "default" or 0
    nothing, "warn" or 1 warns, "error" or 2 raises RuntimeError. Of the process.

    Raises:
        ValueError: another mode.
    """
    if debug_mode in _SYNC_DEBUG_MODES:
        debug_mode = _SYNC_DEBUG_MODES.index(debug_mode)
    if debug_mode not in (0, 1, 2):
        raise ValueError(
            f"set_sync_debug_mode: expected one of 0, 1, 2, `default`, `warn`, `error`, but got {debug_mode!r}."
        )
    _C._set_sync_debug_mode(debug_mode)


def get_sync_debug_mode() -> int:
    """What :func:`set_sync_debug_mode` set, as a number."""
    return _C._sync_debug_mode()


class Precision(enum.Enum):
    """How float32 matrix products are computed; the values are those of ``torch.set_float32_matmul_precision``."""

    DEFAULT = "medium"
    """One bfloat16 pass where the device is faster so."""
    HIGH = "high"
    """Three bfloat16 passes where the device is faster so."""
    HIGHEST = "highest"
    """float32. What torch starts with."""


@contextlib.contextmanager
def precision(value: Precision) -> Iterator[None]:
    """Context manager and decorator: the precision of float32 matrix products, process-wide as torch's own setting.

    Raises:
        TypeError: it is no :class:`Precision`.
    """
    if not isinstance(value, Precision):
        raise TypeError(f"precision: expected a torch.tpu.Precision, but got {value!r}.")
    outside = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision(value.value)
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(outside)
