"""What all learned step sizes share: the first batch sets them, training keeps them positive, they stay float32."""

from __future__ import annotations

import contextlib
import struct
import warnings
import weakref
from collections.abc import Iterable, Iterator
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim.optimizer import register_optimizer_step_post_hook

from bie._operators import ops
from bie._outside_graphs import outside_graphs
from bie._weak_sets import members
from bie.nn.state.arguments import one_of
from bie.weights.membership import NOBODY, Membership

GRAD_MODES = ("exact", "reference")
COMPATS = ("none", "bie-0.2.6")

#: The smallest step size, in float32; the default of the operators too.
EPS = struct.unpack("f", struct.pack("f", 1e-5))[0]

# First-batch step size = factor * mean|x|; mean|w| likewise.
_FACTOR = {8: 2 / 11.269, 4: 2 / 5.6345}


def code_factor(bits: int, compat: str = "none") -> float:
    """Step size / mean|x| of 8- or 4-bit codes; BITorch Engine takes the 8-bit one for activations of 4 bits too."""
    return _FACTOR[8 if compat != "none" else bits]


def smallest_step(eps: Tensor | None) -> float:
    """The value of a layer's buffer ``eps``."""
    return EPS if eps is None or eps.is_meta else float(eps)


def first_batch(owner: nn.Module, scale: Tensor, x: Tensor, factor: float) -> tuple[float, bool]:
    """``scale = factor * mean|x|`` where it is 0; its value, and whether it was 0.

    Warns where a batch of the evaluation has to serve.
    """
    fresh = float(scale.detach()) == 0
    if fresh and (reducer := owner._membership.reducer()) is not None:
        reducer.note_first_batch(scale, x)
    if fresh and not owner.training:
        warnings.warn(
            f"{type(owner).__name__} takes its activation scale from a batch of the evaluation: it was not trained",
            stacklevel=5,
        )
    ops.init_scale_(scale.detach(), x.detach(), factor)
    return float(scale.detach()), fresh


@contextlib.contextmanager
def kept_dtypes(module: nn.Module, names: Iterable[str]) -> Iterator[None]:
    """Around ``nn.Module._apply``: these tensors change their device and not their dtype."""
    before: dict[str, Tensor] = {name: getattr(module, name).detach().clone() for name in names}
    yield
    for name, scale in before.items():
        tensor = getattr(module, name)
        if tensor.dtype != scale.dtype:
            tensor.data = tensor.data.to(scale.dtype) if scale.is_meta else scale.to(tensor.device)


class StepSizeOptions:
    """Mixin, before nn.Module: how step sizes are learned, and what keeps them above their floor.

    The floor holds wherever a step size can be seen after an optimizer's step: in the next forward pass of the
    training, and so in a state dict, a copy, a pickle, an evaluation. A subclass forgets in ``_forget`` what it derived
    from the options and names its step sizes in ``_first_values``.
    """

    _grad_mode, _compat, _step_size_floor = "exact", "none", 0.03
    _membership: Membership = NOBODY

    def _forget(self) -> None:
        """Forgets what was derived from the options."""

    @property
    def grad_mode(self) -> str:
        """``"exact"`` or ``"reference"``."""
        return self._grad_mode if self._compat == "none" else "reference"

    @grad_mode.setter
    def grad_mode(self, value: str) -> None:
        self._grad_mode = one_of("grad_mode", value, GRAD_MODES)
        self._forget()

    @property
    def compat(self) -> str:
        """``"none"`` or ``"bie-0.2.6"``."""
        return self._compat

    @compat.setter
    def compat(self, value: str) -> None:
        self._compat = one_of("compat", value, COMPATS)
        self._forget()

    @property
    def step_size_floor(self) -> float:
        """In training a step size stays above this share of its first-batch value; 0 turns the guard off."""
        return self._step_size_floor

    @step_size_floor.setter
    def step_size_floor(self, value: float) -> None:
        if not 0 <= value <= 1:
            raise ValueError(f"step_size_floor: expected a number in [0, 1], got {value}")
        self._step_size_floor = value

    def _first_values(self) -> Iterable[tuple[Tensor, float]]:
        """The learned step sizes and what the first batch made them; 0 for one without a floor."""
        return ()

    def _step_sizes(self) -> Iterable[str]:
        """The names of the learned step sizes."""
        return ()

    def _first_batch_factor(self) -> float:
        """First-batch step size / mean|x|."""
        raise NotImplementedError

    def _take_first_value(self, name: str, value: float) -> None:
        """Takes note of what the first batch made of a step size."""

    def _take_first_batch(self, name: str, mean: float) -> None:
        """Sets a step size from the mean of a whole group's first batch."""
        scale = getattr(self, name)
        scale.data.fill_(self._first_batch_factor() * mean)
        self._take_first_value(name, float(scale.detach()))
        guarded.add(self)

    def _prepare_for_group(self) -> None:
        """Gives the weight the form in which it trains."""

    def _guard_scales(self) -> None:
        """The floor in training; an evaluation computes with what was written into a step size."""
        if self.training:
            self._keep_floor()

    def _keep_floor(self) -> None:
        """Keeps learned step sizes from crossing zero, whatever the optimizer did; docs/training.md says why."""
        if self._step_size_floor > 0:
            for scale, first in self._first_values():
                if first > 0:
                    # .data: the scale may have been saved by an earlier call in the same graph.
                    scale.data.clamp_min_(self._step_size_floor * first)

    def __setattr__(self, name: str, value: Any) -> None:
        if name == "training":
            self._guard_scales()
        super().__setattr__(name, value)

    def __reduce_ex__(self, protocol: int) -> Any:
        self._guard_scales()
        return super().__reduce_ex__(protocol)

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        guarded.add(self)

    def _save_to_state_dict(self, destination: dict[str, Any], prefix: str, keep_vars: bool) -> None:
        self._guard_scales()
        super()._save_to_state_dict(destination, prefix, keep_vars)

    def _mode_of(self) -> list[str]:
        """For ``extra_repr``: what is not the default."""
        if self._compat != "none":
            return [f"compat={self._compat}"]
        return [f"grad_mode={self._grad_mode}"] if self._grad_mode != "exact" else []


