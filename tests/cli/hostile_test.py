"""Files made to do harm, each with the checksum that belongs to it: one sentence, soon, in little memory."""

import gzip
import json
import os
import resource
import struct
import subprocess
import zlib

import numpy as np
import pytest

TINY = ["--hidden", "16", "--depth", "1", "--epochs", "1"]


@pytest.fixture
def frugal(program):
    """A function that runs the command with 4 GiB of address space and 20 seconds of CPU time."""

    def limit():
        resource.setrlimit(resource.RLIMIT_AS, (4 << 30, 4 << 30))
        resource.setrlimit(resource.RLIMIT_CPU, (20, 20))

    def run(*arguments):
        command = [str(program.path), "--threads", "1", *map(str, arguments)]
        return subprocess.run(command, capture_output=True, text=True, timeout=120, preexec_fn=limit)

    return run


def metadata_of(content: bytes) -> dict:
    (length,) = struct.unpack("<Q", content[:8])
    return json.loads(json.loads(content[8 : 8 + length])["__metadata__"]["bie"])


def rewritten(content: bytes, text: str) -> bytes:
    """The safetensors file with this text in the metadata entry "bie", and its checksum as bie computes it."""
    (length,) = struct.unpack("<Q", content[:8])
    header = json.loads(content[8 : 8 + length])
    data = content[8 + length :]
    crc = zlib.crc32(text.encode() + b"\0")
    names = {"F32": "Float", "U8": "Byte", "I8": "Char", "I64": "Long", "F64": "Double"}
    for name, entry in sorted(header.items()):
        if name == "__metadata__":
            continue
        shape = "[" + ", ".join(map(str, entry["shape"])) + "]"
        begin, end = entry["data_offsets"]
        for part in (name.encode() + b"\0", f"{names[entry['dtype']]}{shape}".encode() + b"\0", data[begin:end]):
            crc = zlib.crc32(part, crc)
    header["__metadata__"] = {"bie": text, "crc32": str(crc)}
    packed = json.dumps(header).encode()
    return struct.pack("<Q", len(packed)) + packed + data


@pytest.fixture
def model(program, tmp_path) -> bytes:
    path = tmp_path / "good"
    program.accuracy(program.run("train", *TINY, "--bits", "4", "-o", path))
    return path.read_bytes()


@pytest.fixture
def checkpoint(program, tmp_path) -> bytes:
    folder = tmp_path / "checkpoints"
    program.accuracy(program.run("train", *TINY, "--checkpoints", folder))
    return max(folder.iterdir()).read_bytes()


def test_the_checksum_is_the_one_of_bie(program, tmp_path, model):
    """Or the files below would be refused for another reason."""
    path = tmp_path / "again"
    path.write_bytes(rewritten(model, json.dumps(metadata_of(model) | {"note": "x"})))
    program.accuracy(program.run("eval", path))


@pytest.mark.parametrize("field", ["step", "run"])
@pytest.mark.parametrize("value", [None, "x", 5.5, -1, [1], {"a": 1}])
def test_a_checkpoint_with_a_wrong_field(program, tmp_path, checkpoint, field, value):
    path = tmp_path / "file"
    metadata = metadata_of(checkpoint)
    metadata.pop(field)
    if value is not None:
        metadata[field] = value
    path.write_bytes(rewritten(checkpoint, json.dumps(metadata)))
    for options in ([], ["--json"]):
        process = program.run("inspect", path, *options)
        if field == "run" and value == {"a": 1}:
            assert process.returncode == 0
            continue
        assert process.returncode == 3, process
        assert f"{path}: the metadata entry 'bie': {field} of a training checkpoint: expected " in process.stderr
        if options:
            assert json.loads(process.stdout)["exit_code"] == 3


