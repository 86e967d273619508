"""pack_signs, unpack_signs, pack_int4, unpack_int4: layouts proved by one-hot probes, round trips, refusals."""

import pytest
import torch

SIZES = [1, 2, 7, 8, 9, 31, 33, 63, 65, 127, 129, 2051]


@pytest.mark.parametrize("k", SIZES)
def test_one_positive_element_sets_one_bit(operators, k):
    for i in {0, k // 2, k - 1}:
        x = -torch.ones(1, k)
        x[0, i] = 1
        packed = operators.pack_signs(x)
        assert packed.shape == (1, (k + 7) // 8) and packed.dtype == torch.uint8
        wanted = torch.zeros_like(packed)
        wanted[0, i // 8] = 1 << (i % 8)
        assert torch.equal(packed, wanted)
        assert torch.equal(operators.unpack_signs(packed, k), x.to(torch.int8))


@pytest.mark.parametrize("k", SIZES)
def test_one_code_fills_one_nibble(operators, k):
    for i in {0, k // 2, k - 1}:
        codes = torch.zeros(1, k, dtype=torch.int8)
        codes[0, i] = -3
        packed = operators.pack_int4(codes)
        assert packed.shape == (1, (k + 1) // 2) and packed.dtype == torch.int8
        wanted = torch.zeros_like(packed, dtype=torch.uint8)
        wanted[0, i // 2] = 0xD0 if i % 2 == 0 else 0x0D
        assert torch.equal(packed.view(torch.uint8), wanted)
        assert torch.equal(operators.unpack_int4(packed, k), codes)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_signs_of_special_values(operators, dtype):
    inf, nan = float("inf"), float("nan")
    x = torch.tensor([0.0, -0.0, nan, inf, -inf, 1e-30, -1e-30, -1.0]).to(dtype)
    bit = [bool(v >= 0) for v in x.float()]
    packed = operators.pack_signs(x)
    assert packed.item() == sum(1 << i for i, b in enumerate(bit) if b)


def test_bias_strides_leading_shapes_and_int8(operators):
    g = torch.Generator().manual_seed(3)
    x = torch.randn(4, 5, 19, generator=g)
    bias = torch.randn(19, generator=g)
    assert torch.equal(operators.pack_signs(x, bias), operators.pack_signs(x + bias))
    assert torch.equal(operators.pack_signs(x.transpose(0, 1)), operators.pack_signs(x).transpose(0, 1))
    assert torch.equal(
        operators.pack_signs((100 * x).to(torch.int8)), operators.pack_signs((100 * x).to(torch.int8).float())
    )
    assert operators.pack_signs(x[:0]).shape == (0, 5, 3)
    codes = torch.randint(-8, 8, (3, 4, 11), generator=g).to(torch.int8)
    assert torch.equal(operators.unpack_int4(operators.pack_int4(codes), 11), codes)
    assert torch.equal(operators.pack_int4(codes.transpose(0, 1)), operators.pack_int4(codes).transpose(0, 1))
    assert operators.pack_int4(codes[:0]).shape == (0, 4, 6)
    assert operators.pack_int4(codes[..., :0]).shape == (3, 4, 0)


def test_refusals(operators):
    with pytest.raises(ValueError, match="0-dimensional"):
        operators.pack_signs(torch.tensor(1.0))
    with pytest.raises(TypeError, match=r"x: expected .*, got Double"):
        operators.pack_signs(torch.ones(3).double())
    with pytest.raises(ValueError, match=r"bias_a: expected .*, got \[2\]"):
        operators.pack_signs(torch.ones(3), torch.ones(2))
    with pytest.raises(TypeError, match="takes no bias"):
        operators.pack_signs(torch.ones(3, dtype=torch.int8), torch.ones(3))
    with pytest.raises(ValueError, match="k = 17 wants a last axis of 3"):
        operators.unpack_signs(torch.zeros(2, 2, dtype=torch.uint8), 17)
    with pytest.raises(ValueError, match="k = -1"):
        operators.unpack_signs(torch.zeros(2, 2, dtype=torch.uint8), -1)
    with pytest.raises(TypeError, match="packed: expected Byte, got Char"):
        operators.unpack_signs(torch.zeros(2, 2, dtype=torch.int8), 16)
    with pytest.raises(TypeError, match="codes: expected int8, got Float"):
        operators.pack_int4(torch.ones(3))
    with pytest.raises(TypeError, match="packed: expected Char, got Byte"):
        operators.unpack_int4(torch.zeros(2, 2, dtype=torch.uint8), 4)
    with pytest.raises(ValueError, match="k = 5 wants a last axis of 3"):
        operators.unpack_int4(torch.zeros(2, 2, dtype=torch.int8), 5)
