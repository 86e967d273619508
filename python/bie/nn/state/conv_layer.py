"""What all convolutions share: how the window moves, which inputs fit, the layouts of a packed filter."""

from __future__ import annotations

import math
import warnings
from typing import Any

import torch
from torch import Tensor

from bie.nn.state.arguments import pair
from bie.nn.state.quant_layer import QuantLayer


class ConvLayer(QuantLayer):
    """Base of the convolutions: a weight ``[out, in/groups, kh, kw]``, NCHW in and out."""

    _feature_axis = 1
    _packed_flat = False  # whether qweight is labelled as flat bytes

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: int | tuple[int, int],
        stride: int | tuple[int, int] = 1,
        padding: int | tuple[int, int] = 0,
        dilation: int | tuple[int, int] = 1,
        groups: int = 1,
        bias: bool = False,
        device: torch.device | str | None = None,
        dtype: torch.dtype = torch.float,
        **options: Any,
    ) -> None:
        if isinstance(groups, bool) or not isinstance(groups, int) or groups < 1:
            raise ValueError(f"groups: expected a positive integer, got {groups}")
        if in_channels % groups or out_channels % groups:
            raise ValueError(f"groups is {groups}, which does not divide {in_channels} and {out_channels} channels")
        self._groups = groups
        self._geometry = {
            "kernel_size": pair("kernel_size", kernel_size, 1),
            "stride": pair("stride", stride, 1),
            "padding": pair("padding", padding, 0),
            "dilation": pair("dilation", dilation, 1),
        }
        shape = (out_channels, in_channels // groups, *self._geometry["kernel_size"])
        super().__init__(shape, bias=bias, device=device, dtype=dtype, weight_dtype=torch.float32, **options)
        self.in_channels, self.out_channels, self.groups = in_channels, out_channels, groups
        self.kernel_size, self.stride, self.padding, self.dilation = kernel_size, stride, padding, dilation

    def _packed_shape(self) -> tuple[int, ...]:
        label = super()._packed_shape()
        return (math.prod(label),) if self._packed_flat else label

    def _to_file(self, packed: Tensor) -> Tensor:
        return packed.view(self._packed_shape())

    def _from_file(self, qweight: Tensor) -> Tensor:
        # The operators read filters of any shape but flat ones, and tell by the tensor whether their panels are stale.
        return qweight if qweight.dim() > 1 else qweight.view(super()._packed_shape())

    def _check_image(self, x: Tensor) -> None:
        self._check_tensor(x)
        if x.dim() != 4 or x.shape[1] != self.in_channels:
            raise self._shape_error(x, f"[batch, {self.in_channels}, height, width]")

    def _check_window(self, x: Tensor) -> None:
        g = self._geometry
        for i, size in enumerate(x.shape[2:]):
            span = g["dilation"][i] * (g["kernel_size"][i] - 1) + 1
            if size + 2 * g["padding"][i] < span:
                raise self._shape_error(
                    x, f"sizes no smaller than the kernel {g['kernel_size']} with padding {g['padding']}"
                )

    def _check_forward(self, x: Tensor) -> None:
        self._check_image(x)

    def _options(self, panels: Tensor | None = None, anchor: Tensor | None = None) -> dict[str, Any]:
        options = super()._options(panels, anchor) | self._geometry
        return options if self.groups == 1 else options | {"groups": self.groups}

    def _sizes(self) -> str:
        usual = {"stride": (1, 1), "padding": (0, 0), "dilation": (1, 1)}
        shown = [f"{name}={value}" for name, value in self._geometry.items() if value != usual.get(name)]
        if self._groups > 1:
            shown.append(f"groups={self._groups}")
        return ", ".join([f"{self.in_channels}, {self.out_channels}", *shown])

    def _warn_of_old_gpu_files(self, version: int | None) -> None:
        """For classes whose file may have been trained by BITorch Engine's GPU kernels."""
        if version == 1 and self._geometry["kernel_size"] != (1, 1):
            warnings.warn(
                f"the weights of a {type(self).__name__} trained by BITorch Engine were loaded, but its GPU kernel "
                "computes no convolution: the accuracy does not carry over (docs/migration.md)",
                stacklevel=5,
            )
