"""Makes the device "tpu" known to torch: ``import torch`` calls it, by the entry point group ``torch.backends``."""

import atexit
import importlib.metadata
import os
import sys
import threading
import time
import warnings

import torch

_done = False
_problem: str | None = None


def load() -> None:
    """Registers the device, once in a process; later calls do nothing.

    Starts no device and no plugin: the first use of the device does. Where it cannot be registered, it warns
    in one sentence and leaves torch as it was; :func:`problem` has the sentence.
    """
    global _done, _problem
    if _done:
        return
    _done = True
    _problem = _load()
    if _problem is not None:
        warnings.warn(f"The tpu device is not available: {_problem}", RuntimeWarning, stacklevel=2)


def problem() -> str | None:
    """Why the device could not be registered, or None."""
    return _problem


def _load() -> str | None:
    try:
        from torch_tpu._build import TORCH_SERIES as built_for
    except ImportError as error:
        return _why_no_extension(error)
    series = ".".join(torch.__version__.split(".")[:2])
    if series != built_for:
        return (
            f"torchtpu is built for torch {built_for}, but torch {torch.__version__} is installed: "
            f"pip install 'torch=={built_for}.*', or the torchtpu release for torch {series}."
        )
    name = torch._C._get_privateuse1_backend_name()
    if name not in ("privateuseone", "tpu") or hasattr(torch, "tpu"):
        return f"another package has already registered the device {torch._C._get_privateuse1_backend_name()!r}."
    try:
        from torch_tpu import _C  # noqa: F401
    except ImportError as error:
        return _why_no_extension(error)
    _register()
    return None


def _register() -> None:
    from torch_tpu import _C, _backends, _distributed, _patches, _plugin

    if torch._C._get_privateuse1_backend_name() != "tpu":
        torch.utils.rename_privateuse1_backend("tpu")
    _C._set_plugin_resolver(_plugin.resolve)
    atexit.register(_shut_down)

    from torch_tpu import tpu

    torch._register_device_module("tpu", tpu)
    torch.utils.generate_methods_for_privateuse1_backend(for_storage=True)
    # The names under which torch's own device modules have their parts: torch.tpu.random and so on.
    for part in ("amp", "memory", "random", "streams"):
        sys.modules[f"torch.tpu.{part}"] = getattr(tpu, part)
    torch.backends.tpu = sys.modules["torch.backends.tpu"] = _backends.module
    _distributed.register()
    # Thread-local in torch: a new thread starts with float16 and names its dtype.
    torch.set_autocast_dtype("tpu", torch.bfloat16)
    # TORCH_LOGS=tpu tells what is recorded and where graphs are cut, TORCH_LOGS=+tpu the graphs as well.
    torch._logging._internal.register_log("tpu", "torch_tpu")
    _patches.apply()


def _shut_down() -> None:
    """Ends the work in flight while the interpreter and the plugin still stand."""
    from torch_tpu import _C

    if hasattr(_C, "_wait_for_completions"):  # of collectives
        _C._wait_for_completions()
    _C._shutdown()
    if threading.active_count() > 1:
        # A thread that just left the device waits for the interpreter: let it go on, to where it stops for good.
        time.sleep(0.05)


def _why_no_extension(error: ImportError) -> str:
    folder = os.path.dirname(os.path.abspath(__file__))
    if not any(name.startswith("_C.") and name.endswith(".so") for name in os.listdir(folder)):
        try:
            where = importlib.metadata.distribution("torchtpu").locate_file("torch_tpu")
        except importlib.metadata.PackageNotFoundError:
            where = None
        if where is None or os.path.samefile(folder, where):
            return f"{folder} has no compiled part: install the package (`make build` in its source tree)."
        return (
            f"Python found the source folder {folder} before the installed package {where}: "
            "start Python elsewhere or take that folder out of PYTHONPATH."
        )
    return f"its compiled part cannot be loaded, so it should be built again for torch {torch.__version__}: {error}."
