"""Base of the 4-bit convolutions and the parameter class of their codes."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from bitorch_engine._operators import ops
from bitorch_engine.layers.codes_layer import CodesLayer
from bitorch_engine.layers.parameters import QuantParameter
from bitorch_engine.layers.qconv.geometry import pair
from bitorch_engine.layers.quant_layer import QuantLayer
from bitorch_engine.layers.update_rules import CODES


class nBitConvParameter(QuantParameter):
    """The weight of a 4-bit convolution: float, or int8 codes whose weight is ``code * scale_w``."""

    rule = CODES


class nBitConv2dBase(QuantLayer):
    """Common to all n-bit convolutions: sizes and the float weight ``[out, in, kh, kw]``. See :class:`QuantLayer`.

    Args:
        in_channels, out_channels: any positive numbers.
        kernel_size, stride, padding, dilation: integers or pairs (height, width).
        a_bit, w_bit: kept as attributes; the class says how many bits are used.
        device: where the tensors are made.
        dtype: of ``bias_a``: float32, float16 or bfloat16. The float weight is float32.
        latent: keep the weight as a float that any optimizer trains; else int8 codes for ``DiodeMix``.
        bias: add a learnable bias ``[out_channels]`` to the output.
        grad_mode: ``"exact"`` or ``"reference"``.
        compat: ``"none"`` or ``"bie-0.2.6"``.
    """

    _feature_axis = 1
    _integer_parameter = nBitConvParameter

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: int | tuple[int, int],
        stride: int | tuple[int, int] = 1,
        padding: int | tuple[int, int] = 0,
        dilation: int | tuple[int, int] = 1,
        a_bit: int = 4,
        w_bit: int = 4,
        device: torch.device | str | None = None,
        dtype: torch.dtype = torch.float,
        *,
        bias: bool = False,
        latent: bool = True,
        grad_mode: str = "exact",
        compat: str = "none",
    ) -> None:
        self._geometry = {
            "kernel_size": pair("kernel_size", kernel_size, 1),
            "stride": pair("stride", stride, 1),
            "padding": pair("padding", padding, 0),
            "dilation": pair("dilation", dilation, 1),
        }
        super().__init__(
            (out_channels, in_channels, *self._geometry["kernel_size"]),
            device=device,
            dtype=dtype,
            weight_dtype=torch.float32,
            latent=latent,
            bias=bias,
            grad_mode=grad_mode,
            compat=compat,
        )
        self.in_channels, self.out_channels = in_channels, out_channels
        self.kernel_size, self.stride, self.padding, self.dilation = kernel_size, stride, padding, dilation
        self.a_bit, self.w_bit = a_bit, w_bit

    def _check_forward(self, x: Tensor) -> None:
        self._check_tensor(x)
        if x.dim() != 4 or x.shape[1] != self.in_channels:
            raise self._shape_error(x, f"[batch, {self.in_channels}, height, width] is wanted")

    def _sizes(self) -> str:
        usual = {"stride": (1, 1), "padding": (0, 0), "dilation": (1, 1)}
        shown = [f"{name}={value}" for name, value in self._geometry.items() if value != usual.get(name)]
        return ", ".join([f"{self.in_channels}, {self.out_channels}", *shown])


class CodesConv2d(CodesLayer, nBitConv2dBase):
    """A convolution of 4-bit codes."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._register_activation(scale_w_is_parameter=False, eps=True)

    def _packed_shape(self) -> tuple[int, ...]:
        kernel = self._geometry["kernel_size"]
        if self.in_channels % 2 == 0:
            return (self.out_channels, *kernel, self.in_channels // 2)
        return (self.out_channels, (self.in_channels * math.prod(kernel) + 1) // 2)

    def _known_layout(self, packed: Tensor, has_scales: bool) -> Tensor | None:
        """The shape is a label: the same bytes as flat rows, or flat, are known too."""
        width = (self.in_channels * math.prod(self._geometry["kernel_size"]) + 1) // 2
        shape = tuple(packed.shape)
        known = (self._packed_shape(), (self.out_channels, width), (self.out_channels * width,))
        if packed.dtype != self._packed_type or shape not in known:
            return None
        return packed.reshape(self._packed_shape())

    def _check_forward(self, x: Tensor) -> None:
        super()._check_forward(x)
        self._check_dtype(x)
        g = self._geometry
        for i, size in enumerate(x.shape[2:]):
            span = g["dilation"][i] * (g["kernel_size"][i] - 1) + 1
            if size + 2 * g["padding"][i] < span:
                raise self._shape_error(x, f"smaller than the kernel {g['kernel_size']} with padding {g['padding']}")

    def _prepack(self, packed: Tensor) -> Tensor:
        return ops.q4_conv2d_prepack(packed, self.in_channels, self._geometry["kernel_size"])

    def _options(self, panels: Tensor | None = None, anchor: Tensor | None = None) -> dict[str, Any]:
        return super()._options(panels, anchor) | self._geometry

    def _operator(
        self, x: Tensor, bias_a: Tensor | None, weight: Tensor, scale_w: Tensor | None, options: dict[str, Any]
    ) -> Tensor:
        return ops.q4_conv2d.default(x, weight, self._parameters["scale_a"], scale_w, bias_a, **options)
