"""Layers as functions of their tensors, in the order of BITorch Engine's ``apply``.

The classes of ``bitorch_engine`` that have these as their ``call`` say what each takes. Biases are already added; a
weight is told by its dtype. With ``is_train=False`` nothing is saved for a backward pass.
"""

from __future__ import annotations

import contextlib
import math
from typing import Any, ClassVar

import torch
from torch import Tensor

from bie._operators import ANCHOR, ONE, ops
from bie.bitorch.layouts import signs_from_flat
from bie.nn.state.arguments import pair
from bie.nn.state.saved_tensors import past_hooks


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


def _in_training(is_train: bool) -> contextlib.AbstractContextManager:
    """Whether autograd records what is inside."""
    return contextlib.nullcontext() if is_train else torch.no_grad()


def _window(kernel_size: Any, stride: Any, padding: Any, dilation: Any) -> dict[str, tuple[int, int]]:
    return {
        "kernel_size": pair("kernel_size", kernel_size, 1),
        "stride": pair("stride", stride, 1),
        "padding": pair("padding", padding, 0),
        "dilation": pair("dilation", dilation, 1),
    }


def binary_linear(
    input: Tensor, weight: Tensor, scale_a: Tensor, scale_w: Tensor, gemm_kernel_id: int, is_train: bool
) -> Tensor:
    with _in_training(is_train):
        anchor = ANCHOR if is_train else None
        return ops.binary_linear(input, weight, scale_a, scale_w, anchor=anchor, kernel_id=gemm_kernel_id)


def binary_linear_of_kind(
    input: Tensor, weight: Tensor, bmm_type: Any, scale_a: Tensor, scale_w: Tensor, is_train: bool
) -> Tensor:
    """``bmm_type``: a ``BMM`` or its value."""
    weight = signs_from_flat("BinaryLinearForward", weight, input.shape[-1], bmm_type)
    return binary_linear(input, weight, scale_a, scale_w, 0, is_train)


def plain_binary_linear(input: Tensor, weights: Tensor, m: int, n: int, k: int) -> Tensor:
    if weights.dtype == torch.uint8 and weights.dim() == 1:
        weights = ops.signs_from_layout(weights, n, k, "columns")
    return ops.binary_linear(input.reshape(m, k).float(), weights, ONE, ONE)


def binary_matmul(x: Tensor, y: Tensor, x_clip: Tensor, y_clip: Tensor) -> Tensor:
    return ops.binary_matmul(x, y, x_clip, y_clip)


def q8_linear(x: Tensor, weight: Tensor, scale_a: Tensor, scale_w: Tensor, eps: Tensor, is_train: bool) -> Tensor:
    scale = None if weight.is_floating_point() else scale_w  # a float weight brings its own
    with _in_training(is_train):
        return ops.q8_linear(x, weight, scale_a, scale, eps=float(eps), anchor=ANCHOR if is_train else None)


def q4_linear(x: Tensor, weight: Tensor, scale_a: Tensor, scale_w: Tensor, eps: Tensor, is_train: bool) -> Tensor:
    plain = weight.shape[-1] == x.shape[-1]  # codes one a byte; packed ones have no gradient
    with _in_training(is_train):
        anchor = ANCHOR if is_train and plain else None
        return ops.q4_linear(x, weight, scale_a, scale_w, eps=float(eps), anchor=anchor)


def q8_matmul(x: Tensor, y: Tensor, x_clip: Tensor, y_clip: Tensor, eps: Tensor, is_train: bool) -> Tensor:
    with _in_training(is_train):
        return ops.q8_matmul(x, y, x_clip, y_clip, eps=float(eps))


def q4_matmul(x: Tensor, y: Tensor, x_clip: Tensor, y_clip: Tensor, eps: Tensor, is_train: bool) -> Tensor:
    with _in_training(is_train):
        return ops.q4_matmul(x, y, x_clip, y_clip, eps=float(eps))


def binary_conv2d(
    x: Tensor,
    weight: Tensor,
    scale_a: Tensor,
    scale_w: Tensor,
    is_train: bool,
    kernel_size: int | tuple[int, int],
    stride: int | tuple[int, int],
    padding: int | tuple[int, int],
    dilation: int | tuple[int, int],
) -> Tensor:
    window = _window(kernel_size, stride, padding, dilation)
    with _in_training(is_train):
        return ops.binary_conv2d(x, weight, scale_a, scale_w, **window, anchor=ANCHOR if is_train else None)


def plain_binary_conv2d(
    activations: Tensor,
    weights: Tensor,
    m: int,
    n: int,
    k: int,
    kernel_size: int | tuple[int, int],
    stride: int | tuple[int, int],
    padding: int | tuple[int, int],
    dilation: int | tuple[int, int],
    output_edge: int,
) -> Tensor:
    if weights.dtype == torch.uint8:
        weights = weights.reshape(n, math.ceil(k / 8))
    window = _window(kernel_size, stride, padding, dilation)
    return ops.binary_conv2d(activations.float(), weights, ONE, ONE, **window)


def q4_conv2d(
    x: Tensor,
    weight: Tensor,
    scale_a: Tensor,
    scale_w: Tensor,
    is_train: bool,
    kernel_size: int | tuple[int, int],
    stride: int | tuple[int, int] = 1,
    padding: int | tuple[int, int] = 0,
    dilation: int | tuple[int, int] = 1,
) -> Tensor:
    window = _window(kernel_size, stride, padding, dilation)
    plain = tuple(weight.shape[1:]) == (x.shape[1], *window["kernel_size"])  # packed codes have no gradient
    with _in_training(is_train):
        return ops.q4_conv2d(x, weight, scale_a, scale_w, **window, anchor=ANCHOR if is_train and plain else None)
