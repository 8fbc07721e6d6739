"""What is to happen when a package that we must not import ourselves gets imported."""

import importlib.machinery
import importlib.util
import sys
import types
from collections.abc import Callable, Sequence


def when_imported(name: str, callback: Callable[[types.ModuleType], None]) -> None:
    """Calls ``callback(module)`` right after the module is imported; at once where it has been already.

    The import fails if the callback does.
    """
    if (module := sys.modules.get(name)) is not None:
        callback(module)
    else:
        sys.meta_path.insert(0, _Finder(name, callback))


class _Finder:
    """Finds one module as the others would and adds to what its loader does; then it leaves."""

    def __init__(self, name: str, callback: Callable[[types.ModuleType], None]) -> None:
        self._name = name
        self._callback = callback

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: types.ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if name != self._name or self not in sys.meta_path:
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        if spec is not None and spec.loader is not None:
            execute = spec.loader.exec_module

            def execute_and_call(module: types.ModuleType) -> None:
                execute(module)
                self._callback(module)

            spec.loader.exec_module = execute_and_call
        return spec
