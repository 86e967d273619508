"""bitorch_engine.utils.quant_operators against float64 and Python integers."""

import numpy as np
import pytest
import torch

from bitorch_engine import ShapeError
from bitorch_engine.utils.quant_operators import (
    bit_set,
    get_binary_col,
    get_binary_row,
    nv_tensor_quant,
    q4_quantization,
    q8_quantization,
)

FLOATS = [torch.float32, torch.bfloat16, torch.float16]
SHAPES = [(1,), (7,), (3, 5), (2, 3, 31), (65, 33)]


def random(*shape, seed=0, dtype=torch.float32):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


def rint(v):
    return np.rint(v)  # half to even, as torch


# nv_tensor_quant


def amax_formula(x, amax, bits, unsigned, narrow):
    bound = np.float32(2.0 ** (bits - 1 + unsigned) - 1)
    low = 0 if unsigned else -bound if narrow else -bound - 1
    with np.errstate(divide="ignore"):
        scale = bound / amax.astype(np.float32)
    q = np.clip(rint(x.astype(np.float32) * np.where(np.isinf(scale), 0, scale)), low, bound)
    return q, np.where(amax <= 2.0**-24, np.float32(1), scale)


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize(
    ("bits", "unsigned", "narrow"), [(8, False, True), (8, True, True), (4, False, False), (2, False, True)]
)
def test_nv_tensor_quant_is_the_formula(shape, dtype, bits, unsigned, narrow):
    x = random(*shape, dtype=dtype).abs() if unsigned else random(*shape, dtype=dtype)
    if x.max() <= 0:
        x = x.neg()
    q, scale = nv_tensor_quant(x, num_bits=bits, unsigned=unsigned, narrow_range=narrow)
    wanted, wanted_scale = amax_formula(x.float().numpy(), x.float().max().numpy(), bits, unsigned, narrow)
    assert q.dtype == dtype and scale.dtype == torch.float32
    assert scale.shape == (1,) * x.dim() and scale.item() == wanted_scale
    assert torch.equal(q, torch.from_numpy(wanted).to(dtype))


def test_nv_tensor_quant_takes_the_signed_maximum():
    q, scale = nv_tensor_quant(torch.tensor([-10.0, 1.0]))
    assert scale.item() == 127 and q.tolist() == [-127, 127]


@pytest.mark.parametrize("dtype", FLOATS)
def test_nv_tensor_quant_by_slices(dtype):
    x = random(5, 7, dtype=dtype)
    x[3] = 0
    amax = x.abs().amax(1, keepdim=True)
    q, scale = nv_tensor_quant(x, amax)
    wanted, wanted_scale = amax_formula(x.float().numpy(), amax.float().numpy(), 8, False, True)
    assert torch.equal(q, torch.from_numpy(wanted).to(dtype)) and q.dtype == dtype
    assert np.array_equal(scale.numpy(), wanted_scale) and scale[3] == 1


def test_nv_tensor_quant_of_tiny_and_zero_amax():
    q, scale = nv_tensor_quant(torch.zeros(2, 3))
    assert scale.shape == (1, 1) and scale.item() == 1 and not q.any()
    q, scale = nv_tensor_quant(torch.tensor([2.0**-25, 2.0**-26]))
    assert scale.item() == 1 and q.tolist() == [127, 64]
    q, scale = nv_tensor_quant(torch.ones(2, 2), torch.tensor([[2.0**-25], [1.0]]))
    assert scale.tolist() == [[1.0], [127.0]] and q.tolist() == [[127, 127], [127, 127]]
    assert nv_tensor_quant(torch.ones(3), 2.0)[0].tolist() == [64, 64, 64]  # 63.5 to even


