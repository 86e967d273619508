"""bitorch_engine.functions.cuda against the same bits written with numpy and Python integers."""

import math

import numpy as np
import pytest
import torch

from bitorch_engine import ShapeError
from bitorch_engine.functions.cuda import (
    fp32toint4,
    q4_pack_tensor,
    q4_unpack_and_scaling_tensor,
    q4_unpack_tensor,
    tensor_to_packed_uint8,
    unpack_uint8_tensor,
)

FLOATS = [torch.float32, torch.bfloat16, torch.float16]


def random(*shape, seed=0, dtype=torch.float32):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


def integers(low, high, *shape, dtype, seed=0):
    return torch.randint(low, high, shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


# fp32toint4


def nibbles(words, count):
    """The values of 64-bit words, the first in the highest four bits."""
    raw = words.numpy().astype(np.uint64)
    return [int(raw[i // 16]) >> (60 - 4 * (i % 16)) & 15 for i in range(count)]


@pytest.mark.parametrize("count", [1, 2, 3, 15, 16, 17, 31, 32, 33, 1000])
def test_fp32toint4_is_the_formula(count):
    x = random(count, seed=count)
    words = fp32toint4(x)
    assert words.dtype == torch.int64 and words.shape == (math.ceil(count / 16),)
    v = x.double().numpy()
    spread = v.max() - v.min()
    wanted = [15 if e == v.max() else math.floor((e - v.min()) * 15 / spread) for e in v] if spread else [0] * count
    assert nibbles(words, count) == wanted
    assert nibbles(words, 16 * words.numel())[count:] == [0] * (16 * words.numel() - count)


def test_fp32toint4_probes_every_place():
    for place in range(33):
        x = torch.zeros(33)
        x[place] = 1.0
        assert nibbles(fp32toint4(x), 33) == [15 if i == place else 0 for i in range(33)]


def test_fp32toint4_extremes():
    assert fp32toint4(torch.full((5,), 3.0)).tolist() == [0]
    assert fp32toint4(torch.empty(0)).shape == (0,)
    big = torch.finfo(torch.float32).max
    assert nibbles(fp32toint4(torch.tensor([-big, big, 0.0])), 3) == [0, 15, 7]
    for low, high in [(0.1, 0.7), (-3.3, 1e-3), (1e-30, 1e30), (5e-45, 1e-44)]:
        assert nibbles(fp32toint4(torch.tensor([low, high])), 2) == [0, 15]
    assert torch.equal(fp32toint4(random(66).view(6, 11)), fp32toint4(random(66)))
    assert torch.equal(fp32toint4(random(66)[::2]), fp32toint4(random(66)[::2].contiguous()))


def test_fp32toint4_refusals():
    with pytest.raises(ShapeError, match=r"input: expected .*, got float64"):
        fp32toint4(torch.ones(3, dtype=torch.float64))
    for poison in (float("nan"), float("inf"), -float("inf")):
        with pytest.raises(ValueError, match="NaN or infinity"):
            fp32toint4(torch.tensor([1.0, poison]))
    with pytest.raises(TypeError, match="expected a tensor, got"):
        fp32toint4([1.0, 2.0])


# Signs


@pytest.mark.parametrize("dtype", [*FLOATS, torch.int8])
@pytest.mark.parametrize("shape", [(1, 1), (3, 7), (3, 8), (2, 9), (5, 64), (2, 3, 33), (17,), (0, 9)])
def test_signs_are_numpys_packbits(shape, dtype):
    x = integers(-3, 4, *shape, dtype=dtype)
    packed = tensor_to_packed_uint8(x)
    wanted = np.packbits(x.float().numpy() >= 0, axis=-1, bitorder="little")
    assert packed.dtype == torch.uint8
    assert np.array_equal(packed.numpy(), wanted)


def test_signs_of_special_values():
    row = torch.tensor([0.0, -0.0, float("nan"), float("inf"), -float("inf"), 1e-45, -1e-45, -1.0])
    assert tensor_to_packed_uint8(row.unsqueeze(0)).item() == 0b00101011
    leaf = torch.ones(2, 8, requires_grad=True)
    assert not tensor_to_packed_uint8(leaf).requires_grad


def test_signs_of_strided_rows():
    x = random(6, 40)
    assert torch.equal(tensor_to_packed_uint8(x[::2, 3:20]), tensor_to_packed_uint8(x[::2, 3:20].contiguous()))
    assert torch.equal(tensor_to_packed_uint8(x.T), tensor_to_packed_uint8(x.T.contiguous()))


def test_signs_refusals():
    with pytest.raises(ShapeError, match=r"input: expected .*, got int32"):
        tensor_to_packed_uint8(torch.ones(2, 8, dtype=torch.int32))
    with pytest.raises(AssertionError, match=r"input: expected .*, got float64"):  # as BITorch Engine's class
        tensor_to_packed_uint8(torch.ones(2, 8, dtype=torch.float64))
    with pytest.raises(ShapeError, match=r"input: expected .*, got \[\]"):
        tensor_to_packed_uint8(torch.tensor(1.0))


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("shape", [(1, 1, 1), (2, 3, 5), (4, 7), (0, 3, 2), (6,)])
def test_unpacked_signs_times_scale(shape, dtype):
    packed = integers(0, 256, *shape, dtype=torch.uint8)
    scale = random(*shape[:-1], 1, dtype=dtype)
    y = unpack_uint8_tensor(packed, scale)
    bits = np.unpackbits(packed.numpy(), axis=-1, bitorder="little").astype(np.float32)
    assert y.dtype == torch.float32
    assert np.array_equal(y.numpy(), (2 * bits - 1) * scale.float().numpy())


def test_packing_and_unpacking_signs_are_inverse():
    packed = integers(0, 256, 9, 5, dtype=torch.uint8)
    assert torch.equal(tensor_to_packed_uint8(unpack_uint8_tensor(packed, torch.ones(9, 1))), packed)


def test_unpacking_signs_refuses():
    packed = torch.zeros(2, 3, 4, dtype=torch.uint8)
    with pytest.raises(ShapeError, match=r"scale: expected \[2, 3, 1\], got \[2, 3\]"):
        unpack_uint8_tensor(packed, torch.ones(2, 3))
    with pytest.raises(ShapeError, match=r"scale: expected .*, got \[1\]"):
        unpack_uint8_tensor(packed, torch.ones(1))
    with pytest.raises(ShapeError, match=r"input: expected .*, got int8"):
        unpack_uint8_tensor(packed.to(torch.int8), torch.ones(2, 3, 1))
    with pytest.raises(ShapeError, match=r"scale: expected .*, got int64"):
        unpack_uint8_tensor(packed, torch.ones(2, 3, 1, dtype=torch.int64))
    assert unpack_uint8_tensor(packed, torch.full((2, 3, 1), float("nan"))).isnan().all()


# Four bits


def pack_by_hand(values):
    """Bytes of the low four bits of pairs, as Python integers."""
    rows = values.reshape(-1, values.shape[-1]).tolist()
    packed = []
    for row in rows:
        row = [v & 15 for v in row] + [0] * (len(row) % 2)
        packed.append([row[i] << 4 | row[i + 1] for i in range(0, len(row), 2)])
    unsigned = np.array(packed, dtype=np.uint8).reshape(*values.shape[:-1], -1)
    return torch.from_numpy(unsigned.view(np.int8).copy())


@pytest.mark.parametrize("transpose", [False, True])
@pytest.mark.parametrize("shape", [(1, 1), (3, 7), (5, 8), (2, 3, 33), (4, 1, 2), (2, 2, 31)])
def test_q4_pack_takes_the_low_bits(shape, transpose):
    values = integers(-40, 40, *shape, dtype=torch.int32)
    packed = q4_pack_tensor(values, transpose)
    wanted = pack_by_hand(values)
    assert packed.dtype == torch.int8 and packed.is_contiguous()
    assert torch.equal(packed, wanted.mT if transpose else wanted)


@pytest.mark.parametrize("transpose", [False, True])
@pytest.mark.parametrize("shape", [(1, 1), (3, 7), (2, 5, 6), (3, 0)])
def test_q4_unpack_is_unsigned(shape, transpose):
    packed = integers(-128, 128, *shape, dtype=torch.int8)
    wanted = torch.stack([packed.int() >> 4 & 15, packed.int() & 15], dim=-1).flatten(-2)
    found = q4_unpack_tensor(packed, transpose)
    assert found.dtype == torch.int32 and found.is_contiguous()
    assert torch.equal(found, wanted.mT if transpose else wanted)
    if found.numel():
        assert found.min() >= 0


@pytest.mark.parametrize("shape", [(3, 7), (2, 5, 6), (2, 3, 2, 5)])
@pytest.mark.parametrize("scale", [0.045, -2.0, torch.tensor(0.3)])
def test_q4_unpack_and_scaling_is_signed(shape, scale):
    packed = integers(-128, 128, *shape, dtype=torch.int8)
    nibble = torch.stack([packed.int() >> 4 & 15, packed.int() & 15], dim=-1).flatten(-2).numpy()
    signed = np.where(nibble > 7, nibble - 16, nibble).astype(np.float32)
    wanted = torch.from_numpy(signed * np.float32(float(scale)))
    assert torch.equal(q4_unpack_and_scaling_tensor(packed, scale), wanted)
    assert torch.equal(q4_unpack_and_scaling_tensor(packed, scale, True), wanted.mT)


def test_q4_unpack_undoes_q4_pack():
    values = integers(-8, 8, 4, 3, 10, dtype=torch.int32)
    assert torch.equal(q4_unpack_and_scaling_tensor(q4_pack_tensor(values), 1.0).int(), values)
    assert torch.equal(q4_unpack_tensor(q4_pack_tensor(values)), values & 15)


def test_q4_refusals():
    with pytest.raises(ShapeError, match="input: expected int32, got float32"):
        q4_pack_tensor(torch.ones(2, 4))
    with pytest.raises(ShapeError, match=r"input: expected 2 or 3 axes, got \[4\]"):
        q4_pack_tensor(torch.ones(4, dtype=torch.int32))
    with pytest.raises(ShapeError, match="expected int8, got uint8"):
        q4_unpack_tensor(torch.ones(2, 4, dtype=torch.uint8))
    with pytest.raises(ShapeError, match="expected 2 or 3 axes, got"):
        q4_unpack_tensor(torch.ones(2, 2, 2, 2, dtype=torch.int8))
    with pytest.raises(ShapeError, match="2 or 3 or 4 axes"):
        q4_unpack_and_scaling_tensor(torch.ones(2, dtype=torch.int8), 1.0)
