"""Low-rank projection of gradients; docs/spec/optimizer.md#galore."""

from __future__ import annotations

import logging
from typing import Any

import torch
from torch import Tensor

from bie.errors import ShapeError

_log = logging.getLogger(__name__)

_KINDS = ("std", "reverse_std", "right", "left", "full")


class GaLoreProjector:
    """Projects a matrix on its top singular vectors and back: G = U S V^T.

    ======  ==========================  ====================
    side    project                     project_back / scale
    ======  ==========================  ====================
    right   ``G . V_r`` [m, r]          ``L . V_r^T``
    left    ``U_r^T . G`` [r, n]        ``U_r . L``
    full    ``U_r^T . G . V_r`` [r, r]  ``U_r . L . V_r^T``
    ======  ==========================  ====================

    ``std`` is right where rows >= columns, else left; ``reverse_std`` is the other one. r = min(rank, rows, columns).

    Args:
        rank: r, at least 1.
        verbose: log each renewal of the singular vectors.
        update_proj_gap: the vectors are renewed where ``iter`` is a multiple of it.
        scale: factor of ``project_back``.
        proj_type: std, reverse_std, right, left or full.

    Raises:
        ValueError: rank or gap below 1, or an unknown kind.

    Source: Zhao et al. 2024, "GaLore: Memory-Efficient LLM Training by Gradient Low-Rank Projection".

    Example::

        >>> projector = bie.optim.GaLoreProjector(rank=2)
        >>> low = projector.project(torch.randn(6, 4), iter=0)
        >>> low.shape, projector.project_back(low).shape
        (torch.Size([6, 2]), torch.Size([6, 4]))
    """

    def __init__(
        self,
        rank: int,
        verbose: bool = False,
        update_proj_gap: int = 200,
        scale: float = 1.0,
        proj_type: str = "std",
    ) -> None:
        if rank < 1 or update_proj_gap < 1:
            raise ValueError(
                f"GaLoreProjector: rank and update_proj_gap: expected 1 or more, got {rank} and {update_proj_gap}"
            )
        if proj_type not in _KINDS:
            raise ValueError(f"GaLoreProjector: proj_type: expected one of {', '.join(_KINDS)}, got {proj_type!r}")
        self.rank = rank
        self.verbose = verbose
        self.update_proj_gap = update_proj_gap
        self.scale = scale
        self.proj_type = proj_type
        self.ortho_matrix: Tensor | list[Tensor] | None = None
        self._side = ""  # of ortho_matrix: the low-rank shape alone does not always tell

    def state_dict(self) -> dict[str, Any]:
        """Everything as numbers, words and tensors, which ``torch.load(weights_only=True)`` takes."""
        return {"side" if name == "_side" else name: value for name, value in self.__dict__.items()}

    @classmethod
    def from_state_dict(cls, state: dict[str, Any], device: torch.device) -> GaLoreProjector:
        """The projector that ``state_dict`` was of, with copies of its vectors on ``device``."""
        state = dict(state)
        side, vectors = state.pop("side"), state.pop("ortho_matrix")
        projector = cls(**state)
        projector._side = side
        if isinstance(vectors, Tensor):
            projector.ortho_matrix = vectors.to(device, copy=True)
        elif vectors is not None:
            projector.ortho_matrix = [matrix.to(device, copy=True) for matrix in vectors]
        return projector

    def _side_of(self, grad: Tensor) -> str:
        if self.proj_type in ("right", "left", "full"):
            return self.proj_type
        tall = grad.size(0) >= grad.size(1)
        return "right" if tall == (self.proj_type == "std") else "left"

    def project(self, full_rank_grad: Tensor, iter: int) -> Tensor:
        """The low-rank gradient, in ``full_rank_grad``'s dtype; renews the singular vectors when it is time.

        Raises:
            ShapeError: not a float matrix, or not of the shape that the vectors belong to. ValueError: NaN, infinity.
        """
        _check_matrix("project", "full_rank_grad", full_rank_grad)
        if self.ortho_matrix is None or iter % self.update_proj_gap == 0:
            self._side = self._side_of(full_rank_grad)
            self.ortho_matrix = self.get_orthogonal_matrix(full_rank_grad, self.rank, self._side)
            if self.verbose:
                _log.info("GaLoreProjector: %s vectors renewed at step %d", self._side, iter)
        left, right = self._matrices()
        if (left is not None and left.size(0) != full_rank_grad.size(0)) or (
            right is not None and right.size(1) != full_rank_grad.size(1)
        ):
            raise ShapeError(
                f"GaLoreProjector: the gradient is {list(full_rank_grad.shape)}, the vectors are of another"
            )
        low = full_rank_grad if left is None else left.mT @ full_rank_grad
        return low if right is None else low @ right.mT

    def project_back(self, low_rank_grad: Tensor) -> Tensor:
        """``scale`` times the full-rank matrix, in the argument's dtype.

        Raises:
            RuntimeError: before the first ``project``. ShapeError: another rank, or no float matrix.
        """
        if self.ortho_matrix is None:
            raise RuntimeError("GaLoreProjector: project_back needs the vectors that project makes")
        _check_matrix("project_back", "low_rank_grad", low_rank_grad, finite=False)
        left, right = self._matrices()
        if (left is not None and left.size(1) != low_rank_grad.size(0)) or (
            right is not None and right.size(0) != low_rank_grad.size(1)
        ):
            raise ShapeError(
                f"GaLoreProjector: low_rank_grad: expected the rank of the vectors, got {list(low_rank_grad.shape)}"
            )
        full = low_rank_grad if left is None else left.to(low_rank_grad.dtype) @ low_rank_grad
        full = full if right is None else full @ right.to(low_rank_grad.dtype)
        return full * self.scale

    def _matrices(self) -> tuple[Tensor | None, Tensor | None]:
        """(U_r, V_r^T); None for the side that is not projected."""
        if self._side == "full":
            return self.ortho_matrix[0], self.ortho_matrix[1]
        return (self.ortho_matrix, None) if self._side == "left" else (None, self.ortho_matrix)

    def get_orthogonal_matrix(self, weights: Tensor, rank: int, type: str) -> Tensor | list[Tensor]:
        """Top ``rank`` singular vectors in ``weights``' dtype, computed in float32 or float64.

        Returns:
            ``right``: V_r^T [r, n]; ``left``: U_r [m, r]; ``full``: [U_r, V_r^T].

        Raises:
            ValueError: another ``type``, NaN or infinity. ShapeError: not a float matrix.
        """
        if type not in ("right", "left", "full"):
            raise ValueError(f"GaLoreProjector: type: expected right, left or full, got {type!r}")
        _check_matrix("get_orthogonal_matrix", "weights", weights)
        wide = weights.detach()
        wide = wide if wide.dtype == torch.float64 else wide.float()
        u, _, vh = torch.linalg.svd(wide, full_matrices=False)
        left, right = u[:, :rank].to(weights.dtype), vh[:rank].to(weights.dtype)
        return {"right": right, "left": left, "full": [left, right]}[type]


def _check_matrix(function: str, name: str, matrix: Tensor, *, finite: bool = True) -> None:
    if matrix.dim() != 2 or matrix.numel() == 0 or not matrix.is_floating_point():
        shape = f"{list(matrix.shape)} {matrix.dtype}"
        raise ShapeError(f"GaLoreProjector.{function}: {name}: expected a float matrix, got {shape}")
    if finite and not torch.isfinite(matrix).all():
        raise ValueError(f"GaLoreProjector.{function}: {name} holds NaN or infinity")
