"""Optimizer steps of packed weights, one for each parameter class; numerics.md section 10."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor, nn

from bitorch_engine._operators import ops
from bitorch_engine.errors import ShapeError

_ZEROS_EVERY = 5


def moment_dtype(dtype: torch.dtype) -> torch.dtype:
    """float32, or bfloat16 for every 16-bit type: float16 cannot hold the steps of a second moment near 1e-8."""
    if dtype not in (torch.float32, torch.bfloat16, torch.float16):
        raise ValueError(f"the moments' dtype is {dtype}, float32, bfloat16 or float16 is wanted")
    return torch.float32 if dtype == torch.float32 else torch.bfloat16


def zero_moments(
    param: Tensor, grad: Tensor, dtype: torch.dtype, seed: int = 0, stream: int = 0
) -> tuple[Tensor, Tensor]:
    """(exp_avg_l, exp_avg_s) of Adam before the first step."""
    zeros = torch.zeros_like(param.detach() if param.shape == grad.shape else grad, dtype=moment_dtype(dtype))
    return zeros, torch.zeros_like(zeros)


def sign_moments(
    param: Tensor, grad: Tensor, dtype: torch.dtype, seed: int = 0, stream: int = 0
) -> tuple[Tensor, Tensor]:
    """(exp_avg_l, exp_avg_s) of int8 signs before the first step: zeros and -sgn(w) * U(0, 1) * 1e-3."""
    signs, dtype = param.detach(), moment_dtype(dtype)
    return torch.zeros_like(signs, dtype=dtype), ops.diode_mix_first_moment(signs, dtype, seed, stream)


def embedding_moments(
    param: Tensor, grad: Tensor, dtype: torch.dtype, seed: int = 0, stream: int = 0
) -> tuple[None, Tensor]:
    """(None, exp_avg_s) of a binary embedding before the first step: -(+-1 of the stored bit) * U(0, 1) * 1e-3."""
    packed = param.dtype == torch.uint8
    signs = _signs(param.detach(), param.size(1) * (8 if packed else 1), packed)
    return None, ops.diode_mix_first_moment(signs.to(torch.int8), moment_dtype(dtype), seed, stream)


def _gradient(qweight: Tensor, grad: Tensor | None) -> Tensor | None:
    """``grad``, or the weight's own; ``None`` where a float one holds NaN or infinity: that step is left out."""
    for found in (grad, qweight.grad, getattr(qweight, "privileged_grad", None)):
        if found is not None:
            return None if found.is_floating_point() and not bool(torch.isfinite(found).all()) else found
    raise RuntimeError(f"the {list(qweight.shape)} weight has no gradient to make a step with")


def step_signs(
    qweight: Tensor,
    exp_avg_s: Tensor | None = None,
    exp_avg_l: Tensor | None = None,
    step: Tensor | None = None,
    lr: float = 1e-4,
    weight_decay: float = 0.0,
    beta1: float = 0.99,
    beta2: float = 0.9999,
    eps: float = 1e-6,
    dtype: torch.dtype = torch.half,
    correct_bias: bool | None = None,
    projector: Any = None,
    grad: Tensor | None = None,
    *,
    seed: int = 0,
    stream: int = 0,
) -> None:
    """One step of ``DiodeMix`` on int8 signs, in place.

    ``l = lerp(l, g, 1 - beta1)``, ``s = lerp(s, lr * sgn(l), 1 - beta2)``; every weight whose sign differs from
    ``-sgn(s)`` (0 counts as +1) is negated. Moments that are not given start anew and are lost.
    ``step`` holds the number of this step, from 1. Weight decay, ``eps``, ``correct_bias`` and ``projector`` mean
    nothing for signs. Source: numerics.md section 10.
    """
    grad = _gradient(qweight, grad)
    if grad is None:
        return
    if exp_avg_s is None or exp_avg_l is None:
        exp_avg_l, exp_avg_s = sign_moments(qweight, grad, dtype, seed, stream)
    count = 1 if step is None else int(step)
    numbers = {"step": count, "lr": lr, "beta1": beta1, "beta2": beta2, "seed": seed, "stream": stream}
    ops.diode_mix_signs_(qweight.detach(), grad, exp_avg_l, exp_avg_s, **numbers)
    torch.autograd.graph.increment_version(qweight)


