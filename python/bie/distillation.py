"""The loss of a student that learns from its float twin."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from bie.errors import ShapeError


def distillation_loss(
    logits: Tensor, teacher: Tensor, target: Tensor, *, alpha: float = 0.5, temperature: float = 2.0
) -> Tensor:
    """``(1 - alpha) * cross_entropy(logits, target) + alpha * T^2 * KL(softmax(teacher / T) || softmax(logits / T))``.

    Args:
        logits, teacher: [batch, classes] of the student and of its float twin, whose gradient is not taken.
        target: [batch], the classes.
        alpha: the share of the teacher, 0 to 1.
        temperature: T, positive; the larger, the more the teacher's small probabilities count.

    Raises:
        ShapeError: logits of two shapes. ValueError: ``alpha`` or ``temperature`` out of range.

    Source: Hinton et al. 2015, "Distilling the Knowledge in a Neural Network".

    Example::

        >>> logits = torch.zeros(2, 3, requires_grad=True)
        >>> bie.distillation_loss(logits, torch.zeros(2, 3), torch.tensor([0, 1]), alpha=1.0).item()
        0.0
    """
    if logits.shape != teacher.shape:
        raise ShapeError(f"distillation_loss: logits are {list(logits.shape)}, the teacher's {list(teacher.shape)}")
    if not 0 <= alpha <= 1 or not temperature > 0:
        raise ValueError(
            "distillation_loss: alpha and temperature: expected a number in [0, 1] and a positive one, got "
            f"{alpha} and {temperature}"
        )
    soft = nn.functional.kl_div(
        torch.log_softmax(logits / temperature, -1),
        torch.log_softmax(teacher.detach() / temperature, -1),
        reduction="batchmean",
        log_target=True,
    )
    return (1 - alpha) * nn.functional.cross_entropy(logits, target) + alpha * temperature**2 * soft