def test_nv_tensor_quant_refusals():
    x = random(3, 4)
    with pytest.raises(ValueError, match=r"amax: expected the rank of inputs, \[3, 4\], got \[4\]"):
        nv_tensor_quant(x, torch.ones(4))
    with pytest.raises(ValueError, match="amax"):
        nv_tensor_quant(x, torch.ones(1))
    with pytest.raises(ValueError, match="amax"):
        nv_tensor_quant(x, torch.tensor([[1.0], [-1.0], [1.0]]))
    with pytest.raises(ValueError, match="amax"):
        nv_tensor_quant(x, torch.tensor(-1.0))
    with pytest.raises(ValueError, match="amax"):
        nv_tensor_quant(-x.abs())
    for amax in (None, torch.ones(3, 1)):
        with pytest.raises(TypeError, match="negative"):
            nv_tensor_quant(x, amax, unsigned=True)
        with pytest.raises(ValueError, match="NaN or infinity"):
            nv_tensor_quant(torch.full((3, 4), float("nan")), amax)
        with pytest.raises(TypeError):
            nv_tensor_quant(torch.ones(3, 4, dtype=torch.int32), amax)
        with pytest.raises(ValueError, match="num_bits"):
            nv_tensor_quant(x, amax, num_bits=1)
    with pytest.raises(ValueError, match="at least one element"):
        nv_tensor_quant(torch.empty(0, 4))
    with pytest.raises(ValueError, match="amax"):
        nv_tensor_quant(x, torch.full((3, 1), float("inf")))


# Single words


def test_bit_set():
    assert [bit_set(0b0010, 1, 1), bit_set(0b0010, 2, 1), bit_set(5, 0, 0), bit_set(0, 63, 1)] == [2, 6, 5, 1 << 63]


@pytest.mark.parametrize("bits", [1, 8, 32, 64])
@pytest.mark.parametrize("words", [0, 1, 3])
def test_binary_row(bits, words):
    row = random(bits * words + 2, seed=bits).tolist()
    out = [-1] * (words + 1)
    result = get_binary_row(row, out, bits * words, bits)
    assert result is out
    for i in range(words):
        assert out[i] == sum(1 << j for j in range(bits) if row[i * bits + j] >= 0)
    assert out[words] == -1


