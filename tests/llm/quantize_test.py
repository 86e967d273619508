"""bie quantize on language models: every type's blocks, the plan of types, and a sentence for what cannot be."""

import re
import resource
import signal
import subprocess

import numpy as np
import pytest

pytest.importorskip("transformers", reason="transformers is not installed")

import gguf
import torch
import transformers
from coded_folders import write_coded_folder
from llm_library import EXACT
from model_folders import write_tokenizer_files
from quantize_fixtures import CALIBRATION, tensors_of, types_of
from small_models import write_changed

#: Types, and how far weights may be from the floats: the root of the mean square over that of the floats.
TYPES = {
    **{"f32": 0, "bf16": 2e-3, "f16": 3e-4, "q8_0": 6e-3, "q6_k": 0.02, "q5_k": 0.04, "q5_1": 0.05, "q5_0": 0.05},
    **{"q4_k": 0.08, "q4_1": 0.09, "q4_0": 0.1, "q3_k": 0.2, "q2_k": 0.35, "tq2_0": 0.9, "q2_0": 0.9, "q1_0": 0.9},
}
NOT_OPENED_BY_THE_PACKAGE = ["q2_0", "q1_0"]
ROUNDED_BY_THE_PACKAGE = ["q8_0", "q5_1", "q5_0", "q4_1", "q4_0", "tq2_0", "f16", "bf16"]


@pytest.fixture(scope="module")
def inputs(source):
    """The mean squares of what each linear of transformers' model reads, in windows of 512."""
    folder, model = source
    sums, counts = {}, {}

    def watch(name):
        def hook(_module, arguments):
            rows = arguments[0].detach().reshape(-1, arguments[0].shape[-1]).double()
            sums[name] = sums.get(name, 0) + (rows**2).sum(0).numpy()
            counts[name] = counts.get(name, 0) + len(rows)

        return hook

    hooks = [
        module.register_forward_pre_hook(watch(name))
        for name, module in model.named_modules()
        if name.endswith(("_proj", "lm_head"))
    ]
    tokens = transformers.AutoTokenizer.from_pretrained(folder).encode(CALIBRATION, add_special_tokens=False)
    tokens = tokens[:700]
    with torch.no_grad():
        for begin in range(0, len(tokens), 512):
            model(torch.tensor([tokens[begin : begin + 512]]))
    for hook in hooks:
        hook.remove()
    return {name: sums[name] / counts[name] for name in sums}


@pytest.mark.parametrize("name", TYPES)
def test_every_type_of_a_folder_and_of_its_file(library, quantized, source, plain, name):
    folder, model = source
    path, told = quantized(folder, "--type", name)
    again, _ = quantized(plain, "--type", name.upper(), out="again.gguf")
    assert path.read_bytes() == again.read_bytes()
    assert {entry["type"] for entry in told["plan"]} == {name.upper()}
    assert np.isfinite(library.model(path).logits(range(20))).all()
    if name in NOT_OPENED_BY_THE_PACKAGE:
        return
    tensors = tensors_of(path)
    for key, tensor in tensors.items():
        assert tensor.tensor_type.name == (name.upper() if len(tensor.shape) == 2 else "F32"), key
    assert told["bytes"] == sum(tensor.n_bytes for tensor in tensors.values())
    weights = sum(int(tensor.n_elements) for tensor in tensors.values())
    assert told["bits_a_weight"] == pytest.approx(8 * told["bytes"] / weights)
    floats = model.model.layers[1].mlp.up_proj.weight.detach().numpy()
    tensor = tensors["blk.1.ffn_up.weight"]
    opened = gguf.quants.dequantize(tensor.data, tensor.tensor_type)
    assert np.square(opened - floats).mean() <= TYPES[name] ** 2 * np.square(floats).mean()


@pytest.mark.parametrize("name", ROUNDED_BY_THE_PACKAGE)
def test_blocks_are_those_of_the_package(quantized, source, name):
    folder, model = source
    kind = gguf.GGMLQuantizationType[name.upper()]
    found = tensors_of(quantized(folder, "--type", name)[0])
    for key, weight in (
        ("token_embd.weight", model.model.embed_tokens.weight),
        ("blk.1.ffn_down.weight", model.model.layers[1].mlp.down_proj.weight),
    ):
        wanted = gguf.quants.quantize(weight.detach().numpy(), kind)
        assert np.array_equal(found[key].data.reshape(-1).view(np.uint8), wanted.reshape(-1).view(np.uint8))


def test_threads_do_not_change_a_byte(quantized, source):
    files = [quantized(source[0], "--type", "q4_k", "--threads", n, out=f"{n}.gguf")[0] for n in (1, 3)]
    assert files[0].read_bytes() == files[1].read_bytes()


