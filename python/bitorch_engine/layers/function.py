"""``torch.autograd.Function`` classes whose work an operator does."""

from __future__ import annotations

import contextlib
from typing import Any, ClassVar, NamedTuple

import torch
from torch import Tensor


def in_training(is_train: bool) -> contextlib.AbstractContextManager:
    """Whether autograd records what is inside, as ``is_train`` arguments ask for."""
    return contextlib.nullcontext() if is_train else torch.no_grad()


class _Kept(NamedTuple):
    """What is saved of an integer weight where hooks for saved tensors are on: the weight itself."""

    weight: Tensor


def past_hooks(weights: list[Tensor]) -> contextlib.AbstractContextManager:
    """Keeps integer weights out of ``torch.autograd.graph.saved_tensors_hooks``; other tensors go through them.

    A backward pass writes the gradient into the weight that was saved: into a copy, it would be lost.
    """
    if not weights or torch.compiler.is_compiling():
        return contextlib.nullcontext()
    hooks = torch._C._autograd._top_saved_tensors_default_hooks(True)
    if hooks is None:
        return contextlib.nullcontext()
    pack, unpack = hooks

    def pack_others(tensor: Tensor) -> Any:
        for weight in weights:
            if tensor.dtype == weight.dtype and tensor.data_ptr() == weight.data_ptr():
                return _Kept(weight)
        return pack(tensor)

    def unpack_others(packed: Any) -> Tensor:
        return packed.weight if isinstance(packed, _Kept) else unpack(packed)

    return torch.autograd.graph.saved_tensors_hooks(pack_others, unpack_others)


class OperatorFunction(torch.autograd.Function):
    """``apply`` is the operator, which has a backward pass of its own and reaches integer weights.

    ``forward`` and ``backward`` serve those who call them by hand: one gradient for each argument.
    """

    call: ClassVar[Any]

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if "call" not in cls.__dict__:
            return
        call = cls.call

        def forward(ctx: Any, *args: Any) -> Tensor:
            def leaf(value: Any) -> Any:
                is_float = isinstance(value, Tensor) and value.is_floating_point()
                return value.detach().requires_grad_() if is_float else value

            ctx.leaves = [leaf(value) for value in args]
            with torch.enable_grad():
                ctx.output = call(*ctx.leaves)
            return ctx.output.detach()

        def backward(ctx: Any, output_gradient: Tensor) -> tuple:
            places = [i for i, leaf in enumerate(ctx.leaves) if isinstance(leaf, Tensor) and leaf.requires_grad]
            found = torch.autograd.grad(ctx.output, [ctx.leaves[i] for i in places], output_gradient, allow_unused=True)
            grads: list[Tensor | None] = [None] * len(ctx.leaves)
            for place, grad in zip(places, found, strict=True):
                grads[place] = grad
            return tuple(grads)

        cls.forward, cls.backward = staticmethod(forward), staticmethod(backward)

    @classmethod
    def apply(cls, *args: Any, **kwargs: Any) -> Tensor:
        values = (*args, *kwargs.values())
        with past_hooks([v for v in values if isinstance(v, Tensor) and v.dtype == torch.int8]):
            return cls.call(*args, **kwargs)