@pytest.mark.parametrize("k", [1, 3, 5])
@pytest.mark.parametrize("n", [8, 24])
def test_binary_col(n, k):
    col = random(n * k, seed=n + k)
    out = torch.zeros(n // 8 * k, dtype=torch.uint8)
    result = get_binary_col(col, out, n, k, 8)
    assert result is out
    table = col.view(n, k)
    for y in range(n // 8):
        for x in range(k):
            assert out[y * k + x] == sum(1 << b for b in range(8) if table[8 * y + b, x] >= 0)


def test_binary_col_has_the_layout_of_the_cpu_class(operators):
    weight = random(16, 24)  # [n, k]
    found = get_binary_col(weight.T.reshape(-1), torch.zeros(48, dtype=torch.uint8), 24, 16, 8)
    assert torch.equal(found, operators.signs_to_layout(operators.pack_signs(weight), 24, "columns"))


def test_single_word_refusals():
    with pytest.raises(ValueError, match="expected a multiple of a word of 8 bits, got 12 elements"):
        get_binary_row(random(12), [0, 0], 12, 8)
    with pytest.raises(ValueError, match="expected a multiple of a word of 0 bits, got 8 elements"):
        get_binary_row(random(8), [0], 8, 0)
    with pytest.raises(ShapeError, match="nd_row: expected 8 elements, got 7"):
        get_binary_row(random(7), [0], 8, 8)
    with pytest.raises(ValueError, match="expected a multiple of a word of 8 bits, got 9 elements"):
        get_binary_col(random(27), [0], 9, 3, 8)
    with pytest.raises(ShapeError, match="nd_col: expected 24 elements, got 23"):
        get_binary_col(random(23), [0] * 3, 8, 3, 8)
    assert get_binary_row([float("nan")] + [1.0] * 7, [0], 8, 8) == [0b11111110]


# q8 and q4

WIDTHS = [(q8_quantization, 11.269, -128, 127), (q4_quantization, 5.6345, -8, 7)]


@pytest.mark.parametrize(("quantize", "constant", "low", "high"), WIDTHS)
@pytest.mark.parametrize("dtype", [*FLOATS, torch.float64])
@pytest.mark.parametrize("shape", SHAPES)
def test_step_quantization(quantize, constant, low, high, shape, dtype):
    x = 30 * random(*shape).to(dtype)
    q, step = quantize(x)
    v = x.float().numpy().astype(np.float64)
    wanted = np.float32(np.float32(2 / constant) * np.abs(v).mean())
    assert step.dtype == torch.float32 and step.dim() == 0
    assert abs(step.item() - wanted) <= 2e-7 * wanted
    assert q.dtype == torch.float32 and q.shape == x.shape
    assert np.array_equal(q.numpy(), np.clip(rint(x.float().numpy() / step.numpy()), low, high))
    given = quantize(x, torch.tensor(0.37), torch.tensor(1e-3))
    assert isinstance(given, torch.Tensor)
    assert np.array_equal(given.numpy(), np.clip(rint(x.float().numpy() / np.float32(0.37)), low, high))


@pytest.mark.parametrize(("quantize", "constant", "low", "high"), WIDTHS)
def test_step_quantization_of_halves_and_eps(quantize, constant, low, high):
    x = torch.tensor([0.5, 1.5, 2.5, -0.5, -1.5, 1e9, -1e9])
    assert quantize(x, torch.tensor(1.0)).tolist() == [0, 2, 2, 0, -2, high, low]
    assert quantize(x, 0.0, 0.5).tolist()[:5] == [1, 3, 5, -1, -3]
    q, step = quantize(torch.zeros(4))
    assert step.item() == np.float32(1e-5) and not q.any()
    assert quantize(torch.full((2,), 1e-6))[1].item() == np.float32(1e-5)
    assert not quantize(torch.ones(2, requires_grad=True), torch.tensor(1.0)).requires_grad


@pytest.mark.parametrize(("quantize", "constant", "low", "high"), WIDTHS)
def test_step_quantization_refusals(quantize, constant, low, high):
    for poison in (float("nan"), float("inf")):
        with pytest.raises(ValueError, match="NaN or infinity"):
            quantize(torch.tensor([1.0, poison]))
    with pytest.raises(TypeError):
        quantize(torch.ones(3, dtype=torch.int8))
    with pytest.raises(ValueError, match="scale"):
        quantize(torch.ones(3), torch.ones(3))
    with pytest.raises(ValueError, match="eps"):
        quantize(torch.ones(3), None, -1.0)
    with pytest.raises(ValueError, match="scale"):
        quantize(torch.ones(3), torch.tensor(float("nan")))
    assert quantize(torch.empty(0), torch.tensor(1.0)).shape == (0,)


# GPTQ words; the weights built of them are in mpq_test.py


@pytest.mark.parametrize("bits", [1, 2, 3, 4, 5, 6, 8])
@pytest.mark.parametrize("dim", [0, 1])
def test_words_hold_values_from_the_low_bits_up(operators, bits, dim):
    shape = (37, 5) if dim == 0 else (5, 37)
    values = torch.randint(0, 2**bits, shape, generator=torch.Generator().manual_seed(bits)).int()
    words = operators.pack_words(values, bits, dim)
    assert words.shape[dim] == -(-37 * bits // 32)
    raw = words.numpy().view(np.uint32)
    for r in range(shape[0]):
        for c in range(shape[1]):
            column = raw[:, c] if dim == 0 else raw[r]
            stream = sum(int(word) << (32 * i) for i, word in enumerate(column))
            assert stream >> (bits * (r if dim == 0 else c)) & (2**bits - 1) == values[r, c]
    assert torch.equal(operators.unpack_words(words, bits, 37, dim), values)


def test_word_refusals(operators):
    words = torch.zeros(2, 2, dtype=torch.int32)
    for call in (
        lambda: operators.unpack_words(words, 9, 8, 0),
        lambda: operators.unpack_words(words, 4, 17, 0),
        lambda: operators.unpack_words(words.long(), 4, 16, 0),
        lambda: operators.unpack_words(words[0], 4, 16, 0),
        lambda: operators.pack_words(torch.zeros(9, 2), 4, 0),
    ):
        with pytest.raises((TypeError, ValueError)):
            call()
