"""Folders whose linears are random codes as GPTQ, GreenBit and bie write them, and the float models they stand for."""

from __future__ import annotations

import json
from collections.abc import Callable

import numpy as np
import torch
from safetensors.numpy import save_file
from small_models import VOCABULARY, float_model

Tensors = dict[str, np.ndarray]
GROUP = 16


def packed(codes: np.ndarray, bits: int) -> np.ndarray:
    """Codes [k, n] as int32 words [ceil(k * bits / 32), n], the first code of a column in the lowest bits."""
    k, n = codes.shape
    flags = (codes[:, None, :] >> np.arange(bits)[None, :, None] & 1).reshape(k * bits, n)
    flags = np.concatenate([flags, np.zeros((-k * bits % 32, n), flags.dtype)])
    words = (flags.reshape(-1, 32, n).astype(np.uint64) << np.arange(32, dtype=np.uint64)[None, :, None]).sum(1)
    return words.astype(np.uint32).view(np.int32)


def of_gptq(
    bits: int, act_order: bool = False, version: int = 1, lowest: int = 1, symmetric: bool = False, group: int = GROUP
) -> Callable:
    """W = s * (q - z), z from `lowest` on, or in the middle of the codes."""

    def make(rng, k: int, n: int) -> tuple[Tensors, np.ndarray]:
        groups = -(-k // group)
        codes = rng.integers(0, 2**bits, (k, n))
        zeros = np.full((groups, n), 2 ** (bits - 1)) if symmetric else rng.integers(lowest, 2**bits, (groups, n))
        scales = (rng.uniform(0.01, 0.03, (groups, n)) / 2 ** (bits - 4)).astype(np.float16)
        g_idx = (np.arange(k) // group).astype(np.int32)
        if act_order:
            rng.shuffle(g_idx)
        stored = zeros - 1 if version == 1 else zeros
        tensors = {
            "qweight": packed(codes, bits),
            "qzeros": packed(stored.T, bits).T.copy(),
            "scales": scales,
            "g_idx": g_idx,
        }
        return tensors, scales.astype(np.float64)[g_idx] * (codes - zeros[g_idx])

    return make


def of_greenbit(bits: int) -> Callable:
    """Legacy: W = s * q - z, with scales and zeros that are codes of 4 bits themselves."""

    def make(rng, k: int, n: int) -> tuple[Tensors, np.ndarray]:
        groups, shared = k // GROUP, 8
        parts = n // shared
        codes = rng.integers(0, 2**bits, (k, n))
        statistic = rng.integers(0, 256, (groups, parts, shared)).astype(np.uint8)
        half = {
            "qscales_zeros": rng.integers(-8, -1, (groups, parts, 1)),
            "qscales_scales": rng.uniform(0.002, 0.004, (groups, parts, 1)),
            "qzeros_zeros": rng.integers(3, 6, (groups, parts, 1)),
            "qzeros_scales": rng.uniform(0.01, 0.02, (groups, parts, 1)),
        }
        half = {name: value.astype(np.float16) for name, value in half.items()}
        scales = (statistic >> 4).astype(np.float16) - half["qscales_zeros"]
        scales = (scales * half["qscales_scales"]).reshape(groups, n)
        zeros = (statistic & 15).astype(np.float16) - half["qzeros_zeros"]
        zeros = (zeros * half["qzeros_scales"]).reshape(groups, n)
        rows = np.arange(k) // GROUP
        tensors = {"qweight": packed(codes, bits), "qstatistic": statistic, **half, "bias": np.zeros(n, np.float16)}
        return tensors, codes * scales.astype(np.float64)[rows] - zeros.astype(np.float64)[rows]

    return make


def of_permuted_rows(widths: tuple[int, ...]) -> Callable:
    """Layer-mix of one width, channel-mix of several: rows in an order of their own, inputs times a scale."""

    def make(rng, k: int, n: int) -> tuple[Tensors, np.ndarray]:
        share = k // len(widths) // GROUP * GROUP
        rows_of = [share] * (len(widths) - 1) + [k - share * (len(widths) - 1)]
        words, table, codes = [], [], []
        for width, rows in zip(widths, rows_of, strict=True):
            part = rng.integers(0, 2**width, (rows, n))
            for first in range(0, rows, GROUP):
                table += [width, sum(map(len, words))]
                words.append(packed(part[first : first + GROUP], width))
            codes.append(part)
        groups = k // GROUP
        rows = np.arange(k) // GROUP
        order = rng.permutation(k).astype(np.int16)
        scales = rng.uniform(0.01, 0.03, (groups, n)).astype(np.float16)
        zeros = rng.uniform(0, 0.1, (groups, n)).astype(np.float16)
        channel = rng.uniform(0.5, 1.5, (1, 1, k)).astype(np.float16)
        tensors = {
            **{"qweight": np.concatenate(words), "q_perm": order, "scales": scales, "zeros": zeros},
            "channel_scale": channel,
            **({"q_groups": np.array(table, np.int16)} if len(widths) > 1 else {}),
        }
        packed_rows = np.concatenate(codes) * scales.astype(np.float64)[rows] - zeros.astype(np.float64)[rows]
        values = np.empty_like(packed_rows)
        values[order] = packed_rows
        return tensors, values * channel.astype(np.float64).reshape(k, 1)

    return make


FORMATS = {
    "gptq of 4 bits": (of_gptq(4), {"quantize_config.json": {"bits": 4, "group_size": GROUP}}),
    "symmetric gptq of 4 bits": (
        of_gptq(4, symmetric=True, group=32),
        {"quantize_config.json": {"bits": 4, "group_size": 32, "sym": True}},
    ),
    "symmetric gptq of 8 bits": (
        of_gptq(8, symmetric=True, group=32),
        {"quantize_config.json": {"bits": 8, "group_size": 32, "sym": True}},
    ),
    "gptq of 3 bits, act-order": (of_gptq(3, act_order=True), {"quantize_config.json": {"bits": 3, "desc_act": True}}),
    "gptq of 8 bits": (of_gptq(8), {"quantize_config.json": {"bits": 8}}),
    "gptq of 2 bits, version 2": (
        of_gptq(2, version=2),
        {"quantize_config.json": {"bits": 2, "checkpoint_format": "gptq_v2"}},
    ),
    "gptq version 2 with zeros of 0": (
        of_gptq(4, version=2, lowest=0),
        {"quantize_config.json": {"bits": 4, "checkpoint_format": "gptq_v2"}},
    ),
    "greenbit legacy": (of_greenbit(4), {"quantize_config.json": {"bits": 4, "group_size": GROUP}}),
    "greenbit layer-mix": (of_permuted_rows((4,)), {"quantize_config.json": {"group_size": GROUP}}),
    "greenbit channel-mix": (of_permuted_rows((4, 2)), {}),
}


def write_coded_folder(path, name: str, kind: str = "llama", vocabulary: int = VOCABULARY):
    """Codes in all linears of the blocks; returns the float32 model of what they stand for."""
    make, configs = FORMATS[name]
    model, rng = float_model(kind, vocabulary), np.random.default_rng(7)
    model.config.save_pretrained(path)
    state = model.state_dict()
    tensors: Tensors = {}
    for key, value in state.items():
        if key.endswith("_proj.weight"):
            layer, values = make(rng, value.shape[1], value.shape[0])
            stem = key.removesuffix(".weight")
            tensors |= {f"{stem}.{entry}": np.ascontiguousarray(array) for entry, array in layer.items()}
            state[key] = torch.from_numpy(values.T.astype(np.float32))
        elif key != "lm_head.weight" or not model.config.tie_word_embeddings:
            tensors[key] = value.numpy()
    save_file(tensors, path / "model.safetensors")
    for file, config in configs.items():
        (path / file).write_text(json.dumps(config))
    model.load_state_dict(state)
    return model


def write_own_table(path, bits: int = 5):
    """A tied model whose embedding is a table of codes, as `bie.formats.save_weights` writes it; returns its floats."""
    model, rng = float_model("qwen2"), np.random.default_rng(3)
    model.config.save_pretrained(path)
    state = model.state_dict()
    rows, columns = state["model.embed_tokens.weight"].shape
    codes = rng.integers(0, 2**bits, (rows, columns))
    scales = rng.uniform(0.01, 0.03, (rows, columns // GROUP)).astype(np.float16)
    zeros = rng.uniform(0, 0.5, scales.shape).astype(np.float16)
    of_column = np.arange(columns) // GROUP
    values = codes * scales.astype(np.float64)[:, of_column] - zeros.astype(np.float64)[:, of_column]
    state["model.embed_tokens.weight"] = torch.from_numpy(values.astype(np.float32))
    state["lm_head.weight"] = state["model.embed_tokens.weight"]
    name = "model.embed_tokens"
    tensors = {f"{name}.qweight": np.ascontiguousarray(packed(codes.T, bits).T)}
    tensors |= {f"{name}.scales": scales, f"{name}.zeros": zeros}
    tensors |= {key: value.numpy() for key, value in state.items() if key not in (f"{name}.weight", "lm_head.weight")}
    layer = {"bits": bits, "group_size": GROUP, "embedding_dim": columns}
    own = {"format_version": 1, "kind": "weights", "layers": {name: layer}}
    save_file(tensors, path / "model.safetensors", metadata={"bie": json.dumps(own)})
    model.load_state_dict(state)
    return model
