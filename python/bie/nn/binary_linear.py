"""1-bit linear layers: the product of signs, with learned scales or plain."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from bie._operators import ONE, ops
from bie.errors import ShapeError
from bie.nn.state.arguments import shared
from bie.nn.state.linear_layer import LinearLayer
from bie.nn.state.signs_layer import SignsLayer, TrainedSignsLayer
from bie.weights.parameters import SignsParameter

_binary_linear = ops.binary_linear.default


class SignsLinear(LinearLayer):
    """Sizes of a 1-bit linear layer, the layouts of its packed weight and the inputs that fit."""

    _bits = 1
    _integer_parameter = SignsParameter

    @shared
    def __init__(
        self,
        in_features: int,
        out_features: int,
        bias: bool = False,
        device: torch.device | str | None = None,
        dtype: torch.dtype = torch.float,
        *,
        symmetric: bool = True,
        latent: bool = False,
        compat: str = "none",
    ) -> None:
        super().__init__(
            in_features, out_features, bias, device, dtype, weight_dtype=dtype, latent=latent, compat=compat
        )
        self.symmetric = symmetric

    def set_weight_data(self, x: Tensor) -> None:
        """Replaces the weight by a float one; ``ShapeError`` unless it has the layer's shape and dtype."""
        if isinstance(x, Tensor) and x.dtype != self.dtype:
            raise ShapeError(f"{type(self).__name__}: the weight is of {x.dtype}, the layer of {self.dtype}")
        super().set_weight_data(x)

    def _stored_layout(self) -> str | None:
        """BITorch Engine's flat layout of ``qweight`` (``signs_to_layout``); ``None`` for packed rows."""
        return None

    def _packed_shape(self) -> tuple[int, ...]:
        if self._stored_layout() is None:
            return super()._packed_shape()
        return (self.out_features * self.in_features // 8,)

    def _to_file(self, packed: Tensor) -> Tensor:
        layout = self._stored_layout()
        return packed if layout is None else ops.signs_to_layout(packed, self.in_features, layout)

    def _from_file(self, qweight: Tensor) -> Tensor:
        layout = self._stored_layout()
        if layout is None:
            return qweight
        return ops.signs_from_layout(qweight, self.out_features, self.in_features, layout)

    def _read_packed(self, packed: Tensor, has_scales: bool, name: str) -> Tensor:
        own = self._stored_layout() is not None and has_scales == (self.scale_a is not None)
        if own and packed.dtype == torch.uint8 and tuple(packed.shape) == self._packed_shape():
            return packed
        return super()._read_packed(packed, has_scales, name)

    def _check_forward(self, x: Tensor) -> None:
        self._check_tensor(x)
        k = self.in_features
        packed = x.dtype == torch.uint8
        if x.dim() < 1 or x.shape[-1] != ((k + 7) // 8 if packed else k):
            raise self._shape_error(x, f"the layer's {k} features ({(k + 7) // 8} bytes of packed signs)")
        if x.dtype not in (torch.float32, torch.float16, torch.bfloat16, torch.uint8):
            raise self._shape_error(x, "float32, float16, bfloat16 or packed signs in uint8")


class PackedSignsLinear(SignsLayer, SignsLinear):
    """What all 1-bit linear layers share that compute something."""

    def _prepack(self, packed: Tensor) -> Tensor:
        return ops.binary_prepack(packed, self.in_features, self._kernel_id())

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
            options = options | {"in_features": self.in_features}
        return _binary_linear(x, weight, self._parameters["scale_a"], scale_w, bias_a, **options)

    def _fastest_kernel(self, x: Tensor) -> int:
        """The id of the kernel that is fastest on this machine on batches like x; later processes remember it."""
        self._check_forward(x)
        rows = x.numel() // x.shape[-1]
        return ops.select_binary_kernel(rows, self.out_features, self.in_features, x.device)


class BinaryLinear(TrainedSignsLayer, PackedSignsLinear):
    """Linear layer with 1-bit weights and activations.

    ``y = scale_a * scale_w * (k - 2 * popcount(bit(x + bias_a) XOR bit(w)))``, ``bit(v) = v >= 0``; x is ``[..., k]``
    float32, float16 or bfloat16, or signs packed into uint8 ``[..., ceil(k/8)]``; y has x's dtype (float32 for packed).

    Backward: ``grad_x = (g . sgn(w)) * scale_w`` where ``|xs / scale_a| <= 1``, else 0, with ``xs = x + bias_a``;
    ``grad_w = g^T . (sgn(xs) * scale_a)``, as int8 (``int8_grad``) for an int8 weight;
    ``grad_scale_a = sum(grad_x * sgn(xs)) / sqrt(numel(xs))``. Source: docs/spec/binary-linear.md.

    A layer used unprepared prepares itself in its first training forward, unless it is ``latent``.

    Args:
        in_features: k, any positive number.
        out_features: n.
        bias: add a learnable bias ``[out_features]`` to the output.
        device: where the tensors are made.
        dtype: of the float weight, ``bias_a`` and ``bias``: float32, float16 or bfloat16.
        symmetric: the first batch sets ``scale_a`` to ``2 * mean|x|``; ``4 * mean|x|`` if not.
        latent: keep the weight as a float that any optimizer trains, instead of int8 for ``DiodeMix``.
        compat: ``"none"`` or ``"bie-0.2.6"``.

    Raises:
        ShapeError (``forward``): x of another dtype or number of features. ValueError: x holds NaN or infinity.

    Example::

        >>> layer = bie.nn.BinaryLinear(20, 3)
        >>> layer(torch.randn(5, 20)).shape
        torch.Size([5, 3])
        >>> layer.weight.dtype
        torch.int8
    """


class PlainBinaryLinear(PackedSignsLinear):
    """``y = k - 2 * popcount(bit(x) XOR bit(w))`` as float32 ``[..., n]``: neither ``bias_a`` nor scales.

    Backward as :class:`BinaryLinear` with all scales 1; the weight trains as a float. ``qweight`` is uint8
    ``[n, ceil(k/8)]``. Arguments and errors are those of :class:`BinaryLinear`.
    Source: docs/spec/binary-linear.md#plain-layer.

    Example::

        >>> layer = bie.nn.PlainBinaryLinear(20, 3)
        >>> layer(torch.ones(1, 20)).abs().max() <= 20
        tensor(True)
    """

    def __init__(
        self,
        in_features: int,
        out_features: int,
        bias: bool = False,
        device: torch.device | str | None = None,
        dtype: torch.dtype = torch.float,
        *,
        symmetric: bool = True,
        latent: bool = True,
        compat: str = "none",
    ) -> None:
        options = {"symmetric": symmetric, "latent": latent, "compat": compat}
        super().__init__(in_features, out_features, bias, device, dtype, **options)

    def prepare_params(self) -> None:
        """Does nothing: the weight trains as a float."""

    def _operator(
        self, x: Tensor, bias_a: Tensor | None, weight: Tensor, scale_w: Tensor | None, options: dict[str, Any]
    ) -> Tensor:
        if x.dtype == torch.uint8:
            options = options | {"in_features": self.in_features}
        else:
            x = x.float()
        if not torch.is_autocast_enabled(x.device.type):
            return ops.binary_linear(x, weight, ONE, ONE, **options)
        with torch.autocast(x.device.type, enabled=False):  # 16 bits do not hold the counts
            return ops.binary_linear(x, weight, ONE, ONE, **options)