def test_a_file_of_codes_is_quantised_again(library, quantized, source):
    first, _ = quantized(source[0], "--type", "q8_0", out="first.gguf")
    second, _ = quantized(first, "--type", "q4_0", out="second.gguf")
    opened = gguf.quants.dequantize(tensors_of(first)["blk.0.attn_v.weight"].data, gguf.GGMLQuantizationType.Q8_0)
    wanted = gguf.quants.quantize(opened, gguf.GGMLQuantizationType.Q4_0)
    assert np.array_equal(tensors_of(second)["blk.0.attn_v.weight"].data, wanted)
    same, _ = quantized(first, "--type", "q8_0", out="same.gguf")
    before, after = tensors_of(first), tensors_of(same)
    assert all(np.array_equal(before[key].data, after[key].data) for key in before)


def test_codes_of_a_folder_are_opened(quantized, library, tmp_path):
    folder = tmp_path / "gptq"
    tokens = write_tokenizer_files(folder)
    write_coded_folder(folder, "gptq of 4 bits", vocabulary=tokens + 4)
    path, _ = quantized(folder, "--type", "f32")
    assert set(types_of(path).values()) == {"F32"}
    ids = library.model(folder).tokenize("The water boils")
    wanted, found = (library.model(each, EXACT).logits(ids) for each in (folder, path))
    assert np.abs(found - wanted).max() <= 1e-4 * np.abs(wanted).max()


def test_the_plan_by_names(quantized, source):
    words = ["--type", "q4_0", "--embedding", "q8_0", "--head", "q6_k"]
    keeps = ["--keep", "blk.0.*=f16", "--keep", "blk.?.ffn_down*=q5_1", "--keep", "blk.0.ffn_up.weight=f32"]
    path, told = quantized(source[0], *words, *keeps)
    types = types_of(path)
    assert {entry["name"]: entry["type"] for entry in told["plan"]} == {
        name: kind for name, kind in types.items() if tensors_of(path)[name].data.ndim == 2
    }
    assert types["token_embd.weight"] == "Q8_0" and types["output.weight"] == "Q6_K"
    for part in ("attn_q", "attn_output", "ffn_up", "ffn_down"):  # the first that fits counts
        assert types[f"blk.0.{part}.weight"] == "F16"
    assert types["blk.1.ffn_down.weight"] == "Q5_1" and types["blk.1.ffn_up.weight"] == "Q4_0"
    assert types["blk.1.attn_norm.weight"] == "F32"


def test_the_next_type_where_rows_are_no_blocks(quantized, quantize, models):
    model = models("llama")  # rows of 64 and 96
    path, told = quantized(model, "--type", "q4_k", "--fit")
    assert set(types_of(path).values()) == {"Q5_0", "F32"}
    assert {entry["type"] for entry in told["unfit"]} == {"Q5_0"} and len(told["unfit"]) == len(told["plan"])
    _, told = quantized(model, "--type", "q1_0", "--fit")
    types = {entry["name"]: entry["type"] for entry in told["plan"]}
    assert types["blk.0.ffn_down.weight"] == "Q4_0" and types["blk.0.ffn_up.weight"] == "Q2_0"
    process = quantize(model, "--type", "q4_k")
    assert process.returncode == 3
    assert "rows of 64 are no whole blocks of 256, as Q4_K has them; --fit takes q5_0" in process.stderr


def test_metadata_stay(quantized, source):
    first, _ = quantized(source[0], "--type", "q8_0", out="first.gguf")
    second, _ = quantized(first, "--type", "q4_0", out="second.gguf")

    def fields(path):
        read = gguf.GGUFReader(path).fields
        return {key: field.contents() for key, field in read.items() if not key.startswith("GGUF.")}

    before, after = fields(first), fields(second)
    assert (before.pop("general.file_type"), after.pop("general.file_type")) == (7, 2)
    assert before == after and "tokenizer.chat_template" in after


def test_without_json_it_is_a_line(quantize, source, tmp_path):
    process = quantize(source[0], "--type", "q4_0")
    assert re.fullmatch(
        rf"{tmp_path}/out.gguf: [0-9.]+ MB, [0-9.]+ bits a weight, matrices of 16 Q4_0; [0-9.]+ s\n", process.stdout
    )


