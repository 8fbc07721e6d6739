"""What several test files use."""

import os
import pathlib
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parent.parent
# Programs that the tests compile are kept between runs, apart from the user's.
os.environ["TORCH_TPU_CACHE_DIR"] = str(ROOT / "build" / "test-cache")


@pytest.fixture
def run_python(tmp_path):
    """run_python(code or [arguments], **environment): a new Python in an empty folder; None removes a variable."""

    def run(what: str | list[str], *, timeout: float = 120, **environment: str | None) -> subprocess.CompletedProcess:
        env = {name: value for name, value in {**os.environ, **environment}.items() if value is not None}
        arguments = ["-c", what] if isinstance(what, str) else what
        return subprocess.run(
            [sys.executable, *arguments], cwd=tmp_path, env=env, capture_output=True, text=True, timeout=timeout
        )

    return run
