"""``BinaryLinearCuda``: the 1-bit linear layer with its own bytes on disk, and its function form."""

from __future__ import annotations

import torch
from torch import Tensor

from bie.bitorch import functions, layouts
from bie.bitorch.layouts import BMM
from bie.nn import BinaryLinear
from bitorch_engine.layers.qlinear.binary.layer import BinaryLinearBase

__all__ = ["BinaryLinearCuda", "BinaryLinearForward"]


class BinaryLinearForward(functions.OperatorFunction):
    """:class:`BinaryLinearCuda` as a function of its tensors (bias already added); the weight is told by its dtype.

    ``apply(input, weight, bmm_type, scale_a, scale_w, is_train)`` with a float or int8 weight ``[n, k]``, or a uint8
    one from ``BinaryLinearCuda.w_pack`` with the same ``bmm_type`` (an ``int`` or a ``BMM``); gradients
    ``(input, weight, None, scale_a, None, None)``. That of an int8 weight goes to ``weight.grad``.
    """

    call = staticmethod(functions.binary_linear_of_kind)


class BinaryLinearCuda(BinaryLinearBase, BinaryLinear):
    """:class:`bie.nn.BinaryLinear` with the arguments of :class:`BinaryLinearBase` and its own bytes on disk.

    ``qweight`` is flat uint8 in one of BITorch Engine's two layouts (``docs/migration.md``) where its shape has one,
    else ``[n, ceil(k/8)]``. It runs on every device; ``bmm_type`` is a hint.
    """

    def __init__(
        self,
        input_features: int,
        out_features: int,
        device: torch.device | str | None = None,
        dtype: torch.dtype = torch.float,
        symmetric: bool = True,
        *,
        bmm_type: BMM = BMM.ADAPTIVE,
        bias: bool = False,
        latent: bool = False,
        compat: str = "none",
    ) -> None:
        options = {"bias": bias, "latent": latent, "compat": compat}
        super().__init__(input_features, out_features, device, dtype, symmetric, **options)
        self.bmm_type = BMM(bmm_type)

    @property
    def device_id(self) -> int:
        """Index of the layer's GPU; -1 on the CPU."""
        return -1 if self.device.type == "cpu" else self.device.index or 0

    @staticmethod
    def w_pack(weights: Tensor, bmm_type: BMM = BMM.ADAPTIVE) -> Tensor:
        """Signs of ``[n, k]`` float or int8 weights as ``qweight`` holds them."""
        return layouts.pack_signs(weights, bmm_type)

    def forward(self, x: Tensor, bmm_type: BMM = BMM.ADAPTIVE) -> Tensor:
        return super().forward(x)

    def _stored_layout(self) -> str | None:
        return layouts.gpu_layout(self.out_features, self.in_features, self.bmm_type)
