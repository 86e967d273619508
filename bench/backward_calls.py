"""The calls that the benches of backward passes time: the operators of 1-, 8- and 4-bit layers and torch's own."""

from __future__ import annotations

from collections.abc import Callable

import torch

import bie  # noqa: F401  loads the operators

BITS = ["1 bit", "8 bit", "4 bit"]
Call = Callable[[], object]


def weights_of(weight: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """int8 signs and 4-bit codes."""
    signs = torch.where(weight >= 0, 1, -1).to(torch.int8)
    return signs, (2 * weight).round().clamp(-8, 7).to(torch.int8)


def linears(
    rival: str, m: int, k: int, n: int, device: str = "cpu", dtype: torch.dtype = torch.float32
) -> dict[str, Call]:
    """The backward passes of a linear layer; the rival's is its two products, g @ weight and g.T @ x."""
    ops, to = torch.ops.bie, {"device": device, "dtype": dtype}
    g, x, weight = torch.randn(m, n, **to), torch.randn(m, k, **to), torch.randn(n, k, **to)
    step, one = torch.tensor(0.05, device=device), torch.ones((), device=device)
    signs, codes = weights_of(weight)
    nbit = {"eps": 1e-5, "reference_grad": False, "plain_codes": True, "weight_grad": torch.float32}
    return {
        rival: lambda: (g @ weight, g.T @ x),
        "1 bit": lambda: ops.binary_linear_backward(g, x, signs, one, one, None, weight_grad=torch.float32),
        "8 bit": lambda: ops.q8_linear_backward(g, x, codes, step, one, None, **nbit),
        "4 bit": lambda: ops.q4_linear_backward(g, x, codes, step, one, None, **nbit),
    }


def convs(
    rival: str, batch: int, channels: int, side: int, device: str = "cpu", dtype: torch.dtype = torch.float32
) -> dict[str, Call]:
    """Those of a 3x3 convolution in channels_last; the rival's is aten::convolution_backward."""
    ops, last = torch.ops.bie, torch.channels_last
    to = {"device": device, "dtype": dtype}
    g = torch.randn(batch, channels, side, side, **to).contiguous(memory_format=last)
    x = torch.randn(batch, channels, side, side, **to).contiguous(memory_format=last)
    weight = torch.randn(channels, channels, 3, 3, **to)
    rival_weight = weight.contiguous(memory_format=last)
    step, one = torch.tensor(0.05, device=device), torch.ones((), device=device)
    signs, codes = weights_of(weight)
    size = {"stride": [1, 1], "padding": [1, 1], "dilation": [1, 1], "groups": 1, "kernel_size": [3, 3]}
    nbit = {"eps": 1e-5, "reference_grad": False, "weight_grad": torch.float32}
    backward = torch.ops.aten.convolution_backward
    same = ([1, 1], [1, 1], [1, 1], False, [0, 0], 1, [True, True, False])
    return {
        rival: lambda: backward(g, x, rival_weight, None, *same),
        "1 bit": lambda: ops.binary_conv2d_backward(
            g, x, signs, one, one, None, **size, padding_value=-1, weight_grad=torch.float32
        ),
        "8 bit": lambda: ops.q8_conv2d_backward(g, x, codes, step, one, None, **size, **nbit),
        "4 bit": lambda: ops.q4_conv2d_backward(g, x, codes, step, one, None, **size, **nbit),
    }
