"""The rules of a layer's weight: its scale, its codes, its packed form, the layouts of files and what they refuse."""

import math

import formulas
import pytest
import torch
from formulas import Q4, Q8

NAN, INF = float("nan"), float("inf")
SHAPES = [(5, 17), (4, 16), (3, 1), (4, 6, 3, 2), (2, 8, 1, 1), (3, 5, 2, 2)]
BITS = pytest.mark.parametrize("bits", [1, 4, 8])


def weight(shape, seed=0, dtype=torch.float32):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)).to(dtype) * 0.3 + 0.01


def wanted_scale(w, bits, eps=1e-5):
    mean = float(w.double().abs().mean().float())
    if bits == 1:
        return mean
    scale = float(torch.tensor(mean * (2 / (Q8 if bits == 8 else Q4).constant)).float())
    return scale if bits == 8 else max(scale, eps)


@BITS
@pytest.mark.parametrize("shape", SHAPES)
def test_scale(operators, bits, shape):
    w = weight(shape)
    assert float(operators.weight_scale(w, bits)) == pytest.approx(wanted_scale(w, bits), rel=1e-6)
    tiny = torch.full(shape, 1e-9)
    assert float(operators.weight_scale(tiny, 4, 1e-3)) == pytest.approx(1e-3)


@pytest.mark.parametrize("bits", [4, 8])
@pytest.mark.parametrize("shape", SHAPES)
def test_prepared_codes(operators, bits, shape):
    w, width = weight(shape), Q8 if bits == 8 else Q4
    for given in (None, torch.tensor(0.07)):
        codes, scale = operators.prepare_weight(w, bits, given)
        step = wanted_scale(w, bits) if given is None else 0.07
        assert float(scale) == pytest.approx(step, rel=1e-6)
        assert codes.dtype == torch.int8 and torch.equal(codes.float(), formulas.codes(w, float(scale), width))


def test_prepared_signs_are_never_zero(operators):
    w = torch.tensor([[0.5, 0.5, 0.5], [1.5, -0.5, 0.5]])
    codes, scale = operators.prepare_weight(w, 1)
    assert float(scale) == pytest.approx(float(w.abs().mean()))
    assert (codes != 0).all()
    assert codes[1].sign().tolist() == [1, -1, 1]  # of w - mean(w), the mean being 0.5; 0 counts as +1


def unpacked(operators, packed, bits, shape):
    k = math.prod(shape[1:])
    rows = packed.reshape(shape[0], -1)
    if bits == 8:
        return rows.view(shape)
    return (operators.unpack_signs if bits == 1 else operators.unpack_int4)(rows, k).view(shape)


