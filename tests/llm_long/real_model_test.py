"""SmolLM2-135M at length: against float32 of transformers, and the same bits however the work is cut."""

import hashlib
import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("transformers", reason="transformers is not installed")

from llm_library import EXACT, F32, INT8, Q8
from real_texts import LICENSES, float_logits, perplexity, texts


@pytest.fixture(scope="module")
def license_tokens(library, smollm) -> list[int]:
    return library.model(smollm).tokenize((LICENSES / "GPL-3").read_text())[:2049]


def test_twenty_texts_of_two_hundred_tokens_by_teacher_forcing(library, smollm, real_twin):
    model = library.model(smollm, EXACT, 2)
    assert len(texts()) == 20
    for text in texts():
        tokens = model.tokenize(text)[:200]
        assert len(tokens) == 200
        wanted, found = float_logits(real_twin, tokens), model.logits(tokens)
        assert np.abs(found - wanted).max() < 2e-3
        best = np.sort(wanted, axis=1)[:, -2:]
        clear = best[:, 1] - best[:, 0] > 1e-3
        assert np.array_equal(found.argmax(1)[clear], wanted.argmax(1)[clear])


@pytest.mark.parametrize("window", [512, 2048])
def test_perplexity(library, smollm, real_twin, license_tokens, window):
    wanted = perplexity(lambda tokens: float_logits(real_twin, tokens), license_tokens, window)
    exact, int8 = (
        perplexity(library.model(smollm, arithmetic, 2).logits, license_tokens, window) for arithmetic in (EXACT, INT8)
    )
    assert exact == pytest.approx(wanted, rel=1e-4)
    assert int8 == pytest.approx(exact, rel=1e-2)


def logits_hash(logits: np.ndarray) -> str:
    return hashlib.sha256(logits.tobytes()).hexdigest()


@pytest.mark.parametrize("arithmetic", [EXACT, INT8])
def test_cuts_threads_and_company_change_no_bit(library, smollm, license_tokens, arithmetic):
    tokens = license_tokens[:600]
    model = library.model(smollm, arithmetic, 2)
    wanted = logits_hash(model.logits(tokens))
    for part in (1, 7, 64, 512):
        parts = [part] * (len(tokens) // part) + [len(tokens) % part] * (len(tokens) % part > 0)
        assert logits_hash(model.logits(tokens, parts)) == wanted, part
    for threads in (1, 3, 8):
        assert logits_hash(library.model(smollm, arithmetic, threads).logits(tokens)) == wanted, threads
    short = tokens[:80]
    alone = logits_hash(model.logits(short))
    others = [license_tokens[100 + 9 * i : 103 + 12 * i] for i in range(16)]
    for place in range(17):
        batch = [*others[:place], short, *others[place:]]
        logits = model.read([(model.sequence(), text) for text in batch])
        first = sum(map(len, batch[:place]))
        assert logits_hash(logits[first : first + 80]) == alone, place


ONE_HASH = """
import hashlib, json, sys
sys.path.insert(0, sys.argv[1])
from llm_library import Library
library, tokens = Library(sys.argv[2]), json.loads(sys.argv[4])
print(json.dumps([
    hashlib.sha256(library.model(sys.argv[3], arithmetic, 2).logits(tokens).tobytes()).hexdigest()
    for arithmetic in (0, 1)
]))
"""


def hashes(root, library_path, model, tokens, isa: str = "") -> list[str] | None:
    """Of int8 and exact logits; nothing where this CPU has no such instruction set."""
    arguments = [str(root / "tests/support"), str(library_path), str(model), json.dumps(tokens)]
    process = subprocess.run(
        [sys.executable, "-c", ONE_HASH, *arguments],
        env={**os.environ, "BIE_MAX_ISA": isa},
        capture_output=True,
        text=True,
    )
    if "no instruction set" in process.stderr or "BIE_MAX_ISA" in process.stderr:
        return None
    assert process.returncode == 0, process.stderr
    return json.loads(process.stdout)


def test_every_instruction_set_has_the_same_bits(build, root, smollm, license_tokens):
    path, tokens = build / "src/llm/libbie_llm.so", license_tokens[:24]
    wanted = hashes(root, path, smollm, tokens, "reference")
    names = ("", "avx512", "avx512bw", "avxvnni", "avx2", "i8mm", "dotprod", "neon", "portable")
    found = {name: hashes(root, path, smollm, tokens, name) for name in names}
    assert sum(each is not None for each in found.values()) >= 3
    assert all(each in (None, wanted) for each in found.values()), found


def test_another_compiler_has_the_same_bits(build, root, smollm, license_tokens):
    other = build.parent / "runtime-clang/src/llm/libbie_llm.so"
    if not other.exists():
        pytest.skip("build/runtime-clang is not there: clang++ is not installed")
    wanted = hashes(root, build / "src/llm/libbie_llm.so", smollm, license_tokens[:100])
    for isa in ("", "avx2", "portable"):
        assert hashes(root, other, smollm, license_tokens[:100], isa) in (None, wanted), isa


def resident() -> int:
    """Bytes."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


@pytest.mark.parametrize("arithmetic, cache", [(INT8, Q8), (EXACT, F32)])
def test_a_thousand_answers_leave_memory_as_it_was(library, models, arithmetic, cache):
    model = library.model(models("llama", "Q8_0"), arithmetic, 2, cache)

    def answer(first: int) -> None:
        sequence, token = model.sequence(), first % 90
        for _ in range(70):
            token = int(model.read([(sequence, [token])], every=False)[0].argmax())
        sequence.fork().cut(3)

    for i in range(100):
        answer(i)
    before = resident()
    for i in range(1000):
        answer(i)
    assert resident() - before < 1 << 20
