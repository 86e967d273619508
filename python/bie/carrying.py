"""A layer of ours with the weight, bias, device, dtype and mode of a layer of torch."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from bie._places import factor_of
from bie.errors import ShapeError
from bie.nn import MultiheadAttention, PlainBinaryLinear, WeightOnlyLinear
from bie.nn.binary_conv2d import SignsConv2d

_DTYPES = (torch.float32, torch.float16, torch.bfloat16)


def carry(source: nn.Module, target: type, **options: Any) -> nn.Module:
    """A new layer of class ``target`` with the weight, bias, device, dtype and mode of a layer of torch.

    ``options`` are further arguments of ``target``. Raises what the class does, and ``ShapeError`` for what our layers
    do not have (padding other than zeros, or more on one side than on the other). A binary convolution pads with
    zeros as its source did, unless ``padding_value`` says otherwise. For an nn.MultiheadAttention ``target`` is the
    class of the projections.
    """
    if isinstance(source, nn.Embedding):
        return _carry_embedding(source, target, **options)
    if isinstance(source, nn.MultiheadAttention):
        return _carry_attention(source, target, **options)
    if issubclass(target, WeightOnlyLinear):
        return _carry_weight_only(source, target, **options)
    weight, bias = source.weight.detach(), source.bias
    if weight.dtype not in _DTYPES:
        raise ShapeError(f"the weight: expected float32, float16 or bfloat16, got {weight.dtype}")
    place: dict[str, Any] = {"device": weight.device, "bias": bias is not None, **options}
    if not issubclass(target, PlainBinaryLinear):  # whose output is float32 whatever comes in
        place["dtype"] = weight.dtype
    if isinstance(source, (nn.Conv1d, nn.Conv2d)):
        usual: dict[str, Any] = {"groups": source.groups}
        if issubclass(target, SignsConv2d):
            usual["padding_value"] = 0
        place = usual | place
        _check_conv(source)
        layer = target(
            source.in_channels,
            source.out_channels,
            _number(source.kernel_size),
            _number(source.stride),
            _number(_padding(source)),
            _number(source.dilation),
            **place,
        )
    else:
        layer = target(source.in_features, source.out_features, **place)
    layer.weight_trainable = source.weight.requires_grad
    layer.set_weight_data(weight.to(layer.dtype).reshape(layer.weight.shape))
    if bias is not None:
        with torch.no_grad():
            layer.bias.copy_(bias)
        layer.bias.requires_grad_(bias.requires_grad)
    return layer.train(source.training)


def _carry_weight_only(source: nn.Linear, target: type, bits: int = 4, **options: Any) -> nn.Module:
    weight, bias = source.weight.detach(), source.bias
    usual = {"w_bit": bits, "dtype": weight.dtype, "device": weight.device, "disable_bias": bias is None}
    usual["train_bias"] = bias is not None and bias.requires_grad
    options = usual | {"requires_grad": source.weight.requires_grad} | options
    layer = target(source.in_features, source.out_features, **options)
    layer.set_weight_data(weight)
    if bias is not None:
        with torch.no_grad():
            layer.bias.copy_(bias)
    return layer.train(source.training)


def _carry_embedding(source: nn.Embedding, target: type, **options: Any) -> nn.Module:
    if source.max_norm is not None:
        raise ShapeError(f"max_norm is {source.max_norm}, rows of codes have none")
    weight = source.weight.detach()
    usual = {"padding_idx": source.padding_idx, "device": weight.device, "dtype": weight.dtype}
    usual |= {"requires_grad": source.weight.requires_grad, "sparse": source.sparse, "factor": factor_of(source)}
    layer = target(source.num_embeddings, source.embedding_dim, **usual | options)
    layer.set_weight_data(weight)
    return layer.train(source.training)


def _carry_attention(source: nn.MultiheadAttention, target: type, **options: Any) -> nn.Module:
    if source.bias_k is not None or source.add_zero_attn:
        raise ShapeError("it appends keys and values of its own (add_bias_kv, add_zero_attn)")
    new = MultiheadAttention.__new__(MultiheadAttention)
    nn.Module.__init__(new)
    new.embed_dim, new.num_heads, new.head_dim = source.embed_dim, source.num_heads, source.head_dim
    new.dropout, new.batch_first, new.kdim, new.vdim = source.dropout, source.batch_first, source.kdim, source.vdim
    weights = [source.q_proj_weight, source.k_proj_weight, source.v_proj_weight]
    if source.in_proj_weight is not None:
        weights = list(source.in_proj_weight.chunk(3))
    biases = [None] * 3 if source.in_proj_bias is None else list(source.in_proj_bias.chunk(3))
    for name, weight, bias in zip(("q_proj", "k_proj", "v_proj"), weights, biases, strict=True):
        linear = nn.Linear(1, 1, bias=bias is not None, device="meta")
        linear.out_features, linear.in_features = weight.shape
        linear.weight = nn.Parameter(weight.detach(), requires_grad=_trains(source.in_proj_weight, weight))
        if bias is not None:
            linear.bias = nn.Parameter(bias.detach(), requires_grad=source.in_proj_bias.requires_grad)
        setattr(new, name, carry(linear.train(source.training), target, **options))
    new.out_proj = carry(source.out_proj, target, **options)
    return new.train(source.training)


def _trains(whole: Tensor | None, part: Tensor) -> bool:
    return part.requires_grad if whole is None else whole.requires_grad


def _number(sizes: tuple[int, ...]) -> int | tuple[int, ...]:
    return sizes[0] if len(set(sizes)) == 1 else tuple(sizes)


def _padding(conv: nn.Conv1d | nn.Conv2d) -> tuple[int, ...]:
    """In numbers, which "same" is where both sides get the same."""
    if not isinstance(conv.padding, str):
        return conv.padding
    both = [0 if conv.padding == "valid" else d * (k - 1) for d, k in zip(conv.dilation, conv.kernel_size, strict=True)]
    if any(size % 2 for size in both):
        raise ShapeError(f"padding is 'same' for a window of {conv.kernel_size}, more on one side than on the other")
    return tuple(size // 2 for size in both)


def _check_conv(conv: nn.Conv1d | nn.Conv2d) -> None:
    if conv.padding_mode != "zeros":
        raise ShapeError(f"padding_mode: expected 'zeros', got {conv.padding_mode!r}")
