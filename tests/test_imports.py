"""What happens when somebody else imports a package."""

import importlib
import sys

import pytest

from torch_tpu._imports import when_imported


@pytest.fixture
def package(tmp_path, monkeypatch):
    (tmp_path / "some_package").mkdir()
    (tmp_path / "some_package" / "__init__.py").write_text("from some_package import part\n")
    (tmp_path / "some_package" / "part.py").write_text("value = 1\n")
    monkeypatch.syspath_prepend(tmp_path)
    before = list(sys.meta_path)
    yield
    assert sys.meta_path == before, "a hook that has done its work is gone"
    for name in ("some_package", "some_package.part"):
        sys.modules.pop(name, None)


def test_a_callback_runs_once_right_after_the_import(package):
    seen = []
    when_imported("some_package.part", lambda module: seen.append(module.value))
    when_imported("some_package.part", lambda module: seen.append(-module.value))
    assert seen == []
    import some_package.part

    assert sorted(seen) == [-1, 1]
    importlib.reload(some_package.part)
    assert sorted(seen) == [-1, 1]
    when_imported("some_package.part", lambda module: seen.append(10))
    assert seen[-1] == 10


def test_a_package_that_does_not_exist_is_not_found_as_ever(package):
    when_imported("some_package.absent", lambda module: None)
    with pytest.raises(ModuleNotFoundError, match=r"some_package\.absent"):
        import some_package.absent  # noqa: F401
