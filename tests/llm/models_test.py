"""Logits of small random models: transformers in float32 is the oracle, and no cut of the work changes a bit."""

import json
import os
import subprocess
import sys

import numpy as np
import pytest

pytest.importorskip("transformers", reason="transformers is not installed")

import torch
from llm_library import EXACT, F16, F32, INT8, Q8, Error
from small_models import BITNETS, KINDS, TERNARY_SCALE, VOCABULARY, float_model, opened, write_changed

TOKENS = torch.randint(0, VOCABULARY, (150,), generator=torch.Generator().manual_seed(5)).tolist()


def wanted_logits(model, tokens) -> np.ndarray:
    with torch.no_grad():
        return model(torch.tensor([tokens])).logits[0].numpy()


def expect_close(found, wanted, share=1e-4):
    assert np.abs(found - wanted).max() <= share * np.abs(wanted).max()


@pytest.mark.parametrize("kind", [*KINDS, *BITNETS])
def test_a_family_computes_what_transformers_does(library, models, kind):
    tokens = TOKENS[:40]
    found = library.model(models(kind)).logits(tokens, [23, 17])
    expect_close(found, wanted_logits(float_model(kind), tokens))


@pytest.mark.parametrize("kind", ["llama", "gemma3"])
def test_states_are_those_of_the_last_norm(library, models, kind):
    tokens, model = TOKENS[:40], library.model(models(kind))
    with torch.no_grad():
        wanted = float_model(kind).model(torch.tensor([tokens])).last_hidden_state[0].numpy()
    sequence = model.sequence()
    found = np.concatenate([model.read([(sequence, part)], states=True) for part in (tokens[:23], tokens[23:])])
    expect_close(found, wanted)
    last = model.read([(sequence.fork(), [1]), (sequence, [2])], every=False, states=True)
    assert last.shape == (2, wanted.shape[1]) and not np.array_equal(last[0], last[1])


@pytest.mark.parametrize("dtype", ["F16", "BF16", "Q4_0", "Q4_1", "Q5_1", "Q8_0"])
def test_codes_are_the_floats_they_stand_for(library, models, dtype):
    tokens = TOKENS[:40]
    found = library.model(models("qwen2", dtype)).logits(tokens)
    expect_close(found, wanted_logits(opened(float_model("qwen2"), dtype), tokens))


@pytest.mark.parametrize("dtype", ["Q4_0", "Q8_0"])
def test_int8_is_near_exact(library, models, dtype):
    path, tokens = models("llama", dtype), TOKENS[:40]
    exact = library.model(path).logits(tokens)
    for arithmetic, cache in ((INT8, F32), (EXACT, Q8), (INT8, Q8), (INT8, F16)):
        other = library.model(path, arithmetic, cache=cache).logits(tokens)
        difference = np.abs(exact - other).mean() / np.abs(exact).mean()
        assert 0 < difference < 0.05, (arithmetic, cache)


class TernaryRows(torch.nn.Module):
    """The law of a ternary linear: y = d * (float(D) * s), of 8-bit activations with one step for each row."""

    def __init__(self, weight: torch.Tensor) -> None:
        super().__init__()
        self.numbers = (weight / TERNARY_SCALE).double()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        largest = x.abs().amax(-1, keepdim=True)
        codes = (x * (127 / largest)).round()
        sums = codes.double() @ self.numbers.T
        return (largest / 127) * (sums.float() * TERNARY_SCALE)


@pytest.mark.parametrize("dtype", ["TQ1_0", "TQ2_0"])
@pytest.mark.parametrize("kind", BITNETS)
def test_ternary_tensors_of_one_scale(library, models, kind, dtype):
    path, tokens, twin = models(kind, dtype), TOKENS[:40], float_model(kind)
    exact = library.model(path).logits(tokens)
    expect_close(exact, wanted_logits(twin, tokens))
    for name, module in list(twin.named_modules()):
        if name.endswith("_proj"):
            twin.set_submodule(name, TernaryRows(module.weight.detach()))
    found = library.model(path, INT8, cache=F32).logits(tokens, [23, 17])
    difference = np.abs(found - wanted_logits(twin, tokens)).mean()
    # A code that falls on the other side of a half is all that may differ; rounding itself is far more.
    assert difference < 0.1 * np.abs(found - exact).mean()


