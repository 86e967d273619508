"""Base of the 8- and 4-bit linear layers, the parameter class of their codes, and the weight-only classes' state."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from bitorch_engine._operators import ops
from bitorch_engine.layers.codes_layer import CodesLayer
from bitorch_engine.layers.parameters import QuantParameter
from bitorch_engine.layers.qlinear.nbit.mpq import MPQLinearBase, MPQWeightParameter
from bitorch_engine.layers.quant_layer import QuantLayer
from bitorch_engine.layers.step_size import bit_width
from bitorch_engine.layers.update_rules import CODES

_LINEAR = {8: ops.q8_linear.default, 4: ops.q4_linear.default}

__all__ = ["MPQLinearBase", "MPQWeightParameter", "nBitLinearBase", "nBitLinearParameter"]


class nBitLinearParameter(QuantParameter):
    """The weight of an 8- or 4-bit linear layer: float, or int8 codes whose weight is ``code * scale_w``."""

    rule = CODES


class nBitLinearBase(QuantLayer):
    """Common to all 8- and 4-bit linear layers: sizes, the float weight and its codes. See :class:`QuantLayer`.

    Args:
        in_channels: k, any positive number.
        out_channels: n.
        a_bit, w_bit: kept as attributes; the class says how many bits are used.
        device: where the tensors are made.
        dtype: of ``bias_a``: float32, float16 or bfloat16. The float weight is float32.
        latent: keep the weight as a float that any optimizer trains; else int8 codes for ``DiodeMix``.
        bias: add a learnable bias ``[out_channels]`` to the output.
        grad_mode: ``"exact"`` or ``"reference"``.
        compat: ``"none"`` or ``"bie-0.2.6"``.
        channel_scale: a scale for each output channel, beside ``scale_w``.
    """

    _integer_parameter = nBitLinearParameter

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        a_bit: int = 4,
        w_bit: int = 4,
        device: torch.device | str | None = None,
        dtype: torch.dtype = torch.float,
        *,
        bias: bool = False,
        latent: bool = True,
        grad_mode: str = "exact",
        compat: str = "none",
        channel_scale: bool = False,
    ) -> None:
        a_bit, w_bit = bit_width(self, "a_bit", a_bit), bit_width(self, "w_bit", w_bit)
        super().__init__(
            (out_channels, in_channels),
            device=device,
            dtype=dtype,
            weight_dtype=torch.float32,
            latent=latent,
            bias=bias,
            grad_mode=grad_mode,
            compat=compat,
            channel_scale=channel_scale,
        )
        self.in_channels, self.out_channels = in_channels, out_channels
        self.a_bit, self.w_bit = a_bit, w_bit

    def _check_forward(self, x: Tensor) -> None:
        self._check_tensor(x)
        if x.dim() < 1 or x.shape[-1] != self.in_channels:
            raise self._shape_error(x, f"the layer has {self.in_channels} features")


class CodesLinear(CodesLayer, nBitLinearBase):
    """What the 8- and the 4-bit linear layer share."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._register_activation(scale_w_is_parameter=False, eps=True)

    def _codes_width(self) -> int:
        return self.in_channels if self._bits == 8 else (self.in_channels + 1) // 2

    def _packed_shape(self) -> tuple[int, ...]:
        return (self.out_channels, self._codes_width())

    def _check_forward(self, x: Tensor) -> None:
        self._check_tensor(x)
        self._check_dtype(x)
        if x.is_floating_point():
            super()._check_forward(x)
        elif x.dim() < 1 or x.shape[-1] != self._codes_width():
            raise self._shape_error(x, f"the layer has {self._codes_width()} bytes of codes")

    def _prepack(self, packed: Tensor) -> Tensor:
        return ops.q8_prepack(packed) if self._bits == 8 else ops.q4_prepack(packed, self.in_channels)

    def _operator(
        self, x: Tensor, bias_a: Tensor | None, weight: Tensor, scale_w: Tensor | None, options: dict[str, Any]
    ) -> Tensor:
        if x.dtype == torch.int8:
            options = options | {"in_features": self.in_channels}
        return _LINEAR[self._bits](x, weight, self._parameters["scale_a"], scale_w, bias_a, **options)