@pytest.mark.parametrize(
    ("change", "parts"),
    [
        ({"flavour": 5, "bits": 2**32 + 4}, ["bits: expected a whole number, got 4294967300"]),
        ({"kind": 5}, ["the kind of model is 5, which this build does not know"]),
        ({"format_version": 2**32 + 3}, ["format_version: expected a whole number, got 4294967299"]),
        ({"image": [1, 8, 8, 8]}, ["image: expected an array of 3 whole numbers, got another"]),
        ({"image": [1, 4096, 65536]}, ["an image: expected at most 67108864 values, got [1, 4096, 65536]"]),
        ({"classes": 2**63}, ["classes: expected a whole number, got 9223372036854775808"]),
        ({"norm": 1}, ["norm: expected true or false, got 1"]),
        ({"arch": 7}, ["arch: expected a string, got 7"]),
        ({"bits_of": [4]}, ["bits_of: expected an object of whole numbers, got an array"]),
        ({"class_names": [1]}, ["class_names: expected an array of strings, got another"]),
        ({"layers": 5}, ["layers is no array of 1 to 1000 layers"]),
        ({"layers": [{"type": {"a": [[]]}}]}, ["layers[0].type: expected one value, got an object"]),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else None,
)
def test_a_model_with_a_wrong_field(program, tmp_path, model, change, parts):
    path = tmp_path / "file"
    path.write_bytes(
        rewritten(
            model, json.dumps({"format_version": 4, "normalise": False, "bits_of": {}} | metadata_of(model) | change)
        )
    )
    for command in ("inspect", "eval"):
        program.refused(program.run(command, path), str(path), "the metadata entry 'bie'", *parts)


NESTED = "[" * 70_000 + "]" * 70_000


@pytest.mark.parametrize(
    "text",
    [
        NESTED,
        '{"format_version": 4, "layers": ' + NESTED + "}",
        '{"kind": "training", "step": ' + NESTED + "}",
        '{"format_version": 4, "kind": 5, "layers": [' + "0," * 1_000_000 + "0]}",
        "{" + ",".join(f'"{i}": 0' for i in range(300_000)) + "}",
        '{"kind": "training", "kind": "training", "step": 1, "run": {}}',
        '{"kind": "training", "step": 1, "run": {}}\0 and more',
    ],
    ids=["nested", "layers", "step", "wide layers", "wide", "twice", "zero byte"],
)
def test_metadata_that_would_take_memory_and_time(frugal, tmp_path, model, text):
    path = tmp_path / "file"
    path.write_bytes(rewritten(model, text))
    for command in (["inspect"], ["inspect", "--json"], ["eval"], ["inspect", "--diff", path]):
        process = frugal(*command, path)
        assert process.returncode in ((0, 3) if command[0] == "inspect" else (3,)), process.stderr[:500]
        assert len(process.stderr) < 1000
    assert str(path) in frugal("eval", path).stderr


def test_net_descriptions_that_would_take_memory_and_time(program, frugal, tmp_path):
    path = tmp_path / "net.json"
    layer = '{"type": "linear", "out": 4}'
    long_name = "x" * 1_000_000
    many = ",\n".join(f'"{i}": 0' for i in range(200_000))
    twice = '{"format_version": 1,\n"layers": [{"type": "linear", "out": 4,\n"out": 5}]}'
    texts = {
        NESTED: "the text is no JSON object",
        '{"format_version": 1, "layers": ' + NESTED + "}": "layers[0]: expected an object, got an array",
        '{"format_version": 1, "layers": [{"type": '
        + NESTED
        + "}]}": "layers[0].type: expected one value, got an array",
        '{"format_version": 1, "layers": [' + f"{layer},\n" * 100_000 + "]}": "layers is no array of 1 to 1000 layers",
        "{" + many + "}": "line 1: 0 is no entry of this",
        '{"format_version": 1, "layers": [{' + many + "}]}": "layers[0].0 is no entry of this",
        f'{{"{long_name}": {{{many}}}}}': "xxx... is no",
        "\n" * 3_000_000: "line 3000001: this is no JSON",
        f'{{"format_version": 1, "format_version": 1, "layers": [{layer}]}}': "format_version appears twice",
        f'{{"format_version": 1, "layers": [{layer}], "layers": [{layer}]}}': "layers appears twice",
        twice: "line 3: layers[0].out appears twice",
        f'{{"format_version": 1, "layers": [{layer}]}}\0 and more': "holds a zero byte",
        f'{{"format_version": 1, "layers": [{layer}]}} and more': "this is no JSON",
        '{"format_version": 1, "layers": [{"type": "linear", "out": 18446744073709551615}]}': "got 1844674407370955161",
    }
    for text, part in texts.items():
        path.write_text(text)
        program.refused(frugal("train", "--net", path, *TINY[4:]), f"net description {path}", part)


def test_a_model_that_claims_a_large_image(program, frugal, tmp_path):
    """The weights of a residual net do not depend on the image's size."""
    path = tmp_path / "small"
    program.accuracy(
        program.run(
            "train", "--arch", "resnet20", "--width", "2", "--depth", "1", "--bits", "4", "--epochs", "1", "-o", path
        )
    )
    large = tmp_path / "large"
    metadata = metadata_of(path.read_bytes())
    large.write_bytes(rewritten(path.read_bytes(), json.dumps(metadata | {"image": [1, 4096, 16384]})))
    claimed, own = (json.loads(frugal("inspect", file, "--json").stdout) for file in (large, path))
    assert claimed["layers"] == own["layers"]
    assert claimed["model"]["image"] == [1, 4096, 16384]


def test_a_model_that_claims_more_weights_than_can_be_counted(program, frugal, tmp_path, model):
    path = tmp_path / "file"
    layers = [
        {"type": "conv", "out": 1 << 20, "kernel": 1},
        {"type": "linear", "out": 1 << 20},
    ]
    change = {"arch": "custom", "image": [1, 4096, 16384], "layers": layers, "normalise": False, "bits_of": {}}
    path.write_bytes(rewritten(model, json.dumps(metadata_of(model) | change | {"format_version": 4})))
    program.refused(frugal("inspect", path), str(path), "more than there is memory for")


def test_a_gzip_file_that_swells(program, frugal, small_mnist):
    folder = small_mnist.removeprefix("mnist:")
    path = f"{folder}/train-images-idx3-ubyte"
    os.unlink(path)
    with gzip.open(f"{path}.gz", "wb", compresslevel=1) as file:
        file.write(struct.pack(">4B3I", 0, 0, 8, 3, 6000, 1000, 1000))
        for _ in range(64):
            file.write(bytes(1 << 20))
    process = frugal("train", "--data", small_mnist, *TINY)
    program.refused(process, f"{path}.gz", "[6000, 1000, 1000], 6000000000 bytes", "at most 268435456 are read")


def test_pipes_are_refused_and_not_waited_for(program, tmp_path, model, small_mnist):
    (tmp_path / "model").write_bytes(model)
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    program.refused(program.run("predict", tmp_path / "model", pipe), str(pipe), "is not a regular file")
    program.refused(program.run("predict", pipe, pipe), str(pipe), "is not a regular file")
    program.refused(program.run("train", "--data", f"csv:{pipe}", *TINY), str(pipe), "is not a regular file")
    program.refused(program.run("train", "--net", pipe, *TINY[4:]), str(pipe), "is not a regular file")
    labels = f"{small_mnist.removeprefix('mnist:')}/t10k-labels-idx1-ubyte"
    os.unlink(labels)
    os.mkfifo(labels)
    program.refused(program.run("train", "--data", small_mnist, *TINY), labels, "is not a regular file")


def test_names_cannot_speak_to_the_terminal(program, tmp_path):
    table, path, asked = tmp_path / "t.csv", tmp_path / "model", tmp_path / "asked.npy"
    names = ["\x1b[2J\x1b]0;owned\x07red", "gr\xfcn \x9b31m"]
    table.write_text("".join(f"{i % 2},{i},{names[i % 2]}\n" for i in range(20)))
    np.save(asked, np.array([[0, 1], [1, 2]], np.float32))
    program.accuracy(program.run("train", "--data", f"csv:{table}", *TINY[:4], "--epochs", "20", "-o", path))
    process = program.run("predict", path, asked)
    assert process.returncode == 0
    assert all(c.isprintable() or c == "\n" for c in process.stdout)
    assert "\\x1b[2J\\x1b]0;owned\\x07red" in process.stdout
    assert "gr\xfcn \\xc2\\x9b31m" in process.stdout
    found = {guess["class"] for p in program.json("predict", path, asked)["predictions"] for guess in p["guesses"]}
    assert found == set(names)
    bad = program.run("eval", "\x1b[31mnone")
    assert "\x1b" not in bad.stderr
    assert "\\x1b[31mnone" in bad.stderr


def test_a_tensor_name_cannot_speak_to_the_terminal(program, tmp_path):
    path = tmp_path / "tensors"
    header = json.dumps({"\x1b[2Jx": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}}).encode()
    path.write_bytes(struct.pack("<Q", len(header)) + header + bytes(4))
    for arguments in (["inspect", path], ["inspect", path, "--diff", path]):
        process = program.run(*arguments)
        assert process.returncode == 0
        assert "\x1b" not in process.stdout


