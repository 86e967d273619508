"""signs_from_layout, signs_to_layout: each byte order proved by one-hot probes, then round trips and refusals."""

import pytest
import torch

SHAPES = {
    "btc": [(8, 128), (16, 128), (8, 256), (24, 384)],
    "bstc": [(32, 32), (1, 32), (31, 64), (33, 96), (64, 160)],
    "columns": [(1, 8), (3, 8), (5, 24), (8, 128), (33, 40)],
}
CASES = [(layout, n, k) for layout, shapes in SHAPES.items() for n, k in shapes]


def place(layout, n, k, row, column):
    """Byte and bit of one element, from the shapes of the specification."""
    if layout == "btc":
        shape = (n // 8, k // 128, 8, 16)
        index = (row // 8, column // 128, row % 8, column % 128 // 8)
        bit = 7 - column % 8
    elif layout == "bstc":
        shape = (k // 32, (n + 31) // 32 * 32, 4)
        index = (column // 32, row, column % 32 // 8)
        bit = 7 - column % 8
    else:
        shape = (k // 8, n)
        index = (column // 8, row)
        bit = column % 8
    byte = torch.arange(torch.Size(shape).numel()).reshape(shape)[index]
    return int(byte), bit


def size(layout, n, k):
    return (n + 31) // 32 * 32 * k // 8 if layout == "bstc" else n * k // 8


@pytest.mark.parametrize(("layout", "n", "k"), CASES)
def test_one_bit_is_one_bit(operators, layout, n, k):
    g = torch.Generator().manual_seed(n * k)
    probes = [(0, 0), (n - 1, k - 1), (0, k - 1), (n - 1, 0)]
    probes += [(int(torch.randint(n, (), generator=g)), int(torch.randint(k, (), generator=g))) for _ in range(60)]
    for row, column in probes:
        byte, bit = place(layout, n, k, row, column)
        stored = torch.zeros(size(layout, n, k), dtype=torch.uint8)
        stored[byte] = 1 << bit
        x = -torch.ones(n, k)
        x[row, column] = 1
        packed = operators.pack_signs(x)
        assert torch.equal(operators.signs_from_layout(stored, n, k, layout), packed), (row, column)
        assert torch.equal(operators.signs_to_layout(packed, k, layout), stored), (row, column)


@pytest.mark.parametrize(("layout", "n", "k"), CASES)
def test_every_bit_has_a_place_of_its_own(layout, n, k):
    assert len({place(layout, n, k, row, column) for row in range(n) for column in range(k)}) == n * k


@pytest.mark.parametrize(("layout", "n", "k"), CASES)
def test_round_trip(operators, layout, n, k):
    packed = operators.pack_signs(torch.randn(n, k, generator=torch.Generator().manual_seed(1)))
    stored = operators.signs_to_layout(packed, k, layout)
    assert stored.shape == (size(layout, n, k),) and stored.dtype == torch.uint8
    assert torch.equal(operators.signs_from_layout(stored, n, k, layout), packed)
    strided = torch.stack([stored, stored], dim=1)[:, 0]
    assert torch.equal(operators.signs_from_layout(strided, n, k, layout), packed)
    transposed = packed.t().contiguous().t()
    assert torch.equal(operators.signs_to_layout(transposed, k, layout), stored)


def test_rows_that_pad_are_zero_on_writing_and_ignored_on_reading(operators):
    packed = torch.full((1, 4), 255, dtype=torch.uint8)
    stored = operators.signs_to_layout(packed, 32, "bstc")
    assert stored.tolist() == [255] * 4 + [0] * 124
    assert torch.equal(operators.signs_from_layout(torch.full_like(stored, 255), 1, 32, "bstc"), packed)


@pytest.mark.parametrize("layout", SHAPES)
def test_no_rows_or_columns(operators, layout):
    assert operators.signs_to_layout(torch.zeros(0, 16, dtype=torch.uint8), 128, layout).shape == (0,)
    assert operators.signs_from_layout(torch.zeros(0, dtype=torch.uint8), 0, 128, layout).shape == (0, 16)
    assert operators.signs_from_layout(torch.zeros(0, dtype=torch.uint8), 8, 0, layout).shape == (8, 0)


def test_the_product_is_that_of_the_restored_weight(operators):
    """What a checkpoint's bytes give in the operator is what the float weight gives."""
    w, x = torch.randn(16, 128), torch.randn(3, 128)
    one = torch.tensor(1.0)
    stored = operators.signs_to_layout(operators.pack_signs(w), 128, "btc")
    restored = operators.signs_from_layout(stored, 16, 128, "btc")
    assert torch.equal(operators.binary_linear(x, restored, one, one), operators.binary_linear(x, w, one, one))


def test_refusals(operators):
    flat = torch.zeros(1024, dtype=torch.uint8)
    names = 'layout: expected btc, bstc or columns, got "BTC"'
    with pytest.raises(ValueError, match=names):
        operators.signs_from_layout(flat, 64, 128, "BTC")
    with pytest.raises(ValueError, match=names):
        operators.signs_to_layout(flat.reshape(64, 16), 128, "BTC")
    with pytest.raises(TypeError, match="bytes: expected Byte, got Char"):
        operators.signs_from_layout(flat.to(torch.int8), 64, 128, "btc")
    with pytest.raises(TypeError, match="packed: expected Byte, got Float"):
        operators.signs_to_layout(torch.zeros(8, 16), 128, "btc")
    for n, k, layout, units in [
        (12, 128, "btc", "8 and 128"),
        (8, 64, "btc", "8 and 128"),
        (32, 40, "bstc", "1 and 32"),
        (3, 9, "columns", "1 and 8"),
        (-8, 128, "btc", "8 and 128"),
        (8, -128, "btc", "8 and 128"),
    ]:
        with pytest.raises(ValueError, match=rf"n = {n} and k = {k}, layout {layout} wants multiples of {units}"):
            operators.signs_from_layout(flat, n, k, layout)
    with pytest.raises(ValueError, match=r"bytes is \[1024\], n = 8 and k = 128 take \[128\] in layout btc"):
        operators.signs_from_layout(flat, 8, 128, "btc")
    with pytest.raises(ValueError, match=r"bytes is \[64, 16\]"):
        operators.signs_from_layout(flat.reshape(64, 16), 64, 128, "btc")
    with pytest.raises(ValueError, match="overflows"):
        operators.signs_from_layout(flat, 1 << 40, 1 << 40, "btc")
    with pytest.raises(ValueError, match="overflows"):
        operators.signs_from_layout(flat, (1 << 63) - 1, 32, "bstc")
    with pytest.raises(ValueError, match=r"bytes is \[132\], n = 33 .* cut the tail off .* cannot be recovered"):
        operators.signs_from_layout(flat[:132], 33, 32, "bstc")
    with pytest.raises(ValueError, match=r"packed is \[8, 15\], k = 128 wants a last axis of 16"):
        operators.signs_to_layout(flat[:120].reshape(8, 15), 128, "btc")
    with pytest.raises(ValueError, match=r"packed: expected \[n, ceil\(k/8\)\], got \[1024\]"):
        operators.signs_to_layout(flat, 128, "btc")
    with pytest.raises(ValueError, match="n = 9 and k = 128"):
        operators.signs_to_layout(flat[:144].reshape(9, 16), 128, "btc")
