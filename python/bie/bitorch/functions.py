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
from bie.weights.gptq import mixed_rows
from bie.weights.parameters import AnchoredParameter, WeightOnlyParameter


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
    plain = weight.shape[-1] == x.shape[-1]  # codes one per byte; packed ones have no gradient
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


def binary_embedding(
    input: Tensor, qweight: Tensor, embed_scale: Tensor, ori_embedding_dim: int, is_train: bool
) -> Tensor:
    options = {"anchor": _anchor(qweight, (qweight.size(0), ori_embedding_dim), input)} if is_train else {}
    with _in_training(is_train):
        return ops.binary_embedding(
            input, qweight.detach(), embed_scale, embedding_dim=ori_embedding_dim, dtype=embed_scale.dtype, **options
        )


def binary_embedding_bag(input: Tensor, weight: Tensor, is_train: bool) -> Tensor:
    options = {"anchor": _anchor(weight, tuple(weight.shape), input)} if is_train else {}
    with _in_training(is_train):
        return ops.binary_embedding_bag(input, weight.detach(), **options)


def _anchor(weight: Tensor, shape: tuple[int, int], indices: Tensor | None = None) -> Tensor | None:
    """Where the gradient of an embedding's or a weight-only parameter goes; None for other tensors and frozen ones."""
    wanted = isinstance(weight, AnchoredParameter) and weight.trainable and torch.is_grad_enabled()
    if wanted and indices is not None:
        weight.active_indices = indices
    return weight.anchor(shape) if wanted else None


def _tell(qweight: Tensor, **attributes: Any) -> None:
    """What a weight-only parameter has to know for an optimizer to step it."""
    if isinstance(qweight, WeightOnlyParameter):
        qweight.__dict__.update(attributes)


def mpq_linear(
    x: Tensor,
    qweight: Tensor,
    a_bit: int,
    w_bit: int,
    scales: Tensor,
    zeros: Tensor,
    g_idx: Tensor,
    asym: bool,
    is_training: bool,
    privileged_grad: Tensor | None = None,
) -> Tensor:
    if is_training:
        _tell(qweight, scales=scales, zeros=zeros, g_idx=g_idx, w_bit=w_bit, asym=asym, layer_type=1)
    anchor = _anchor(qweight, (x.shape[-1], qweight.size(1))) if is_training else None
    with _in_training(is_training):
        return ops.weight_only_linear(x, qweight.detach(), scales, zeros, bits=w_bit, g_idx=g_idx, anchor=anchor)


def mbwq_linear(
    x: Tensor,
    qweight: Tensor,
    use_mbw: bool,
    is_train: bool,
    scales: Tensor,
    zeros: Tensor,
    group_size: int,
    q_perm: Tensor | None = None,
    bits: int = 4,
    privileged_grad: Tensor | None = None,
    q_group_map: Tensor | None = None,
    rows: list[int] | None = None,
) -> Tensor:
    options: dict[str, Any] = {"bits": bits, "group_size": group_size}
    if use_mbw:
        options = mixed_rows("MBWQLinearCudaFunction", q_group_map, rows)
    if is_train:
        told = {"scales": scales, "zeros": zeros, "q_perm": q_perm, "group_size": group_size, "w_bit": bits}
        mixed = {"q_group_map": q_group_map if use_mbw else None, "rows": rows if use_mbw else None}
        _tell(qweight, **told, **mixed, layer_type=2, asym=False, g_idx=None)
    anchor = _anchor(qweight, (x.shape[-1], qweight.size(1))) if is_train else None
    with _in_training(is_train):
        return ops.weight_only_linear(x, qweight.detach(), scales, zeros, q_perm=q_perm, anchor=anchor, **options)
