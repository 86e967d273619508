"""Parameters that may hold integers: what DiodeMix tells its rules apart by."""

from __future__ import annotations

import copy
import weakref
from typing import TYPE_CHECKING, Any, ClassVar

import torch
from torch import Tensor, nn
from torch._guards import TracingContext
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook

from bie._weak_sets import members
from bie.weights.integer_gradient import IntegerGradient
from bie.weights.membership import NOBODY, Membership
from bie.weights.update_rules import CODE_ROWS, CODES, EMBEDDING, SIGNS, WEIGHT_ONLY, Rule, update

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
    micro-batches without rounding and which counts in the norm of ``clip_grad_norm_``.

    Setting ``requires_grad`` of integer data sets ``trainable`` instead: whether training makes that gradient.
    """

    trainable: bool = True
    awaits_gradient: bool = False  # its layer ran in training since the last step of an optimizer
    reducer: Membership = NOBODY  # whose gradient it is among several processes

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
        return {name: value for name, value in self.__dict__.items() if name not in ("awaits_gradient", "reducer")}

    def __deepcopy__(self, memo: dict) -> QuantParameter:
        if id(self) in memo:
            return memo[id(self)]
        data = self.detach().clone(memory_format=torch.preserve_format)
        result = _rebuild(type(self), data, self.requires_grad, {}, self._own_grad_dtype())
        memo[id(self)] = result
        result.__dict__.update(copy.deepcopy(self._attributes(), memo))
        return result

    def __reduce_ex__(self, protocol: int) -> tuple:
        return _rebuild, (type(self), self.detach(), self.requires_grad, self._attributes(), self._own_grad_dtype())

    def _own_grad_dtype(self) -> torch.dtype | None:
        """Of a copy, which is in no group: a group's int8 weights have none, for float parts and int8 codes."""
        return torch.int8 if self.dtype == torch.int8 and self.grad_dtype is None else self.grad_dtype


class _IntegerWeight(QuantParameter):
    """Base of weights whose gradient is int8: torch's tools get it as an :class:`IntegerGradient`."""

    @property
    def grad(self) -> Tensor | None:
        grad = torch.Tensor.grad.__get__(self)
        if type(grad) is not Tensor or grad.dtype != torch.int8 or TracingContext.try_get() is not None:
            return grad
        torch.Tensor.grad.__set__(self, grad.as_subclass(IntegerGradient))  # the same object the next time
        return torch.Tensor.grad.__get__(self)

    @grad.setter
    def grad(self, grad: Tensor | None) -> None:
        torch.Tensor.grad.__set__(self, grad)

    @grad.deleter
    def grad(self) -> None:
        torch.Tensor.grad.__set__(self, None)


class SignsParameter(_IntegerWeight):
    """The weight of a 1-bit layer: int8, its sign is the weight. ``DiodeMix`` flips signs."""

    rule = SIGNS


class CodesParameter(_IntegerWeight):
    """The weight of an 8- or 4-bit layer: float, or int8 codes whose weight is ``code * scale_w``."""

    rule = CODES


def _fits(grad: Tensor, anchor: Tensor) -> bool:
    return grad.shape == anchor.shape and grad.is_floating_point()


class AnchoredParameter(QuantParameter):
    """A packed weight whose gradient is that of the weight as floats, and so has another shape than its own.

    Autograd has no gradient of a tensor of integers: it comes to a leaf of floats, the *anchor*. ``grad`` is that
    leaf's gradient, so that ``zero_grad``, ``clip_grad_norm_`` and ``GradScaler`` find it; it adds up over backward
    passes.
    """

    def anchor(self, shape: tuple[int, int]) -> Tensor:
        """The leaf of this shape; its values, one number, are never read."""
        anchor = self.__dict__.get("_anchor")
        if anchor is None or anchor.shape != shape or anchor.device != self.device:
            given = self.__dict__.get("_given_grad")
            with torch.inference_mode(False):
                anchor = torch.zeros(1, device=self.device).expand(shape).requires_grad_()
            if given is not None and _fits(given, anchor):
                anchor.grad = given.to(device=self.device, dtype=torch.float32)
            self.__dict__["_anchor"] = anchor
            anchor.register_post_accumulate_grad_hook(self._gradient_is_there)
            if (reducer := self.reducer.reducer()) is not None:
                reducer.watch_anchor(self, anchor)
        self.__dict__["_given_grad"] = None
        return anchor

    def _gradient_is_there(self, _: Tensor) -> None:
        """Calls ``after_gradient(self)``, where an optimizer has set it: in the midst of a backward pass."""
        if (after := self.__dict__.get("after_gradient")) is not None:
            after(self)

    @property
    def grad(self) -> Tensor | None:
        if TracingContext.try_get() is not None:  # a tracer wants gradients to be like their tensors
            return None
        anchor, given = self.__dict__.get("_anchor"), self.__dict__.get("_given_grad")
        return given if anchor is None or given is not None else anchor.grad

    @grad.setter
    def grad(self, grad: Tensor | None) -> None:
        # The anchor stays: a graph that is still to run backward brings its gradient there.
        anchor = self.__dict__.get("_anchor")
        if anchor is not None:
            fits = grad is not None and _fits(grad, anchor)
            anchor.grad = grad.to(device=anchor.device, dtype=torch.float32) if fits else None
            grad = None if fits else grad
        self.__dict__["_given_grad"] = grad

    @grad.deleter
    def grad(self) -> None:
        self.grad = None

    def _attributes(self) -> dict[str, Any]:
        own = ("_anchor", "_given_grad", "_plain_rows", "after_gradient")
        return {name: value for name, value in super()._attributes().items() if name not in own}

    def adopt(self, place: nn.Parameter) -> None:
        """Makes the plain parameter that torch put in this one's place, on another kind of device, one of its class."""
        if place is not self and type(place) is nn.Parameter:
            place.__class__ = type(self)
            place.__dict__.update(self._attributes(), reducer=self.reducer)


