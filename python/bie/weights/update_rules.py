"""How ``DiodeMix`` steps each class of parameters; docs/spec/optimizer.md. A parameter class names its rule."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor

from bie._operators import ops
from bie.errors import ShapeError
from bie.weights.gptq import coded
from bie.weights.integer_gradient import plain

_ZEROS_EVERY = 5
_SOME = 4096  # elements that tell whether a gradient is all zeros, but for one that nearly is
_MOMENT_BLOCK = 256  # elements that share the largest of their moments of 8 bits


@dataclass
class Step:
    """One step of one parameter: its gradient, its moments and the optimizer's numbers."""

    grad: Tensor
    exp_avg_l: Tensor | None
    exp_avg_s: Tensor
    number: int  # from 1
    lr: float
    weight_decay: float
    beta1: float
    beta2: float
    eps: float
    correct_bias: bool
    projector: Any  # the GaLoreProjector that made grad
    seed: int
    stream: int
    renew_scale: bool = False
    scale_lr: float = 0.0  # relative to a scale
    largest: Tensor | None = None  # of moments of 8 bits
    scale_moments: Tensor | None = None

    def shared(self) -> dict[str, Any]:
        """What the operators of every kind take, the same for all parameters of a group."""
        return {"lr": self.lr, "beta1": self.beta1, "beta2": self.beta2, "seed": self.seed}

    def adam(self) -> dict[str, Any]:
        """What those of Adam's kind take besides."""
        return {"eps": self.eps, "weight_decay": self.weight_decay, "correct_bias": self.correct_bias}


class Rule(NamedTuple):
    """``first_moments(param, grad, dtype, seed, stream)`` gives (exp_avg_l, exp_avg_s), ``apply`` steps in place.

    ``apply_all`` steps many parameters on one device in one call, whose steps share all numbers but ``number``,
    ``stream`` and ``renew_scale`` and have no projector; None where a rule has no such form. ``of_rows``: a table's,
    whose gradient may be sparse and is never projected. ``more_state(param, grad, dtype, scale_lr)`` gives what a state
    has besides its moments.
    """

    first_moments: Callable[[Tensor, Tensor, torch.dtype, int, int], tuple[Tensor | None, Tensor]]
    apply: Callable[[Tensor, Step], None]
    apply_all: Callable[[list[Tensor], list[Step]], None] | None = None
    of_rows: bool = False
    more_state: Callable[[Tensor, Tensor, torch.dtype, float], dict[str, Tensor]] | None = None


def moment_dtype(dtype: torch.dtype) -> torch.dtype:
    """float32, or bfloat16 for every 16-bit type: float16 cannot hold the steps of a second moment near 1e-8.

    Moments of 8 bits (int8) are weight-only weights'; those of other parameters are float32 beside them.
    """
    if dtype not in (torch.float32, torch.bfloat16, torch.float16, torch.int8):
        raise ValueError(f"the moments' dtype: expected float32, bfloat16, float16 or int8, got {dtype}")
    return torch.float32 if dtype in (torch.float32, torch.int8) else torch.bfloat16


def gradient_of(param: Tensor) -> Tensor | None:
    """A parameter's gradient; that of a weight-only weight has another shape and place."""
    grad = plain(param.grad)
    return grad if grad is not None else getattr(param, "privileged_grad", None)


def is_left_out(param: Tensor, grad: Tensor) -> bool:
    """An integer weight is left out of a step whose gradient was not finite.

    A float one holds NaN or infinity then, an int8 one is all zeros, which is what ``int8_grad`` makes of it. On CUDA
    the steps of signs and codes see to it themselves: asking here would wait for the device. Places between codes take
    such elements as 0.
    """
    if param.is_floating_point() or (param.is_cuda and param.dtype == torch.int8) or _keeps_place(param):
        return False
    if param.dtype == grad.dtype == torch.int8:
        if grad.is_contiguous() and bool(grad.view(-1)[:_SOME].any()):
            return False
        return not bool(grad.any())
    values = grad.coalesce().values() if grad.is_sparse else grad
    return values.is_floating_point() and not bool(torch.isfinite(values).all())


