"""Which PJRT plugin a process runs on."""

import os
import sys

import pytest

from torch_tpu import _plugin


@pytest.fixture(autouse=True)
def no_plugin_variable(monkeypatch):
    monkeypatch.delenv("TORCH_TPU_PLUGIN", raising=False)


def pci(tmp_path, vendor, pci_class):
    device = tmp_path / "sys/bus/pci/devices/0000:00:05.0"
    device.mkdir(parents=True)
    (device / "vendor").write_text(vendor + "\n")
    (device / "class").write_text(pci_class + "\n")
    return str(tmp_path / "sys")


def test_the_default_is_the_cpu_plugin_and_finding_it_imports_nothing():
    plugin = _plugin.find()
    assert plugin.platform == "cpu"
    assert os.path.isfile(plugin.path)
    assert "fastatomstruct_xla_cpu" in plugin.source
    assert "fastatomstruct_xla_cpu" not in sys.modules
    assert _plugin.resolve() == (plugin.path, "cpu", {"cpu_device_count": 1})


def test_another_cpu_plugin_is_found_where_the_first_is_not_installed(monkeypatch):
    monkeypatch.setattr(_plugin, "CPU_PLUGINS", (("absent_package", "x.so"), *_plugin.CPU_PLUGINS[2:]))
    assert _plugin.find().path.endswith("xla_cpu_pjrt.so")


def test_without_any_plugin_the_error_says_what_to_install(monkeypatch):
    monkeypatch.setattr(_plugin, "CPU_PLUGINS", (("absent_package", "x.so"), ("absent.package", "x.so")))
    with pytest.raises(_plugin.PluginNotFound, match="pip install fastatomstruct-xla-cpu"):
        _plugin.find()
    assert not _plugin.is_present()


def test_the_variable_decides(monkeypatch, tmp_path):
    library = tmp_path / "libtpu.so"
    library.touch()
    monkeypatch.setenv("TORCH_TPU_PLUGIN", str(library))
    assert _plugin.find() == _plugin.Plugin(str(library), "tpu", "TORCH_TPU_PLUGIN")


@pytest.mark.parametrize("name", ["absent.so", ""])
def test_a_path_that_is_no_file_is_an_error_that_names_it(monkeypatch, tmp_path, name):
    monkeypatch.setenv("TORCH_TPU_PLUGIN", str(tmp_path / name))
    with pytest.raises(_plugin.PluginNotFound, match=str(tmp_path)):
        _plugin.find()


@pytest.mark.parametrize(
    ("vendor", "pci_class", "expected"),
    [
        ("0x1ae0", "0x120000", True),
        ("0x1ae0", "0x088000", True),
        ("0x1ae0", "0x020000", False),  # Google's network device
        ("0x1ae0", "0x010802", False),  # Google's disk
        ("0x10de", "0x030200", False),
    ],
)
def test_a_tpu_is_told_from_its_pci_device(tmp_path, vendor, pci_class, expected):
    assert _plugin.tpu_present(pci(tmp_path, vendor, pci_class), str(tmp_path)) is expected


def test_a_tpu_is_told_from_its_device_file(tmp_path):
    assert not _plugin.tpu_present(str(tmp_path), str(tmp_path))
    (tmp_path / "accel").mkdir()  # as other vendors have
    assert not _plugin.tpu_present(str(tmp_path), str(tmp_path))
    (tmp_path / "accel0").touch()
    assert _plugin.tpu_present(str(tmp_path), str(tmp_path))


def test_with_a_tpu_it_is_libtpu_or_an_error_that_says_how_to_get_it(monkeypatch, tmp_path):
    monkeypatch.setattr(_plugin, "tpu_present", lambda: True)
    monkeypatch.setattr(sys, "path", [p for p in sys.path if not os.path.isdir(os.path.join(p, "libtpu"))])
    with pytest.raises(_plugin.PluginNotFound, match=r"torchtpu\[tpu\]"):
        _plugin.find()
    (tmp_path / "libtpu").mkdir()
    (tmp_path / "libtpu/__init__.py").write_text("raise SystemExit('never imported')")
    (tmp_path / "libtpu/libtpu.so").touch()
    monkeypatch.syspath_prepend(tmp_path)
    assert _plugin.find().path == str(tmp_path / "libtpu/libtpu.so")
    assert _plugin.find().platform == "tpu"
