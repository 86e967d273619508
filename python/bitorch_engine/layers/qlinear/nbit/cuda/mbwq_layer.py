"""The weight-only linear with permuted rows of one width or several; docs/spec/weight-only.md."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from bie._missing import awaits
from bie.weights.gptq import gptq_style_unpacking
from bitorch_engine.layers.qlinear.nbit.mpq import MPQLinearBase, MPQWeightParameter


@awaits("mbwq_linear")
class MBWQLinearCuda(MPQLinearBase):
    """``y = (x * channel_scale) . W``, ``W[q_perm[i], c] = q[i, c] * scales[g, c] - zeros[g, c]``."""

    def __init__(
        self, *args: Any, use_mbw: bool = True, groups: int = 64, rows_packed: int = 64, **kwargs: Any
    ) -> None:
        super().__init__(*args, **kwargs)

    def set_scales(self, scales: Tensor | None = None) -> None:
        raise NotImplementedError

    def set_zeros(self, zeros: Tensor | None = None) -> None:
        raise NotImplementedError

    def load_state_dict(self, state_dict: dict[str, Tensor], strict: bool = True) -> None:
        raise NotImplementedError

    @staticmethod
    def q42fp_weight(
        qweight: Tensor, scales: Tensor, zeros: Tensor, group_size: int, bits: int, q_perm: Tensor
    ) -> Tensor:
        """The float weight [k, n] of rows of one width, in ``scales``' dtype.

        Args:
            qweight: [k / 32 * bits, n] int32 as a file holds it.
            scales, zeros: [G, n] float.
            q_perm: [k] int16; packed row ``i`` is row ``q_perm[i]``; all zero means no permutation.

        Raises:
            ShapeError: a shape does not fit. ValueError: ``q_perm`` is no permutation.
        """
        weight = MPQWeightParameter(
            qweight, scales=scales, zeros=zeros, w_bit=bits, group_size=group_size, layer_type=2, q_perm=q_perm
        )
        return gptq_style_unpacking(weight)[0]

    @staticmethod
    @awaits("mbwq_linear")
    def exl2fp_weight(
        qweight: Tensor, scales: Tensor, zeros: Tensor, q_perm: Tensor, q_group_map: Tensor, rows: list[int]
    ) -> Tensor:
        """The float weight [k, n] of rows of several widths."""

    def forward(self, x: Tensor) -> Tensor:
        raise NotImplementedError
