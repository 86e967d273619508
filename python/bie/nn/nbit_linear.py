"""Linear layers with 8- and 4-bit weights and activations."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from bie._operators import ops
from bie.nn.state.arguments import shared
from bie.nn.state.codes_layer import CodesLayer
from bie.nn.state.linear_layer import LinearLayer

_LINEAR = {8: ops.q8_linear.default, 4: ops.q4_linear.default}


class CodesLinear(CodesLayer, LinearLayer):
    """What the 8- and the 4-bit linear layer share."""

    @shared
    def __init__(
        self,
        in_features: int,
        out_features: int,
        bias: bool = False,
        device: torch.device | str | None = None,
        dtype: torch.dtype = torch.float,
        *,
        latent: bool = True,
        grad_mode: str = "exact",
        compat: str = "none",
        channel_scale: bool = False,
    ) -> None:
        options = {"latent": latent, "grad_mode": grad_mode, "compat": compat, "channel_scale": channel_scale}
        super().__init__(in_features, out_features, bias, device, dtype, **options)

    def _codes_width(self) -> int:
        return self.in_features if self._bits == 8 else (self.in_features + 1) // 2

    def _check_forward(self, x: Tensor) -> None:
        self._check_tensor(x)
        self._check_dtype(x)
        if x.is_floating_point():
            super()._check_forward(x)
        elif x.dim() < 1 or x.shape[-1] != self._codes_width():
            raise self._shape_error(x, f"the layer's {self._codes_width()} bytes of codes")

    def _prepack(self, packed: Tensor) -> Tensor:
        return ops.q8_prepack(packed) if self._bits == 8 else ops.q4_prepack(packed, self.in_features)

    def _operator(
        self, x: Tensor, bias_a: Tensor | None, weight: Tensor, scale_w: Tensor | None, options: dict[str, Any]
    ) -> Tensor:
        if x.dtype == torch.int8:
            options = options | {"in_features": self.in_features}
        return _LINEAR[self._bits](x, weight, self._parameters["scale_a"], scale_w, bias_a, **options)


class Q8Linear(CodesLinear):
    """Linear layer with 8-bit weights and activations, exact in int32: ``y = (q_a . q_w^T) * scale_a * scale_w``.

    ``q_a = clamp(rint((x + bias_a) / max(scale_a, eps)), -128, 127)``, ``q_w`` the same with ``scale_w``;
    in training a float weight has ``scale_w = 2 * mean|w| / 11.269`` anew in each forward, the first batch sets
    ``scale_a`` likewise.
    x is ``[..., k]`` float32, float16 or bfloat16 (or int8 codes); y has x's dtype. ``qweight`` is ``[n, k]`` int8.

    Backward (``exact``, learned step size quantization, Esser et al. 2020), with ``v = (x + bias_a) / scale_a`` and
    ``up = g . (q_w * scale_w)``: ``grad_x = up`` where v is in range, else 0;
    ``grad_scale_a = sum(term(v) * up) / sqrt(numel(x) * 127)``, term = the bound outside, ``rint(v) - v`` inside;
    ``grad_w = g^T . (q_a * scale_a)``, 0 where the weight's quantiser clips. Source: docs/spec/nbit-linear.md.

    Args:
        in_features: k, any positive number.
        out_features: n.
        bias: add a learnable bias ``[out_features]`` to the output.
        device: where the tensors are made.
        dtype: of ``bias_a`` and ``bias``: float32, float16 or bfloat16. The float weight is float32.
        latent: keep the weight as a float that any optimizer trains; else int8 codes for ``DiodeMix``.
        grad_mode: ``"exact"`` or ``"reference"``.
        compat: ``"none"`` or ``"bie-0.2.6"``.
        channel_scale: a scale for each output channel, beside ``scale_w``.

    Raises:
        ShapeError (``forward``): x of another dtype or number of features. ValueError: x holds NaN or infinity.

    Example::

        >>> layer = bie.nn.Q8Linear(20, 3, bias=True)
        >>> layer(torch.randn(5, 20)).shape
        torch.Size([5, 3])
        >>> bie.pack(layer)
        >>> layer.qweight.shape, layer.qweight.dtype
        (torch.Size([3, 20]), torch.int8)
    """

    _bits = 8


class Q4Linear(CodesLinear):
    """Linear layer with 4-bit weights and activations, exact in int32: ``y = (q_a . q_w^T) * scale_a * scale_w``.

    ``q_a = clamp(rint((x + bias_a) / max(scale_a, eps)), -8, 7)``, ``q_w`` the same with ``scale_w``;
    ``prepare_params`` (or the first training forward) sets ``scale_w = max(2 * mean|w| / 5.6345, eps)`` once, the first
    batch ``scale_a`` likewise.
    x is ``[..., k]`` float32, float16 or bfloat16 (or packed int8 codes); y has x's dtype. ``qweight`` is int8
    ``[n, ceil(k/2)]``.

    Backward (``exact``, learned step size quantization, Esser et al. 2020), with ``v = (x + bias_a) / scale_a`` and
    ``up = g . (q_w * scale_w)``: ``grad_x = up`` where v is in range, else 0;
    ``grad_scale_a = sum(term(v) * up) / sqrt(numel(x) * 7)``, term = the bound outside, ``rint(v) - v`` inside;
    ``grad_w = g^T . (q_a * scale_a)``, 0 where the weight's quantiser clips. Source:
    docs/spec/nbit-linear.md#q4linear.

    Arguments and errors are those of :class:`Q8Linear`.

    Example::

        >>> layer = bie.nn.Q4Linear(20, 3)
        >>> layer(torch.randn(5, 20)).shape
        torch.Size([5, 3])
        >>> bie.pack(layer)
        >>> layer.qweight.shape, layer.qweight.dtype
        (torch.Size([3, 10]), torch.int8)
    """

    _bits = 4
