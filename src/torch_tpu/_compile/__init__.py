"""``torch.compile`` for the device (docs/compile.md). Importing this costs nothing: Dynamo is big."""

from typing import Any


def tpu(gm: Any, example_inputs: Any, *, mode: str | None = None, options: dict[str, Any] | None = None) -> Any:
    """The Dynamo backend "tpu"; see :func:`torch_tpu._compile.backend.tpu`."""
    from torch_tpu._compile import backend

    return backend.tpu(gm, example_inputs, mode=mode, options=options)
