"""An int8 gradient as torch's tools meet it: clipping by norm or value and ``GradScaler`` leave it as it is."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor


class IntegerGradient(Tensor):
    """The int8 ``.grad`` of an integer weight: codes over the gradient's largest element.

    ``int8_grad(c * g) = int8_grad(g)`` for every c > 0, so a gradient that is clipped or unscaled has the codes that
    it had, and its size is not known: it counts 0 in a norm. Everything else is done to it as to any int8 tensor, with
    plain tensors as results. Source: docs/spec/quantizers.md#integer-gradient.
    """

    @classmethod
    def __torch_function__(
        cls, func: Callable, types: Iterable[type], args: tuple = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        if func in _SIZES:
            return _SIZES[func](*args, **kwargs)
        if func is torch._amp_foreach_non_finite_check_and_unscale_:
            return None
        if func in _SCALED and all(map(_is_size, [*args[1:], *kwargs.values()])):
            return args[0]
        with torch._C.DisableTorchFunctionSubclass():
            return func(*args, **kwargs)


def _no_size(grad: Tensor, *args: Any, **kwargs: Any) -> Tensor:
    return torch.zeros((), dtype=torch.float32, device=grad.device)


def _no_sizes(grads: Iterable[Tensor], *args: Any, **kwargs: Any) -> list[Tensor]:
    return [_no_size(grad) for grad in grads]


def _is_size(value: Any) -> bool:
    """Whether a factor or bound says how large a gradient may be: a float number."""
    if isinstance(value, Tensor):
        return value.dim() == 0 and value.is_floating_point()
    return value is None or isinstance(value, float)


#: What asks for the size of gradients.
_SIZES: dict[Any, Callable[..., Any]] = {torch.linalg.vector_norm: _no_size, torch._foreach_norm: _no_sizes}
#: What changes it by a float; torch groups lists by dtype, so one is int8 as a whole.
_SCALED = {Tensor.mul_, torch._foreach_mul_, Tensor.clamp_, torch._foreach_clamp_min_, torch._foreach_clamp_max_}


def plain(grad: Tensor | None) -> Tensor | None:
    """A gradient's tensor as the operators take it, in the same memory."""
    return grad.as_subclass(Tensor) if type(grad) is IntegerGradient else grad
