"""Layers and geometries that the tests of CUDA share."""

import pytest
import torch

F32, F16, BF16 = torch.float32, torch.float16, torch.bfloat16
DTYPES = pytest.mark.parametrize("dtype", [F32, BF16, F16], ids=["f32", "bf16", "f16"])
LINEAR = pytest.mark.parametrize("layer", ["binary", "q8", "q4"])
CONV = pytest.mark.parametrize("layer", ["q8", "q4"])
GEOMETRIES = [  # x, weight, stride, padding, dilation
    ((2, 3, 7, 9), (5, 3, 3, 2), (2, 1), (1, 0), (1, 2)),
    ((1, 33, 6, 6), (70, 33, 1, 1), (1, 1), (0, 0), (1, 1)),
    ((3, 64, 9, 8), (130, 64, 3, 3), (1, 1), (1, 1), (1, 1)),
    ((2, 17, 15, 4), (16, 17, 5, 3), (3, 2), (2, 4), (2, 1)),
    # Rows of 16 bytes: products that read codes through the TMA.
    ((2, 32, 9, 10), (24, 32, 3, 3), (1, 1), (1, 1), (1, 1)),
    ((2, 64, 11, 9), (40, 64, 3, 2), (2, 1), (1, 2), (1, 1)),
    ((1, 128, 8, 8), (16, 128, 3, 3), (1, 1), (2, 2), (2, 2)),
]


def linear_operands(layer, m, k, n, dtype=F32):
    g = torch.Generator().manual_seed(m + 31 * k + 977 * n)
    x, weight = torch.randn(m, k, generator=g).to(dtype), torch.randn(n, k, generator=g)
    scale = {"binary": 1.3, "q8": 0.013, "q4": 0.21}[layer]
    return x, weight, torch.tensor(scale), torch.tensor(0.09), 0.3 * torch.randn(k, generator=g)


def conv_operands(layer, x_shape, w_shape, dtype=F32):
    g = torch.Generator().manual_seed(sum(x_shape) + sum(w_shape))
    x, weight = torch.randn(x_shape, generator=g).to(dtype), torch.randn(w_shape, generator=g)
    return (
        x,
        weight,
        torch.tensor(0.013 if layer == "q8" else 0.21),
        torch.tensor(0.09),
        0.3 * torch.randn(x_shape[1], generator=g),
    )


def integer_forms(operators, layer, weight):
    """(int8 signs or codes, packed, their prepack operator's result, scale_w) of a float linear weight."""
    k = weight.shape[1]
    if layer == "binary":
        signs, scale = operators.binary_init(weight)
        packed = operators.pack_signs(signs)
        return signs, packed, lambda t: operators.binary_prepack(t, k), scale
    codes, scale = getattr(operators, f"{layer}_quantize")(weight)
    if layer == "q8":
        return codes, codes, operators.q8_prepack, scale
    packed = operators.pack_int4(codes)
    return codes, packed, lambda t: operators.q4_prepack(t, k), scale


def binary_conv_operands(case, dtype=F32):
    """(x, weight, scales, bias, how the window moves) with groups where the channels allow three."""
    x_shape, w_shape, *geometry = GEOMETRIES[case]
    g = torch.Generator().manual_seed(case)
    x, weight = torch.randn(x_shape, generator=g).to(dtype), torch.randn(w_shape, generator=g)
    moves = dict(zip(("stride", "padding", "dilation"), geometry, strict=True))
    if x_shape[1] % 3 == 0:
        weight, moves["groups"] = weight[: w_shape[0] // 3 * 3, : x_shape[1] // 3].contiguous(), 3
    return x, weight, torch.tensor(0.9), torch.tensor(0.031), 0.3 * torch.randn(x_shape[1], generator=g), moves