def _zero_moments(
    param: Tensor, grad: Tensor, dtype: torch.dtype, seed: int = 0, stream: int = 0
) -> tuple[Tensor, Tensor]:
    zeros = torch.zeros_like(param.detach() if param.shape == grad.shape else grad, dtype=moment_dtype(dtype))
    return zeros, torch.zeros_like(zeros)


def _one(step: Step) -> dict[str, Any]:
    return step.shared() | {"step": step.number, "stream": step.stream}


def _many(steps: list[Step]) -> dict[str, Any]:
    return steps[0].shared() | {"steps": [s.number for s in steps], "streams": [s.stream for s in steps]}


def _local(tensor: Tensor | None) -> Tensor | None:
    """This rank's shard of a DTensor, as fully_shard makes them; the steps of floats go element by element."""
    return tensor.to_local() if hasattr(tensor, "to_local") else tensor


def _tensors(params: list[Tensor], steps: list[Step]) -> tuple[list[Any], ...]:
    """The lists that every operator on many parameters begins with."""
    return (
        [_local(param.detach()) for param in params],
        [_local(step.grad) for step in steps],
        [_local(step.exp_avg_l) for step in steps],
        [_local(step.exp_avg_s) for step in steps],
    )


def _step_floats(param: Tensor, step: Step) -> None:
    numbers = _one(step) | step.adam()
    if step.projector is None:
        _step_all_floats([param], [step])
        return
    # Adam's step in the projector's space, projected back.
    update = torch.zeros_like(step.grad, dtype=torch.float32)
    numbers["weight_decay"] = 0.0
    ops.diode_mix_float_(update, step.grad.float(), step.exp_avg_l, step.exp_avg_s, **numbers)
    with torch.no_grad():
        param.add_(step.projector.project_back(update).to(param.dtype))
        param.mul_(1 - step.lr * step.weight_decay)


def _step_all_floats(params: list[Tensor], steps: list[Step]) -> None:
    ops.diode_mix_float_many_(*_tensors(params, steps), **_many(steps), **steps[0].adam())
    torch.autograd.graph.increment_version(params)


#: Adam with decoupled decay, in the low-rank space of a projector where there is one.
FLOATS = Rule(_zero_moments, _step_floats, _step_all_floats)


def _sign_moments(param: Tensor, grad: Tensor, dtype: torch.dtype, seed: int, stream: int) -> tuple[Tensor, Tensor]:
    signs, dtype = param.detach(), moment_dtype(dtype)
    return torch.zeros_like(signs, dtype=dtype), ops.diode_mix_first_moment(signs, dtype, seed, stream)


def _step_signs(param: Tensor, step: Step) -> None:
    ops.diode_mix_signs_(param.detach(), step.grad, step.exp_avg_l, step.exp_avg_s, **_one(step))
    torch.autograd.graph.increment_version(param)


def _step_all_signs(params: list[Tensor], steps: list[Step]) -> None:
    ops.diode_mix_signs_many_(*_tensors(params, steps), **_many(steps))
    torch.autograd.graph.increment_version(params)


#: int8 signs: ``l = lerp(l, g, 1 - beta1)``, ``s = lerp(s, lr * sgn(l), 1 - beta2)``; every weight whose sign differs
#: from ``-sgn(s)`` (0 counts as +1) is negated. s starts as ``-sgn(w) * U(0, 1) * 1e-3``.
SIGNS = Rule(_sign_moments, _step_signs, _step_all_signs)


def _meaning(param: Tensor) -> tuple[int, Tensor]:
    """(bits, scale_w) of a layer's codes."""
    bits, scale_w = getattr(param, "bits", None), getattr(param, "scale_w", None)
    if bits not in (4, 8) or scale_w is None:
        raise ValueError("an integer weight outside a layer does not say what its codes mean (bits, scale_w)")
    return bits, scale_w.detach()


def _step_codes(param: Tensor, step: Step) -> None:
    if param.is_floating_point():
        _step_floats(param, step)
        return
    bits, scale_w = _meaning(param)
    ops.diode_mix_codes_(
        param.detach(),
        step.grad,
        step.exp_avg_l,
        step.exp_avg_s,
        scale_w,
        bits=bits,
        renew_scale=step.renew_scale,
        **_one(step),
        **step.adam(),
    )
    torch.autograd.graph.increment_version(param)