class EmbeddingParameter(AnchoredParameter):
    """Packed signs [N, ceil(D/8)] uint8 of an embedding, or [N, D] bool of a bag.

    ``grad`` is sparse, the float sums of the rows that were looked up; an optimizer step moves no others.
    ``active_indices`` are those of the last lookup in training. A gradient of the weight's own dtype and shape, with
    them set, is taken too.
    """

    rule = EMBEDDING

    def __new__(
        cls, data: Tensor | None = None, requires_grad: bool = True, active_indices: Tensor | None = None
    ) -> EmbeddingParameter:
        param = super().__new__(cls, data, requires_grad)
        param.trainable = requires_grad
        param.active_indices = active_indices
        return param


class WeightOnlyParameter(AnchoredParameter):
    """Packed weight [ceil(k * w_bit / 32), n] int32 with what is needed to read it.

    ``layer_type`` 1 is MPQ, 2 is MBWQ. ``grad`` is ``privileged_grad``, [k, n] in float32.
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
        for name in ("cls", "data", "requires_grad", "privileged_grad", "__class__"):
            attributes.pop(name, None)
        param.__dict__.update(attributes)
        param.trainable = requires_grad
        param.privileged_grad = privileged_grad
        return param

    @property
    def privileged_grad(self) -> Tensor | None:
        return self.grad

    @privileged_grad.setter
    def privileged_grad(self, grad: Tensor | None) -> None:
        self.grad = grad


class CodeRowsParameter(AnchoredParameter):
    """Packed codes [N, ceil(D * w_bit / 32)] int32 of a table of floats [N, D], told how they are read.

    ``grad`` is that of the table as floats: sparse, the sums of the rows that were looked up, and dense once a head
    that shares the table has added to it.
    """

    rule = CODE_ROWS
    scales: Tensor  # [N, groups]
    zeros: Tensor  # [N, groups]
    w_bit: int
    group_size: int

    def __new__(cls, data: Tensor | None = None, requires_grad: bool = True) -> CodeRowsParameter:
        param = super().__new__(cls, data, requires_grad)
        param.trainable = requires_grad
        return param


def _before_a_step(optimizer: torch.optim.Optimizer, args: Any, kwargs: Any) -> None:
    """Refuses a step of torch's optimizers over packed weights, whose gradient has another shape and dtype."""
    if torch.compiler.is_compiling() or not type(optimizer).__module__.startswith("torch.optim."):
        return
    params = (param for group in optimizer.param_groups for param in group["params"])
    if any(isinstance(param, AnchoredParameter) and param.grad is not None for param in params):
        raise TypeError(
            f"{type(optimizer).__name__}: expected parameters of floats, got packed weights of codes, which "
            "bie.optim.DiodeMix steps beside floats"
        )


def _after_a_step(optimizer: torch.optim.Optimizer, args: Any, kwargs: Any) -> None:
    """Who steps integer weights takes their gradients, through ``.data`` too, where no version tells of it."""
    if torch.compiler.is_compiling():
        return
    params = (param for group in optimizer.param_groups for param in group["params"])
    if any(isinstance(param, QuantParameter) and not param.is_floating_point() for param in params):
        integer_optimizers.add(optimizer)


register_optimizer_step_pre_hook(_before_a_step)
register_optimizer_step_post_hook(_after_a_step)