def step_codes(
    qweight: Tensor,
    exp_avg_s: Tensor | None = None,
    exp_avg_l: Tensor | None = None,
    step: Tensor | None = None,
    lr: float = 1e-4,
    weight_decay: float = 0.0,
    beta1: float = 0.99,
    beta2: float = 0.9999,
    eps: float = 1e-6,
    dtype: torch.dtype = torch.half,
    correct_bias: bool | None = None,
    projector: Any = None,
    grad: Tensor | None = None,
    *,
    seed: int = 0,
    stream: int = 0,
    renew_scale: bool = False,
) -> None:
    """One step of ``DiodeMix`` on 8- or 4-bit codes (or on a float weight), in place.

    Adam with decoupled decay on ``w = code * scale_w``, then a stochastic rounding of ``w / scale_w``. ``renew_scale``
    first gives ``scale_w`` the value that weights of this mean would start with. Source: numerics.md section 10; the
    rule is ours.
    """
    grad = _gradient(qweight, grad)
    if grad is None:
        return
    if exp_avg_s is None or exp_avg_l is None:
        exp_avg_l, exp_avg_s = zero_moments(qweight, grad, dtype, seed, stream)
    numbers = {
        "step": 1 if step is None else int(step),
        "lr": lr,
        "beta1": beta1,
        "beta2": beta2,
        "eps": eps,
        "weight_decay": weight_decay,
        "correct_bias": True if correct_bias is None else correct_bias,
        "seed": seed,
        "stream": stream,
    }
    data = qweight.detach()
    if data.is_floating_point():
        ops.diode_mix_float_(data, grad, exp_avg_l, exp_avg_s, **numbers)
    else:
        bits, scale_w = getattr(qweight, "bits", None), getattr(qweight, "scale_w", None)
        if bits not in (4, 8) or scale_w is None:
            raise ValueError("an integer weight outside a layer does not say what its codes mean (bits, scale_w)")
        ops.diode_mix_codes_(
            data, grad, exp_avg_l, exp_avg_s, scale_w.detach(), bits=bits, renew_scale=renew_scale, **numbers
        )
    torch.autograd.graph.increment_version(qweight)


def step_embedding(
    qweight: nn.Parameter,
    exp_avg_s: Tensor | None = None,
    exp_avg_l: Tensor | None = None,
    step: Tensor | None = None,
    lr: float = 1e-4,
    weight_decay: float = 0.0,
    beta1: float = 0.99,
    beta2: float = 0.9999,
    eps: float = 1e-6,
    dtype: torch.dtype = torch.half,
    correct_bias: bool | None = None,
    projector: Any = None,
    grad: Tensor | None = None,
    *,
    seed: int = 0,
    stream: int = 0,
) -> None:
    """One step of a binary embedding in place, on ``active_indices`` only (all rows where that is None).

    ``v = lr * (+-1 of the gradient's bit)``, ``s <- lerp(s, v, 1 - beta2)``, target ``-sgn(s)`` with 0 -> +1; bits that
    differ from it flip. The other arguments mean nothing for signs.

    Args:
        qweight: [N, p] uint8 with a uint8 gradient, or [N, D] bool with a bool gradient (``grad``, else ``.grad``).
        exp_avg_s: [N, 8p] or [N, D] float; its rows that are not active keep their values. One that is not given starts
            as ``-(+-1 of the stored bit) * U(0, 1) * 1e-3``, drawn by ``seed`` and ``stream``, and is lost.

    Raises:
        RuntimeError: no gradient. ShapeError: a dtype or shape does not fit.
    """
    grad = _gradient(qweight, grad)
    packed = qweight.dtype == torch.uint8
    width = qweight.size(1) * (8 if packed else 1)
    if qweight.dtype not in (torch.uint8, torch.bool) or grad.dtype != qweight.dtype or grad.shape != qweight.shape:
        raise ShapeError(
            f"step_embedding: the weight is {list(qweight.shape)} {qweight.dtype} and its gradient {list(grad.shape)} "
            f"{grad.dtype}, uint8 or bool of one shape is wanted for both"
        )
    if exp_avg_s is None:
        exp_avg_s = embedding_moments(qweight, grad, dtype, seed, stream)[1]
    if exp_avg_s.shape != (qweight.size(0), width):
        raise ShapeError(f"step_embedding: exp_avg_s is {list(exp_avg_s.shape)}, {[qweight.size(0), width]} is wanted")
    active = getattr(qweight, "active_indices", None)
    rows = torch.arange(qweight.size(0), device=qweight.device) if active is None else active.reshape(-1).unique()
    moved = exp_avg_s[rows].lerp_((_signs(grad[rows], width, packed) * lr).to(exp_avg_s.dtype), 1 - beta2)
    exp_avg_s[rows] = moved
    up = moved <= 0  # -sgn(s) is +1 there
    with torch.no_grad():
        qweight[rows] = ops.pack_signs(torch.where(up, 1.0, -1.0)) if packed else up


