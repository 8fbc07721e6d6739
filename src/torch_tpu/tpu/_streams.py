"""Streams and events. They are torch's own classes, which take the current accelerator where no device is given."""

from typing import Any

import torch

from torch_tpu.tpu._utils import existing_index

Stream = torch.Stream
Event = torch.Event

current_stream = torch.accelerator.current_stream
set_stream = torch.accelerator.set_stream


def default_stream(device: Any = None) -> torch.Stream:
    """The stream that a device's work is on where no other was chosen."""
    index = existing_index(device)
    return torch.Stream(stream_id=0, device_index=index, device_type=torch._C._autograd.DeviceType.PrivateUse1.value)


class StreamContext:
    """What :func:`stream` returns."""

    def __init__(self, stream: torch.Stream | None) -> None:
        self.stream = stream

    def __enter__(self) -> torch.Stream | None:
        return self.stream and self.stream.__enter__()

    def __exit__(self, *exc: object) -> None:
        if self.stream is not None:
            self.stream.__exit__(*exc)


def stream(stream: torch.Stream | None) -> StreamContext:
    """Context manager: what is enqueued inside it goes to that stream. None changes nothing."""
    return StreamContext(stream)