def gguf_text(value: bytes) -> bytes:
    return struct.pack("<Q", len(value)) + value


@pytest.mark.parametrize("what", ["numbers", "strings", "arrays", "keys", "tensors", "claims"])
def test_a_gguf_file_that_would_take_memory_and_time(program, frugal, tmp_path, what):
    """Three million bytes of the smallest things that a head can hold."""
    key, size = gguf_text(b"k") + struct.pack("<I", 9), 3_000_000
    tensors, pairs = 0, 1
    if what == "numbers":
        body = key + struct.pack("<IQ", 0, size) + bytes(size)
    elif what == "strings":
        body = key + struct.pack("<IQ", 8, size // 8) + bytes(size // 8 * 8)
    elif what == "arrays":
        body = key + struct.pack("<IQ", 9, size // 12) + struct.pack("<IQ", 0, 0) * (size // 12)
    elif what == "keys":
        pairs = size // 17
        body = b"".join(
            gguf_text(b"%04x" % (i % 65536) + bytes([i >> 16])) + struct.pack("<IB", 0, 1) for i in range(pairs)
        )
    elif what == "tensors":
        tensors, pairs = size // 37, 0
        body = b"".join(gguf_text(b"%05x" % i) + struct.pack("<IQIQ", 1, 8, 0, 32 * i) for i in range(tensors))
    else:
        tensors, pairs = 2**60, 2**60
        body = bytes(size)
    path = tmp_path / "a.gguf"
    head = b"GGUF" + struct.pack("<IQQ", 3, tensors, pairs) + body
    path.write_bytes(head + bytes(-len(head) % 32) + bytes(32 * tensors if what == "tensors" else 0))
    process = frugal("inspect", path)
    if what == "claims":
        program.refused(process, str(path), "claims 1152921504606846976 tensors")
    else:
        assert process.returncode == 0, process.stderr[-500:]
