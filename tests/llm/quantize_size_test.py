"""bie quantize for a size: plans of several types, plans in files, and a sentence for what cannot be."""

import json
import re

import numpy as np
import pytest

pytest.importorskip("transformers", reason="transformers is not installed")

from quantize_fixtures import tensors_of, types_of
from small_models import letters, write_changed, write_tokenizer


class TestSize:
    def test_a_file_of_the_size_loses_no_more_than_one_type_does(self, quantized, answer, plain, text, tmp_path):
        even, told = quantized(plain, "--type", "q4_0", "--calibrate", text, out="even.gguf")
        size = even.stat().st_size
        assert told["file_bytes"] == size
        made, told = quantized(plain, "--size", size, "--calibrate", text)
        assert 0.9 * size < made.stat().st_size == told["file_bytes"] <= size
        assert len({entry["type"] for entry in told["plan"]}) > 1
        of_even, of_plan = (
            answer("perplexity", path, "--data", text, "--reference", plain, "--exact")["reference"]["kl_divergence"]
            for path in (even, made)
        )
        assert of_plan < 1.1 * of_even

    @pytest.mark.parametrize("words", [(), ("--method", "nearest"), ("--method", "gptq", "--tokens", "512")])
    def test_a_plan_in_a_file_gives_the_same_model(self, quantized, source, text, tmp_path, words):
        first, _ = quantized(source[0], "--bpw", 5, "--calibrate", text, *words, out="first.gguf")
        plan, told = quantized(source[0], "--bpw", 5, "--calibrate", text, *words, out="plan.json")
        assert json.loads(plan.read_text())["plan"] == told["plan"] and told["file_bytes"] == first.stat().st_size
        calibrate = [] if "nearest" in words else ["--calibrate", text]
        second, _ = quantized(source[0], "--plan", plan, *calibrate, *words, out="second.gguf")
        assert first.read_bytes() == second.read_bytes()
        weights = sum(int(tensor.n_elements) for tensor in tensors_of(first).values())
        assert 4.5 < 8 * first.stat().st_size / weights <= 5

    def test_what_is_named_stays_and_what_runs_together_has_one_type(self, quantized, source, text):
        keep = ["--keep", "blk.0.attn_v.weight=q8_0", "--embedding", "f16", "--head", "q6_k"]
        path, _ = quantized(source[0], "--bpw", 9, "--calibrate", text, *keep)
        types = types_of(path)
        assert types["token_embd.weight"] == "F16" and types["output.weight"] == "Q6_K"
        assert types["blk.0.attn_v.weight"] == "Q8_0"
        for layer in range(2):
            assert types[f"blk.{layer}.attn_q.weight"] == types[f"blk.{layer}.attn_k.weight"]
            assert types[f"blk.{layer}.ffn_gate.weight"] == types[f"blk.{layer}.ffn_up.weight"]

    def test_an_alignment_of_the_file_counts(self, quantized, text, tmp_path):
        def aligned(writer):
            write_tokenizer(writer, letters(), [], "gpt-2")
            writer.add_custom_alignment(4096)

        model = write_changed(tmp_path / "aligned.gguf", tokenizer=aligned)
        path, told = quantized(model, "--bpw", 14, "--calibrate", text, out="small.gguf")
        _, planned = quantized(model, "--bpw", 14, "--calibrate", text, out="plan.json")
        weights = sum(int(tensor.n_elements) for tensor in tensors_of(path).values())
        assert path.stat().st_size == told["file_bytes"] == planned["file_bytes"] <= 14 * weights / 8

    @pytest.mark.parametrize("layout", ["bie", "gptq"])
    def test_a_folder_of_the_size(self, library, quantized, source, text, layout):
        words = ["--calibrate", text, "--format", layout]
        bits = 4.4 if layout == "bie" else 11  # GPTQ's embedding and head stay F16
        folder, told = quantized(source[0], "--bpw", bits, *words, out="folder")
        size = sum(path.stat().st_size for path in folder.iterdir())
        weights = 8 * told["bytes"] / told["bits_a_weight"]
        assert 0.85 * bits * weights < 8 * size <= bits * weights and told["file_bytes"] == size
        types = {entry["type"] for entry in told["plan"]}
        assert len(types) > 1 and types <= {"F16", *(f"W{b}G{g}" for b in (2, 3, 4, 5, 6, 8) for g in (32, 64, 128))}
        plan, planned = quantized(source[0], "--bpw", bits, *words, out="plan.json")
        assert size <= planned["file_bytes"] <= bits * weights / 8 and planned["plan"] == told["plan"]
        again, _ = quantized(source[0], "--plan", plan, *words, out="again")
        assert {path.name: path.read_bytes() for path in again.iterdir()} == {
            path.name: path.read_bytes() for path in folder.iterdir()
        }
        assert np.isfinite(library.model(folder).logits(range(20))).all()

    @pytest.mark.parametrize("name", ["tied llama", "gemma3", "qwen2"])
    def test_families(self, quantized, models, text, name):
        path, told = quantized(models(name), "--bpw", 12, "--calibrate", text)
        assert path.stat().st_size == told["file_bytes"]

    @pytest.mark.parametrize(
        ("words", "code", "sentence"),
        [
            (["--size", "70MB"], 2, "--size: needs the text of --calibrate"),
            (["--bpw", "4"], 2, "--bpw: needs the text of --calibrate"),
            (["--bpw", "0.1"], 2, "--bpw"),
            (
                ["--size", "70 miles", "--calibrate", "TEXT"],
                2,
                '--size: expected bytes, as 70MB or 1.5GB, got "70 miles"',
            ),
            (["--size", "-1", "--calibrate", "TEXT"], 2, "--size: expected bytes"),
            (["--size", "nan", "--calibrate", "TEXT"], 2, "--size: expected bytes"),
            (["--size", "9KB", "--calibrate", "TEXT"], 3, "bytes at least, which the smallest plan takes, got 9000"),
            (
                ["--size", "1MB", "--bpw", "4", "--calibrate", "TEXT"],
                2,
                "expected one of --type, --size, --bpw and --plan",
            ),
            (["--size", "1MB", "--fit", "--calibrate", "TEXT"], 2, "--fit: needs --type"),
            (
                ["--size", "1MB", "--calibrate", "TEXT", "--keep", "x=q8_0"],
                3,
                "--keep x: expected the name of a matrix",
            ),
            (["--plan", "nowhere"], 3, "nowhere"),
            (["--plan", "TEXT"], 3, 'expected an object with a list "plan"'),
        ],
    )
    def test_options_that_cannot_be(self, quantize, source, text, tmp_path, words, code, sentence):
        process = quantize(source[0], *(text if word == "TEXT" else word for word in words))
        assert process.returncode == code and sentence in process.stderr, process.stderr
        assert list(tmp_path.iterdir()) == []

    def test_a_plan_wants_a_size(self, quantize, source, tmp_path):
        process = quantize(source[0], "--type", "q8_0", out="plan.json")
        assert process.returncode == 2 and "--out: needs --size or --bpw to write a plan" in process.stderr

    @pytest.mark.parametrize(
        ("plan", "sentence"),
        [
            ([{"name": "blk.0.attn_q.weight", "type": "Q8_0"}], "the plan has no type for the tensor"),
            ([{"name": "blk.9.attn_q.weight", "type": "Q8_0"}], "the plan has no type for the tensor|fits none"),
            ([{"name": "*", "type": "Q8_0"}], 'expected the whole name of a matrix, got "\\*"'),
            ([{"name": "x", "type": "Q9"}], 'expected a type among .*, got "q9"'),
            ([{"name": 3, "type": "Q8_0"}], 'expected a "name" and a "type" in entry 0'),
            ([[[[[]]]]], r'expected a "name" and a "type" in entry 0, got an array'),
            ({}, 'expected an object with a list "plan"'),
            ("DEEP", 'expected an object with a list "plan"'),
        ],
    )
    def test_plans_that_lie(self, quantize, source, tmp_path, plan, sentence):
        path = tmp_path / "plan.json"
        deep = '{"plan": [' + "[" * 200000 + "]" * 200000 + "]}"
        path.write_text(deep if plan == "DEEP" else json.dumps({"plan": plan}))
        process = quantize(source[0], "--plan", path)
        assert process.returncode == 3 and re.search(sentence, process.stderr), process.stderr
        assert [each.name for each in tmp_path.iterdir()] == ["plan.json"]
