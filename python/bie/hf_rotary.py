"""Rotary positions in the terms of GGUF's metadata and in those of a configuration of transformers.

A scaled position turns the pair i of a head by ``position / (factor_i * base^(2 i / d))``. ``linear`` has one factor,
``yarn`` a ramp of them and a factor of the cosines, and the tensor ``rope_freqs.weight`` lists them, as for Llama 3.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

#: The name of transformers, and the entry under ``rope.scaling``.
_YARN = {"beta_fast": "yarn_beta_fast", "beta_slow": "yarn_beta_slow"}


def from_gguf(entry: Callable[[str, Any], Any], factors: Tensor | None, context: int) -> dict[str, Any]:
    """``rope_parameters`` of transformers.

    Args:
        entry: ``entry(key, default)`` of the metadata ``<architecture>.rope.<key>``.
        factors: the tensor ``rope_freqs.weight``.
        context: positions that the model was made for.

    Raises:
        ValueError: a scaling that transformers has no counterpart of; the end of a sentence.
    """
    kind, factor = entry("scaling.type", "none"), float(entry("scaling.factor", 1.0))
    if kind == "none" and (old := float(entry("scale_linear", 0.0))) not in (0.0, 1.0):  # of older files
        kind, factor = "linear", old
    found: dict[str, Any] = {"rope_theta": float(entry("freq_base", 10000.0)), "rope_type": "default"}
    if factors is not None:
        if kind != "none":
            raise ValueError(f"its rotary positions are scaled by {kind!r} and by rope_freqs.weight, expected one")
        each = [float(value) for value in factors]
        found |= {"rope_type": "longrope", "short_factor": each, "long_factor": each, "factor": 1.0}
        return found | {"attention_factor": 1.0, "original_max_position_embeddings": context}
    if kind == "none" or (kind == "linear" and factor == 1):
        return found
    if kind == "linear":
        return found | {"rope_type": "linear", "factor": factor}
    if kind != "yarn":
        raise ValueError(f"its rotary positions are scaled by {kind!r}, expected 'none', 'linear' or 'yarn'")
    for key, plain in (("scaling.yarn_ext_factor", 1.0), ("scaling.yarn_log_multiplier", 0.0)):
        if float(entry(key, plain)) != plain:
            raise ValueError(f"its rotary positions have a {key} of {entry(key, plain)}, expected {plain}")
    cosines = float(entry("scaling.attn_factor", 1.0)) * float(entry("scaling.yarn_attn_factor", 1.0))
    original = entry("scaling.original_context_length", context)
    found |= {"rope_type": "yarn", "factor": factor, "original_max_position_embeddings": original}
    found |= {name: float(entry(f"scaling.{key}", 0)) for name, key in _YARN.items() if entry(f"scaling.{key}", 0)}
    return found if cosines == 1 else found | {"attention_factor": cosines * _of_cosines(factor)}


def to_gguf(rope: dict[str, Any], head: int, positions: int) -> tuple[dict[str, Any], Tensor | None]:
    """The metadata under ``<architecture>.rope``, and the tensor ``rope_freqs.weight`` or None.

    Args:
        rope: ``rope_parameters`` of transformers.
        head: elements of a head.
        positions: ``max_position_embeddings``.

    Raises:
        ValueError: a scaling that GGUF has no words for; the end of a sentence.
    """
    kind, base = rope.get("rope_type", "default"), float(rope["rope_theta"])
    found: dict[str, Any] = {"freq_base": base}
    if rope.get("partial_rotary_factor", 1.0) != 1:
        raise ValueError(f"turns {rope['partial_rotary_factor']} of each head by its position, expected all of it")
    if kind == "default":
        return found, None
    if kind == "linear":
        return found | {"scaling.type": "linear", "scaling.factor": float(rope["factor"])}, None
    if kind == "llama3":
        return found, _factors_of_llama3(rope, head)
    if kind == "longrope":
        each = rope["short_factor"]
        if each != rope["long_factor"] or rope.get("attention_factor") != 1:
            raise ValueError("has rotary positions of 'longrope' that depend on the length, expected the same factors")
        return found, torch.tensor(each, dtype=torch.float32)
    if kind != "yarn" or not rope.get("truncate", True):
        raise ValueError(f"has rotary positions of {kind!r}, expected 'default', 'linear', 'yarn' or 'llama3'")
    original = rope["original_max_position_embeddings"]
    factor = float(rope.get("factor") or positions / original)
    found |= {"scaling.type": "yarn", "scaling.factor": factor, "scaling.original_context_length": original}
    found |= {f"scaling.{key}": float(rope[name]) for name, key in _YARN.items() if rope.get(name)}
    cosines, whole = rope.get("attention_factor"), rope.get("mscale_all_dim")
    if cosines is None and rope.get("mscale") and whole:
        cosines = _of_cosines(factor, rope["mscale"]) / _of_cosines(factor, whole)
    if cosines is not None:
        found["scaling.attn_factor"] = float(cosines) / _of_cosines(factor)
    return found, None


def _of_cosines(factor: float, share: float = 1.0) -> float:
    """YaRN multiplies cosines and sines by this; Peng et al. 2023, equation 22."""
    return 1.0 if factor <= 1 else 0.1 * share * math.log(factor) + 1.0


def _factors_of_llama3(rope: dict[str, Any], head: int) -> Tensor:
    """Llama 3 divides the angle of each pair by ``factor`` where waves are long and by 1 where they are short."""
    low, high, factor = (float(rope[name]) for name in ("low_freq_factor", "high_freq_factor", "factor"))
    waves = 2 * math.pi * float(rope["rope_theta"]) ** (torch.arange(0, head, 2, dtype=torch.float64) / head)
    share = (rope["original_max_position_embeddings"] / waves - low) / (high - low)
    share = share.clamp(0, 1)  # of the angle as it is
    return (1 / ((1 - share) / factor + share)).float()
