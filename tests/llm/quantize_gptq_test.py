"""bie quantize --method gptq: nearer outputs, the same bytes after kills, and a sentence for what cannot be."""

import subprocess
import time

import numpy as np
import pytest

pytest.importorskip("transformers", reason="transformers is not installed")

from interrupts import interrupt
from llm_library import EXACT
from quantize_fixtures import tensors_of, types_of
from small_models import write_changed


class TestGptq:
    WORDS = ("--type", "q4_0", "--method", "gptq", "--tokens", 1024)

    @pytest.fixture
    def words(self, text):
        return [*self.WORDS, "--calibrate", text]

    def test_outputs_are_nearer(self, quantized, answer, plain, words, text, tmp_path):
        nearest, _ = quantized(plain, "--type", "q4_0", out="nearest.gguf")
        made, told = quantized(plain, *words)
        assert {entry["type"] for entry in told["plan"]} == {"Q4_0"}
        far, near = (
            answer("perplexity", path, "--data", text, "--reference", plain, "--exact")["reference"]["kl_divergence"]
            for path in (nearest, made)
        )
        assert near < 0.8 * far
        assert sorted(path.name for path in tmp_path.iterdir()) == ["nearest.gguf", "out.gguf"]

    def test_a_folder_gives_the_model_of_its_file(self, quantized, source, plain, words):
        """Pairs of rotated rows stand elsewhere in a folder; sums over them have another order from there on."""
        of_folder, _ = quantized(source[0], *words, out="folder.gguf")
        of_file, _ = quantized(plain, *words, out="file.gguf")
        first, second = tensors_of(of_folder), tensors_of(of_file)
        assert first.keys() == second.keys()
        for part in ("attn_q", "attn_k", "attn_v"):
            name = f"blk.0.{part}.weight"
            assert np.array_equal(first[name].data, second[name].data), name

    def test_nothing_but_the_text_changes_a_byte(self, bie, quantized, source, words, tmp_path):
        first, _ = quantized(source[0], *words)
        second, _ = quantized(source[0], *words, "--threads", 3, out="second.gguf")
        assert first.read_bytes() == second.read_bytes()
        third = tmp_path / "third.gguf"
        subprocess.run(
            [bie, "quantize", source[0], "-o", third, *map(str, words)],
            check=True,
            capture_output=True,
            env={"BIE_MAX_ISA": "portable"},
        )
        assert first.read_bytes() == third.read_bytes()

    def test_types_of_floats_and_a_head_of_its_own(self, quantized, source, words):
        path, _ = quantized(source[0], *words, "--embedding", "f16", "--head", "q6_k", "--keep", "blk.1.*=bf16")
        types = types_of(path)
        assert types["token_embd.weight"] == "F16" and types["output.weight"] == "Q6_K"
        assert types["blk.1.attn_q.weight"] == "BF16" and types["blk.0.attn_q.weight"] == "Q4_0"

    @pytest.mark.parametrize("name", ["tied llama", "gemma3", "qwen3", "qwen2"])
    def test_families(self, quantized, library, models, text, name):
        made, _ = quantized(models(name), "--type", "q8_0", "--method", "gptq", "--calibrate", text)
        nearest, _ = quantized(models(name), "--type", "q8_0", out="nearest.gguf")
        ids = library.model(made).tokenize("The water boils, and ice melts")
        wanted, far, near = (library.model(path, EXACT).logits(ids) for path in (models(name), nearest, made))
        assert np.square(near - wanted).mean() < np.square(far - wanted).mean()

    def test_after_twenty_kills_the_bytes_are_the_same(self, bie, quantized, source, words, tmp_path):
        begin = time.monotonic()
        whole, _ = quantized(source[0], *words, out="whole.gguf")
        seconds = time.monotonic() - begin
        out = tmp_path / "killed.gguf"
        command = [bie, "quantize", source[0], "-o", out, *map(str, words)]
        rng = np.random.default_rng(7)
        for moment in rng.random(20) * seconds:
            process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            time.sleep(moment)
            process.kill()
            process.wait()
            if rng.random() < 0.2 and (parts := list(tmp_path.glob("killed.gguf.parts/*.gguf"))):
                parts[0].write_bytes(parts[0].read_bytes()[:-100])  # as if the disk had lost it
        subprocess.run(command, check=True, capture_output=True)
        assert out.read_bytes() == whole.read_bytes()
        assert sorted(path.name for path in tmp_path.iterdir()) == ["killed.gguf", "whole.gguf"]

    def test_other_files_in_the_folder_of_parts_stay(self, quantized, plain, words, tmp_path):
        folder = tmp_path / "out.gguf.parts"
        folder.mkdir()
        (folder / "mine.gguf").write_bytes(plain.read_bytes())
        (folder / "note.txt").write_text("mine")
        quantized(plain, *words)
        assert sorted(path.name for path in folder.iterdir()) == ["mine.gguf", "note.txt"]

    def test_what_ctrl_c_leaves_is_gone_on_with_or_made_anew(self, bie, quantized, source, words, tmp_path):
        out = tmp_path / "out.gguf"
        parts = tmp_path / "out.gguf.parts"
        process = subprocess.Popen(
            [bie, "quantize", source[0], "-o", out, *map(str, words)], stderr=subprocess.PIPE, text=True
        )
        while not list(parts.glob("blk.0.*.gguf")) and process.poll() is None:
            time.sleep(0.001)
        interrupt(process)
        said = process.stderr.read()
        assert process.wait() == 130 and f"the same command goes on from the matrices in {parts}" in said
        assert not out.exists() and parts.exists()
        other, _ = quantized(source[0], *words[:-2], "--calibrate", source[0] / "tokenizer.json")
        assert not parts.exists()
        fresh, _ = quantized(source[0], *words[:-2], "--calibrate", source[0] / "tokenizer.json", out="fresh.gguf")
        assert other.read_bytes() == fresh.read_bytes()

    @pytest.mark.parametrize(
        ("words", "code", "sentence"),
        [
            (["--method", "gptq"], 2, "--method: gptq needs the text of --calibrate"),
            (
                ["--method", "gptq", "--calibrate", "TEXT", "--imatrix", "x.gguf"],
                2,
                "--imatrix: expected --method search",
            ),
            (
                ["--method", "gptq", "--calibrate", "TEXT", "--tokens", "100"],
                3,
                "expected a text of 512 tokens at least",
            ),
            (["--method", "gptq", "--calibrate", "nowhere"], 3, "nowhere"),
        ],
    )
    def test_options_that_cannot_be(self, quantize, source, text, tmp_path, words, code, sentence):
        process = quantize(source[0], "--type", "q4_0", *(text if word == "TEXT" else word for word in words))
        assert process.returncode == code and sentence in process.stderr, process.stderr
        assert list(tmp_path.iterdir()) == []

    @pytest.mark.parametrize("name", ["blk.1.ffn_up.weight", "blk.1.ffn_norm.weight"])
    def test_numbers_that_are_none_leave_nothing_behind(self, quantize, text, tmp_path, name):
        def spoil(tensors):
            tensors[name].flat[5] = np.nan

        path = write_changed(tmp_path / "spoilt.gguf", spoil)
        process = quantize(path, "--type", "q8_0", "--method", "gptq", "--calibrate", text)
        assert process.returncode == 3 and "NaN or infinit" in process.stderr
        assert [each.name for each in tmp_path.iterdir()] == ["spoilt.gguf"]
