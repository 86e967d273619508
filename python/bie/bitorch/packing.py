"""Signs in uint8, pairs of 4-bit values in int8, a flat float vector in 4 bits; docs/spec/layouts.md#packed-rows."""

from __future__ import annotations

import torch
from torch import Tensor

from bie._operators import ops
from bie.errors import ShapeError


def _expect(
    function: str, name: str, tensor: Tensor, dtypes: tuple[torch.dtype, ...], ranks: tuple[int, ...] = ()
) -> None:
    if not isinstance(tensor, Tensor):
        raise TypeError(f"{function}: {name}: expected a tensor, got a {type(tensor).__name__}")
    if tensor.dtype not in dtypes:
        wanted = " or ".join(str(d).removeprefix("torch.") for d in dtypes)
        raise ShapeError(f"{function}: {name}: expected {wanted}, got {str(tensor.dtype).removeprefix('torch.')}")
    if ranks and tensor.dim() not in ranks:
        wanted = " or ".join(map(str, ranks))
        raise ShapeError(f"{function}: {name}: expected {wanted} axes, got {list(tensor.shape)}")


def fp32toint4(input: Tensor) -> Tensor:
    """Sixteen 4-bit values a word: ``u = floor((x - min) * 15 / (max - min))``, in float64.

    Args:
        input: N float32 of any shape, finite. Where all values are equal, u = 0.

    Returns:
        [ceil(N/16)] int64; element ``16j + i`` at bits ``60 - 4i``, missing ones are 0.

    Raises:
        ShapeError: wrong dtype. ValueError: NaN or infinity.

    Source: BITorch Engine 0.2.6 ``fp32toint4``, whose result is unusable.
    """
    _expect("fp32toint4", "input", input, (torch.float32,))
    if input.numel() == 0:
        return torch.empty(0, dtype=torch.int64, device=input.device)
    x = input.detach().double().flatten()
    low, high = torch.aminmax(x)
    if not torch.isfinite(high - low):
        raise ValueError("fp32toint4: input holds NaN or infinity")
    u = torch.where(x == low, 0.0, torch.where(x == high, 15.0, ((x - low) * 15 / (high - low)).floor())).long()
    words = torch.nn.functional.pad(u, (0, -u.numel() % 16)).view(-1, 16)
    return (words << torch.arange(60, -1, -4, device=u.device)).sum(-1)


def tensor_to_packed_uint8(input: Tensor) -> Tensor:
    """Signs of the last axis, bit ``i`` of byte ``j`` is ``input[..., 8j + i] >= 0`` (so NaN is 0); pad bits are 0.

    Args:
        input: [..., k] float32, bfloat16, float16 or int8, at least one axis.

    Returns:
        [..., ceil(k/8)] uint8

    Raises:
        ShapeError: wrong dtype or rank.
    """
    dtypes = (torch.float32, torch.bfloat16, torch.float16, torch.int8)
    _expect("tensor_to_packed_uint8", "input", input, dtypes, tuple(range(1, 65)))
    return ops.pack_signs(input.detach())


def unpack_uint8_tensor(input: Tensor, scale: Tensor) -> Tensor:
    """``+scale`` for a set bit, ``-scale`` else, least significant bit first.

    Args:
        input: [b, s, p] uint8; any leading shape is taken.
        scale: [b, s, 1] float, one for each row.

    Returns:
        [b, s, 8p] float32

    Raises:
        ShapeError: wrong dtype, rank or size.
    """
    ranks = tuple(range(1, 65))
    _expect("unpack_uint8_tensor", "input", input, (torch.uint8,), ranks)
    _expect("unpack_uint8_tensor", "scale", scale, (torch.float32, torch.bfloat16, torch.float16), ranks)
    if scale.shape != (*input.shape[:-1], 1):
        wanted = [*input.shape[:-1], 1]
        raise ShapeError(f"unpack_uint8_tensor: scale: expected {wanted}, got {list(scale.shape)}")
    return ops.unpack_signs(input, 8 * input.shape[-1]) * scale.detach().float()


def q4_pack_tensor(input: Tensor, is_transpose: bool = False) -> Tensor:
    """The low four bits of pairs of the last axis, the even element in the high nibble; a pad nibble is 0.

    Args:
        input: [n, k] or [b, n, k] int32.
        is_transpose: swap the last two axes of the result.

    Returns:
        [..., n, ceil(k/2)] int8, or [..., ceil(k/2), n]; contiguous.

    Raises:
        ShapeError: wrong dtype or rank.
    """
    _expect("q4_pack_tensor", "input", input, (torch.int32,), (2, 3))
    packed = ops.pack_int4((((input & 15) ^ 8) - 8).to(torch.int8))
    return packed.mT.contiguous() if is_transpose else packed


def _unpack(function: str, input: Tensor, ranks: tuple[int, ...], is_transpose: bool) -> Tensor:
    _expect(function, "input", input, (torch.int8,), ranks)
    codes = ops.unpack_int4(input, 2 * input.shape[-1])
    return codes.mT.contiguous() if is_transpose else codes


def q4_unpack_tensor(input: Tensor, is_transpose: bool = False) -> Tensor:
    """The nibbles of each byte, the high one first, as 0...15 (not sign-extended).

    Args:
        input: [n, p] or [b, n, p] int8.
        is_transpose: swap the last two axes of the result.

    Returns:
        [..., n, 2p] int32, or [..., 2p, n]; contiguous.

    Raises:
        ShapeError: wrong dtype or rank.
    """
    return _unpack("q4_unpack_tensor", input, (2, 3), is_transpose).int() & 15


def q4_unpack_and_scaling_tensor(input: Tensor, scale: float | Tensor, is_transpose: bool = False) -> Tensor:
    """The nibbles of each byte, the high one first, as -8...7 times ``scale``.

    Args:
        input: int8 with 2, 3 or 4 axes, the last one packed.
        scale: a number, or a tensor of one element; rounded to float32.
        is_transpose: swap the last two axes of the result.

    Returns:
        float32, the last axis twice as long.

    Raises:
        ShapeError: wrong dtype or rank.
    """
    codes = _unpack("q4_unpack_and_scaling_tensor", input, (2, 3, 4), is_transpose)
    factor = scale.item() if isinstance(scale, Tensor) else float(scale)
    return codes.float() * torch.tensor(factor, dtype=torch.float32)