def _signs(bits: Tensor, width: int, packed: bool) -> Tensor:
    return ops.unpack_signs(bits, width).float() if packed else torch.where(bits, 1.0, -1.0)


def step_weight_only(
    qweight: nn.Parameter,
    exp_avg_s: Tensor | None = None,
    exp_avg_l: Tensor | None = None,
    step: Tensor | None = None,
    lr: float = 1e-4,
    weight_decay: float = 0.0,
    beta1: float = 0.99,
    beta2: float = 0.9999,
    eps: float = 1e-6,
    dtype: torch.dtype = torch.half,
    correct_bias: bool | None = None,
    projector: Any = None,
    grad: Tensor | None = None,
    *,
    seed: int = 0,
    stream: int = 0,
) -> None:
    """One Adam step of a weight-only n-bit weight in place: unpack, step, pack.

    ``l = b1*l + (1-b1)*grad``, ``s = b2*s + (1-b2)*grad^2``, ``W -= size * l/(sqrt(s)+eps)`` with ``size = lr *
    sqrt(1-b2^t)/(1-b1^t)`` where ``correct_bias``, then ``W -= lr*weight_decay*W``. Every fifth step the zeros move
    too, see ``update_zeros``. A step whose gradient holds NaN or infinity is left out.

    Args:
        qweight: ``MPQWeightParameter``; its gradient is ``grad``, else ``privileged_grad`` [k, n].
        exp_avg_s, exp_avg_l: of the gradient's shape (the low-rank one with a ``projector``). Moments that are not
            given start as zeros and are lost.
        step: t, the number of this step, from 1.
        projector: ``GaLoreProjector`` that made ``grad``; projects the normalised gradient back.

    Raises:
        RuntimeError: no gradient. ValueError: the weight is not prepared. ShapeError: a shape does not fit.
    """
    from bitorch_engine.layers.qlinear.nbit.cuda.utils import pack_fp_weight
    from bitorch_engine.utils.model_helper import update_zeros
    from bitorch_engine.utils.quant_operators import gptq_style_unpacking

    grad = _gradient(qweight, grad)
    if grad is None:
        return
    if exp_avg_s is None or exp_avg_l is None:
        exp_avg_l, exp_avg_s = zero_moments(qweight, grad, dtype)
    if exp_avg_s.shape != grad.shape or exp_avg_l.shape != grad.shape:
        raise ShapeError(
            f"step_weight_only: exp_avg_s is {list(exp_avg_s.shape)} and exp_avg_l {list(exp_avg_l.shape)}, "
            f"{list(grad.shape)} is wanted"
        )
    weight, zeros = gptq_style_unpacking(qweight)
    wide = grad.detach().to(exp_avg_l.dtype)
    exp_avg_l.mul_(beta1).add_(wide, alpha=1 - beta1)
    exp_avg_s.mul_(beta2).addcmul_(wide, wide, value=1 - beta2)
    size, t = lr, 1 if step is None else int(step)
    if correct_bias:
        size = lr * math.sqrt(1 - beta2**t) / (1 - beta1**t)
    direction = exp_avg_l / (exp_avg_s.sqrt() + eps)
    if projector is not None:
        direction = projector.project_back(direction)
    if direction.shape != weight.shape:
        raise ShapeError(f"step_weight_only: the gradient is {list(direction.shape)}, {list(weight.shape)} is wanted")
    direction = direction.float()
    moved = weight.float() - size * direction
    if weight_decay:
        moved -= lr * weight_decay * moved
    unpacked = update_zeros(qweight, direction, size, zeros) if t % _ZEROS_EVERY == 0 else zeros
    with torch.no_grad():
        qweight.copy_(pack_fp_weight(moved, qweight, unpacked if qweight.asym else None))
