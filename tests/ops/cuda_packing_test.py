"""Packing and layouts on CUDA: the CPU's bytes."""

import pytest
import torch
from both_devices import BF16, F16, F32, INF, NAN, SPECIAL, both, bytes_of, codes, forms, numbers

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")

SHAPES = [(1,), (7,), (1, 31), (3, 33), (5, 8), (4, 64), (17, 127), (2, 3, 128), (9, 1000), (3, 4097), (1000, 1001)]


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("dtype", [F32, F16, BF16, torch.int8], ids=["f32", "f16", "bf16", "s8"])
def test_pack_signs(operators, shape, dtype):
    for x in forms(codes(*shape) if dtype == torch.int8 else numbers(*shape, dtype=dtype)):
        both(operators.pack_signs, x)
        if dtype.is_floating_point:
            both(operators.pack_signs, x, numbers(shape[-1], seed=1))
            both(operators.pack_signs, x, numbers(shape[-1], dtype=BF16, seed=1))


def test_pack_signs_of_special_numbers(operators):
    x = torch.tensor([*SPECIAL, NAN, -NAN, INF, -INF])
    both(operators.pack_signs, x)
    both(operators.pack_signs, x, torch.zeros(len(x)))
    for dtype in (F16, BF16):
        both(operators.pack_signs, x.to(dtype))
    both(operators.pack_signs, torch.zeros(0, 9))
    both(operators.pack_signs, torch.zeros(3, 0))


def test_one_hot_bits(operators):
    for k in (1, 9, 130, 300):
        both(operators.pack_signs, torch.eye(k).sub(0.5))


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_unpack_signs_and_int4(operators, shape):
    k = shape[-1]
    both(operators.unpack_signs, bytes_of(*shape[:-1], (k + 7) // 8), k)
    both(operators.pack_int4, codes(*shape))
    for c in forms(codes(*shape, bits=4)):
        packed, _ = both(operators.pack_int4, c)
        assert torch.equal(operators.unpack_int4(packed, k).cpu(), c)
    both(operators.unpack_int4, bytes_of(*shape[:-1], (k + 1) // 2).view(torch.int8), k)
    both(operators.unpack_int4, torch.zeros(0, (k + 1) // 2, dtype=torch.int8), k)


@pytest.mark.parametrize(
    ("layout", "n", "k"),
    [("btc", 8, 128), ("btc", 24, 384), ("bstc", 5, 32), ("bstc", 64, 96), ("columns", 3, 8), ("columns", 33, 1000)],
)
def test_layouts(operators, layout, n, k):
    rows = bytes_of(n, k // 8)
    stored, _ = both(operators.signs_to_layout, rows, k, layout)
    assert torch.equal(operators.signs_from_layout(stored, n, k, layout).cpu(), rows)
    both(operators.signs_from_layout, bytes_of(stored.numel(), seed=1), n, k, layout)
    both(operators.signs_to_layout, rows[:0], k, layout)