@BITS
@pytest.mark.parametrize("shape", SHAPES)
def test_packed(operators, bits, shape):
    w = weight(shape)
    packed, scale = operators.pack_weight(w, bits)
    assert packed.dtype == (torch.uint8 if bits == 1 else torch.int8)
    assert list(packed.shape) == list(operators.packed_weight_shape(shape, bits))
    assert packed.numel() == shape[0] * -(-math.prod(shape[1:]) * bits // 8)
    assert float(scale) == pytest.approx(wanted_scale(w, bits), rel=1e-6)
    wanted = torch.where(w >= 0, 1, -1) if bits == 1 else formulas.codes(w, float(scale), Q8 if bits == 8 else Q4)
    assert torch.equal(unpacked(operators, packed, bits, shape).float(), wanted.float())
    codes = wanted.to(torch.int8)
    again, given = operators.pack_weight(codes, bits, torch.tensor(0.25))
    assert torch.equal(again, packed) and float(given) == 0.25
    assert float(operators.pack_weight(codes, bits)[1]) == 1


@BITS
@pytest.mark.parametrize("shape", SHAPES)
def test_every_layout_of_a_file_is_read(operators, bits, shape):
    packed, _ = operators.pack_weight(weight(shape), bits)
    forms = [packed]
    if len(shape) == 4:
        forms += [packed.reshape(shape[0], -1), packed.flatten()]
    for form in forms:
        assert torch.equal(operators.read_packed_weight(form, shape, bits, True, "q"), packed)
    refused = [packed[:-1], packed.float(), packed.to(torch.int16), packed.flatten()[:-1], packed.new_zeros(0)]
    for form in refused:
        with pytest.raises(ValueError, match=r"^the entry 'a\.qweight'(: expected .*, got| cannot be read:) "):
            operators.read_packed_weight(form, shape, bits, True, "the entry 'a.qweight'")


@pytest.mark.parametrize(
    "shape, has_scales, layout", [((8, 128), True, "btc"), ((5, 32), True, "bstc"), ((6, 16), False, "columns")]
)
def test_flat_signs_of_bitorch_engine(operators, shape, has_scales, layout):
    packed, _ = operators.pack_weight(weight(shape), 1)
    if layout == "bstc":  # n % 32 != 0: the file lost its tail
        with pytest.raises(ValueError, match=r"^q cannot be read: "):
            operators.read_packed_weight(torch.zeros(5 * 32 // 8, dtype=torch.uint8), shape, 1, has_scales, "q")
        return
    flat = operators.signs_to_layout(packed, shape[1], layout)
    assert torch.equal(operators.read_packed_weight(flat, shape, 1, has_scales, "q"), packed)


def test_split_channels(operators):
    w = weight((4, 6, 3, 2))
    w[1] *= 20
    w[2] = 0
    split, scales = operators.split_channels(w)
    sizes = w.double().abs().mean((1, 2, 3))
    assert torch.allclose(scales[[0, 1, 3]].double(), (sizes / sizes.mean())[[0, 1, 3]], rtol=1e-6)
    assert float(scales[2]) == 1 and not split[2].any()
    assert torch.allclose(split * scales.view(-1, 1, 1, 1), w, rtol=1e-6)


@pytest.mark.parametrize("bits", [0, 2, 16, -1])
def test_bits(operators, bits):
    for call in (operators.weight_scale, operators.prepare_weight, operators.pack_weight):
        with pytest.raises(ValueError, match=f"bits: expected 1, 4 or 8, got {bits}"):
            call(weight((3, 5)), bits)
    with pytest.raises(ValueError, match=f"bits: expected 1, 4 or 8, got {bits}"):
        operators.packed_weight_shape((3, 5), bits)


def test_entries(operators):
    weight_entry, plain, scale = (
        operators.check_weight_entry,
        operators.check_entry,
        operators.check_scale_entry,
    )
    good = weight((3, 5))
    weight_entry(good, (3, 5), 4, torch.float32, "w")
    plain(torch.ones(4, dtype=torch.float16), [4], torch.float32, "b")
    plain(torch.ones(4, 2, dtype=torch.int16), [4, 2], torch.int16, "b")
    for bad, sentence in [
        (good[:2], r"^w: expected \[3, 5\] of int8 or a floating-point dtype, got \[2, 5\] of float32$"),
        (good.long(), r"^w: expected .*, got .* of int64"),
        (good * NAN, "^w holds NaN or infinity in float32$"),
        (torch.full((3, 5), 8, dtype=torch.int8), r"^w holds codes outside \[-8, 7\]$"),
    ]:
        with pytest.raises(ValueError, match=sentence):
            weight_entry(bad, (3, 5), 4, torch.float32, "w")
    with pytest.raises(ValueError, match="in float16"):
        plain(torch.full((3,), 1e5), [3], torch.float16, "b")
    with pytest.raises(ValueError, match=r"^b: expected \[4\] of a floating-point dtype, got \[3\] of int8$"):
        plain(torch.zeros(3, dtype=torch.int8), [4], torch.float32, "b")
    with pytest.raises(ValueError, match=r"^b: expected \[3\] of int32, got \[3\] of int64$"):
        plain(torch.zeros(3, dtype=torch.int64), [3], torch.int32, "b")
    assert scale(torch.tensor([[2.5]], dtype=torch.float64), None, "s").dtype == torch.float32
    for bad, least, sentence in [
        (torch.ones(2), None, r"^s: expected one floating-point number, got \[2\] of float32$"),
        (torch.tensor(3), None, r"^s: expected .*, got .* of int64"),
        (torch.tensor(-1.0), 0.0, "^s is -1$"),
        (torch.tensor(INF), None, "^s is inf$"),
        (torch.tensor(1e300, dtype=torch.float64), None, r"^s is 1e\+300$"),
    ]:
        with pytest.raises(ValueError, match=sentence):
            scale(bad, least, "s")


def test_values_on_meta_are_not_looked_at(operators):
    meta = torch.empty(3, 5, device="meta")
    operators.check_weight_entry(meta, (3, 5), 4, torch.float32, "w")
    assert operators.check_scale_entry(torch.empty((), device="meta"), 0.0, "s").is_meta
