"""``QLinearInf``: what ``bitorch.layers.convert(model, RuntimeMode.INFERENCE_AUTO)`` puts in place of a ``QLinear``."""

from __future__ import annotations

import torch

from bie.nn.state.arguments import bit_width
from bitorch_engine.layers.qlinear.binary.binary_implementation import BinaryLinearImplementationMixin
from bitorch_engine.layers.qlinear.binary.cpp import BinaryLinearCPP

try:
    from bitorch import RuntimeMode
    from bitorch.layers.register import QLinearImplementation
except ImportError as error:
    raise ImportError(f"{__name__} needs the package bitorch (0.4.1): {error}") from error


@QLinearImplementation(RuntimeMode.INFERENCE_AUTO)
class QLinearInf(BinaryLinearCPP, BinaryLinearImplementationMixin):
    """``y = sgn(x) . sgn(w)^T (+ bias)``, float32, from packed signs: equal to the ``QLinear`` it was made from.

    Args:
        a_bit, w_bit: 1; ``ValueError`` for others, ``TypeError`` for what is no int.

    BITorch Engine divides ``input_features`` by 32 and lets other widths through to a layer that cannot run.
    """

    def __init__(
        self,
        input_features: int,
        out_features: int,
        device: torch.device | str | None = None,
        a_bit: int = 1,
        w_bit: int = 1,
        bias: bool = False,
    ) -> None:
        if (bit_width(self, "a_bit", a_bit), bit_width(self, "w_bit", w_bit)) != (1, 1):
            raise ValueError(f"QLinearInf: a_bit and w_bit: expected 1 for both, got {a_bit} and {w_bit}")
        BinaryLinearCPP.__init__(self, input_features, out_features, device, bias=bias)
