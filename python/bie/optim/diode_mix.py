"""``DiodeMix``: one optimizer for float parameters, 1-bit weights held as int8 and 8- or 4-bit codes."""

from __future__ import annotations

import functools
import itertools
import math
import warnings
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from bie._weak_sets import members
from bie.nn.state.integer_weight import alive
from bie.optim.galore import GaLoreProjector
from bie.weights.membership import NOBODY
from bie.weights.parameters import QuantParameter, WeightOnlyParameter, integer_optimizers
from bie.weights.update_rules import FLOATS, Rule, Step, gradient_of, is_left_out, moment_dtype

_MOMENTS = ("exp_avg_l", "exp_avg_s")
_KEPT = (*_MOMENTS, "largest", "scale_moments")
_GALORE = ("update_proj_gap", "scale", "proj_type")


def _check(group: dict[str, Any]) -> None:
    for name in ("lr", "eps", "weight_decay", "renew_scale_every", "scale_lr"):
        value = float(group[name])
        if not (math.isfinite(value) and value >= 0):
            raise ValueError(f"DiodeMix: {name}: expected a number >= 0, got {group[name]}")
    for beta in group["betas"]:
        if not 0 <= beta < 1 or len(group["betas"]) != 2:
            raise ValueError(f"DiodeMix: betas: expected two numbers in [0, 1), got {group['betas']}")
    if "rank" in group and not all(name in group for name in _GALORE):
        raise ValueError(f"DiodeMix: a group with a rank also wants {', '.join(_GALORE)}")


def _of_rows(param: Tensor) -> bool:
    """Whether it is a table, whose gradient may be sparse."""
    rule = getattr(type(param), "rule", None)
    return rule is not None and rule.of_rows