def _step_all_codes(params: list[Tensor], steps: list[Step]) -> None:
    bits, scales = zip(*map(_meaning, params), strict=True)
    ops.diode_mix_codes_many_(
        *_tensors(params, steps),
        list(scales),
        bits=list(bits),
        renew_scale=[step.renew_scale for step in steps],
        **_many(steps),
        **steps[0].adam(),
    )
    torch.autograd.graph.increment_version(params)


#: 8- or 4-bit codes in int8: Adam on ``w = code * scale_w``, then a stochastic rounding of ``w / scale_w``; or floats.
CODES = Rule(_zero_moments, _step_codes, _step_all_codes)


def _embedding_signs(bits: Tensor) -> Tensor:
    """+-1 of packed signs [N, p] uint8 or of [N, D] bool."""
    if bits.dtype == torch.uint8:
        return ops.unpack_signs(bits, 8 * bits.size(1)).float()
    return torch.where(bits, 1.0, -1.0)


def _embedding_moments(param: Tensor, grad: Tensor, dtype: torch.dtype, seed: int, stream: int) -> tuple[None, Tensor]:
    signs = _embedding_signs(param.detach()).to(torch.int8)
    return None, ops.diode_mix_first_moment(signs, moment_dtype(dtype), seed, stream)


def _rows_of(grad: Tensor) -> tuple[Tensor, Tensor]:
    """The rows of a table that a gradient is of, each once, and its values there."""
    if not grad.is_sparse:
        return torch.arange(grad.size(0), device=grad.device), grad
    grad = grad.coalesce()
    return grad.indices()[0], grad.values()


def _step_embedding(param: Tensor, step: Step) -> None:
    grad, s = step.grad, step.exp_avg_s
    columns = param.size(1) * (8 if param.dtype == torch.uint8 else 1)
    wanted = (param.size(0), columns)
    if s.shape != wanted:
        raise ShapeError(f"binary embedding: exp_avg_s: expected {list(wanted)}, got {list(s.shape)}")
    if grad.is_sparse:
        rows, votes = _rows_of(grad)
    else:
        active = getattr(param, "active_indices", None)
        rows = torch.arange(param.size(0), device=param.device) if active is None else active.reshape(-1).unique()
        votes = grad[rows] if param.dtype == torch.uint8 else torch.where(grad[rows], 1.0, -1.0)
    size = getattr(param, "embedding_dim", None) or (grad.size(1) if grad.is_floating_point() else columns)
    numbers = _one(step)
    numbers.pop("beta1")
    ops.diode_mix_embedding_(param.detach(), rows.long(), votes, s, embedding_dim=size, **numbers)
    torch.autograd.graph.increment_version(param)


#: A binary embedding, [N, p] uint8 or [N, D] bool, on the rows of a sparse gradient only (where the gradient has the
#: weight's own dtype: on ``active_indices``, or all rows): ``s = lerp(s, lr * (+-1 of the gradient), 1 - beta2)``, bits
#: that differ from ``-sgn(s)`` flip.
EMBEDDING = Rule(_embedding_moments, _step_embedding, of_rows=True)


def _weight_only_moments(
    param: Tensor, grad: Tensor, dtype: torch.dtype, seed: int = 0, stream: int = 0
) -> tuple[Tensor, Tensor]:
    if dtype == torch.int8 and not _has_wide_rest(param):
        return torch.zeros_like(grad, dtype=torch.int8), torch.zeros_like(grad, dtype=torch.uint8)
    if _keeps_place(param):
        dtype = torch.float32
    zeros = torch.zeros_like(grad, dtype=moment_dtype(dtype))
    return zeros, torch.zeros_like(zeros)


def _keeps_place(param: Tensor) -> bool:
    """Whether the place between two codes is kept in 8 bits."""
    rest = getattr(param, "rest", None)
    return rest is not None and rest.dtype == torch.int8


def _has_wide_rest(param: Tensor) -> bool:
    """Whether what codes cannot hold is kept in units of the weight, which only scales that stay give a meaning."""
    rest = getattr(param, "rest", None)
    return rest is not None and rest.dtype != torch.int8


