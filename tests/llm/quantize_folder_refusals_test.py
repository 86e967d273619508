"""bie quantize to folders: the same bytes after kills, and a sentence, and no file, for what cannot be."""

import re
import shutil
import subprocess
import time

import numpy as np
import pytest

pytest.importorskip("transformers", reason="transformers is not installed")

from interrupts import interrupt
from model_folders import write_whole_folder
from quantize_fixtures import files_of
from small_models import write_changed, write_model


class TestKills:
    @pytest.mark.parametrize("method", ["nearest", "search", "gptq"])
    def test_after_kills_the_bytes_are_the_same(self, bie, quantized, source, text, tmp_path, method):
        words = ["--type", "w3g64", "--method", method]
        words += [] if method == "nearest" else ["--calibrate", text, "--tokens", "512"]
        whole, _ = quantized(source[0], *words, out="whole")
        out, parts = tmp_path / "killed", tmp_path / "killed.parts"
        command = [bie, "quantize", source[0], "-o", out, *map(str, words)]
        written: dict[str, int] = {}
        for count in (1, 4, 8, 15):
            process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            while len(list(parts.glob("*.gguf"))) < count and process.poll() is None:
                time.sleep(0.0005)
            process.kill()
            assert process.wait() < 0
            before, written = written, {path.name: path.stat().st_mtime_ns for path in parts.glob("*.gguf")}
            assert before.items() <= written.items()  # they are not made again
            lost = min(written)
            (parts / lost).write_bytes((parts / lost).read_bytes()[:-100])  # as if the disk had lost it
            del written[lost]
        subprocess.run(command, check=True, capture_output=True)
        assert files_of(out) == files_of(whole)
        assert sorted(path.name for path in tmp_path.iterdir()) == ["killed", "whole"]

    def test_a_kill_while_the_folder_is_written_leaves_nothing_behind(self, bie, source, tmp_path):
        """The same command takes away what a killed one has left beside the folder."""
        out = tmp_path / "killed"
        command = [bie, "quantize", source[0], "-o", out, "--type", "f32"]
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        while not list(tmp_path.glob("killed.tmp*")) and process.poll() is None:
            time.sleep(0.0001)
        process.kill()
        process.wait()
        shutil.rmtree(out, ignore_errors=True)
        subprocess.run(command, check=True, capture_output=True)
        assert [path.name for path in tmp_path.iterdir()] == ["killed"]

    def test_what_ctrl_c_leaves_is_made_anew_for_another_text(self, bie, quantized, source, text, tmp_path):
        words = ["--type", "w3g64", "--method", "gptq", "--tokens", "512", "--calibrate", str(text)]
        out, parts = tmp_path / "out", tmp_path / "out.parts"
        command = [bie, "quantize", source[0], "-o", out, *words]
        process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
        while not list(parts.glob("blk.0.*.gguf")) and process.poll() is None:
            time.sleep(0.001)
        interrupt(process)
        said = process.stderr.read()
        assert process.wait() == 130 and f"the same command goes on from the matrices in {parts}" in said
        assert not out.exists() and parts.exists()
        other, _ = quantized(source[0], *words[:-1], source[0] / "tokenizer.json", out="out")
        fresh, _ = quantized(source[0], *words[:-1], source[0] / "tokenizer.json", out="fresh")
        assert files_of(other) == files_of(fresh) and not parts.exists()