@pytest.mark.parametrize("cache", [F32, Q8])
@pytest.mark.parametrize("arithmetic", [EXACT, INT8])
def test_no_cut_of_the_work_changes_a_bit(library, models, arithmetic, cache):
    path = models("llama", "Q4_1")
    model = library.model(path, arithmetic, cache=cache)
    alone = model.logits(TOKENS)
    for part in (1, 7, 64):
        parts = [part] * (len(TOKENS) // part) + [len(TOKENS) % part] * (len(TOKENS) % part > 0)
        assert np.array_equal(model.logits(TOKENS, parts), alone), part
    for threads in (2, 3, 8):
        assert np.array_equal(library.model(path, arithmetic, threads, cache).logits(TOKENS), alone), threads


@pytest.mark.parametrize(
    ("kind", "dtype"), [("gemma2", "Q8_0"), ("bitnet", "TQ2_0"), ("bitnet-b1.58", "TQ1_0"), ("llama", "BF16")]
)
def test_no_cut_changes_a_bit_of_other_families(library, models, kind, dtype):
    path = models(kind, dtype)
    model = library.model(path, INT8)
    alone = model.logits(TOKENS)
    assert np.array_equal(model.logits(TOKENS, [1, 6, 64, 79]), alone)
    assert np.array_equal(library.model(path, INT8, 3).logits(TOKENS, [70, 80]), alone)


@pytest.mark.parametrize("arithmetic", [EXACT, INT8])
def test_every_place_in_a_batch_is_like_being_alone(library, models, arithmetic):
    model = library.model(models("qwen3", "Q8_0"), arithmetic)
    texts = [TOKENS[i : i + 3 + 5 * (i % 4)] for i in range(17)]
    sequences = [model.sequence() for _ in texts]
    first = model.read(list(zip(sequences, texts, strict=True)))
    second = model.read([(s, [i + 1]) for i, s in enumerate(sequences)], every=False)
    at = 0
    for i, text in enumerate(texts):
        alone = model.logits([*text, i + 1], [len(text), 1])
        assert np.array_equal(first[at : at + len(text)], alone[:-1])
        assert np.array_equal(second[i], alone[-1])
        at += len(text)


def test_halves_are_near_floats_and_no_cut_changes_a_bit(library, models):
    path = models("llama", "Q4_1")
    model = library.model(path, EXACT, cache=F16)
    halves = model.logits(TOKENS)
    expect_close(halves, library.model(path, EXACT, cache=F32).logits(TOKENS), 5e-3)
    assert np.array_equal(model.logits(TOKENS, [63, 2, 85]), halves)
    assert np.array_equal(library.model(path, EXACT, 2, F16).logits(TOKENS), halves)


def test_large_biases_of_keys_drown_nothing(library, tmp_path):
    """In the pair of channels that turns slowest they leave the softmax as it is."""

    def biased(tensors):
        for layer in range(2):
            bias = np.zeros((2, 16), np.float32)
            bias[:, 14] = 100
            tensors[f"blk.{layer}.attn_k.bias"] = bias.reshape(32)

    path = write_changed(tmp_path / "a.gguf", biased)
    floats = library.model(path, EXACT, cache=F32).logits(TOKENS)
    codes = library.model(path, EXACT, cache=Q8)
    found = codes.logits(TOKENS)
    assert 0 < np.abs(floats - found).mean() / np.abs(floats).mean() < 0.03
    assert np.array_equal(codes.logits(TOKENS, [1, 70, 79]), found)


def test_forks_share_what_was_read_and_part_ways(library, models):
    model = library.model(models("llama"))
    stem = model.sequence()
    model.read([(stem, TOKENS[:70])])
    forks = [stem.fork() for _ in range(3)]
    together = model.read([(fork, [10 + i, 20]) for i, fork in enumerate(forks)])
    for i in range(3):
        alone = model.logits([*TOKENS[:70], 10 + i, 20], [70, 2])
        assert np.array_equal(together[2 * i : 2 * i + 2], alone[-2:])
    assert (len(stem), len(forks[0])) == (70, 72)
    more = model.read([(stem, TOKENS[70:75])])
    assert np.array_equal(more, model.logits(TOKENS[:75])[70:]), "its forks wrote into pages of their own"


def test_a_cut_sequence_goes_on_as_if_nothing_had_followed(library, models):
    model = library.model(models("llama"))
    sequence = model.sequence()
    model.read([(sequence, TOKENS[:130])])
    sequence.cut(65)
    assert np.array_equal(model.read([(sequence, TOKENS[65:75])]), model.logits(TOKENS[:75])[65:])


ONE_HASH = """
import sys
sys.path.insert(0, sys.argv[1])
import hashlib, json
from llm_library import Library
library = Library(sys.argv[2])
hashes = [
    hashlib.sha256(library.model(path, arithmetic).logits(json.loads(sys.argv[4])).tobytes()).hexdigest()
    for path in sys.argv[3].split("|") for arithmetic in (0, 1)
]
print(json.dumps(hashes))
"""


@pytest.fixture
def hashes(build, root):
    """Of all logits of files, in both arithmetics, by instruction set."""

    def run(paths, tokens):
        arguments = [str(root / "tests/support"), str(build / "src/llm/libbie_llm.so")]
        arguments += ["|".join(map(str, paths)), json.dumps(tokens)]
        found = {}
        for isa in ("", "avx512", "avx512bw", "avxvnni", "avx2", "portable", "reference"):
            process = subprocess.run(
                [sys.executable, "-c", ONE_HASH, *arguments],
                env={**os.environ, "BIE_MAX_ISA": isa},
                capture_output=True,
                text=True,
            )
            if "no instruction set" in process.stderr or "BIE_MAX_ISA" in process.stderr:
                continue  # of another architecture
            assert process.returncode == 0, process.stderr
            found[isa] = json.loads(process.stdout)
        assert len(found) >= 3
        return found

    return run


def test_every_instruction_set_has_the_same_bits(hashes, models):
    kinds = [*(("llama", dtype) for dtype in ("F32", "F16", "BF16", "Q4_1", "Q8_0")), ("gemma2", "Q8_0")]
    kinds += [("gemma3", "Q4_0"), ("bitnet", "TQ1_0"), ("bitnet-b1.58", "TQ2_0")]
    found = hashes([models(*kind) for kind in kinds], TOKENS[:80])
    assert all(of == found["reference"] for of in found.values()), found


def test_a_layer_of_a_released_bitnet_has_the_same_bits_everywhere(hashes, models):
    """2,560 wide, 6,912 inside, 20 heads of 128 over 5: sums as deep as those of BitNet b1.58 2B4T."""
    found = hashes([models("bitnet-b1.58 of 2B4T", "TQ2_0")], TOKENS[:6])
    assert all(of == found["reference"] for of in found.values()), found


class TestRefusals:
    @pytest.fixture
    def model(self, library, models):
        return library.model(models("llama"))

    @pytest.mark.parametrize("token", [-1, VOCABULARY])
    def test_a_token_that_is_none(self, model, token):
        sequence = model.sequence()
        with pytest.raises(Error, match=rf"expected tokens from 0 to {VOCABULARY - 1}, got {token}"):
            model.read([(sequence, [1, token])])
        assert len(sequence) == 0

    def test_a_text_longer_than_the_context(self, model):
        sequence = model.sequence()
        model.read([(sequence, [1] * 500)])
        with pytest.raises(Error, match="at most 512 tokens, the context of the model, got 513"):
            model.read([(sequence, [1] * 13)])
        assert len(sequence) == 500
        model.read([(sequence, [1] * 12)])

    def test_a_sequence_twice(self, model):
        sequence = model.sequence()
        with pytest.raises(Error, match="each sequence once in a pass, got one twice"):
            model.read([(sequence, [1]), (sequence, [2])])

    def test_a_sequence_of_another_model(self, library, models, model):
        other = library.model(models("llama with wide heads"))
        with pytest.raises(Error, match="a sequence of this session, got one of another"):
            model.read([(other.sequence(), [1])])

    def test_nothing_to_read(self, model):
        assert model.read([]).shape == (0, VOCABULARY)

    def test_a_cut_beyond_the_end(self, model):
        with pytest.raises(Error, match="expected a length from 0 to that of the sequence"):
            model.sequence().cut(1)


def test_smollm_says_what_transformers_does(library, smollm, real_twin):
    """Twenty tokens by teacher forcing, and logits."""
    model = library.model(smollm)
    tokens = model.tokenize("<|im_start|>user\nWhat is the boiling point of water?<|im_end|>\n<|im_start|>assistant\n")
    wanted = wanted_logits(real_twin, tokens)
    found = model.logits(tokens)
    assert np.abs(found - wanted).max() < 2e-3
    best = np.sort(wanted, axis=1)[:, -2:]
    clear = best[:, 1] - best[:, 0] > 1e-3
    assert np.array_equal(found.argmax(1)[clear], wanted.argmax(1)[clear])
