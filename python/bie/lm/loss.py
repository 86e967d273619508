"""The losses of language models, computed without the logits of all tokens at once."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

from bie.errors import ShapeError

_IGNORED = -100


def next_token_loss(
    hidden: Tensor,
    head: Callable[[Tensor], Tensor],
    labels: Tensor,
    *,
    most_logits: int = 2**24,
    cross_entropy: Callable[[Tensor, Tensor], Tensor] | None = None,
    fixed_shapes: bool = False,
) -> tuple[Tensor, int | Tensor]:
    """``-sum over i of log_softmax(head(hidden[i]))[labels[i]]`` over the labels that are not -100, and their count.

    Only rows that count go through ``head``, in pieces of ``max(1, most_logits // vocabulary)``; backward computes the
    logits of a piece anew, so no more than those of one piece are ever there.

    Args:
        hidden: [..., width] of any float type.
        head: a layer or function [n, width] -> [n, vocabulary], for any n from 0 on.
        labels: [...] int64, -100 where a token does not count.
        most_logits: how many logits are there at once, at least those of one token.
        cross_entropy: of logits [n, vocabulary] and targets [n], the sum over the targets that are not -100;
            ``summed_cross_entropy``, or that compiled.
        fixed_shapes: rows that do not count go through ``head`` too, and nothing waits for the device, as a CUDA graph
            wants it.

    Returns:
        The sum, of float32 (float64 if the logits are), and how many labels count: with ``fixed_shapes`` a tensor.
        Without any the sum is 0, and its gradients are zeros.

    Raises:
        ShapeError: labels of another shape. ValueError: ``most_logits`` below 1.

    Example::

        total, count = next_token_loss(model.model(ids).last_hidden_state, model.lm_head, labels)
        (total / count).backward()
    """
    _check("next_token_loss", hidden, labels, most_logits)
    entropy = summed_cross_entropy if cross_entropy is None else cross_entropy

    def loss_of(rows: Tensor, targets: Tensor) -> Tensor:
        return entropy(head(rows), targets)

    pieces, count = _rows_of(hidden, labels, fixed_shapes)
    return _summed(loss_of, head, most_logits, *pieces, random=not fixed_shapes), count


def summed_cross_entropy(logits: Tensor, targets: Tensor) -> Tensor:
    """``-sum of log_softmax(logits[i])[targets[i]]`` over the targets that are not -100, in float32 or float64."""
    return functional.cross_entropy(_floats(logits), targets, ignore_index=_IGNORED, reduction="sum")


def distilled_loss(
    hidden: Tensor,
    head: Callable[[Tensor], Tensor],
    labels: Tensor,
    teacher_values: Tensor,
    teacher_ids: Tensor,
    *,
    weight: float,
    temperature: float = 1.0,
    most_logits: int = 2**24,
    cross_entropy: Callable[[Tensor, Tensor], Tensor] | None = None,
    fixed_shapes: bool = False,
) -> tuple[Tensor, int | Tensor]:
    """The loss of a student that learns from its teacher's K best tokens, and how many labels count.

    The sum over the labels that are not -100 of ``(1 - weight) * cross_entropy + weight * T^2 * KL(p || q)``, where,
    for z = head(hidden[i]) and t = teacher_ids[i]::

        cross_entropy = -log_softmax(z)[labels[i]]
        p = softmax(teacher_values[i] / T)    over the teacher's K
        q = softmax(z / T)[t]                 over the vocabulary
        KL(p || q) = sum over K of p * (log p - log q)

    Pieces are as those of :func:`next_token_loss`.

    Args:
        hidden, head, labels, most_logits, cross_entropy, fixed_shapes: as :func:`next_token_loss` takes them.
        teacher_values: [..., K] of any float type, the teacher's logits or log-probabilities of its K best tokens;
            -infinity fills places that a token has none for. They get no gradient.
        teacher_ids: [..., K] int64, the tokens of these.
        weight: the share of the teacher, in [0, 1].
        temperature: T, positive.

    Returns:
        As :func:`next_token_loss` does.

    Raises:
        ShapeError: labels, values or ids of another shape. ValueError: ``weight``, ``temperature`` or ``most_logits``
            out of range.

    Source: Hinton et al. 2015, "Distilling the Knowledge in a Neural Network".
    """
    name = "distilled_loss"
    _check(name, hidden, labels, most_logits)
    if not 0 <= weight <= 1 or not temperature > 0:
        raise ValueError(
            f"{name}: weight and temperature: expected a number in [0, 1] and a positive one, got {weight} and "
            f"{temperature}"
        )
    if teacher_values.shape[:-1] != labels.shape or teacher_ids.shape != teacher_values.shape:
        shapes = f"{list(teacher_values.shape)} and {list(teacher_ids.shape)}"
        raise ShapeError(f"{name}: teacher_values and teacher_ids: expected {[*labels.shape, 'K']}, got {shapes}")
    values, ids = teacher_values.detach().flatten(0, -2), teacher_ids.flatten(0, -2)
    entropy = summed_cross_entropy if cross_entropy is None else cross_entropy

    def loss_of(rows: Tensor, targets: Tensor, values: Tensor, ids: Tensor) -> Tensor:
        logits = head(rows)
        scaled = _floats(logits) / temperature
        student = scaled.gather(1, ids) - scaled.logsumexp(-1, keepdim=True)
        teacher = torch.softmax(_floats(values) / temperature, -1)
        soft = functional.kl_div(student, teacher.to(student.dtype), reduction="none").sum(-1)
        soft = torch.where(targets == _IGNORED, 0, soft).sum()
        return (1 - weight) * entropy(logits, targets) + weight * temperature**2 * soft

    pieces, count = _rows_of(hidden, labels, fixed_shapes, values, ids)
    return _summed(loss_of, head, most_logits, *pieces, random=not fixed_shapes), count


def _check(name: str, hidden: Tensor, labels: Tensor, most_logits: int) -> None:
    if hidden.dim() < 1 or labels.shape != hidden.shape[:-1]:
        raise ShapeError(f"{name}: labels: expected {list(hidden.shape[:-1])}, got {list(labels.shape)}")
    if most_logits < 1:
        raise ValueError(f"{name}: most_logits: expected 1 or more, got {most_logits}")


def _rows_of(hidden: Tensor, labels: Tensor, all_rows: bool, *others: Tensor) -> tuple[list[Tensor], int | Tensor]:
    """The rows of flattened tensors whose labels count, or all of them, and how many count."""
    flat = labels.flatten()
    tensors = [hidden.reshape(-1, hidden.shape[-1]), flat, *others]
    if all_rows:
        return tensors, (flat != _IGNORED).sum()
    places = (flat != _IGNORED).nonzero().squeeze(1)
    return [tensor.index_select(0, places) for tensor in tensors], len(places)


def _floats(values: Tensor) -> Tensor:
    return values.to(torch.promote_types(values.dtype, torch.float32))


def _vocabulary(head: Callable[[Tensor], Tensor], rows: Tensor) -> int:
    """How many logits a head gives for a row."""
    known = getattr(head, "out_features", None)
    if isinstance(known, int):
        return known
    with torch.no_grad():
        return head(rows[:1]).shape[-1]


def _summed(
    loss_of: Callable[..., Tensor],
    head: Callable[[Tensor], Tensor],
    most_logits: int,
    *tensors: Tensor,
    random: bool = True,
) -> Tensor:
    """The sum of a loss over pieces of the rows of tensors, of which there is one at least; ``random``: it may draw."""
    size = max(1, most_logits // max(1, _vocabulary(head, tensors[0])))
    pieces = zip(*(tensor.split(size) for tensor in tensors), strict=True)
    if not torch.is_grad_enabled():
        return torch.stack([loss_of(*piece) for piece in pieces]).sum()
    options = {"use_reentrant": False, "preserve_rng_state": random}
    return torch.stack([checkpoint(loss_of, *piece, **options) for piece in pieces]).sum()
