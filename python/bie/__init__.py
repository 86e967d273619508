"""Layers with 1-, 4- and 8-bit weights and activations for stock PyTorch, on any machine, for any shape.

A name of this package imports what it stands for, and torch with it, when it is first used: ``import bie.llm`` needs
neither. Where this package and torch are imported, in either order, the operators ``torch.ops.bie`` are loaded; they
need no GPU.
"""

from __future__ import annotations

import importlib
from pkgutil import extend_path
from typing import TYPE_CHECKING, Any

from bie._when_imported import when_imported

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
    from bie.quantized_models import fold_batch_norms, post_training, prepare_qat

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

__path__ = extend_path(__path__, __name__)  # bie.llm is a distribution of its own, which may lie in another folder

#: The modules that are there without an import of their own, each with the names that the package takes from it.
_MODULES = {
    "calibration": ["calibrate"],
    "captured_step": ["CapturedStep"],
    "carrying": [],
    "checkpoint": ["load_checkpoint", "pack", "packed_state_dict", "prepare", "save_checkpoint"],
    "conversion": ["convert"],
    "conversion_report": [],
    "distillation": ["distillation_loss"],
    "distributed": [],
    "errors": ["ShapeError"],
    "formats": [],
    "net_export": ["export"],
    "nn": [],
    "onnx_export": ["export_onnx"],
    "optim": [],
    "quantization": [],
    "quantized_models": ["fold_batch_norms", "post_training", "prepare_qat"],
    "weights": [],
}
_MODULE_OF = {name: module for module, names in _MODULES.items() for name in names}


def __getattr__(name: str) -> Any:
    if name == "__version__":  # of the distribution, which holds both packages
        return importlib.import_module("importlib.metadata").version("bitorch_engine")
    if name in _MODULES:
        return importlib.import_module(f"bie.{name}")
    if name in _MODULE_OF:
        value = globals()[name] = getattr(importlib.import_module(f"bie.{_MODULE_OF[name]}"), name)
        return value
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *_MODULES, *__all__})


def _load_operators() -> None:
    try:  # noqa: SIM105  contextlib takes longer to import than this module
        importlib.import_module("bie._operators")
    except ImportError:
        pass  # the first name that needs them says why they are not there


when_imported("torch", _load_operators)
# A DistributedDataParallel of torch learns of integer weights as soon as there are layers that have some.
when_imported("bie.nn", lambda: importlib.import_module("bie.distributed"))
# torch's counter of operations takes as long to import as this package.
when_imported("torch.utils.flop_counter", lambda: importlib.import_module("bie._flop_formulas"))