# The layers whose step sizes have a floor.
guarded: weakref.WeakSet[StepSizeOptions] = weakref.WeakSet()


def _after_a_step(optimizer: torch.optim.Optimizer, args: Any, kwargs: Any) -> None:
    """Parameters are read without their layer too: averages of a model's weights are made of ``parameters()``.

    In whatever mode: gradients of a training batch may be stepped after ``eval()``. A compiled step leaves its graph
    for this where it has a 0-dim parameter, as step sizes are; those of other models stay whole.
    """
    params = (param for group in optimizer.param_groups for param in group["params"])
    if not torch.compiler.is_compiling() or any(param.dim() == 0 for param in params):
        _keep_floors(optimizer)


@outside_graphs("step sizes are kept above their floors outside the graph")
def _keep_floors(optimizer: torch.optim.Optimizer) -> None:
    if not guarded:
        return
    stepped = {id(param) for group in optimizer.param_groups for param in group["params"]}
    for layer in members(guarded):
        if any(id(scale) in stepped for scale, _ in layer._first_values()):
            layer._keep_floor()


register_optimizer_step_post_hook(_after_a_step)


def step_size_layers(module: nn.Module) -> Iterator[StepSizeOptions]:
    """Every layer inside a module that has these options, itself included."""
    return (layer for layer in module.modules() if isinstance(layer, StepSizeOptions))


def first_values(module: nn.Module) -> dict[str, float]:
    """What the first batch made of each step size that has a floor, by its name: no state dict holds it."""
    found = {}
    for prefix, layer in module.named_modules():
        if isinstance(layer, StepSizeOptions):
            first = {id(scale): value for scale, value in layer._first_values()}
            values = {name: first.get(id(getattr(layer, name)), 0.0) for name in layer._step_sizes()}
            found |= {f"{prefix}.{name}" if prefix else name: value for name, value in values.items() if value > 0}
    return found


def take_first_values(module: nn.Module, values: dict[str, float]) -> None:
    """Gives step sizes, behind ``load_state_dict``, the floors that they had."""
    for name, value in values.items():
        path, _, scale = name.rpartition(".")
        layer = module.get_submodule(path)
        layer._take_first_value(scale, value)
        guarded.add(layer)


def set_grad_mode(module: nn.Module, mode: str) -> None:
    """``grad_mode`` of every quantised layer inside a module.

    Example::

        >>> model = torch.nn.Sequential(bie.nn.Q8Linear(8, 4))
        >>> bie.nn.set_grad_mode(model, "reference")
        >>> model[0].grad_mode
        'reference'
    """
    one_of("grad_mode", mode, GRAD_MODES)
    for layer in step_size_layers(module):
        layer.grad_mode = mode


def set_compat(module: nn.Module, compat: str) -> None:
    """``compat`` of every quantised layer inside a module.

    Example::

        >>> model = torch.nn.Sequential(bie.nn.Q4Linear(8, 4))
        >>> bie.nn.set_compat(model, "bie-0.2.6")
        >>> model[0].compat
        'bie-0.2.6'
    """
    one_of("compat", compat, COMPATS)
    for layer in step_size_layers(module):
        layer.compat = compat
