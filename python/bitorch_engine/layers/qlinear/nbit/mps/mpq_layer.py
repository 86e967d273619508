"""``MPQLinearMlx`` and its function form, which can be imported and not used."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from bie.bitorch import functions
from bitorch_engine.layers.qlinear.nbit.mpq import MPQLinearBase


def _refusal(name: str, instead: str) -> ImportError:
    return ImportError(
        f"{name} needs Apple's MLX and is not part of this package: use {instead}, which runs on every CPU"
    )


class MPQLinearMlxFunction(functions.OperatorFunction):
    """Needs Apple's MLX: calling it is an ``ImportError``.

    ``apply(x, qweight, w_bit, scales, zeros, group_size, is_training)``.
    """

    @staticmethod
    def call(
        x: Tensor, qweight: Tensor, w_bit: int, scales: Tensor, zeros: Tensor, group_size: int, is_training: bool
    ) -> Tensor:
        raise _refusal("MPQLinearMlxFunction", "MPQLinearCudaFunction")


class MPQLinearMlx(MPQLinearBase):
    """Needs Apple's MLX: making one is an ``ImportError``."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        raise _refusal("MPQLinearMlx", "MPQLinearCuda")
