"""GGUF files against the gguf package: every type to the bit, through tensors, linears and embeddings.

For Q1_0 and Q2_0, which the package does not open, the vectors of ggml's own functions (gguf_vectors.json).
"""

import json
from pathlib import Path

import gguf
import numpy as np
import pytest
import torch
from gguf import GGMLQuantizationType, quants
from hypothesis import example, given, settings
from hypothesis import strategies as st

import bie
from bie.formats import load_gguf

# Where a block has 16-bit floats; the bytes between are random.
HALVES = {
    **{"Q4_0": (0,), "Q4_1": (0, 2), "Q5_0": (0,), "Q5_1": (0, 2), "Q8_0": (0,), "Q2_K": (80, 82), "Q3_K": (108,)},
    **{"Q4_K": (0, 2), "Q5_K": (0, 2), "Q6_K": (208,), "TQ1_0": (52,), "TQ2_0": (64,), "IQ4_NL": (0,), "IQ4_XS": (0,)},
    **{"MXFP4": (), "NVFP4": ()},
}
ROWS, COLUMNS = 5, 512


def random_blocks(name, rows=ROWS, columns=COLUMNS, seed=0):
    """Any bytes, but finite floats, large and below the smallest normal one among them."""
    rng = np.random.default_rng(seed)
    weights, size = gguf.GGML_QUANT_SIZES[GGMLQuantizationType[name]]
    blocks = rng.integers(0, 256, (rows, columns // weights, size), dtype=np.uint8)
    for at in HALVES[name]:
        floats = rng.normal(size=blocks.shape[:2]) * 2.0 ** rng.integers(-22, 12, blocks.shape[:2])
        blocks[..., at : at + 2] = floats.astype(np.float16)[..., None].view(np.uint8)
    if name == "MXFP4":
        blocks[..., 0] = rng.integers(110, 140, blocks.shape[:2])
    return blocks.reshape(rows, -1)


def write(path, tensors, **metadata):
    """``tensors``: {name: (array, type or None)}."""
    writer = gguf.GGUFWriter(path, "llama")
    for key, value in metadata.items():
        getattr(writer, f"add_{type(value).__name__}")(key, value)
    for name, (array, kind) in tensors.items():
        writer.add_tensor(name, array, raw_dtype=None if kind is None else GGMLQuantizationType[kind])
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return load_gguf(path)


def opened(blocks, name):
    return torch.from_numpy(quants.dequantize(blocks, GGMLQuantizationType[name]))


def same_bits(a, b):
    return torch.equal(a.view(torch.int32), b.view(torch.int32))


@pytest.mark.parametrize("name", HALVES)
def test_a_type_of_codes_is_the_packages_to_the_bit(name, tmp_path):
    blocks = random_blocks(name)
    tensor = write(tmp_path / "a.gguf", {"w": (blocks, name)})["w"]
    wanted = opened(blocks, name)
    assert (tensor.type, tensor.shape) == (name, (ROWS, COLUMNS))
    assert same_bits(tensor.open(), wanted)
    table = tensor.embedding()
    assert torch.equal(table(torch.arange(ROWS)), wanted)
    x = torch.randn(3, COLUMNS, generator=torch.Generator().manual_seed(1))
    exact = x.double() @ wanted.double().t()
    room = 2e-6 * (x.abs().double() @ wanted.abs().double().t())
    layer = tensor.linear()
    for y in (layer(x), table.head()(x)):
        assert ((y - exact).abs() <= room).all()


def test_layers_of_a_file_take_int8_activations(tmp_path):
    tensor = write(tmp_path / "a.gguf", {"w": (random_blocks("Q4_0"), "Q4_0")})["w"]
    layer, table = tensor.linear(activation="int8"), tensor.embedding(activation="int8")
    assert (layer.activation, table.activation) == ("int8", "int8")
    x = torch.randn(3, COLUMNS, generator=torch.Generator().manual_seed(1))
    wanted = tensor.linear()(x)
    for y in (layer(x), table.head()(x)):
        assert not torch.equal(y, wanted) and (y - wanted).norm() < 0.02 * wanted.norm()


@pytest.mark.parametrize("name", HALVES)
def test_a_layer_holds_the_weight_to_the_bit(name, tmp_path):
    blocks = random_blocks(name, seed=3)
    tensor = write(tmp_path / "a.gguf", {"w": (blocks, name)})["w"]
    layer = tensor.linear()
    weight = layer._coded()
    options = weight.options | {"in_features": COLUMNS, "dtype": torch.float32}
    assert same_bits(torch.ops.bie.weight_only_open(*weight.tensors, **options).t(), opened(blocks, name))
    assert layer.w_bit == tensor.codes().bits


def test_sixteen_bits_of_scales_stay_sixteen(tmp_path):
    tensors = {name: (random_blocks(name), name) for name in ("Q4_1", "Q4_K")}
    file = write(tmp_path / "a.gguf", tensors)
    assert file["Q4_1"].linear().scales.dtype == torch.float16
    assert file["Q4_K"].linear().scales.dtype == torch.float32


def test_numbers_are_views_in_their_dtype(tmp_path):
    arrays = {
        "f32": np.arange(12, dtype=np.float32).reshape(3, 4),
        "f16": np.arange(6, dtype=np.float16).reshape(2, 1, 3),
        "f64": np.arange(3, dtype=np.float64),
        **{f"i{n}": np.arange(-2, 4, dtype=f"int{n}") for n in (8, 16, 32, 64)},
    }
    tensors = {name: (array, None) for name, array in arrays.items()}
    bfloat = torch.tensor([[1.0, -2.5]], dtype=torch.bfloat16)
    tensors["bf16"] = (bfloat.view(torch.uint8).numpy(), "BF16")
    file = write(tmp_path / "a.gguf", tensors)
    for name, array in arrays.items():
        found = file[name].open()
        assert found.dtype == torch.from_numpy(array).dtype
        assert torch.equal(found, torch.from_numpy(array)), name
        assert found.data_ptr() == file[name].blocks.data_ptr()
    assert torch.equal(file["bf16"].open(), bfloat)
    with pytest.raises(ValueError, match=r"a\.gguf: tensor \"f32\" is F32, which is not codes"):
        file["f32"].linear()


def test_three_axes_open_and_are_no_linear(tmp_path):
    blocks = random_blocks("Q8_0", rows=6)
    tensor = write(tmp_path / "a.gguf", {"w": (blocks.reshape(2, 3, -1), "Q8_0")})["w"]
    assert torch.equal(tensor.open(), opened(blocks, "Q8_0").view(2, 3, COLUMNS))
    with pytest.raises(bie.ShapeError, match=r"tensor \"w\": expected a matrix, got \[2, 3, 512\]"):
        tensor.linear()


def test_a_tensor_of_experts_has_a_matrix_for_each(tmp_path):
    blocks = random_blocks("Q4_K", rows=6)
    plain = np.arange(24, dtype=np.float32).reshape(2, 3, 4)
    file = write(tmp_path / "a.gguf", {"w": (blocks.reshape(2, 3, -1), "Q4_K"), "f": (plain, None)})
    for i in (0, 1, -1):
        assert torch.equal(file["w"][i].open(), opened(blocks, "Q4_K").view(2, 3, COLUMNS)[i])
        assert torch.equal(file["f"][i].open(), torch.from_numpy(plain)[i])
    layer = file["w"][1].linear()
    x = torch.randn(2, COLUMNS, generator=torch.Generator().manual_seed(1))
    wanted = x.double() @ opened(blocks, "Q4_K")[3:].double().t()
    assert torch.allclose(layer(x).double(), wanted, rtol=1e-4, atol=1e-3 * float(wanted.abs().max()))
    with pytest.raises(IndexError, match=r'tensor "w" has 2 parts, there is no part 2'):
        file["w"][2]
    with pytest.raises(IndexError, match="there are no parts of it"):
        file["f"][0][0][0]


def test_metadata_keep_their_types(tmp_path):
    writer = gguf.GGUFWriter(tmp_path / "a.gguf", "llama")
    writer.add_uint64("big", 2**64 - 1)
    writer.add_int8("small", -3)
    writer.add_float32("float", 0.5)
    writer.add_float64("nan", float("nan"))
    writer.add_bool("yes", True)
    writer.add_string("text", 'a "quoted"\n\u00fc \U0001f41d')
    writer.add_array("names", ["<s>", "\u2581the", "\x07"])
    writer.add_array("scores", [-1.5, float("-inf")])
    writer.add_array("flags", [True, False])
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.close()
    file = load_gguf(tmp_path / "a.gguf")
    nan = file.metadata.pop("nan")
    assert nan != nan
    assert file.metadata == {
        **{"general.architecture": "llama", "big": 2**64 - 1, "small": -3, "float": 0.5, "yes": True},
        **{"text": 'a "quoted"\n\u00fc \U0001f41d', "names": ["<s>", "\u2581the", "\x07"]},
        **{"scores": [-1.5, float("-inf")], "flags": [True, False]},
    }
    assert file.metadata["yes"] is True
    assert file.types["big"] == "uint64"
    assert file.types["names"] == "array of string"
    assert not file.tensors


def with_text(path, text):
    """A file whose metadata has this text under "k" and, as a key, with a 3."""
    entries = [(b"k", b"\x08\0\0\0" + len(text).to_bytes(8, "little") + text), (text + b"x", b"\0\0\0\0\x03")]
    body = b"".join(len(key).to_bytes(8, "little") + key + value for key, value in entries)
    path.write_bytes(b"GGUF\x03\0\0\0" + bytes(8) + (2).to_bytes(8, "little") + body)
    return load_gguf(path).metadata


@given(text=st.one_of(st.binary(max_size=40), st.text(max_size=20).map(lambda t: t.encode("utf-8", "surrogatepass"))))
@example(text=b"\xed\xa0\x80 \xed\x9f\xbf")  # a surrogate and the character before the first one
@example(text=b"\xc0\xaf \xc1\xbf \xc2\x80")  # longer than need be, and the first of two bytes
@example(text=b"\xe0\x9f\xbf \xe0\xa0\x80 \xef\xbf\xbf")
@example(text=b"\xf0\x8f\xbf\xbf \xf0\x90\x80\x80 \xf4\x8f\xbf\xbf \xf4\x90\x80\x80 \xf5\x80\x80\x80")
@example(text=b"\xe2\x82")  # cut short
@settings(max_examples=300, deadline=None, derandomize=True)
def test_a_text_is_what_its_bytes_are_to_python(text, tmp_path_factory):
    """Bytes that are no UTF-8 are escaped as the file system's are."""
    wanted = text.decode("utf-8", "surrogateescape")
    assert with_text(tmp_path_factory.getbasetemp() / "text.gguf", text) == {"k": wanted, wanted + "x": 3}


def test_a_file_of_more_than_four_gigabytes_is_mapped(tmp_path):
    """With a hole: it takes no disk, and no memory until it is read."""
    path, count = tmp_path / "a.gguf", 5 << 30
    head = b"GGUF" + (3).to_bytes(4, "little") + (2).to_bytes(8, "little") + bytes(8)
    for name, kind, axis, offset in (("hole", 24, count, 0), ("last", 0, 2, count)):
        head += len(name).to_bytes(8, "little") + name.encode() + (1).to_bytes(4, "little")
        head += axis.to_bytes(8, "little") + kind.to_bytes(4, "little") + offset.to_bytes(8, "little")
    head += bytes(-len(head) % 32)
    with path.open("wb") as file:
        file.write(head)
        file.seek(len(head) + count)
        file.write(np.array([1.5, -2.5], np.float32).tobytes())
    file = load_gguf(path)
    assert file["hole"].open().shape == (count,)
    assert file["hole"].open()[-1] == 0
    assert file["last"].open().tolist() == [1.5, -2.5]


def test_bad_files_are_sentences(tmp_path):
    path = tmp_path / "a.gguf"
    path.write_bytes(b"GGML")
    with pytest.raises(ValueError, match=r"^GGUF file .*a\.gguf: does not begin with GGUF"):
        load_gguf(path)
    with pytest.raises(ValueError, match="No such file"):
        load_gguf(tmp_path / "none.gguf")
    file = write(path, {"w": (np.ones((2, 2), np.float32), None)})
    with pytest.raises(KeyError, match=r"has no tensor 'v'"):
        file["v"]
    blocks = random_blocks("Q4_0")
    blocks[1, 1] = 0x7F  # an infinity or no number
    blocks[1, 0] = 0x01
    file = write(tmp_path / "b.gguf", {"w": (blocks, "Q4_0")})
    with pytest.raises(ValueError, match=r"b\.gguf: tensor \"w\" holds NaN or infinity in a scale of row 1"):
        file["w"].linear()


def test_a_bias_that_sixteen_bits_do_not_hold_widens_the_scales(tmp_path):
    bias = np.linspace(0, 1 / 3, ROWS, dtype=np.float32)
    file = write(tmp_path / "a.gguf", {"w": (random_blocks("Q4_0"), "Q4_0"), "b": (bias, None)})
    layer = file["w"].linear(file["b"])
    assert layer.scales.dtype == torch.float32
    assert torch.equal(layer(torch.zeros(1, COLUMNS))[0], torch.from_numpy(bias))


def test_codes_of_a_file_train(tmp_path):
    layer = write(tmp_path / "a.gguf", {"w": (random_blocks("Q5_0"), "Q5_0")})["w"].linear(requires_grad=True).train()
    before = layer.qweight.detach().clone()
    x = torch.randn(4, COLUMNS, generator=torch.Generator().manual_seed(2))
    layer(x).square().sum().backward()
    assert layer.privileged_grad.shape == (COLUMNS, ROWS)
    bie.optim.DiodeMix(layer.parameters(), lr=0.1).step()
    assert not torch.equal(layer.qweight, before)


# Q1_0 and Q2_0, of which the package knows no more than the size of the first.

VECTORS = json.loads((Path(__file__).parent / "gguf_vectors.json").read_text())


def floats_of(text):
    return torch.from_numpy(np.frombuffer(bytes.fromhex(text), np.float32).copy())


def raw_file(path, kind, columns, blocks):
    """A file with one matrix of one row and one float behind it, by hand."""
    head = b"GGUF" + (3).to_bytes(4, "little") + (2).to_bytes(8, "little") + bytes(8)
    for name, axes, number, offset in (("w", columns, kind, 0), ("x", 1, 0, len(blocks) + -len(blocks) % 32)):
        head += (1).to_bytes(8, "little") + name.encode() + (1).to_bytes(4, "little") + axes.to_bytes(8, "little")
        head += number.to_bytes(4, "little") + offset.to_bytes(8, "little")
    head += bytes(-len(head) % 32)
    path.write_bytes(head + blocks + bytes(-len(blocks) % 32) + bytes(4))
    return load_gguf(path)["w"]


@pytest.mark.parametrize(("name", "kind"), [("Q1_0", 41), ("Q2_0", 42)])
def test_types_of_ggml_alone_are_its_functions(name, kind, tmp_path):
    blocks, values = bytes.fromhex(VECTORS[name]["blocks"]), floats_of(VECTORS[name]["values"])
    tensor = raw_file(tmp_path / "a.gguf", kind, values.numel(), blocks)
    assert tensor.type == name
    assert same_bits(tensor.open(), values)
    assert torch.equal(tensor.codes().embedding()(torch.tensor([0]))[0], values)
    x = torch.randn(2, values.numel(), generator=torch.Generator().manual_seed(1))
    assert torch.allclose(tensor.codes().linear()(x)[:, 0].double(), x.double() @ values.double(), rtol=1e-5, atol=1e-4)
