"""Parameters that may hold integers: what DiodeMix tells its rules apart by."""

from __future__ import annotations

import copy
import weakref
from typing import TYPE_CHECKING, Any, ClassVar

import torch
from torch import Tensor, nn
from torch.optim.optimizer import register_optimizer_step_post_hook

from bie._weak_sets import members
from bie.weights.update_rules import CODES, EMBEDDING, SIGNS, WEIGHT_ONLY, Rule, update

if TYPE_CHECKING:
    from typing_extensions import Self


# Every optimizer alive that steps integer weights: each DiodeMix, and those of others that have stepped some.
integer_optimizers: weakref.WeakSet[torch.optim.Optimizer] = weakref.WeakSet()


def has_optimizer(weight: Tensor) -> bool:
    """Whether one of them holds the weight."""
    groups = (group for optimizer in members(integer_optimizers) for group in optimizer.param_groups)
    return any(param is weight for group in groups for param in group["params"])


def _rebuild(cls: type, data: Tensor, requires_grad: bool, attributes: dict, grad_dtype: torch.dtype | None) -> Tensor:
    param = torch.Tensor._make_subclass(cls, data, requires_grad)
    param.__dict__.update(attributes)
    _set_grad_dtype(param, grad_dtype)
    return param


def _set_grad_dtype(param: Tensor, dtype: torch.dtype | None) -> None:
    if param.grad_dtype != dtype:
        param.grad_dtype = dtype


class QuantParameter(nn.Parameter):
    """A parameter whose class and attributes survive ``deepcopy``, pickling, ``.to()`` and ``load_state_dict``.

    Integer data never requires grad, whatever is asked for: the layers' operators write ``.grad`` themselves. It is
    int8 by default; with ``param.grad_dtype = torch.float32`` it is the unquantised gradient, which adds up over
    micro-batches without rounding and which ``clip_grad_norm_`` and ``GradScaler`` can work on.

    Setting ``requires_grad`` of integer data sets ``trainable`` instead: whether training makes that gradient.
    """

    trainable: bool = True
    awaits_gradient: bool = False  # its layer ran in training since the last step of an optimizer

    rule: ClassVar[Rule | None] = None  # how DiodeMix steps it
    update = staticmethod(update)

    def __new__(cls, data: Tensor | None = None, requires_grad: bool = True) -> Self:
        data = torch.empty(0) if data is None else data.detach()
        return torch.Tensor._make_subclass(cls, data, requires_grad and data.is_floating_point())

    @property
    def requires_grad(self) -> bool:
        return torch.Tensor.requires_grad.__get__(self)

    @requires_grad.setter
    def requires_grad(self, requires_grad: bool) -> None:
        if self.is_floating_point():
            torch.Tensor.requires_grad.__set__(self, requires_grad)
        else:
            self.trainable = requires_grad

    def requires_grad_(self, requires_grad: bool = True) -> QuantParameter:
        self.requires_grad = requires_grad
        return self

    def _attributes(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name != "awaits_gradient"}

    def __deepcopy__(self, memo: dict) -> QuantParameter:
        if id(self) in memo:
            return memo[id(self)]
        data = self.detach().clone(memory_format=torch.preserve_format)
        result = _rebuild(type(self), data, self.requires_grad, {}, self.grad_dtype)
        memo[id(self)] = result
        result.__dict__.update(copy.deepcopy(self._attributes(), memo))
        return result

    def __reduce_ex__(self, protocol: int) -> tuple:
        return _rebuild, (type(self), self.detach(), self.requires_grad, self._attributes(), self.grad_dtype)


class SignsParameter(QuantParameter):
    """The weight of a 1-bit layer: int8, its sign is the weight. ``DiodeMix`` flips signs."""

    rule = SIGNS


class CodesParameter(QuantParameter):
    """The weight of an 8- or 4-bit layer: float, or int8 codes whose weight is ``code * scale_w``."""

    rule = CODES


class EmbeddingParameter(QuantParameter):
    """Packed signs [N, ceil(D/8)] uint8 of an embedding, or [N, D] bool of a bag.

    ``active_indices`` are the rows that the last backward pass gave a gradient; an optimizer step moves only these.
    """

    rule = EMBEDDING

    def __new__(
        cls, data: Tensor | None = None, requires_grad: bool = True, active_indices: Tensor | None = None
    ) -> EmbeddingParameter:
        param = super().__new__(cls, data, requires_grad)
        param.active_indices = active_indices
        return param


class WeightOnlyParameter(QuantParameter):
    """Packed weight [k / 32 * w_bit, n] int32 with what is needed to read it.

    ``layer_type`` 1 is MPQ, 2 is MBWQ. The weight's gradient is ``privileged_grad`` [k, n].
    """

    rule = WEIGHT_ONLY

    def __new__(
        cls,
        data: Tensor | None = None,
        requires_grad: bool = True,
        privileged_grad: Tensor | None = None,
        scales: Tensor | None = None,
        zeros: Tensor | None = None,
        g_idx: Tensor | None = None,
        w_bit: int = -1,
        asym: bool = False,
        group_size: int = -1,
        layer_type: int = -1,
        q_perm: Tensor | None = None,
        qscales_zeros: Tensor | None = None,
        qscales_scales: Tensor | None = None,
        qzeros_zeros: Tensor | None = None,
        qzeros_scales: Tensor | None = None,
        q_group_map: Tensor | None = None,
        rows: list[int] | None = None,
    ) -> WeightOnlyParameter:
        attributes = dict(locals())
        param = super().__new__(cls, data, requires_grad)
        for name in ("cls", "data", "requires_grad", "__class__"):
            attributes.pop(name, None)
        param.__dict__.update(attributes)
        return param


def _after_a_step(optimizer: torch.optim.Optimizer, args: Any, kwargs: Any) -> None:
    """Who steps integer weights takes their gradients, through ``.data`` too, where no version tells of it."""
    if torch.compiler.is_compiling():
        return
    params = (param for group in optimizer.param_groups for param in group["params"])
    if any(isinstance(param, QuantParameter) and not param.is_floating_point() for param in params):
        integer_optimizers.add(optimizer)


register_optimizer_step_post_hook(_after_a_step)
