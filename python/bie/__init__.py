"""Layers with 1-, 4- and 8-bit weights and activations for stock PyTorch, on any machine, for any shape.

The operators ``torch.ops.bie`` are loaded at once where torch has been imported, else with the first name of this
package that is used; they need no GPU. ``bie.llm`` is a distribution of its own and needs neither them nor torch.
"""

from __future__ import annotations

import sys
import threading
from contextlib import suppress
from importlib import import_module, metadata, util
from importlib.abc import MetaPathFinder
from pkgutil import extend_path
from types import ModuleType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from bie import distributed, formats, nn, optim, quantization
    from bie.calibration import calibrate
    from bie.captured_step import CapturedStep
    from bie.checkpoint import load_checkpoint, pack, packed_state_dict, prepare, save_checkpoint
    from bie.conversion import convert
    from bie.distillation import distillation_loss
    from bie.errors import ShapeError
    from bie.net_export import export
    from bie.onnx_export import export_onnx
    from bie.post_training import fold_batch_norms, post_training, prepare_qat

__path__ = extend_path(__path__, __name__)  # bie.llm may lie in another folder

__all__ = [
    "CapturedStep",
    "ShapeError",
    "calibrate",
    "convert",
    "distillation_loss",
    "distributed",
    "export",
    "export_onnx",
    "fold_batch_norms",
    "formats",
    "load_checkpoint",
    "nn",
    "optim",
    "pack",
    "packed_state_dict",
    "post_training",
    "prepare",
    "prepare_qat",
    "quantization",
    "save_checkpoint",
]

_HOMES = {
    "calibration": ("calibrate",),
    "captured_step": ("CapturedStep",),
    "checkpoint": ("load_checkpoint", "pack", "packed_state_dict", "prepare", "save_checkpoint"),
    "conversion": ("convert",),
    "distillation": ("distillation_loss",),
    "errors": ("ShapeError",),
    "net_export": ("export",),
    "onnx_export": ("export_onnx",),
    "post_training": ("fold_batch_norms", "prepare_qat"),
}
_NEED_NO_OPERATORS = ("llm", "_library", "_flops")
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}


class _OperatorsFirst(MetaPathFinder):
    """Finds nothing, and loads the operators before the first module of this package that reads them is looked for."""

    def __init__(self):
        self._lock = threading.RLock()
        self._loads = False

    def find_spec(self, fullname, path=None, target=None):
        package, _, rest = fullname.partition(".")
        if package == __name__ and rest.partition(".")[0] not in _NEED_NO_OPERATORS:
            self.load()

    def load(self) -> None:
        with self._lock:
            if self._loads or self not in sys.meta_path:  # the loading itself, or done
                return
            self._loads = True
            try:
                import_module("bie._library").load()
                import_module("bie._flops")  # registers with torch
                sys.meta_path.remove(self)
            finally:
                self._loads = False


class _Package(ModuleType):
    """This package, in which `post_training` is the function although a module has its name."""

    @property
    def post_training(self):
        return import_module("bie.post_training").post_training

    @post_training.setter
    def post_training(self, module):
        """Import puts the module here."""


sys.modules[__name__].__class__ = _Package
_operators = _OperatorsFirst()
sys.meta_path.insert(0, _operators)
if "torch" in sys.modules:
    with suppress(ImportError):  # bie.llm needs no operators; whoever does is told by the first name
        _operators.load()


def __getattr__(name: str):
    if name == "__version__":
        return metadata.version("bitorch_engine")  # the distribution, which holds both packages
    if name in _HOME_OF:
        return getattr(import_module(f"bie.{_HOME_OF[name]}"), name)
    if not name.startswith("__") and util.find_spec(f"bie.{name}"):
        return import_module(f"bie.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