def _state_of_places(param: Tensor, grad: Tensor, dtype: torch.dtype, scale_lr: float) -> dict[str, Tensor]:
    """``largest`` of moments of 8 bits, and the moments of scales that learn; a wide rest has neither."""
    if _has_wide_rest(param):
        return {}
    extra, floats = {}, {"dtype": torch.float32, "device": param.device}
    if dtype == torch.int8:
        extra["largest"] = torch.zeros(2, grad.size(0), -(-grad.size(1) // _MOMENT_BLOCK), **floats)
    if scale_lr > 0:
        extra["scale_moments"] = torch.zeros(2, *param.scales.shape, **floats)
    return extra


def _step_places(params: list[Tensor], steps: list[Step]) -> None:
    """Steps weights whose optional parts are there for all or for none."""
    weights = [coded("weight-only weight", param) for param in params]
    for param, weight in zip(params, weights, strict=True):
        options = weight.options
        if "bit_rows" in options or "q_perm" in options or not _is_plain(param, options.get("g_idx")):
            raise ValueError(
                "weight-only weight: rows of several widths or in an order of their own have no places between codes, "
                "scales that learn or moments of 8 bits"
            )

    def of_all(values: list[Any]) -> list[Any] | None:
        return None if values[0] is None else values

    ops.diode_mix_places_many_(
        [weight.tensors[0] for weight in weights],
        [weight.tensors[1] for weight in weights],
        of_all([weight.tensors[2] for weight in weights]),
        [step.grad for step in steps],
        [step.exp_avg_l for step in steps],
        [step.exp_avg_s for step in steps],
        of_all([step.largest for step in steps]),
        of_all([param.rest if _keeps_place(param) else None for param in params]),
        of_all([step.scale_moments for step in steps]),
        bits=[param.w_bit for param in params],
        tops=[param.levels - 1 for param in params],
        group_sizes=[param.group_size for param in params],
        scale_lr=steps[0].scale_lr,
        **_many(steps),
        **steps[0].adam(),
    )
    for param in params:
        torch.autograd.graph.increment_version(param)


def _is_plain(param: Tensor, g_idx: Tensor | None) -> bool:
    """Whether groups are consecutive rows; what was found is kept with the tensor that says it."""
    if g_idx is None:
        return True
    found = getattr(param, "_plain_rows", None)
    if found is None or found[0] is not g_idx or found[1] != g_idx._version:
        rows = torch.arange(g_idx.numel(), device=g_idx.device, dtype=g_idx.dtype) // param.group_size
        found = param._plain_rows = (g_idx, g_idx._version, bool(torch.equal(rows, g_idx)))
    return found[2]


def _step_all_weight_only(params: list[Tensor], steps: list[Step]) -> None:
    """Steps those of one form that keep places, 8-bit moments or scales that learn together, and others one by one."""
    forms: dict[tuple[bool, ...], tuple[list[Tensor], list[Step]]] = {}
    for param, step in zip(params, steps, strict=True):
        state = (_keeps_place(param), step.largest is not None, step.scale_moments is not None)
        if any(state):
            together = forms.setdefault((*state, param.zeros is None), ([], []))
            together[0].append(param)
            together[1].append(step)
        else:
            _step_weight_only(param, step)
    for own_params, own_steps in forms.values():
        _step_places(own_params, own_steps)


def _step_weight_only(param: Tensor, step: Step) -> None:
    if _keeps_place(param) or step.largest is not None or step.scale_moments is not None:
        if step.projector is not None:
            raise ValueError("weight-only weight: GaLore takes no places between codes, 8-bit moments or scale_lr")
        _step_places([param], [step])
        return
    weight = coded("weight-only weight", param)
    grad, moments, numbers = step.grad, (step.exp_avg_l, step.exp_avg_s), _one(step) | step.adam()
    for name, moment in (("exp_avg_s", step.exp_avg_s), ("exp_avg_l", step.exp_avg_l)):
        if moment is None or moment.shape != grad.shape:
            shape = None if moment is None else list(moment.shape)
            raise ShapeError(f"weight-only weight: {name}: expected {list(grad.shape)}, got {shape}")
    if step.projector is not None:  # Adam's direction in the projector's space, projected back
        direction = torch.zeros_like(grad, dtype=torch.float32)
        low = numbers | {"weight_decay": 0.0, "correct_bias": False, "lr": 1.0}
        ops.diode_mix_float_(direction, grad.float(), *moments, **low)
        grad, moments = step.projector.project_back(direction.neg_()), (None, None)
    wanted = [weight.rows, param.size(1)]
    if list(grad.shape) != wanted:
        raise ShapeError(f"weight-only weight: the gradient: expected {wanted}, got {list(grad.shape)}")
    moves_zeros = step.number % _ZEROS_EVERY == 0
    rest = getattr(param, "rest", None)
    ops.diode_mix_weight_only_(
        *weight.tensors, grad, *moments, rest, **weight.options, moves_zeros=moves_zeros, **numbers
    )
    moved = [param, param.zeros] if moves_zeros else [param]
    torch.autograd.graph.increment_version(moved)


#: A weight-only n-bit weight: Adam on the weight as floats, codes rounded at random (or to the nearest, with a 16-bit
#: ``rest`` beside them); every fifth step the zeros move first, by the mean of the step over the group.
WEIGHT_ONLY = Rule(_weight_only_moments, _step_weight_only, _step_all_weight_only, more_state=_state_of_places)


def _code_row_moments(
    param: Tensor, grad: Tensor, dtype: torch.dtype, seed: int = 0, stream: int = 0
) -> tuple[Tensor, Tensor]:
    zeros = torch.zeros(grad.shape, dtype=moment_dtype(dtype), device=param.device)
    return zeros, torch.zeros_like(zeros)


def _step_code_rows(param: Tensor, step: Step) -> None:
    rows, values = _rows_of(step.grad)
    moves_zeros = step.number % _ZEROS_EVERY == 0
    ops.diode_mix_weight_only_rows_(
        param.detach(),
        param.scales,
        param.zeros,
        rows,
        values,
        step.exp_avg_l,
        step.exp_avg_s,
        bits=param.w_bit,
        group_size=param.group_size,
        moves_zeros=moves_zeros,
        **_one(step),
        **step.adam(),
    )
    torch.autograd.graph.increment_version([param, param.zeros] if moves_zeros else [param])


#: A table of codes: the rule of weight-only weights on the rows of a sparse gradient, or on all of a dense one.
CODE_ROWS = Rule(_code_row_moments, _step_code_rows, of_rows=True)


def update(
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
    """One optimizer step in place, by the rule of the parameter's class.

    Args:
        qweight: the parameter; its gradient is ``grad``, else its own.
        exp_avg_s, exp_avg_l: the moments. Those that are not given start anew, in ``dtype``, and are lost.
        step: the number of this step, from 1 (1 by default).
        projector: the ``GaLoreProjector`` that made ``grad``.
        seed, stream: of the random numbers.

    A step of an integer weight whose float gradient holds NaN or infinity is left out.

    Raises:
        RuntimeError: no gradient. NotImplementedError: the class has no rule. ShapeError: a gradient or moment that
            does not fit. ValueError: a weight that does not say what its integers mean.
    """
    rule = getattr(type(qweight), "rule", None)
    if rule is None:
        raise NotImplementedError(f"a {type(qweight).__name__} has no update rule of its own")
    grad = gradient_of(qweight) if grad is None else grad
    if grad is None:
        raise RuntimeError(f"the {list(qweight.shape)} weight has no gradient to make a step with")
    if rule is EMBEDDING and not grad.is_sparse and (grad.dtype != qweight.dtype or grad.shape != qweight.shape):
        raise ShapeError(
            f"binary embedding: the weight is {list(qweight.shape)} of {qweight.dtype}, its gradient "
            f"{list(grad.shape)} of {grad.dtype}"
        )
    if is_left_out(qweight, grad):
        return
    if exp_avg_s is None or (exp_avg_l is None and rule is not EMBEDDING):
        exp_avg_l, exp_avg_s = rule.first_moments(qweight, grad, dtype, seed, stream)
    number = 1 if step is None else int(step)
    numbers = (number, lr, weight_decay, beta1, beta2, eps, bool(correct_bias), projector, seed, stream)
    rule.apply(qweight, Step(grad, exp_avg_l, exp_avg_s, *numbers))
