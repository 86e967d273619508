"""Imports of compiled extensions that may be absent.

This package has one library of operators and no extension modules, so every name gives a placeholder. The functions
are here for code that used them.
"""

from __future__ import annotations

import importlib
import logging
from typing import Any

#: Where BITorch Engine keeps its compiled modules.
EXTENSION_PREFIX = "bitorch_engine.extensions."

_log = logging.getLogger(__name__)


class ExtensionModulePlaceholder:
    """Stands for an extension that is not there: reading or setting any attribute is a ``RuntimeError`` naming it."""

    def __init__(self, name: str) -> None:
        self.__dict__["_name"] = name

    def _refuse(self) -> RuntimeError:
        return RuntimeError(
            f"the extension {self._name!r} is not part of this package, its operators are torch.ops.bie"
        )

    def __getattr__(self, item: str) -> Any:
        if item.startswith("__") and item.endswith("__"):
            raise AttributeError(item)  # so that copy, pickle and inspect can ask
        raise self._refuse()

    def __setattr__(self, key: str, value: Any) -> None:
        raise self._refuse()


def import_extension(module_name: str, not_yet_implemented: bool = False) -> Any:
    """The module ``bitorch_engine.extensions.<module_name>``, or a placeholder where there is none.

    With ``not_yet_implemented`` always a placeholder. A missing module is one log line, never an error.
    """
    if not not_yet_implemented:
        wanted = EXTENSION_PREFIX + module_name
        try:
            return importlib.import_module(wanted)
        except ModuleNotFoundError as error:
            if error.name != wanted:
                raise
            _log.warning("the extension %r is not part of this package", module_name)
    return ExtensionModulePlaceholder(module_name)
