"""Finds the PJRT plugin to run on, without importing or loading any: a path, libtpu, or the installed CPU plugin."""

import dataclasses
import glob
import importlib.util
import os
import pathlib

# Python packages that carry an XLA:CPU plugin, the preferred one first: module, file.
CPU_PLUGINS = (
    ("fastatomstruct_xla_cpu", "libpjrt_cpu.so"),
    ("lammps_jax_pjrt_cpu", "pjrt_c_api_cpu_plugin.so"),
    ("xla_plugins.xla_cpu_pjrt", "xla_cpu_pjrt.so"),
)
_GOOGLE = "0x1ae0"
# Google's network and storage devices have the same vendor; a PCI class starts with 0x02 and 0x01 for those.
_NOT_TPU_CLASSES = ("0x01", "0x02")


class PluginNotFound(RuntimeError):
    """No PJRT plugin can be used; the message says what to install."""


@dataclasses.dataclass(frozen=True)
class Plugin:
    """A PJRT plugin: its shared library, what it runs on ("cpu" or "tpu"), and how it was found."""

    path: str
    platform: str
    source: str
    options: dict[str, int | str] = dataclasses.field(default_factory=dict)


def resolve() -> tuple[str, str, dict[str, int | str]]:
    """(path, platform, client options) for the C++ core, which calls this once, at the first use of the device."""
    plugin = find()
    return plugin.path, plugin.platform, plugin.options


def is_present() -> bool:
    """Whether :func:`find` finds a plugin. Loads nothing and never raises."""
    try:
        find()
    except PluginNotFound:
        return False
    return True


def find() -> Plugin:
    """The plugin that this process runs on.

    ``TORCH_TPU_PLUGIN`` (the path of a shared library) decides if set. Else it is libtpu where the machine has a TPU,
    else the first installed package of :data:`CPU_PLUGINS`. Only local files are looked at.

    Raises:
        PluginNotFound: the path does not exist, a TPU is present but libtpu is not, or nothing is installed.
    """
    if path := os.environ.get("TORCH_TPU_PLUGIN"):
        return _explicit(path)
    if tpu_present():
        path = _packaged("libtpu", "libtpu.so")
        if path is None:
            raise PluginNotFound(
                "This machine has a TPU but the package libtpu is not installed: pip install 'torchtpu[tpu]' "
                "(or set TORCH_TPU_PLUGIN to the path of another PJRT plugin)."
            )
        return Plugin(path, "tpu", "package libtpu")
    for module, file in CPU_PLUGINS:
        if path := _packaged(module, file):
            return Plugin(path, "cpu", f"package {module}", _cpu_options())
    raise PluginNotFound(
        "No PJRT plugin is installed: pip install fastatomstruct-xla-cpu to run on the CPU, "
        "pip install 'torchtpu[tpu]' on a machine with a TPU, or set TORCH_TPU_PLUGIN to the path of a plugin."
    )


def tpu_present(sysfs: str = "/sys", dev: str = "/dev") -> bool:
    """Whether this machine has a TPU, told from its PCI devices (vendor 0x1ae0) and device files."""
    for device in pathlib.Path(sysfs, "bus/pci/devices").glob("*"):
        if _read(device / "vendor") == _GOOGLE and not _read(device / "class").startswith(_NOT_TPU_CLASSES):
            return True
    # Older drivers, also in containers that hide sysfs. Other accelerators have a folder /dev/accel/.
    return bool(glob.glob(f"{glob.escape(dev)}/accel[0-9]*"))


def _explicit(path: str) -> Plugin:
    path = os.path.abspath(os.path.expanduser(path))
    if not os.path.isfile(path):
        raise PluginNotFound(
            f"TORCH_TPU_PLUGIN names {path}, which is not a file: set it to the path of a PJRT plugin."
        )
    platform = "tpu" if "tpu" in os.path.basename(path) else "cpu"
    return Plugin(path, platform, "TORCH_TPU_PLUGIN", _cpu_options() if platform == "cpu" else {})


def _cpu_options() -> dict[str, int | str]:
    # Left alone, the plugins make one device for each core, or four.
    text = os.environ.get("TORCH_TPU_CPU_DEVICES", "1")
    if not text.isdecimal() or not 1 <= int(text) <= 64:
        raise PluginNotFound(f"TORCH_TPU_CPU_DEVICES is {text!r}: set it to a number of devices from 1 to 64.")
    return {"cpu_device_count": int(text)}


def _packaged(module: str, file: str) -> str | None:
    try:
        spec = importlib.util.find_spec(module)
    except ImportError:  # the parent of a dotted name is missing
        return None
    for folder in (spec and spec.submodule_search_locations) or ():
        path = os.path.join(folder, file)
        if os.path.isfile(path):
            return path
    return None


def _read(path: pathlib.Path) -> str:
    try:
        return path.read_text().strip()
    except OSError:
        return ""
