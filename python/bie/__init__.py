"""Layers with 1-, 4- and 8-bit weights and activations for stock PyTorch, on any machine, for any shape.

Importing this package loads the operators ``torch.ops.bie``; it needs no GPU.
"""

from __future__ import annotations

from importlib import metadata
from pkgutil import extend_path

__path__ = extend_path(__path__, __name__)  # bie.llm is a distribution of its own, which may lie in another folder

from bie import _library

_library.load()

from bie import _flops as _flops  # noqa: E402  registers with torch
from bie import formats, nn, optim  # noqa: E402  their modules read the operators
from bie.calibration import calibrate  # noqa: E402
from bie.captured_step import CapturedStep  # noqa: E402
from bie.checkpoint import load_checkpoint, pack, packed_state_dict, prepare, save_checkpoint  # noqa: E402
from bie.conversion import convert  # noqa: E402
from bie.distillation import distillation_loss  # noqa: E402
from bie.errors import ShapeError  # noqa: E402
from bie.net_export import export  # noqa: E402
from bie.onnx_export import export_onnx  # noqa: E402
from bie.post_training import fold_batch_norms, post_training, prepare_qat  # noqa: E402

from bie import distributed, quantization  # noqa: E402  isort: skip

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


def __getattr__(name: str) -> str:
    if name == "__version__":
        return metadata.version("bitorch_engine")  # the distribution, which holds both packages
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
