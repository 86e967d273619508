"""Acts once somebody imports a module that takes long to import, such as torch."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable, Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType


class _Waiting:
    """Stands before the finders of modules until one module is imported. (Their base class, importlib.abc's, takes as
    long to import as the rest.)"""

    def __init__(self, name: str, act: Callable[[], None]) -> None:
        self._name, self._act = name, act

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname != self._name:
            return None
        sys.meta_path.remove(self)
        try:
            spec = importlib.util.find_spec(fullname)
        finally:
            sys.meta_path.insert(0, self)  # who looks for a module need not import it
        if spec is not None and spec.loader is not None:
            load = spec.loader.exec_module

            def load_and_act(module: ModuleType) -> None:
                load(module)
                if self in sys.meta_path:
                    sys.meta_path.remove(self)
                    self._act()

            spec.loader.exec_module = load_and_act  # type: ignore[method-assign]
        return spec


def when_imported(name: str, act: Callable[[], None]) -> None:
    """Calls ``act`` at the end of the import of the module ``name``, or at once where it is imported already."""
    if name in sys.modules:
        act()
    else:
        sys.meta_path.insert(0, _Waiting(name, act))
