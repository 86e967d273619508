"""Folders of BitNet's linears, and transformers' float models that compute what they stand for."""

from __future__ import annotations

import json

import numpy as np
import torch
from safetensors.numpy import save_file
from small_models import VOCABULARY, float_model

#: Ways that a folder states its weights: `linear_class` and `quantization_mode`.
WAYS = {
    "bitlinear": {"linear_class": "bitlinear", "quantization_mode": "offline"},
    "autobitlinear": {"linear_class": "autobitlinear", "quantization_mode": "offline"},
    "online": {"linear_class": "autobitlinear", "quantization_mode": "online"},
}


class RoundedRows(torch.nn.Module):
    """y = W . x of activations in 8 bits, a step for each row."""

    def __init__(self, weight: torch.Tensor) -> None:
        super().__init__()
        self.weight = weight

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        step = x.abs().amax(-1, keepdim=True) / 127
        return torch.nn.functional.linear((x / step).round() * step, self.weight)


def packed(codes: np.ndarray) -> np.ndarray:
    """Codes 0, 1 and 2 of [outputs, inputs] as bytes [outputs / 4, inputs]: a quarter of the outputs in each 2 bits."""
    quarters = codes.reshape(4, -1, codes.shape[1]).astype(np.uint8)
    return quarters[0] | quarters[1] << 2 | quarters[2] << 4 | quarters[3] << 6


def write_ternary_folder(
    path, way: str, kind: str = "llama", rounds_rows: bool = False, vocabulary: int = VOCABULARY, scale=None, **changes
):
    """Random codes in all linears of the blocks; returns the float32 model of them, or one that rounds activations.

    `scale` is that of all linears; without it each has one of its own.
    """
    model, rng = float_model(kind, vocabulary, **changes), np.random.default_rng(9)
    model.config.save_pretrained(path)
    config = json.loads((path / "config.json").read_text())
    config["quantization_config"] = {"quant_method": "bitnet", **WAYS[way]}
    (path / "config.json").write_text(json.dumps(config))
    tensors, state = {}, model.state_dict()
    for key, value in state.items():
        if not key.endswith("_proj.weight"):
            if key != "lm_head.weight" or not model.config.tie_word_embeddings:
                tensors[key] = value.numpy()
            continue
        if way == "online":
            tensors[key] = value.numpy()
            mean = value.abs().mean()
            state[key] = (value / mean).round().clamp(-1, 1) * mean
            continue
        codes, own = rng.integers(0, 3, value.shape), np.float32(scale or rng.uniform(0.1, 0.3))
        tensors[key] = packed(codes)
        stated = own if way == "autobitlinear" else 1 / own
        tensors[key.removesuffix("weight") + "weight_scale"] = np.array([stated], np.float32)
        state[key] = torch.from_numpy((codes - 1).astype(np.float32) * own)
    save_file({name: np.ascontiguousarray(array) for name, array in tensors.items()}, path / "model.safetensors")
    model.load_state_dict(state)
    if rounds_rows:
        for name, module in list(model.named_modules()):
            if name.endswith("_proj"):
                model.set_submodule(name, RoundedRows(module.weight))
    return model
