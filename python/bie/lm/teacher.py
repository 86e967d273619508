"""A model that another one learns from: the best tokens behind each token of a batch."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor, nn


@dataclass(frozen=True)
class Teacher:
    """What ``distilled_loss`` takes of a teacher.

    Attributes:
        model: of transformers, with ``model.model`` and ``model.lm_head``; it is never trained.
        best: how many tokens of the largest logits the student is shown, at most those of the vocabulary.
        weight: the share of the loss that is the teacher's, in [0, 1]; the texts have the rest.
        temperature: that both distributions are divided by, positive.

    Raises:
        ValueError: a number out of range.
    """

    model: nn.Module
    best: int = 64
    weight: float = 0.5
    temperature: float = 1.0

    def __post_init__(self) -> None:
        if not 1 <= self.best <= self.model.config.vocab_size:
            raise ValueError(
                f"Teacher: best: expected 1 ... {self.model.config.vocab_size}, the vocabulary, got {self.best}"
            )
        if not 0 <= self.weight <= 1:
            raise ValueError(f"Teacher: weight: expected a share in [0, 1], got {self.weight}")
        if not (math.isfinite(self.temperature) and self.temperature > 0):
            raise ValueError(f"Teacher: temperature: expected a positive number, got {self.temperature}")
        self.model.requires_grad_(False).eval()

    @torch.no_grad()
    def best_tokens(self, hidden: Tensor, most_logits: int) -> tuple[Tensor, Tensor]:
        """Logits and numbers of the best tokens behind each state [..., width], both [..., best]."""
        rows = max(1, most_logits // self.model.config.vocab_size)
        found = [self.model.lm_head(piece).topk(self.best, -1) for piece in hidden.flatten(0, -2).split(rows)]
        shape = (*hidden.shape[:-1], self.best)
        values, ids = (torch.cat(parts).view(shape) for parts in zip(*found, strict=True))
        return values, ids
