"""What a layer's inputs say about the errors of its weight."""

from __future__ import annotations

import torch
from torch import Tensor

from bie._operators import ops
from bie.errors import ShapeError


class Hessian:
    """``H = mean of x x^T`` [k, k] over a linear layer's inputs.

    ``||(W - V) x||^2 = tr((W - V) H (W - V)^T)`` on average: half the Hessian of the layer's squared output error, in
    any row of its weight. Products are added in float64, on the CPU row after row by one fused multiply-add each, so
    that H does not depend on how the rows are divided into calls.

    Args:
        in_features: k.
        device: where the sum is kept.

    Source: Frantar et al. 2022 (GPTQ), section 3.

    Example::

        >>> hessian = bie.quantization.Hessian(3)
        >>> hessian.add(torch.tensor([[1.0, 2.0, 0.0], [3.0, 0.0, 0.0]]))
        >>> hessian.matrix().tolist()
        [[5.0, 1.0, 0.0], [1.0, 2.0, 0.0], [0.0, 0.0, 0.0]]
    """

    def __init__(self, in_features: int, device: torch.device | str | None = None) -> None:
        self._sum = torch.zeros(in_features, in_features, dtype=torch.float64, device=device)
        self.rows = 0

    def add(self, x: Tensor) -> None:
        """Adds inputs [..., k] of any float dtype.

        Raises:
            ShapeError: another number of features, or no floats. ValueError: NaN or infinity.
        """
        k = self._sum.size(0)
        if x.dim() < 1 or x.size(-1) != k or not x.is_floating_point():
            raise ShapeError(f"Hessian: x: expected floats of {k} features, got {list(x.shape)} of {x.dtype}")
        rows = x.detach().reshape(-1, k).to(self._sum.device)
        if not bool(torch.isfinite(rows).all()):
            raise ValueError("Hessian: x holds NaN or infinity")
        if self._sum.is_cpu:
            ops.add_second_moment(self._sum, rows)
        else:
            wide = rows.double()
            self._sum += wide.t() @ wide
        self.rows += rows.size(0)

    def matrix(self) -> Tensor:
        """H in float64. ``ValueError`` where nothing was added."""
        if self.rows == 0:
            raise ValueError("Hessian: no input was added")
        upper = self._sum.triu() / self.rows
        return upper + upper.triu(1).t()
