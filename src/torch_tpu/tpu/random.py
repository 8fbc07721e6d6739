"""The device's random numbers: a function of (seed, offset, position), the same on every tpu device and plugin.

A state is a uint8 tensor of 16 bytes on the CPU: seed, then offset, each a 64-bit integer of the host's byte order.
Only asking for the current device starts it; an index does not.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import torch

from torch_tpu import _C
from torch_tpu.tpu._utils import existing_index


class _DefaultGenerators(Sequence[torch.Generator]):
    """The default generator of each device, made when it is asked for."""

    def __len__(self) -> int:
        return _C._device_count()

    def __getitem__(self, index: int) -> torch.Generator:
        if not 0 <= index < len(self):
            raise IndexError(f"No default generator for tpu:{index}: this process has {len(self)} device(s).")
        return _C._default_generator(index)

    def __iter__(self) -> Iterator[torch.Generator]:
        return (self[i] for i in range(len(self)))


default_generators = _DefaultGenerators()


def _get_generator(device: torch.device) -> torch.Generator:
    return _generator(device)


def _generator(device: Any) -> torch.Generator:
    return _C._default_generator(existing_index(device))


def get_rng_state(device: Any = "tpu") -> torch.Tensor:
    """The state of a device's default generator: a uint8 tensor of shape (16,) on the CPU."""
    return _generator(device).get_state()


def set_rng_state(new_state: torch.Tensor, device: Any = "tpu") -> None:
    """Gives a device's default generator a state that :func:`get_rng_state` returned.

    Raises:
        RuntimeError: it is not a uint8 tensor of 16 elements on the CPU, or the device does not exist.
    """
    _generator(device).set_state(new_state)


def get_rng_state_all() -> list[torch.Tensor]:
    """The states of all devices, as of :func:`get_rng_state`."""
    return [generator.get_state() for generator in default_generators]


def set_rng_state_all(new_states: Iterable[torch.Tensor]) -> None:
    """Gives each device its state, as of :func:`set_rng_state`."""
    for index, state in enumerate(new_states):
        set_rng_state(state, index)


def manual_seed(seed: int) -> None:
    """Seeds the current device. ``torch.manual_seed`` seeds the CPU and every device."""
    _generator(None).manual_seed(int(seed))


def manual_seed_all(seed: int) -> None:
    """Seeds every device."""
    for generator in default_generators:
        generator.manual_seed(int(seed))


def seed() -> None:
    """Seeds the current device with a number from the operating system."""
    _generator(None).seed()


def seed_all() -> None:
    """Seeds every device with one number from the operating system."""
    manual_seed_all(torch.Generator().seed())


def initial_seed() -> int:
    """The seed of the current device's default generator."""
    return _generator(None).initial_seed()
