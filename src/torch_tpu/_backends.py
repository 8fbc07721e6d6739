"""``torch.backends.tpu``: what the backend is, and settings that hold for the process."""

import sys
import types

import torch

from torch_tpu import _C, _plugin


def is_built() -> bool:
    """True: the backend is installed."""
    return True


def is_available() -> bool:
    """Whether a PJRT plugin can be found to run on. Starts no device."""
    return _plugin.is_present()


def version() -> str:
    """Name and version of the PJRT plugin's platform, as it states them. Starts the device."""
    _C._init()
    info = _C._platform_info()
    name, version = info["platform"], info["platform_version"]
    return version if version.startswith(name) else f"{name} {version}"


class _Module(types.ModuleType):
    """A module with properties, as torch.backends has them."""

    is_built = staticmethod(is_built)
    is_available = staticmethod(is_available)
    version = staticmethod(version)

    @property
    def float32_matmul_precision(self) -> str:
        """``torch.get_float32_matmul_precision()``: "highest" multiplies in float32, "high" and "medium" use
        bfloat16 passes where the device is faster so. The default is torch's, "highest"."""
        return torch.get_float32_matmul_precision()

    @float32_matmul_precision.setter
    def float32_matmul_precision(self, precision: str) -> None:
        torch.set_float32_matmul_precision(precision)


module = _Module("torch.backends.tpu", sys.modules[__name__].__doc__)
