"""Groups of codes in written folders, read by NumPy alone, and the nearest codes of floats."""

from __future__ import annotations

import json
from dataclasses import dataclass

import numpy as np
from safetensors import safe_open
from safetensors.numpy import load_file

TABLE = "model.embed_tokens"


@dataclass
class Codes:
    """A matrix [n, k] of codes [n, k], with scales and zeros [n, groups]; W = s * q - z."""

    bits: int
    group: int
    codes: np.ndarray
    scales: np.ndarray
    zeros: np.ndarray
    whole: np.ndarray | None = None  # as GPTQ has them: z = s * whole

    @property
    def opened(self) -> np.ndarray:
        scales, zeros = (np.repeat(x.astype(np.float64), self.group, 1) for x in (self.scales, self.zeros))
        return scales * self.codes - zeros


def unpacked(words: np.ndarray, bits: int, count: int) -> np.ndarray:
    """Codes [n, count] of rows of int32 words [n, w], dense, the first code in the lowest bits."""
    flags = np.unpackbits(np.ascontiguousarray(words).view(np.uint8), axis=1, bitorder="little")
    return (flags[:, : count * bits].reshape(len(words), count, bits).astype(np.int64) << np.arange(bits)).sum(2)


def layers_of(folder) -> dict[str, dict]:
    """Bits and group_size of each layer of bie's own folders."""
    with safe_open(folder / "model.safetensors", "np") as file:
        return json.loads(file.metadata()["bie"])["layers"]


def codes_of(tensors: dict[str, np.ndarray], stem: str, bits: int, group: int, k: int) -> Codes:
    """The codes of a layer with k inputs; the words of a linear stand in columns, those of the embedding in rows."""
    qweight, scales = tensors[f"{stem}.qweight"], tensors[f"{stem}.scales"]
    assert qweight.dtype == np.int32 and scales.dtype == np.float16
    rows = (lambda array: array) if stem == TABLE else np.transpose
    codes = unpacked(rows(qweight), bits, k)
    assert rows(qweight).shape == (len(codes), -(-k * bits // 32)) and rows(scales).shape == (len(codes), k // group)
    if f"{stem}.qzeros" not in tensors:
        zeros = tensors[f"{stem}.zeros"]
        assert zeros.dtype == np.float16 and zeros.shape == scales.shape
        return Codes(bits, group, codes, rows(scales), rows(zeros))
    assert np.array_equal(tensors[f"{stem}.g_idx"], np.arange(k) // group)
    whole = unpacked(tensors[f"{stem}.qzeros"], bits, len(codes)).T + 1
    return Codes(bits, group, codes, rows(scales), rows(scales).astype(np.float64) * whole, whole)


def all_codes(folder, shapes: dict[str, tuple[int, int]]) -> dict[str, Codes]:
    """The codes of bie's own folder by the names of layers, whose weights have these shapes."""
    tensors = load_file(folder / "model.safetensors")
    return {
        stem: codes_of(tensors, stem, layer["bits"], layer["group_size"], shapes[f"{stem}.weight"][1])
        for stem, layer in layers_of(folder).items()
    }


def _expect_nearest(codes: np.ndarray, wanted: np.ndarray, bits: int) -> None:
    """Two codes are as near where a number lies in the middle between them, as far as float32 tells."""
    most = 2**bits - 1
    assert codes.min() >= 0 and codes.max() <= most
    assert np.abs(codes - np.clip(wanted, 0, most)).max() <= 0.5 + 1e-4


def expect_nearest(found: Codes, weight: np.ndarray) -> None:
    """Scales from the least number of a group to the largest, or, of one bit, its mean size with both signs."""
    groups = weight.astype(np.float32).reshape(len(weight), -1, found.group)
    if found.bits == 1:
        mean = np.cumsum(np.abs(groups), axis=2, dtype=np.float32)[:, :, -1] / np.float32(found.group)
        scales, zeros = 2 * mean, mean
    else:
        low, high = groups.min(2), groups.max(2)
        scales, zeros = (high - low) / np.float32(2**found.bits - 1), -low
    assert np.array_equal(found.scales, scales.astype(np.float16))
    assert np.array_equal(found.zeros, zeros.astype(np.float16))
    wanted = (groups + found.zeros[:, :, None].astype(np.float64)) / found.scales[:, :, None].astype(np.float64)
    _expect_nearest(found.codes, wanted.reshape(weight.shape), found.bits)


def expect_nearest_with_whole_zeros(found: Codes, weight: np.ndarray) -> None:
    """GPTQ's grid goes from the least number of a group, or 0, to the largest, or 0."""
    groups = weight.astype(np.float32).reshape(len(weight), -1, found.group)
    low, high = np.minimum(groups.min(2), 0), np.maximum(groups.max(2), 0)
    scales = ((high - low) / np.float32(2**found.bits - 1)).astype(np.float16)
    assert np.array_equal(found.scales, scales)
    wanted = np.clip(-low / scales.astype(np.float64), 1, 2**found.bits)
    assert np.abs(found.whole - wanted).max() <= 0.5 + 1e-4
    codes = groups / scales[:, :, None].astype(np.float64) + found.whole[:, :, None]
    _expect_nearest(found.codes, codes.reshape(weight.shape), found.bits)