class TestRefusals:
    @pytest.mark.parametrize(
        ("words", "code", "sentence"),
        [
            ([], 2, "--type: expected one of f32, f16, .*, q1_0, wBgG .*, or --size, --bpw or --plan, got none"),
            (["--type", "q9"], 2, "--type"),
            (["--type", "q4_0", "--bits", "4"], 2, "not expected: .*--bits"),
            (
                ["--type", "q4_0", "--keep", "blk.0"],
                2,
                '--keep: expected PATTERN=TYPE, of a type among .*, got "blk.0"',
            ),
            (["--type", "q4_0", "--keep", "=q8_0"], 2, "--keep: expected PATTERN=TYPE"),
            (["--type", "q4_0", "--keep", "blk.7.*=q8_0"], 3, "--keep blk.7.*: expected the name of a matrix"),
            (["--type", "q4_0", "--keep", "*norm*=q8_0"], 3, "expected the name of a matrix, got one that fits none"),
            (["--type", "q2_k"], 3, r'tensor "\S+": rows of \d+ are no whole blocks of 256'),
        ],
    )
    def test_options_that_cannot_be(self, quantize, file, tmp_path, words, code, sentence):
        process = quantize(file, *words)
        assert process.returncode == code and re.search(sentence, process.stderr), process.stderr
        assert list(tmp_path.iterdir()) == []

    def test_a_head_that_is_the_embedding(self, quantize, models):
        process = quantize(models("tied llama"), "--type", "q8_0", "--head", "f16")
        assert process.returncode == 3 and "--head: expected a model with a head of its own" in process.stderr

    @pytest.mark.parametrize("name", ["out.bin", "out", "gguf"])
    def test_another_name_is_a_folder_that_must_be_empty(self, quantize, file, tmp_path, name):
        (tmp_path / name).mkdir()
        (tmp_path / name / "note.txt").write_text("mine")
        process = quantize(file, "--type", "f16", out=name)
        assert process.returncode == 3
        assert f"{name}: expected one that is empty or not there, got one with files in it" in process.stderr
        assert [path.name for path in tmp_path.rglob("*")] == [name, "note.txt"]

    def test_an_output_that_is_the_input(self, bie, file):
        before = file.read_bytes()
        process = subprocess.run([bie, "quantize", file, "-o", file, "--type", "q8_0"], capture_output=True, text=True)
        assert process.returncode == 3 and "--out" in process.stderr and file.read_bytes() == before

    def test_an_output_in_the_folder_of_the_input(self, bie, source):
        out = source[0] / "model.safetensors"
        before = out.read_bytes()
        link = source[0] / "link.gguf"
        link.symlink_to(out)
        process = subprocess.run(
            [bie, "quantize", source[0], "-o", link, "--type", "q8_0"], capture_output=True, text=True
        )
        link.unlink()
        assert process.returncode == 3 and out.read_bytes() == before

    @pytest.mark.parametrize("kind", ["q4_0", "q4_k"])
    @pytest.mark.parametrize("value", [np.nan, np.inf])
    def test_numbers_that_are_none(self, quantize, tmp_path, value, kind):
        def spoil(tensors):
            tensors["blk.1.ffn_up.weight"][3, 5] = value

        path = write_changed(tmp_path / "spoilt.gguf", spoil)
        process = quantize(path, "--type", kind, "--fit")
        assert process.returncode == 3
        assert 'tensor "blk.1.ffn_up.weight": the values hold NaN or infinity' in process.stderr
        assert [each.name for each in tmp_path.iterdir()] == ["spoilt.gguf"]

    def test_a_net(self, quantize, tmp_path):
        (tmp_path / "net.safetensors").write_bytes(b"\0" * 100)
        process = quantize(tmp_path / "net.safetensors", "--type", "q8_0")
        assert process.returncode != 0 and "expected a GGUF file or a folder with a tokenizer" in process.stderr

    def test_a_disk_that_is_full(self, bie, file, tmp_path):
        words = [bie, "quantize", file, "-o", tmp_path / "out.gguf", "--type", "f32"]

        def limit():
            signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
            resource.setrlimit(resource.RLIMIT_FSIZE, (20000, 20000))

        process = subprocess.run(words, capture_output=True, text=True, preexec_fn=limit)
        assert process.returncode == 3 and "out.gguf" in process.stderr
        assert list(tmp_path.iterdir()) == []