class TestRefusals:
    @pytest.mark.parametrize(
        ("out", "words", "code", "sentence"),
        [
            ("a.gguf", "--type w4g32", 3, "expected a type that GGUF files have, .*, got w4g32"),
            (
                "a.gguf",
                "--type w4g32 --format gptq",
                2,
                '--format: expected a folder or a plan as --out, got ".*a.gguf"',
            ),
            ("out", "--type q4_0", 3, "expected groups of codes, as w4g64, or f32, f16 or bf16, .*, got q4_0"),
            ("out", "--type w4g32 --head q8_0", 3, 'tensor "output.weight": expected groups of codes, .*, got q8_0'),
            (
                "out",
                "--type w5g32 --format gptq",
                3,
                "expected 2, 3, 4 or 8 bits, .*, got w5g32",
            ),
            ("out", "--type f16 --format gptq", 3, "expected a linear of codes for GPTQ's layout, got plain numbers"),
            (
                "out",
                "--type w4g32 --format gptq --embedding w4g32",
                3,
                '"token_embd.weight": expected f16, f32 or bf16',
            ),
            ("out", "--type w4g32 --format gptq --head w4g32", 3, '"output.weight": expected f16, f32 or bf16'),
            ("out", "--type w4g64", 3, "rows of 96 are no whole blocks of 64, as W4G64 has them; --fit takes w4g48"),
            ("out", "--type w7g64", 2, '--type: expected f32, .*, wBgG .*, got "w7g64"'),
            ("out", "--type w3g8", 2, '--type: expected f32, .*, wBgG .*, got "w3g8"'),
            ("out", "--type w3g24", 2, '--type: expected f32, .*, wBgG .*, got "w3g24"'),
            ("out", "--type w3g2048", 2, '--type: expected f32, .*, wBgG .*, got "w3g2048"'),
            ("out", "--type w3g64z", 2, '--type: expected f32, .*, wBgG .*, got "w3g64z"'),
            ("out", "--type w03g64", 2, '--type: expected f32, .*, wBgG .*, got "w03g64"'),
            ("out", "--type w4g32 --keep x=w9g32", 2, '--keep: expected PATTERN=TYPE, .*, got "x=w9g32"'),
            ("out", "--type w4g32 --format other", 2, "--format: other not in {bie,gptq}"),
            ("nowhere/out", "--type w4g32", 3, "expected a place in a folder that is there, got one in .*nowhere"),
        ],
    )
    def test_options_that_cannot_be(self, quantize, models, tmp_path, out, words, code, sentence):
        process = quantize(models("llama"), *words.split(), out=out)
        assert process.returncode == code and re.search(sentence, process.stderr), process.stderr
        assert len(process.stderr.strip().split("\n")) == (1 if code == 3 else 2)  # the second one names --help
        assert list(tmp_path.iterdir()) == []

    def test_a_row_that_no_group_divides(self, quantize, tmp_path):
        write_whole_folder(tmp_path / "narrow", "llama", intermediate_size=100)
        process = quantize(tmp_path / "narrow", "--type", "w4g16", out="out")
        assert process.returncode == 3
        assert "rows of 100 are no whole blocks of 16, as W4G16 has them; --fit takes f16" in process.stderr

    @pytest.mark.parametrize("words", ["--type w4g32", "--type w4g32 --format gptq"])
    def test_a_folder_that_is_not_empty(self, quantize, models, tmp_path, words):
        (tmp_path / "out").mkdir()
        (tmp_path / "out" / "note.txt").write_text("mine")
        process = quantize(models("llama"), *words.split(), out="out/")
        assert process.returncode == 3 and "expected one that is empty or not there" in process.stderr
        (tmp_path / "out" / "note.txt").unlink()
        assert quantize(models("llama"), *words.split(), out="out/").returncode == 0
        assert (tmp_path / "out" / "model.safetensors").exists()

    @pytest.mark.parametrize("out", ["link", "empty/."])
    def test_another_name_of_an_empty_folder_leaves_nothing_behind(self, quantize, models, tmp_path, out):
        (tmp_path / "empty").mkdir()
        (tmp_path / "link").symlink_to("empty")
        process = quantize(models("llama"), "--type", "w4g32", out=out)
        made = [] if process.returncode else ["config.json"]
        assert process.returncode in (0, 3) and [path.name for path in (tmp_path / "empty").glob("config.json")] == made
        assert sorted(path.name for path in tmp_path.iterdir()) == ["empty", "link"]

    def test_a_file(self, quantize, models, tmp_path):
        (tmp_path / "out").write_text("mine")
        process = quantize(models("llama"), "--type", "w4g32", out="out")
        assert process.returncode == 3 and (tmp_path / "out").read_text() == "mine"

    @pytest.mark.parametrize("place", ["", "inside", "../folder/inside"])
    def test_the_folder_of_the_model(self, bie, source, place):
        before = files_of(source[0])
        command = [bie, "quantize", source[0], "-o", f"{source[0]}/{place}", "--type", "w4g64"]
        process = subprocess.run(command, capture_output=True, text=True)
        assert process.returncode == 3 and "--out: expected a folder elsewhere, got" in process.stderr
        assert files_of(source[0]) == before

    @pytest.mark.parametrize("kind", ["bitnet", "bitnet-b1.58"])
    def test_bitnet(self, quantize, tmp_path, kind):
        write_model(tmp_path / "bitnet.gguf", kind)
        process = quantize(tmp_path / "bitnet.gguf", "--type", "w4g64", out="out")
        assert process.returncode == 3
        assert f"expected a model whose folders hold codes of any width, got {kind}" in process.stderr
        assert [path.name for path in tmp_path.iterdir()] == ["bitnet.gguf"]

    @pytest.mark.parametrize("words", ["--type w4g32", "--type w1g32", "--type w4g32 --format gptq"])
    @pytest.mark.parametrize(
        ("value", "sentence"),
        [
            (np.nan, 'tensor "blk.1.ffn_up.weight": the values hold NaN or infinity'),
            (np.inf, 'tensor "blk.1.ffn_up.weight": the values hold NaN or infinity'),
            (1e9, 'tensor "blk.1.ffn_up.weight": a group\'s scale or offset is beyond 16-bit floats'),
        ],
    )
    def test_numbers_that_are_none(self, quantize, tmp_path, words, value, sentence):
        def spoil(tensors):
            tensors["blk.1.ffn_up.weight"][3, 5] = value

        path = write_changed(tmp_path / "spoilt.gguf", spoil)
        process = quantize(path, *words.split(), out="out")
        assert process.returncode == 3 and sentence in process.stderr, process.stderr
        assert [each.name for each in tmp_path.iterdir()] == ["spoilt.gguf"]
