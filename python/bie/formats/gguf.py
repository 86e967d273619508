"""GGUF, llama.cpp's files: docs/spec/files.md#gguf."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from bie._operators import ops
from bie.errors import ShapeError
from bie.formats.rows import CodedRows
from bie.nn import MPQLinear, WeightOnlyEmbedding


@dataclass(frozen=True, repr=False)
class GgufTensor:
    """A tensor of a file; nothing of it is read before it is asked for.

    Attributes:
        name: as the file has it.
        shape: as torch counts, the contiguous axis last.
        type: ``"F32"``, ``"Q4_1"``, ``"Q6_K"``, ...
        blocks: its bytes, uint8, which the file's map holds.
    """

    name: str
    shape: tuple[int, ...]
    type: str
    blocks: Tensor
    _facts: dict[str, Any] = field(repr=False)

    def __repr__(self) -> str:
        return f"GgufTensor({self.name!r}, {list(self.shape)}, {self.type})"

    @property
    def is_coded(self) -> bool:
        """Whether it holds codes with scales, else plain numbers (or, of a type that is not read, nothing we open)."""
        return self._facts["bits"] > 0

    def __getitem__(self, index: int) -> GgufTensor:
        """One part along the first axis: a matrix of the experts that a file keeps in one tensor."""
        if len(self.shape) < 2:
            raise IndexError(f"{self._facts['what']} is {list(self.shape)}, there are no parts of it")
        count = self.shape[0]
        if not -count <= index < count:
            raise IndexError(f"{self._facts['what']} has {count} parts, there is no part {index}")
        size, index = self.blocks.numel() // count, index % count
        blocks = self.blocks.narrow(0, index * size, size)
        facts = self._facts | {"what": f"{self._facts['what']}, part {index},"}
        return GgufTensor(self.name, self.shape[1:], self.type, blocks, facts)

    def codes(self) -> CodedRows:
        """Its codes, scales and offsets, which are the file's own: no float is rounded.

        Raises:
            ValueError: plain numbers, a type that is not read, NaN or infinity in a scale.
        """
        facts, columns = self._facts, self.shape[-1] if self.shape else 1
        rows = torch.Size(self.shape).numel() // columns
        words, scales, zeros = ops.gguf_codes(self.blocks, facts["what"], self.type, rows, columns)
        zero = facts["zero"]
        return CodedRows(columns, facts["bits"], facts["group_size"], words, scales, None if zero else zeros, zero)

    def open(self) -> Tensor:
        """The numbers in ``shape``: float32 of codes, else in the dtype of the file, as a view of it."""
        if element := self._facts["element"]:
            return self.blocks.view(getattr(torch, element)).view(self.shape)
        return self.codes().open().reshape(self.shape)

    def _matrix(self) -> CodedRows:
        if len(self.shape) != 2:
            raise ShapeError(f"{self._facts['what']}: expected a matrix, got {list(self.shape)}")
        return self.codes()

    def linear(
        self, bias: Tensor | GgufTensor | None = None, *, requires_grad: bool = False, activation: str = "exact"
    ) -> MPQLinear:
        """``y = x . W^T (+ bias)`` with the codes of the file, in evaluation mode.

        Args:
            bias: the tensor of the bias, of floats.
            requires_grad: whether training gives the codes a gradient, as ``bie.optim.DiodeMix`` wants it.
            activation: of the layer: ``"int8"`` for products of 8-bit activations.
        """
        if isinstance(bias, GgufTensor):
            bias = bias.open()
        return self._matrix().linear(bias, requires_grad=requires_grad, activation=activation)

    def embedding(self, padding_idx: int | None = None, *, activation: str = "exact") -> WeightOnlyEmbedding:
        """A table with the codes of the file, in evaluation mode; its ``head()``, whose ``activation`` that is, is the
        linear that shares it.
        """
        return self._matrix().embedding(padding_idx, activation=activation)


@dataclass(frozen=True, repr=False)
class GgufFile:
    """What a GGUF file says and holds: ``file["blk.0.attn_q.weight"].linear()``.

    Attributes:
        metadata: numbers, strings, bools and lists by their keys.
        types: the type of each entry of ``metadata``: ``"uint32"``, ``"array of string"``.
        tensors: by name, in the order of the file.
    """

    path: str
    metadata: dict[str, Any]
    types: dict[str, str]
    tensors: dict[str, GgufTensor]

    def __getitem__(self, name: str) -> GgufTensor:
        try:
            return self.tensors[name]
        except KeyError:
            raise KeyError(f"GGUF file {self.path} has no tensor {name!r}") from None

    def __contains__(self, name: str) -> bool:
        return name in self.tensors

    def __repr__(self) -> str:
        return f"GgufFile({self.path!r}, {len(self.tensors)} tensors)"


def _plain(value: Any, type: str) -> Any:
    if type.endswith("bool"):
        return [bool(v) for v in value] if isinstance(value, list) else bool(value)
    return value


def load_gguf(path: str | os.PathLike) -> GgufFile:
    """Maps a GGUF file of version 2 or 3; its tensors are read when they are asked for.

    Sizes are checked against the file before anything is allocated.

    Raises:
        ValueError: one sentence that names the file and the tensor.

    Example::

        >>> with tempfile.TemporaryDirectory() as folder:
        ...     bie.formats.save_gguf(f"{folder}/a.gguf", {"a.weight": (torch.ones(3, 64), "Q4_0")})
        ...     file = bie.formats.load_gguf(f"{folder}/a.gguf")
        >>> file["a.weight"], file["a.weight"].linear()(torch.ones(1, 64))
        (GgufTensor('a.weight', [3, 64], Q4_0), tensor([[64., 64., 64.]]))
    """
    path = os.fspath(path)
    head, blocks = ops.gguf_read(path)
    facts = json.loads(head)
    pairs = facts["metadata"]
    tensors = {
        t["name"]: GgufTensor(
            *(t["name"], tuple(t["shape"]), t["type"], bytes), t | {"what": f'GGUF file {path}: tensor "{t["name"]}"'}
        )
        for t, bytes in zip(facts["tensors"], blocks, strict=True)
    }
    return GgufFile(
        path,
        {key: _plain(value, type) for key, (type, value) in pairs.items()},
        {key: type for key, (type, _) in pairs.items()},
        tensors,
    )
