"""The architectures of GGUF that are models of transformers: names of tensors, order of rows, and what Gemma 3 adds."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Family:
    """How an architecture of GGUF is written in transformers.

    Attributes:
        model_type: of the configuration.
        in_pairs: whether the rows of q and k stand in rotary pairs in the file.
        norms: names in a block: GGUF's and those of transformers.
        plus_one: whether the file has 1 + the weight of a norm.
    """

    model_type: str
    in_pairs: bool
    norms: Mapping[str, str]
    plus_one: bool = False


#: Names in a block: GGUF's and those of transformers.
LINEARS = {
    **{f"attn_{part}": f"self_attn.{part}_proj" for part in "qkv"},
    "attn_output": "self_attn.o_proj",
    **{f"ffn_{part}": f"mlp.{part}_proj" for part in ("gate", "up", "down")},
}
_HEAD_NORMS = {"attn_q_norm": "self_attn.q_norm", "attn_k_norm": "self_attn.k_norm"}
_NORMS = {"attn_norm": "input_layernorm", "ffn_norm": "post_attention_layernorm", **_HEAD_NORMS}
_NORMS_OF_GEMMA = {
    **{"attn_norm": "input_layernorm", "post_attention_norm": "post_attention_layernorm"},
    **{"ffn_norm": "pre_feedforward_layernorm", "post_ffw_norm": "post_feedforward_layernorm", **_HEAD_NORMS},
}
FAMILIES = {
    "llama": Family("llama", True, _NORMS),
    "qwen2": Family("qwen2", False, _NORMS),
    "qwen3": Family("qwen3", False, _NORMS),
    "gemma3": Family("gemma3_text", False, _NORMS_OF_GEMMA, plus_one=True),
}
#: GGUF's names of the models of transformers.
ARCHITECTURES = {family.model_type: arch for arch, family in FAMILIES.items()} | {"mistral": "llama"}

#: Gemma 3's where a file says nothing: every sixth layer sees all positions, the others turn by a base of their own.
_PATTERN, _LOCAL_BASE = 6, 10000.0
_BLOCKS_OF_27B = 62  # whose products of q and k are scaled by the width, not by the size of a head


def _scale_of_gemma(blocks: int, width: int, heads: int, head: int) -> int:
    """The number whose root q . k is divided by."""
    return width // heads if blocks == _BLOCKS_OF_27B else head


def facts_of_gemma(config: Any, head: int) -> dict[str, Any]:
    """The entries that Gemma 3 has besides, under GGUF's names."""
    scale = _scale_of_gemma(config.num_hidden_layers, config.hidden_size, config.num_attention_heads, head)
    local = config.rope_parameters["sliding_attention"]
    kinds = config.layer_types
    period = kinds.index("full_attention") + 1 if "full_attention" in kinds else len(kinds) + 1
    wanted = ["full_attention" if (i + 1) % period == 0 else "sliding_attention" for i in range(len(kinds))]
    for wrong, said in [
        (
            config.query_pre_attn_scalar != scale,
            f"query_pre_attn_scalar {config.query_pre_attn_scalar}, expected {scale}",
        ),
        (config.attn_logit_softcapping, f"attn_logit_softcapping {config.attn_logit_softcapping}, expected none"),
        (config.use_bidirectional_attention, "attention in both directions, expected one"),
        (local.get("rope_type", "default") != "default", "scaled rotary positions in its sliding layers"),
        (kinds != wanted, f"layers {kinds}, expected one period of them"),
    ]:
        if wrong:
            raise ValueError(f"save_gguf: the model has {said}, which GGUF's gemma3 has no entry for")
    facts = {"attention.sliding_window": config.sliding_window}
    if period != _PATTERN:
        facts["attention.sliding_window_pattern"] = period
    if local["rope_theta"] != _LOCAL_BASE:
        facts["rope.freq_base_swa"] = float(local["rope_theta"])
    if config.final_logit_softcapping:
        facts["final_logit_softcapping"] = float(config.final_logit_softcapping)
    return facts


def gemma_from_gguf(entry: Callable[..., Any], rope: dict[str, Any], head: int) -> dict[str, Any]:
    """The part of Gemma 3's configuration that tells positions and the layers that see some of them.

    Args:
        entry: ``entry(key, default)`` of the metadata ``gemma3.<key>``; without a default it must be there.
        rope: ``rope_parameters`` of the layers that see all positions.
        head: elements of a head.
    """
    blocks, heads, width = (entry(key) for key in ("block_count", "attention.head_count", "embedding_length"))
    period = entry("attention.sliding_window_pattern", _PATTERN)
    full = [(i + 1) % period == 0 for i in range(blocks)] if isinstance(period, int) else [not part for part in period]
    local = {"rope_type": "default", "rope_theta": float(entry("rope.freq_base_swa", _LOCAL_BASE))}
    return {
        "rope_parameters": {"full_attention": rope, "sliding_attention": local},
        "layer_types": ["full_attention" if whole else "sliding_attention" for whole in full],
        "sliding_window": entry("attention.sliding_window"),
        "query_pre_attn_scalar": _scale_of_gemma(blocks, width, heads, head),
        "final_logit_softcapping": entry("final_logit_softcapping", 0) or None,
    }
