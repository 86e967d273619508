"""What all linear layers share: the sizes."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from bie.nn.state.quant_layer import QuantLayer


class LinearLayer(QuantLayer):
    """Base of the linear layers: a weight ``[out_features, in_features]``."""

    def __init__(
        self,
        in_features: int,
        out_features: int,
        bias: bool = False,
        device: torch.device | str | None = None,
        dtype: torch.dtype = torch.float,
        *,
        weight_dtype: torch.dtype = torch.float32,
        **options: Any,
    ) -> None:
        shape = (out_features, in_features)
        super().__init__(shape, bias=bias, device=device, dtype=dtype, weight_dtype=weight_dtype, **options)

    @property
    def in_features(self) -> int:
        return self._weight_shape[1]

    @property
    def out_features(self) -> int:
        return self._weight_shape[0]

    def _check_forward(self, x: Tensor) -> None:
        self._check_tensor(x)
        if x.dim() < 1 or x.shape[-1] != self.in_features:
            raise self._shape_error(x, f"the layer's {self.in_features} features")
