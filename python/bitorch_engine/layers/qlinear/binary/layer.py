"""Base of the 1-bit linear layers and the parameter class of their weights."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from bitorch_engine._operators import ops
from bitorch_engine.errors import ShapeError
from bitorch_engine.layers.parameters import QuantParameter
from bitorch_engine.layers.quant_layer import QuantLayer
from bitorch_engine.layers.signs_layer import SignsLayer, TrainedSignsLayer
from bitorch_engine.layers.update_rules import SIGNS

_binary_linear = ops.binary_linear.default


class BinaryLinearParameter(QuantParameter):
    """The weight of a 1-bit linear layer: int8, its sign is the weight. ``DiodeMix`` flips signs."""

    rule = SIGNS


class BinaryLinearBase(QuantLayer):
    """Common to all 1-bit linear layers: sizes, the weight and its signs, packed. See :class:`QuantLayer`.

    Args:
        input_features: k, any positive number.
        out_features: n.
        device: where the tensors are made.
        dtype: of the float weight and ``bias_a``: float32, float16 or bfloat16.
        symmetric: the first batch sets ``scale_a`` to ``2 * mean|x|``; ``4 * mean|x|`` if not.
        latent: keep the weight as a float that any optimizer trains, instead of int8 for ``DiodeMix``.
        bias: add a learnable bias ``[out_features]`` to the output.
        compat: ``"none"`` or ``"bie-0.2.6"``.
    """

    _bits = 1
    _packed_type = torch.uint8
    _integer_parameter = BinaryLinearParameter

    def __init__(
        self,
        input_features: int,
        out_features: int,
        device: torch.device | str | None = None,
        dtype: torch.dtype = torch.float,
        symmetric: bool = True,
        *,
        bias: bool = False,
        latent: bool = False,
        compat: str = "none",
    ) -> None:
        super().__init__(
            (out_features, input_features),
            device=device,
            dtype=dtype,
            weight_dtype=dtype,
            latent=latent,
            bias=bias,
            compat=compat,
        )
        self.input_features, self.output_features = input_features, out_features
        self.symmetric = symmetric
        self.bits_binary_word = 8

    def set_bits_binary_word(self, num_bit: int) -> None:
        """Kept as an attribute; nothing depends on it."""
        self.bits_binary_word = num_bit

    def set_weight_data(self, x: Tensor) -> None:
        """Replaces the weight by a float one; ``ShapeError`` unless it has the layer's shape and dtype."""
        if isinstance(x, Tensor) and x.dtype != self.dtype:
            raise ShapeError(f"{type(self).__name__}: the weight is of {x.dtype}, the layer of {self.dtype}")
        super().set_weight_data(x)

    def _stored_layout(self) -> str | None:
        """BITorch Engine's flat layout of ``qweight`` (``signs_to_layout``); ``None`` for packed rows."""
        return None

    def _rows_shape(self) -> tuple[int, int]:
        return (self.output_features, (self.input_features + 7) // 8)

    def _packed_shape(self) -> tuple[int, ...]:
        if self._stored_layout() is None:
            return self._rows_shape()
        return (self.output_features * self.input_features // 8,)

    def _to_file(self, packed: Tensor) -> Tensor:
        layout = self._stored_layout()
        return packed if layout is None else ops.signs_to_layout(packed, self.input_features, layout)

    def _from_file(self, qweight: Tensor) -> Tensor:
        layout = self._stored_layout()
        if layout is None:
            return qweight
        return ops.signs_from_layout(qweight, self.output_features, self.input_features, layout)

    def _known_layout(self, packed: Tensor, has_scales: bool) -> Tensor | None:
        n, k = self.output_features, self.input_features
        if packed.dtype != torch.uint8:
            return None
        if tuple(packed.shape) == self._rows_shape():
            return self._to_file(packed)
        if packed.dim() != 1 or packed.numel() * 8 != n * k:
            return None
        if self._stored_layout() is not None and has_scales == (self.scale_a is not None):
            return packed
        # Of BITorch Engine's classes with flat bytes only the CPU's has no scales.
        layout = "columns" if not has_scales else "btc" if k % 128 == 0 and n % 8 == 0 else "bstc"
        return self._to_file(ops.signs_from_layout(packed, n, k, layout))

    def _check_forward(self, x: Tensor) -> None:
        self._check_tensor(x)
        k = self.input_features
        packed = x.dtype == torch.uint8
        if x.dim() < 1 or x.shape[-1] != ((k + 7) // 8 if packed else k):
            raise self._shape_error(x, f"the layer has {k} features ({(k + 7) // 8} bytes of packed signs)")
        if x.dtype not in (torch.float32, torch.float16, torch.bfloat16, torch.uint8):
            raise self._shape_error(x, "float32, float16, bfloat16 or packed signs in uint8 are wanted")


class PackedSigns(SignsLayer, BinaryLinearBase):
    """What all 1-bit linear layers share that compute something."""

    def _prepack(self, packed: Tensor) -> Tensor:
        return ops.binary_prepack(packed, self.input_features, self._kernel_id())

    def _kernel_id(self) -> int:
        return 0

    def _options(self, panels: Tensor | None = None, anchor: Tensor | None = None) -> dict[str, Any]:
        options = super()._options(panels, anchor)
        if panels is None and self._kernel_id() > 99:  # panels bring their kernel
            options["kernel_id"] = self._kernel_id()
        return options

    def _operator(
        self, x: Tensor, bias_a: Tensor | None, weight: Tensor, scale_w: Tensor | None, options: dict[str, Any]
    ) -> Tensor:
        if x.dtype == torch.uint8:
            options = options | {"in_features": self.input_features}
        return _binary_linear(x, weight, self._parameters["scale_a"], scale_w, bias_a, **options)


class TrainedSigns(TrainedSignsLayer, PackedSigns):
    """A 1-bit linear layer with ``bias_a`` and scales, trained as int8 by ``DiodeMix`` or as a latent float.

    ``y = scale_a * scale_w * (k - 2 * popcount(bit(x + bias_a) XOR bit(w)))``, ``bit(v) = v >= 0``; x is ``[..., k]``
    float32, float16 or bfloat16, or signs packed into uint8 ``[..., ceil(k/8)]``; y has x's dtype (float32 for packed).

    Backward: ``grad_x = (g . sgn(w)) * scale_w`` where ``|xs / scale_a| <= 1``, else 0, with ``xs = x + bias_a``;
    ``grad_w = g^T . (sgn(xs) * scale_a)``, as int8 (``int8_grad``) for an int8 weight;
    ``grad_scale_a = sum(grad_x * sgn(xs)) / sqrt(numel(xs))``. Source: numerics.md section 3.

    A layer used unprepared prepares itself in its first training forward, unless it is ``latent``.
    """