class TestImportance:
    def test_it_is_that_of_the_inputs(self, quantized, source, text, tmp_path, inputs):
        kept = tmp_path / "imatrix.gguf"
        quantized(source[0], "--type", "q4_0", "--calibrate", text, "--tokens", 700, "--imatrix", kept)
        found = tensors_of(kept)
        parts = {"self_attn.v_proj": "attn_v", "self_attn.o_proj": "attn_output", "mlp.down_proj": "ffn_down"}
        for theirs, ours in parts.items():
            name = f"blk.1.{ours}.weight"
            means = found[f"{name}.in_sum2"].data.reshape(-1) / found[f"{name}.counts"].data.item()
            np.testing.assert_allclose(means, inputs[f"model.layers.1.{theirs}"], rtol=1e-4)
        head = found["output.weight.in_sum2"].data.reshape(-1) / found["output.weight.counts"].data.item()
        np.testing.assert_allclose(head, inputs["lm_head"], rtol=1e-4)
        assert found["output.weight.counts"].data.item() == 700

    def test_a_file_of_it_gives_the_same_model(self, quantized, source, text, tmp_path):
        kept = tmp_path / "imatrix.gguf"
        words = ["--calibrate", text, "--calibrate", text, "--tokens", 600]
        first, _ = quantized(source[0], "--type", "q4_k", *words, "--imatrix", kept)
        second, _ = quantized(source[0], "--type", "q4_k", "--imatrix", kept, out="second.gguf")
        third, _ = quantized(source[0], "--type", "q4_k", *words, "--threads", 3, out="third.gguf")
        nearest, _ = quantized(source[0], "--type", "q4_k", "--method", "nearest", out="nearest.gguf")
        assert first.read_bytes() == third.read_bytes() != nearest.read_bytes()
        before, after = tensors_of(first), tensors_of(second)
        different = [np.mean(before[key].data != after[key].data) for key in before]
        assert max(different) < 0.01  # sums are rounded to float32 in the file

    @pytest.mark.parametrize("name", ["q4_0", "q4_k"])
    def test_outputs_are_nearer(self, quantized, source, text, inputs, name):
        """Errors of a matrix, each column weighted by its inputs."""
        searched, _ = quantized(source[0], "--type", name, "--calibrate", text, "--tokens", 700)
        nearest, _ = quantized(source[0], "--type", name, out="nearest.gguf")
        floats = source[1].model.layers[1].mlp.down_proj.weight.detach().numpy()

        def error(path):
            tensor = tensors_of(path)["blk.1.ffn_down.weight"]
            opened = gguf.quants.dequantize(tensor.data, tensor.tensor_type)
            return (np.square(opened - floats) * inputs["model.layers.1.mlp.down_proj"]).sum()

        assert error(searched) < 0.95 * error(nearest)

    @pytest.mark.parametrize(
        ("words", "code", "sentence"),
        [
            (["--method", "nearest", "--calibrate", "TEXT"], 2, "--method: expected search or gptq with --calibrate"),
            (["--tokens", "9"], 2, "--tokens: needs --calibrate"),
            (["--calibrate", "nowhere"], 3, "nowhere"),
            (["--calibrate", "TEXT", "--tokens", "100"], 3, "--calibrate: expected a text of 512 tokens at least"),
            (["--imatrix", "nowhere"], 3, "nowhere"),
            (["--imatrix", "TEXT"], 3, "GGUF"),
            (
                ["--imatrix", "MODEL"],
                3,
                "expected sums of squares of inputs, as llama.cpp's imatrix has them, got none",
            ),
            (["--calibrate", "TEXT", "--imatrix", "TEXT"], 3, "--imatrix"),
        ],
    )
    def test_options_that_cannot_be(self, quantize, source, text, tmp_path, words, code, sentence):
        other = write_changed(tmp_path / "other.gguf")
        names = {"TEXT": text, "MODEL": other}
        process = quantize(source[0], "--type", "q4_0", *(names.get(word, word) for word in words))
        assert process.returncode == code and re.search(sentence, process.stderr), process.stderr
        assert text.read_text() == CALIBRATION and not (tmp_path / "out.gguf").exists()

    @pytest.mark.parametrize(
        ("sums", "count", "sentence"),
        [
            (np.ones(64), 1.0, 'tensor "blk.0.attn_q.weight": expected the importance of 256 columns, got that of 64'),
            (np.full(256, np.nan), 1.0, "expected numbers of 0 or more, got others"),
            (-np.ones(256), 1.0, "expected numbers of 0 or more, got others"),
            (np.ones((2, 256)), 1.0, "expected the inputs of one matrix, got those of 2"),
            (np.ones(256), None, r'the tensor "blk.0.attn_q.weight.counts" is missing'),
        ],
    )
    def test_files_that_lie(self, quantize, plain, tmp_path, sums, count, sentence):
        path = tmp_path / "imatrix.gguf"
        writer = gguf.GGUFWriter(path, "imatrix")
        writer.add_tensor("blk.0.attn_q.weight.in_sum2", sums.astype(np.float32))
        if count is not None:
            writer.add_tensor("blk.0.attn_q.weight.counts", np.array([count], np.float32))
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()
        process = quantize(plain, "--type", "q4_0", "--imatrix", path)
        assert process.returncode == 3 and re.search(sentence, process.stderr), process.stderr
        assert not (tmp_path / "out.gguf").exists()
