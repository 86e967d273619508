"""Small helpers of BITorch Engine: shapes, padding, first integers of a binary weight; docs/spec/helpers.md."""

from __future__ import annotations

import math
from collections.abc import Sequence

from torch import Tensor, nn

from bie._operators import ops
from bie.errors import ShapeError


def flatten_x(x: Tensor) -> tuple[Tensor, list[int]]:
    """[..., k] to ([rows, k], the leading sizes). ``ShapeError`` for a 0-dim tensor."""
    if x.dim() == 0:
        raise ShapeError("flatten_x: x: expected at least one axis, got []")
    shape = list(x.shape[:-1])
    return x.reshape(math.prod(shape), x.size(-1)), shape


def unflatten_x(x: Tensor, shape: Sequence[int]) -> Tensor:
    """``[rows, n]`` to ``[*shape, n]``, the reverse of :func:`flatten_x`; ``ShapeError`` for another number of rows."""
    if x.dim() != 2 or x.size(0) != math.prod(shape):
        raise ShapeError(f"unflatten_x: x: expected [{math.prod(shape)}, n] for {list(shape)}, got {list(x.shape)}")
    return x.reshape(*shape, x.size(-1))


def pad_embedding_dim(weight: Tensor) -> Tensor:
    """[N, D] with columns of -1 up to a multiple of 8, in ``weight``'s dtype.

    More axes pass as they are where D is a multiple of 8; else, and for one axis, a ``ShapeError``.
    """
    if weight.dim() > 2 and weight.size(1) % 8 == 0:
        return weight
    if weight.dim() != 2:
        raise ShapeError(f"pad_embedding_dim: weight: expected [embeddings, features], got {list(weight.shape)}")
    return nn.functional.pad(weight, (0, -weight.size(1) % 8), value=-1)


def pad_last_2_dims_to_multiple_of_128(tensor: Tensor) -> tuple[Tensor, int]:
    """([..., m', k'] with zeros up to multiples of 128, rows added). ``ShapeError`` below two axes."""
    if tensor.dim() < 2:
        raise ShapeError(f"pad_last_2_dims_to_multiple_of_128: tensor: expected two axes, got {list(tensor.shape)}")
    rows, columns = (-tensor.size(-2)) % 128, (-tensor.size(-1)) % 128
    padded = nn.functional.pad(tensor, (0, columns, 0, rows)) if rows or columns else tensor
    return padded, rows


def binary_matmul_forward_post_processing(
    tensor: Tensor, shape_pre: Sequence[int], x_pad_sec_last: int, y_pad_sec_last: int, k: int
) -> Tensor:
    """``k - 2 * tensor`` without the padding, in its leading shape.

    Args:
        tensor: [batch, m + x_pad_sec_last, n + y_pad_sec_last] counts of differing bits.
        shape_pre: leading sizes, batch in all.

    Returns:
        ``[*shape_pre, m, n]``

    Raises:
        ShapeError: not three axes, more padding than rows or columns, or another batch.
    """
    m, n = (tensor.size(1) - x_pad_sec_last, tensor.size(2) - y_pad_sec_last) if tensor.dim() == 3 else (-1, -1)
    if m < 0 or n < 0 or x_pad_sec_last < 0 or y_pad_sec_last < 0 or math.prod(shape_pre) != tensor.size(0):
        raise ShapeError(
            f"binary_matmul_forward_post_processing: tensor: expected [{math.prod(shape_pre)}, rows + "
            f"{x_pad_sec_last}, columns + {y_pad_sec_last}], got {list(tensor.shape)}"
        )
    return k - 2 * tensor[:, :m, :n].reshape(*shape_pre, m, n)


def init_weight(weight: Tensor, cls: type[nn.Parameter] = nn.Parameter) -> tuple[nn.Parameter, Tensor]:
    """(int8 ``cls``, scale_w) of a binary weight for training.

    ``scale_w = mean|w|`` 0-dim float32; ``c = w - mean(w)``, ``q = amax_quantize(c)``, where that is 0 ``sgn(c)``,
    where that is 0 too +1. ValueError: empty, NaN or infinity. TypeError: not a float tensor.
    """
    q, scale_w = ops.binary_init(weight.detach())
    return cls(q, requires_grad=False), scale_w
