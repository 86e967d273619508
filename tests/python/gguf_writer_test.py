"""GGUF files that bie writes, read by the gguf package; rounding against the package's and ggml's own."""

import json
from pathlib import Path

import gguf
import numpy as np
import pytest
import torch
from gguf import GGMLQuantizationType, quants

import bie
from bie.formats import CodedRows, load_gguf, save_gguf

VECTORS = json.loads((Path(__file__).parent / "gguf_vectors.json").read_text())
ROUNDED = ["Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "TQ2_0"]  # that the package rounds to, too
WRITTEN = {
    "Q4_0": (4, 8),
    "Q4_1": (4, None),
    "Q5_0": (5, 16),
    "Q5_1": (5, None),
    "Q8_0": (8, 128),
    "Q1_0": (1, None),
    "Q2_0": (2, 1),
    "TQ2_0": (2, 1),
}
WEIGHTS = {"Q4_0": 32, "Q4_1": 32, "Q5_0": 32, "Q5_1": 32, "Q8_0": 32, "Q1_0": 128, "Q2_0": 64, "TQ2_0": 256}


def generator(seed):
    return torch.Generator().manual_seed(seed)


def floats(seed=0, rows=6, columns=512):
    """Ordinary blocks, one of zeros, ties, one far from the others."""
    x = torch.randn(rows, columns, generator=generator(seed)) * torch.logspace(-3, 2, rows).unsqueeze(1)
    x[1, :256] = 0
    x[2, :256] = torch.arange(256) % 8 / 4 - 1
    x[3, 5] = 1000
    return x


def read(path):
    """{name: (type, what the package makes of it)}"""
    return {
        t.name: (t.tensor_type.name, torch.from_numpy(quants.dequantize(t.data, t.tensor_type).copy()))
        for t in gguf.GGUFReader(path).tensors
    }


@pytest.mark.parametrize("name", ROUNDED)
def test_floats_are_rounded_as_the_package_does(name, tmp_path):
    x = floats()
    save_gguf(tmp_path / "a.gguf", {"w": (x, name)})
    blocks = gguf.GGUFReader(tmp_path / "a.gguf").tensors[0].data
    wanted = quants.quantize(x.numpy(), GGMLQuantizationType[name])
    assert np.array_equal(blocks.reshape(wanted.shape), wanted)
    assert torch.equal(load_gguf(tmp_path / "a.gguf")["w"].open(), read(tmp_path / "a.gguf")["w"][1])


@pytest.mark.parametrize("name", ["Q1_0", "Q2_0"])
def test_floats_are_rounded_as_ggml_does(name, tmp_path):
    values = torch.from_numpy(np.frombuffer(bytes.fromhex(VECTORS[name]["floats"]), np.float32).copy())
    save_gguf(tmp_path / "a.gguf", {"w": (values, name)})
    assert bytes(load_gguf(tmp_path / "a.gguf")["w"].blocks.tolist()).hex() == VECTORS[name]["quantised"]


def blocks_of_256() -> np.ndarray:
    """Six blocks without a generator's bits: ordinary ones of all sizes, zeros, no negative, one number, outliers."""
    i = np.arange(6 * 256, dtype=np.int64)
    x = (((i * 7919 + i * i * 31) % 4093 - 2046).astype(np.float32) / np.float32(1024)).reshape(6, 256)
    x *= np.float32(2) ** np.array([[0], [-9], [4], [0], [-20], [7]], np.float32)
    x[1, :128] = 0
    x[2] = np.abs(x[2])
    x[3] = 0.75
    x[4, ::16] *= 64
    x[5, 200] = 900
    return x


@pytest.mark.parametrize("name", ["Q2_K", "Q3_K", "Q4_K", "Q5_K", "Q6_K"])
def test_k_quants_are_those_of_ggml(name, tmp_path):
    save_gguf(tmp_path / "a.gguf", {"w": (torch.from_numpy(blocks_of_256()), name)})
    assert bytes(load_gguf(tmp_path / "a.gguf")["w"].blocks.flatten().tolist()).hex() == VECTORS[name]["quantised"]
    assert torch.equal(load_gguf(tmp_path / "a.gguf")["w"].open(), read(tmp_path / "a.gguf")["w"][1])


def rows(name, seed=0, count=5, columns=512, group=None):
    bits, zero = WRITTEN[name]
    g, size = generator(seed), group or WEIGHTS[name]
    codes = torch.randint(0, 2**bits, (count, columns), generator=g).int()
    scales = torch.randn(count, columns // size, generator=g).half().float()
    zeros = None if zero else torch.randn(scales.shape, generator=g).half().float()
    if name == "Q1_0":
        zeros, scales = scales, 2 * scales
    return CodedRows(columns, bits, size, torch.ops.bie.pack_words(codes, bits, 1), scales, zeros, zero or 0)


@pytest.mark.parametrize("name", WRITTEN)
@pytest.mark.parametrize("wide", [False, True])
def test_codes_are_written_as_they_are(name, wide, tmp_path):
    source = rows(name, group=512 if wide else None)
    save_gguf(tmp_path / "a.gguf", {"w": (source, name), "x": torch.ones(3)})
    file = load_gguf(tmp_path / "a.gguf")
    assert file["w"].type == name
    assert torch.equal(file["w"].open(), source.open())
    found = file["w"].codes()
    assert torch.equal(found.words, source.words)
    if name in ROUNDED:
        assert torch.equal(read(tmp_path / "a.gguf")["w"][1], source.open())


@pytest.mark.parametrize(("name", "bits", "asym"), [("Q4_1", 4, False), ("Q4_0", 4, True), ("Q8_0", 8, True)])
def test_layers_are_written_as_they_are(name, bits, asym, tmp_path):
    layer = bie.nn.MPQLinear(64, 7, w_bit=bits, group_size=32, dtype=torch.float16, use_gba_quant=not asym)
    layer.set_weight_data(torch.randn(7, 64, generator=generator(1)))
    if asym:  # GPTQ's zeros in the middle, as the type has them
        layer.qzeros.copy_(torch.ops.bie.pack_words(torch.full((2, 7), 2 ** (bits - 1) - 1).int(), bits, 1))
    table = bie.nn.WeightOnlyEmbedding(7, 64, bits=4, dtype=torch.float16)
    table.set_weight_data(torch.randn(7, 64, generator=generator(2)))
    save_gguf(tmp_path / "a.gguf", {"w": (layer, name), "t": (table, "Q4_1")})
    file = load_gguf(tmp_path / "a.gguf")
    x = torch.randn(3, 64, generator=generator(3))
    assert torch.equal(file["w"].linear()(x), layer.eval()(x))
    ids = torch.arange(7)
    assert torch.allclose(file["t"].embedding()(ids), table(ids).float(), rtol=1e-3, atol=1e-3)


def test_blocks_have_the_version_of_their_layouts_beside_them(tmp_path):
    for told, found in (({}, 2), ({"general.quantization_version": 1}, 1)):
        save_gguf(tmp_path / "a.gguf", {"w": (rows("Q4_0"), "Q4_0")}, told)
        assert load_gguf(tmp_path / "a.gguf").metadata == {"general.quantization_version": found}
    save_gguf(tmp_path / "a.gguf", {"w": torch.ones(3)})
    assert load_gguf(tmp_path / "a.gguf").metadata == {}


def test_another_file_is_copied(tmp_path):
    source = rows("Q4_0")
    save_gguf(tmp_path / "a.gguf", {"w": (source, "Q4_0")}, {"general.name": "x", "n": 3})
    first = load_gguf(tmp_path / "a.gguf")
    save_gguf(tmp_path / "b.gguf", first.tensors, first.metadata, first.types)
    assert (tmp_path / "b.gguf").read_bytes() == (tmp_path / "a.gguf").read_bytes()


def test_numbers_and_metadata_are_what_the_package_reads(tmp_path):
    tensors = {
        "f32": torch.randn(2, 3, 4),
        "f16": torch.randn(5).half(),
        "bf16": torch.randn(2, 3).bfloat16(),
        "as f16": (torch.randn(2, 3), "F16"),
        "i8": torch.arange(-3, 3, dtype=torch.int8),
        "i64": torch.tensor([2**40]),
    }
    metadata = {
        **{"general.architecture": "llama", "count": 7, "negative": -7, "wide": 2**40, "rate": 0.25, "yes": False},
        **{"words": ["a", "\u2581b", ""], "numbers": [1, -2], "wide numbers": [2**40], "rates": [0.5, float("inf")]},
        **{"flags": [True, False], "byte": 3, "unsigned": 2**64 - 1, "general.alignment": 64},
    }
    path = tmp_path / "a.gguf"
    save_gguf(path, tensors, metadata, {"byte": "uint8", "unsigned": "uint64"})
    reader = gguf.GGUFReader(path)
    assert {key: field.contents() for key, field in reader.fields.items() if not key.startswith("GGUF.")} == metadata
    types = {key: field.types[-1].name for key, field in reader.fields.items()}
    expected = {"count": "UINT32", "negative": "INT32", "wide": "UINT64", "rate": "FLOAT32", "byte": "UINT8"}
    expected |= {"numbers": "INT32", "wide numbers": "INT64", "yes": "BOOL", "words": "STRING"}
    assert {key: types[key] for key in expected} == expected
    for tensor in reader.tensors:
        assert tensor.data_offset % 64 == 0
        source = tensors[tensor.name]
        source = source[0].half() if isinstance(source, tuple) else source
        assert list(tensor.shape) == list(reversed(source.shape))
        assert bytes(tensor.data.tobytes()) == bytes(source.reshape(-1).view(torch.uint8).tolist())
    assert load_gguf(path).metadata == metadata


@pytest.mark.parametrize(
    ("tensors", "metadata", "words"),
    [
        ({"w": (torch.ones(2, 33), "Q4_0")}, {}, "tensor 'w': rows of 33 are no whole number of blocks of 32"),
        ({"w": (torch.ones(2, 256), "IQ4_XS")}, {}, "tensor 'w': IQ4_XS is not written"),
        ({"w": (rows("Q4_1"), "Q4_K")}, {}, "scales of codes are not those of Q4_K, which are products of two numbers"),
        ({"w": (torch.full((1, 256), 1e9), "Q4_K")}, {}, "is beyond 16-bit floats"),
        ({"w": (torch.ones(2, 256), "Q9")}, {}, "there is no type Q9"),
        ({"w": (torch.full((1, 32), float("nan")), "Q4_0")}, {}, "the values hold NaN or infinity"),
        ({"w": (torch.full((1, 32), 1e9), "Q8_0")}, {}, "is beyond 16-bit floats"),
        ({"w": torch.ones(1, 1, 1, 1, 1)}, {}, 'tensor "w": expected at most 4 axes, got 5'),
        ({"w": torch.ones(0, 3)}, {}, 'tensor "w" is [0, 3]'),
        ({"w": torch.ones(2, dtype=torch.complex64)}, {}, "tensor 'w' is torch.complex64"),
        ({"w": 3}, {}, "tensor 'w': expected a tensor or (source, type), got a int"),
        ({"w": (torch.ones(2, 32).int(), "Q4_0")}, {}, "expected a float tensor or a layer of codes, got"),
        ({"w": (rows("Q8_0"), "Q4_0")}, {}, "codes of 8 bits with whole zeros are not those of Q4_0"),
        ({"w": (rows("Q4_1"), "Q4_0")}, {}, "codes of 4 bits with float zeros are not those of Q4_0"),
        ({"w": (rows("Q4_0", group=16), "Q4_0")}, {}, "groups of 16 are no whole blocks of 32"),
        ({"w": (bie.nn.Q8Linear(32, 2), "Q8_0")}, {}, "a Q8Linear has no codes of one width"),
        ({}, {"k": {}}, "metadata 'k': expected a number, a text, a bool or a list, got {}"),
        ({}, {"k": [1, "a"]}, "metadata 'k': expected a number, a text, a bool or a list, got [1, 'a']"),
        ({}, {"k": 2**64}, "metadata 'k' holds 18446744073709551616"),
        ({}, {"general.alignment": 3}, "general.alignment is no power of two"),
    ],
)
def test_what_cannot_be_written_is_a_sentence_and_no_file(tensors, metadata, words, tmp_path):
    with pytest.raises(ValueError) as refused:
        save_gguf(tmp_path / "a.gguf", tensors, metadata)
    assert words in str(refused.value)
    assert list(tmp_path.iterdir()) == []


def test_a_scale_that_sixteen_bits_do_not_hold_is_refused(tmp_path):
    source = rows("Q4_1")
    source.scales[2, 3] = 1.0001
    with pytest.raises(ValueError, match=r"row 2 has the scale 1\.0001 .* they would be rounded"):
        save_gguf(tmp_path / "a.gguf", {"w": (source, "Q4_1")})
    source = rows("Q1_0")
    source.zeros[0, 0] += 1
    with pytest.raises(ValueError, match="Q1_0 wants a scale of twice the zero"):
        save_gguf(tmp_path / "a.gguf", {"w": (source, "Q1_0")})


def test_rows_in_an_order_of_their_own_are_refused(tmp_path):
    layer = bie.nn.MPQLinear(64, 7, w_bit=4, group_size=32, dtype=torch.float16)
    layer.set_weight_data(torch.randn(7, 64))
    layer.g_idx.copy_(layer.g_idx.flip(0))
    with pytest.raises(ValueError, match="in an order of their own"):
        save_gguf(tmp_path / "a.gguf", {"w": (layer, "Q4_1")})
