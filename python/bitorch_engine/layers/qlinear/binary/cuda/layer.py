"""``BinaryLinearCuda``: the 1-bit linear layer with its own bytes on disk, and its function form."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from bitorch_engine._operators import ANCHOR, ops
from bitorch_engine.errors import ShapeError
from bitorch_engine.layers.function import OperatorFunction, in_training
from bitorch_engine.layers.qlinear.binary.cuda.bmm import BMM
from bitorch_engine.layers.qlinear.binary.layer import TrainedSigns


def _layout(n: int, k: int, bmm_type: BMM) -> str | None:
    """The layout in which BITorch Engine stores signs of this shape; ``None`` where it has none that keeps them all."""
    if k % 128 == 0 and n % 8 == 0 and bmm_type != BMM.BSTC32:
        return "btc"
    return "bstc" if k % 32 == 0 and n % 32 == 0 else None


class BinaryLinearForward(OperatorFunction):
    """:class:`BinaryLinearCuda` as a function of its tensors (bias already added); the weight is told by its dtype.

    ``apply(input, weight, bmm_type, scale_a, scale_w, is_train)`` with a float or int8 weight ``[n, k]``, or a uint8
    one from ``BinaryLinearCuda.w_pack`` with the same ``bmm_type`` (an ``int`` or a ``BMM``); gradients
    ``(input, weight, None, scale_a, None, None)``. That of an int8 weight goes to ``weight.grad``.
    """

    @staticmethod
    def call(
        input: Tensor, weight: Tensor, bmm_type: int | BMM, scale_a: Tensor, scale_w: Tensor, is_train: bool
    ) -> Tensor:
        kind = BMM(bmm_type)
        if weight.dtype == torch.uint8 and weight.dim() == 1:
            k = input.shape[-1]
            n = weight.numel() * 8 // k
            layout = _layout(n, k, kind)
            if layout is None or n * k != weight.numel() * 8:
                raise ShapeError(
                    f"BinaryLinearForward: the weight is {weight.numel()} bytes, which is no layout for {k} features"
                )
            weight = ops.signs_from_layout(weight, n, k, layout)
        with in_training(is_train):
            return ops.binary_linear(input, weight, scale_a, scale_w, anchor=ANCHOR if is_train else None)


class BinaryLinearCuda(TrainedSigns):
    __doc__ = (
        TrainedSigns.__doc__
        + """
    ``qweight`` is flat uint8 in one of BITorch Engine's two layouts (``docs/migration.md``) where its shape has one,
    else ``[n, ceil(k/8)]``. It runs on every device; ``bmm_type`` is a hint.
    """
    )

    def __init__(self, *args: Any, bmm_type: BMM = BMM.ADAPTIVE, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.bmm_type = BMM(bmm_type)
        self._register_activation(scale_w_is_parameter=False, eps=False)

    @property
    def device_id(self) -> int:
        """Index of the layer's GPU; -1 on the CPU."""
        device = self.device
        return -1 if device.type == "cpu" else device.index or 0

    @staticmethod
    def w_pack(weights: Tensor, bmm_type: BMM = BMM.ADAPTIVE) -> Tensor:
        """Signs of ``[n, k]`` float or int8 weights as ``qweight`` holds them."""
        if weights.dim() != 2:
            raise ShapeError(f"w_pack: the weight is {list(weights.shape)}, [n, k] is wanted")
        packed = ops.pack_signs(weights.detach())
        layout = _layout(*weights.shape, BMM(bmm_type))
        return packed if layout is None else ops.signs_to_layout(packed, weights.shape[1], layout)

    def forward(self, x: Tensor, bmm_type: BMM = BMM.ADAPTIVE) -> Tensor:
        return super().forward(x)

    def _stored_layout(self) -> str | None:
        return _layout(self.output_features, self.input_features, self.bmm_type)
