"""The weight-only linear in GPTQ layout; docs/spec/weight-only.md."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from bie._missing import awaits
from bitorch_engine.layers.qlinear.nbit.mpq import MPQLinearBase


@awaits("mpq_linear")
class MPQLinearCuda(MPQLinearBase):
    """``y = x . W (+ bias)`` with weights of 1, 2, 4 or 8 bits."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.check_parameters()

    def forward(self, x: Tensor) -> Tensor:
        raise NotImplementedError
