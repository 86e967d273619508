"""Lets torch.utils.flop_counter count the operators once somebody imports it: that takes as long as this package."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType

_COUNTER = "torch.utils.flop_counter"


def _register() -> None:
    importlib.import_module("bie._flop_formulas")  # registers as it is imported


class _Waiting(MetaPathFinder):
    """Stands before the finders of modules until the counter is looked for."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname != _COUNTER:
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(fullname)
        if spec is not None and spec.loader is not None:
            load = spec.loader.exec_module

            def load_and_register(module: ModuleType) -> None:
                load(module)
                _register()

            spec.loader.exec_module = load_and_register
        return spec


if _COUNTER in sys.modules:
    _register()
else:
    sys.meta_path.insert(0, _Waiting())
