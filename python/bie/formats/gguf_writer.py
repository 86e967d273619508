"""GGUF files, written: docs/spec/files.md#writing."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from bie._operators import ops
from bie.formats.gguf import GgufTensor
from bie.formats.rows import CodedRows, rows_of

#: Types of plain numbers by dtype.
_PLAIN = {
    **{torch.float32: "F32", torch.float16: "F16", torch.bfloat16: "BF16", torch.float64: "F64"},
    **{torch.int8: "I8", torch.int16: "I16", torch.int32: "I32", torch.int64: "I64"},
}
_FLOATS = {"F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16}


def save_gguf(
    path: str | os.PathLike,
    tensors: Mapping[str, Any],
    metadata: Mapping[str, Any] | None = None,
    types: Mapping[str, str] | None = None,
) -> None:
    """Writes a GGUF file of version 3; the file takes its name in one step.

    Args:
        tensors: by name: a tensor in its dtype; a ``GgufTensor`` of another file as it is; ``(source, type)``. A source
            of codes (an ``MPQLinear``, a ``WeightOnlyEmbedding``, a ``CodedRows``) is written as it is, to the bit, and
            refused where the type cannot hold it. A float tensor is rounded to Q4_0, Q4_1, Q5_0, Q5_1, Q8_0, Q1_0,
            Q2_0, TQ2_0 or Q2_K to Q6_K as ggml's reference does, or converted to F32, F16 or BF16.
        metadata: numbers, strings, bools and lists of them, by key. ``general.quantization_version`` is 2 beside blocks
            of codes unless it says otherwise.
        types: of entries of the metadata, as ``GgufFile.types`` says them; else whole numbers are uint32 (lists int32)
            where they fit and floats float32.

    Raises:
        ValueError: one sentence that names the tensor or the key.

    Example::

        >>> layer = bie.nn.MPQLinear(64, 3, w_bit=4, group_size=32, dtype=torch.float16)
        >>> layer.set_weight_data(torch.randn(3, 64))
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     bie.formats.save_gguf(f"{folder}/a.gguf", {"w": (layer, "Q4_1"), "norm": torch.ones(3)})
        ...     file = bie.formats.load_gguf(f"{folder}/a.gguf")
        >>> x = torch.randn(2, 64)
        >>> torch.equal(file["w"].linear()(x), layer(x))
        True
    """
    metadata, types = dict(metadata or {}), dict(types or {})
    parts = [(name, *encoded(name, value)) for name, value in tensors.items()]
    if any(kind not in _PLAIN.values() for _, kind, _, _ in parts):
        metadata.setdefault("general.quantization_version", 2)  # GGUF wants it beside blocks
    described = [(key, *_value(key, value, types.get(key))) for key, value in metadata.items()]
    ops.gguf_write(
        os.fspath(path),
        [key for key, *_ in described],
        [type for _, type, _, _ in described],
        [torch.zeros(0) if numbers is None else numbers for _, _, numbers, _ in described],
        [
            text
            for *_, texts in described
            if texts is not None
            for text in ([texts] if isinstance(texts, str) else texts)
        ],
        [0 if texts is None else -1 if isinstance(texts, str) else len(texts) for *_, texts in described],
        [name for name, *_ in parts],
        [type for _, type, _, _ in parts],
        [size for _, _, shape, _ in parts for size in shape],
        [len(shape) for _, _, shape, _ in parts],
        [blocks for *_, blocks in parts],
    )


def _value(key: str, value: Any, told: str | None) -> tuple[str, Tensor | None, str | list[str] | None]:
    """(type of the value or of a list's elements, its numbers, its texts)"""
    listed = isinstance(value, (list, tuple))
    parts = list(value) if listed else [value]
    kinds = {bool if isinstance(part, bool) else type(part) for part in parts}
    if not kinds <= {bool, int, float, str} or len(kinds - {int}) > 1 or (kinds & {bool, str} and len(kinds) > 1):
        raise ValueError(f"save_gguf: metadata {key!r}: expected a number, a text, a bool or a list, got {value!r:.80}")
    kind = (told or "").removeprefix("array of ") or _kind_of(parts, kinds, listed)
    if kind == "string":
        return kind, None, parts if listed else value
    if kinds & {str}:
        raise ValueError(f"save_gguf: metadata {key!r}: expected {kind}, got a text")
    if kind.startswith("float"):
        numbers = torch.tensor([float(part) for part in parts], dtype=torch.float64)
    else:
        unsigned = kind.startswith("u") or kind == "bool"
        bits = 1 if kind == "bool" else int(kind.lstrip("uint") or 0)
        low, high = (0, 2**bits - 1) if unsigned else (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)
        for part in parts:
            if not low <= part <= high or part != int(part):
                raise ValueError(f"save_gguf: metadata {key!r} holds {part}, which {kind} does not")
        wrapped = [int(part) - (2**64 if part >= 2**63 else 0) for part in parts]
        numbers = torch.tensor(wrapped, dtype=torch.int64)
    return kind, numbers if listed else numbers[0], None


def _kind_of(parts: list[Any], kinds: set[type], listed: bool) -> str:
    if str in kinds:
        return "string"
    if bool in kinds:
        return "bool"
    if float in kinds:
        return "float32"
    low, high = min(parts, default=0), max(parts, default=0)
    if listed:
        return "int32" if low >= -(2**31) and high < 2**31 else "int64"
    if low < 0:
        return "int32" if low >= -(2**31) else "int64"
    return "uint32" if high < 2**32 else "uint64"


def encoded(name: str, value: Any) -> tuple[str, tuple[int, ...], Tensor]:
    """(type, shape, bytes) of what ``save_gguf`` takes as a tensor."""
    what = f"save_gguf: tensor {name!r}"
    if isinstance(value, GgufTensor):
        return value.type, value.shape, value.blocks
    if isinstance(value, Tensor):
        kind = _PLAIN.get(value.dtype)
        if kind is None:
            raise ValueError(f"{what} is {value.dtype}, which GGUF does not have")
        return kind, tuple(value.shape), value.detach().cpu().contiguous().reshape(-1).view(torch.uint8)
    if not (isinstance(value, tuple) and len(value) == 2 and isinstance(value[1], str)):
        raise ValueError(f"{what}: expected a tensor or (source, type), got a {type(value).__name__}")
    source, kind = value
    if isinstance(source, nn.Module):
        source = rows_of(what, source)
    if isinstance(source, CodedRows):
        rows = source if source.zeros is None else _whole(source, kind)
        options = {"zero": rows.zero, "bits": rows.bits, "columns": rows.columns, "group_size": rows.group_size}
        try:
            blocks = ops.gguf_blocks(what, kind, rows.words.contiguous(), rows.scales, rows.zeros, **options)
        except ValueError as error:
            if torch.equal(rows.scales.half().float(), rows.scales) or "would be rounded" not in str(error):
                raise
            raise ValueError(
                f"{error}; bie.convert(model, target, dtype=torch.float16) makes layers that can be written"
            ) from None
        return kind, (rows.rows, rows.columns), blocks
    if not isinstance(source, Tensor) or not source.is_floating_point():
        raise ValueError(f"{what}: expected a float tensor or a layer of codes, got a {type(source).__name__}")
    if kind in _FLOATS:
        return encoded(name, source.to(_FLOATS[kind]))
    return kind, tuple(source.shape), ops.gguf_rounded(source.detach().cpu().float(), what, kind)


#: The zeros of types that have one for all.
_ZEROS = {"Q4_0": 8, "Q8_0": 128, "Q2_0": 1, "TQ2_0": 1}


def _whole(rows: CodedRows, kind: str) -> CodedRows:
    """Float zeros of ``zero * scales`` are the whole zero of a type that has one."""
    zero = _ZEROS.get(kind)
    if zero is None or not torch.equal(rows.zeros, zero * rows.scales):
        return rows
    return CodedRows(rows.columns, rows.bits, rows.group_size, rows.words, rows.scales, None, zero)
