"""What follows a product in training, in a few passes of kernels where a GPU has them (``bie::training_tail``)."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from bie._operators import ops

_ACTIVATIONS = {nn.Identity: "none", nn.ReLU: "relu", nn.PReLU: "prelu"}


def fused_tail(norm: nn.Module, act: nn.Module, x: Tensor, shortcut: Tensor | None, pool: int) -> Tensor | None:
    """``max_pool2d(act(norm(x) + shortcut), pool)`` of a BatchNorm in training; None where the modules do it."""
    if not (_has_kernels(x, pool) and _is_plain_norm(norm) and _is_plain(act) and type(act) in _ACTIVATIONS):
        return None
    if shortcut is not None and (shortcut.dtype != x.dtype or not _has_kernels(shortcut, pool)):
        return None
    slope = act.weight if isinstance(act, nn.PReLU) else None
    if slope is not None and (slope.numel() != 1 or slope.dtype != torch.float32):
        return None
    if norm.num_batches_tracked is not None:
        norm.num_batches_tracked.add_(1)
    return ops.training_tail(
        x,
        norm.weight,
        norm.bias,
        norm.running_mean,
        norm.running_var,
        shortcut,
        slope,
        momentum=norm.momentum,
        eps=norm.eps,
        activation=_ACTIVATIONS[type(act)],
        pool=pool,
    )[0]


def _has_kernels(x: Tensor, pool: int) -> bool:
    """Dense pixels or rows on a GPU, as include/bie/kernels/cuda/training_tail.h wants them."""
    if not x.is_cuda or x.dim() not in (2, 4) or x.shape[1] % 4 != 0 or pool not in (1, 2):
        return False
    if x.dim() == 4 and min(x.shape[2:]) < pool:
        return False
    order = torch.channels_last if x.dim() == 4 else torch.contiguous_format
    return x.numel() > x.shape[1] and x.is_contiguous(memory_format=order)


def _is_plain(module: nn.Module) -> bool:
    """Without hooks, which would not be called."""
    return not (module._forward_hooks or module._forward_pre_hooks or module._backward_hooks)


def _is_plain_norm(norm: nn.Module) -> bool:
    return (
        type(norm) in (nn.BatchNorm1d, nn.BatchNorm2d)
        and _is_plain(norm)
        and norm.training
        and norm.momentum is not None
        and all(t is None or t.dtype == torch.float32 for t in (norm.weight, norm.bias, norm.running_mean))
    )
