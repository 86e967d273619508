"""Attention inside of documents: masks, ends, and on CUDA the attention that takes them."""

from __future__ import annotations

import pytest
import torch

pytest.importorskip("transformers")
from transformers import AutoConfig, AutoModelForCausalLM

from bie.lm.attention import document_attention, document_ends, document_mask, has_document_attention, masks_of

POSITIONS = torch.tensor([[0, 1, 2, 0, 1, 2, 3, 0], [5, 6, 7, 8, 9, 10, 11, 12], [0, 0, 0, 1, 2, 0, 1, 2]])


@pytest.mark.parametrize("window", [None, 1, 2, 100])
def test_a_token_sees_those_before_it_in_its_document(window):
    mask = document_mask(POSITIONS, window)
    assert mask.shape == (3, 1, 8, 8) and mask.dtype == torch.bool
    for row, positions in enumerate(POSITIONS.tolist()):
        document, documents = 0, []
        for i, position in enumerate(positions):
            document += i > 0 and position != positions[i - 1] + 1
            documents.append(document)
        for i in range(8):
            seen = {j for j in range(i + 1) if documents[j] == documents[i] and (window is None or i - j < window)}
            assert set(mask[row, 0, i].nonzero().flatten().tolist()) == seen


def test_ends_are_those_of_documents_and_rows():
    ends = document_ends(POSITIONS)
    assert ends.dtype == torch.int32 and len(ends) == 65
    assert ends[:9].tolist() == [0, 3, 7, 8, 16, 17, 18, 21, 24] and (ends[8:] == 24).all()


def test_more_documents_than_places_double_them():
    assert len(document_ends(torch.zeros(1, 64, dtype=torch.long))) == 65
    ends = document_ends(torch.zeros(5, 13, dtype=torch.long))
    assert len(ends) == 129 and ends[:66].tolist() == list(range(66))


def model_of(kind, **options):
    torch.manual_seed(0)
    sizes = {"hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2, "num_attention_heads": 4}
    sizes |= {"num_key_value_heads": 2, "vocab_size": 50, "max_position_embeddings": 128, "head_dim": 32}
    return AutoModelForCausalLM.from_config(AutoConfig.for_model(kind, **sizes, **options)).eval()


KINDS = [
    ("llama", {}),
    ("mistral", {"sliding_window": 3}),
    ("qwen3", {}),
    ("gemma3_text", {"sliding_window": 3, "layer_types": ["sliding_attention", "full_attention"]}),
]


@pytest.mark.parametrize(("kind", "options"), KINDS)
def test_masks_are_those_that_transformers_finds_itself(kind, options):
    model = model_of(kind, **options)
    ids = torch.randint(0, 50, POSITIONS.shape)
    with torch.no_grad():
        wanted = model(input_ids=ids, position_ids=POSITIONS, use_cache=False).logits
        masks = masks_of(model.config, POSITIONS)
        found = model(input_ids=ids, position_ids=POSITIONS, attention_mask=masks, use_cache=False).logits
    torch.testing.assert_close(found, wanted)


def test_floats_of_32_bits_and_cpus_have_masks():
    model = model_of("llama")
    assert not has_document_attention(model, torch.device("cpu"), torch.bfloat16)
    assert not has_document_attention(model, torch.device("cuda"), torch.float32)
    model.config.attention_dropout = 0.1
    assert not has_document_attention(model, torch.device("cuda"), torch.bfloat16)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize(("kind", "options"), KINDS)
def test_attention_of_documents_is_that_of_masks(kind, options):
    model = model_of(kind, **options).cuda().train()
    positions = POSITIONS.cuda()
    ids = torch.randint(0, 50, POSITIONS.shape, device="cuda")
    assert has_document_attention(model, positions.device, torch.bfloat16)
    grads = []
    for ends in (None, document_ends(positions)):
        model.zero_grad()
        with torch.autocast("cuda", torch.bfloat16):
            if ends is None:
                masks = masks_of(model.config, positions)
                states = model.model(input_ids=ids, position_ids=positions, attention_mask=masks).last_hidden_state
            else:
                with document_attention(model):
                    states = model.model(input_ids=ids, position_ids=positions, ends=ends).last_hidden_state
        states.float().square().sum().backward()
        grads.append([states.float(), *(p.grad.clone() for p in model.parameters() if p.grad is not None)])
    for a, b in zip(*grads, strict=True):
        torch.testing.assert_close(a, b, rtol=0.05, atol=0.05 * float(b.abs().max()))