class DiodeMix(torch.optim.Optimizer):
    """Steps every kind of parameter of a model, each by its rule; the kind is told by the parameter's class.

    * Float parameters (Adam): ``l = b1 l + (1 - b1) g``, ``s = b2 s + (1 - b2) g^2``,
      ``p -= lr * sqrt(1 - b2^t) / (1 - b1^t) * l / (sqrt(s) + eps)``, then ``p -= lr * weight_decay * p``.
    * 1-bit weights (int8): ``l = lerp(l, g, 1 - b1)``, ``s = lerp(s, lr sgn(l), 1 - b2)``; every weight whose sign
      differs from ``-sgn(s)`` (0 counts as +1) is negated. ``s`` starts as ``-sgn(w) U(0, 1) 1e-3``.
    * 8- and 4-bit codes (int8): Adam on ``w = code * scale_w``, then a stochastic rounding of ``w / scale_w``.
    * Weight-only codes: Adam on the weight as floats, then a stochastic rounding; tables on the rows of their gradient.
      With ``master=torch.int8`` of their layer their place between two codes is kept.

    With these defaults (BITorch Engine's) about 1 % of the 1-bit weights can flip in 1,000 steps; docs/training.md has
    rates with which they move.

    Args:
        params: parameters or groups; pass ``model.parameters()``, because integer weights do not require grad.
        lr, betas, eps, weight_decay, correct_bias: group options; schedulers may change ``lr`` between steps.
        dtype: of the moments: float32, or bfloat16 (rounded stochastically; float16 means bfloat16 too); int8 keeps
            those of weight-only weights in 8 bits by blocks of 256 and others in float32.
        scale_lr: rate of the scales of weight-only weights, relative to each scale; 0 keeps them. A weight with a
            rest in bfloat16 keeps its scales, and its moments are float32 where ``dtype`` is int8.
        renew_scale_every: steps between new values of the codes' ``scale_w``; 0 keeps the first.
        seed: of all random numbers, which are a function of seed, parameter, step and element: a state that is
            restored goes on to the bit.

    A group with a key ``rank`` works in GaLore's low-rank space on its matrices that are float; it must also have
    ``update_proj_gap``, ``scale`` and ``proj_type``.

    Raises:
        ValueError: lr, eps or weight_decay < 0, betas outside [0, 1), integer parameters that are no layer's weight.
        RuntimeError (``step``): a sparse gradient; an integer weight whose layer ran in training and that has no
            gradient, where other parameters have theirs; one of several processes whose gradients nobody reduces.

    Warns where an integer weight of a layer is missing whose other parameters are there.
    An integer weight whose float gradient holds NaN or infinity is left out of a step.
    Source: docs/spec/optimizer.md; BITorch Engine 0.2.6 ``DiodeMix``; the rule for codes and ``seed`` are not in it.

    Example::

        >>> layer = bie.nn.BinaryLinear(8, 4)
        >>> optimizer = bie.optim.DiodeMix(layer.parameters(), lr=1e-2)
        >>> layer(torch.randn(3, 8)).square().sum().backward()
        >>> optimizer.step()
        >>> layer.weight.grad.dtype
        torch.int8
    """

    def __init__(
        self,
        params: Any,
        lr: float = 1e-4,
        betas: tuple[float, float] = (0.99, 0.9999),
        eps: float = 1e-6,
        weight_decay: float = 0.0,
        correct_bias: bool = True,
        dtype: torch.dtype = torch.float,
        *,
        renew_scale_every: int = 0,
        scale_lr: float = 0.0,
        seed: int = 0,
    ) -> None:
        self.dtype, self.seed = dtype, seed
        moment_dtype(dtype)
        defaults = {
            "lr": lr,
            "betas": betas,
            "eps": eps,
            "weight_decay": weight_decay,
            "correct_bias": correct_bias,
            "renew_scale_every": renew_scale_every,
            "scale_lr": scale_lr,
        }
        _check(defaults)
        super().__init__(params, defaults)
        integer_optimizers.add(self)
        self._warn_of_missing_weights()

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        super().add_param_group(param_group)
        group = self.param_groups[-1]
        try:
            _check(group)
        except ValueError:
            self.param_groups.pop()
            raise

    def __getstate__(self) -> dict[str, Any]:
        return super().__getstate__() | {"dtype": self.dtype, "seed": self.seed}

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        for group in self.param_groups:
            group.setdefault("scale_lr", 0.0)
        integer_optimizers.add(self)

    def _warn_of_missing_weights(self) -> None:
        known = {id(param) for group in self.param_groups for param in group["params"]}
        for layer in members(alive):
            weight = layer.weight
            if weight is None or not layer.weight_trainable or id(weight) in known:
                continue
            if not weight.is_floating_point() and layer.scale_a is not None and id(layer.scale_a) in known:
                warnings.warn(
                    f"DiodeMix has the scale of a {type(layer).__name__}({layer.extra_repr()}) but not its integer "
                    "weight, which does not require grad; pass model.parameters(), or add integer_parameters(model)",
                    stacklevel=3,
                )

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """One step; returns what ``closure`` returned."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        self._check_gradients()
        streams = itertools.count()
        for group in self.param_groups:
            together: dict[tuple[Rule, torch.device], tuple[list[Tensor], list[Step]]] = {}
            for param, stream in zip(group["params"], streams, strict=False):
                if gradient_of(param) is not None:
                    self._step_one(group, param, stream, together)
            for (rule, _), (params, steps) in together.items():
                rule.apply_all(params, steps)
            for param in group["params"]:
                if isinstance(param, QuantParameter):
                    param.awaits_gradient = False
        return loss

    def step_in_backward(self, enabled: bool = True) -> None:
        """Steps each weight-only weight as soon as a backward pass has made its gradient, which is not kept.

        The memory of a model's gradients is then that of its largest weight. ``step`` steps the other parameters. A
        step is one backward pass: gradients of several do not add up, and nothing clips them together. With
        ``enabled=False`` gradients wait for ``step`` again.

        Raises:
            RuntimeError (in ``backward``): one of several processes, whose gradients must be added first.
        """
        stream = 0
        for index, group in enumerate(self.param_groups):
            for param in group["params"]:
                if isinstance(param, WeightOnlyParameter):
                    param.after_gradient = functools.partial(self._step_at_once, index, stream) if enabled else None
                stream += 1

    @torch.no_grad()
    def _step_at_once(self, group: int, stream: int, param: Tensor) -> None:
        several = torch.distributed.is_available() and torch.distributed.is_initialized()
        if several and torch.distributed.get_world_size() > 1:
            raise RuntimeError(
                "DiodeMix.step_in_backward: expected one process, got several, whose gradients must be added first"
            )
        together: dict[tuple[Rule, torch.device], tuple[list[Tensor], list[Step]]] = {}
        self._step_one(self.param_groups[group], param, stream, together)
        for (rule, _), (params, steps) in together.items():
            rule.apply_all(params, steps)
        param.grad = None
        param.awaits_gradient = False

    def _check_gradients(self) -> None:
        params = [param for group in self.param_groups for param in group["params"]]
        grads = [param.grad for param in params if not _of_rows(param)]
        if any(grad is not None and grad.is_sparse for grad in grads):
            raise RuntimeError("DiodeMix does not support sparse gradients")
        for param in params:
            if param.grad is not None and not param.is_floating_point() and getattr(type(param), "rule", None) is None:
                raise ValueError(f"DiodeMix: a parameter is {param.dtype} and no layer's weight")
        if all(gradient_of(param) is None for param in params):
            return
        distributed = torch.distributed.is_available() and torch.distributed.is_initialized()
        if distributed and torch.distributed.get_world_size() > 1:
            for param in params:
                moved = gradient_of(param) is not None and not param.is_floating_point()
                if moved and not getattr(param, "reducer", NOBODY).settled:
                    raise RuntimeError(
                        f"DiodeMix: nobody reduces the gradient of an integer weight of shape {list(param.shape)} over "
                        "the processes, which would drift apart; wrap the model in DistributedDataParallel, make a "
                        "bie.distributed.IntegerReducer, or call bie.distributed.train_alone(model)"
                    )
        for param in params:
            if param.grad is None and getattr(param, "awaits_gradient", False) and not param.is_floating_point():
                raise RuntimeError(
                    f"DiodeMix: an int8 weight of shape {list(param.shape)} ran in training and has no gradient; "
                    "its graph was compiled away, or backward() did not reach it"
                )

    def _step_one(self, group: dict[str, Any], param: Tensor, stream: int, together: dict[Any, Any]) -> None:
        """Steps a parameter, or puts it to those that one call steps ``together``, by rule and device."""
        state, grad = self.state[param], gradient_of(param)
        if is_left_out(param, grad):
            return
        rule = FLOATS if param.is_floating_point() else type(param).rule
        if "rank" in group and grad.is_floating_point() and grad.dim() == 2 and not rule.of_rows:
            if "projector" not in state:
                options = {name: group[name] for name in _GALORE}
                state["projector"] = GaLoreProjector(group["rank"], **options)
            grad = state["projector"].project(grad, int(state.get("step", 0)))
        if "step" not in state:
            state["step"] = torch.zeros(1)
            moments = rule.first_moments(param, grad, self.dtype, self.seed, stream)
            state.update({name: value for name, value in zip(_MOMENTS, moments, strict=True) if value is not None})
            if "projector" not in state and rule.more_state is not None:
                state.update(rule.more_state(param, grad, self.dtype, group["scale_lr"]))
        for name in _MOMENTS:  # model.to(memory_format=...) moves a parameter's elements
            if name in state and state[name].shape == param.shape and state[name].stride() != param.stride():
                state[name] = torch.empty_like(param.detach(), dtype=state[name].dtype).copy_(state[name])
        number, every = int(state["step"]) + 1, group["renew_scale_every"]
        state["step"].fill_(number)
        step = Step(
            grad=grad,
            exp_avg_l=state.get("exp_avg_l"),
            exp_avg_s=state["exp_avg_s"],
            number=number,
            lr=float(group["lr"]),
            weight_decay=group["weight_decay"],
            beta1=group["betas"][0],
            beta2=group["betas"][1],
            eps=group["eps"],
            correct_bias=group["correct_bias"],
            projector=state.get("projector"),
            seed=self.seed,
            stream=stream,
            renew_scale=bool(every) and number % every == 0,
            scale_lr=float(group["scale_lr"]) if "scale_moments" in state else 0.0,
            largest=state.get("largest"),
            scale_moments=state.get("scale_moments"),
        )
        if rule.apply_all is None or step.projector is not None:
            rule.apply(param, step)
            return
        params, steps = together.setdefault((rule, param.device), ([], []))
        params.append(param)
        steps.append(step)

    def state_dict(self) -> dict[str, Any]:
        """As every optimizer's, with the seed in each group, and plain values in place of a projector."""
        state = super().state_dict()
        for number, own in state["state"].items():
            if "projector" in own:
                state["state"][number] = own | {"projector": own["projector"].state_dict()}
        for group in state["param_groups"]:
            group["seed"] = self.seed
        return state

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Restores a state to the bit: moments keep their dtype, whatever the parameters' is.

        Raises:
            ValueError: groups of other sizes, or moments of another shape than their parameter's.
        """
        seeds = {group.get("seed", self.seed) for group in state_dict["param_groups"]}
        numbers = list(itertools.chain.from_iterable(group["params"] for group in state_dict["param_groups"]))
        params = [param for group in self.param_groups for param in group["params"]]
        if len(numbers) == len(params):
            for number, param in zip(numbers, params, strict=True):
                saved = state_dict["state"].get(number, {})
                for name in _MOMENTS:
                    # Signs, codes and floats have moments of their own shape, others not.
                    plain = param.is_floating_point() or param.dtype == torch.int8
                    if name in saved and plain and "projector" not in saved and saved[name].shape != param.shape:
                        raise ValueError(
                            f"DiodeMix: {name} is {list(saved[name].shape)}, its parameter {list(param.shape)}"
                        )
        super().load_state_dict(state_dict)
        for group in self.param_groups:
            group.pop("seed", None)
        self.seed = seeds.pop()
        for number, param in zip(numbers, params, strict=True):
            saved = state_dict["state"].get(number, {})
            for name in _KEPT:
                if name not in saved:
                    continue
                # torch has cast them to the parameter's dtype.
                small = not saved[name].is_floating_point()
                dtype = saved[name].dtype if small else moment_dtype(saved[name].dtype)
                moment = saved[name].to(device=param.device, dtype=dtype)
                place = torch.empty_like(param.detach() if moment.shape == param.shape else moment, dtype=moment.dtype)
                self.state[param][name] = place.copy_(moment)
            if "projector" in saved:
                projector = saved["projector"]
                plain = (
                    projector.state_dict() if isinstance(projector, GaLoreProjector) else projector
                )  # of older files
                self.state[param]["projector"] = GaLoreProjector.from_state_dict(plain, param.device)
