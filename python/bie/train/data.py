"""The data sets of ``python -m bie.train``: digits, and MNIST's four IDX files."""

from __future__ import annotations

import gzip
import math
import zlib
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor

_MOST_BYTES = 1 << 30  # MNIST's images have 47 million


class Split(NamedTuple):
    """Images [n, 1, h, w] in [0, 1] and their labels."""

    images: Tensor
    labels: Tensor


def _idx(folder: Path, name: str) -> Tensor:
    """An IDX file of bytes, .gz or not; ``ValueError`` for another file. Reads what the header says and no more."""
    path = folder / name if (folder / name).exists() else folder / f"{name}.gz"
    refusal = ValueError(f"{path} is no IDX file of bytes")
    try:
        with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as file:
            start = file.read(4)
            if len(start) < 4 or start[:3] != b"\0\0\x08" or not 1 <= start[3] <= 3:
                raise refusal
            shape = [int.from_bytes(file.read(4), "big") for _ in range(start[3])]
            wanted = math.prod(shape)
            if not 0 < wanted <= _MOST_BYTES:
                raise refusal
            data = file.read(wanted + 1)
    except (gzip.BadGzipFile, EOFError, zlib.error):
        raise refusal from None
    if len(data) != wanted:
        raise refusal
    return torch.frombuffer(bytearray(data), dtype=torch.uint8).view(shape)


def _digits() -> tuple[Split, Split]:
    try:
        from sklearn.datasets import load_digits
    except ImportError:
        raise ValueError("--data digits wants scikit-learn; mnist:DIR does not") from None
    found = load_digits()
    images, labels = torch.from_numpy(found.images).float().unsqueeze(1) / 16, torch.from_numpy(found.target).long()
    test = torch.arange(len(labels)) % 5 == 0
    return Split(images[~test], labels[~test]), Split(images[test], labels[test])


def load(name: str) -> tuple[Split, Split]:
    """(train, test) of ``digits`` or ``mnist:DIR``; ``ValueError`` for another name."""
    if name == "digits":
        return _digits()
    kind, _, folder = name.partition(":")
    if kind != "mnist" or not folder:
        raise ValueError(f"--data is {name}, digits or mnist:DIR is wanted")
    parts = []
    for part in ("train", "t10k"):
        images, labels = (_idx(Path(folder), f"{part}-{what}-ubyte") for what in ("images-idx3", "labels-idx1"))
        if images.dim() != 3 or images.size(1) != images.size(2) or labels.shape != images.shape[:1]:
            raise ValueError(f"--data {name}: {part} has images {list(images.shape)} and labels {list(labels.shape)}")
        parts.append(Split(images.float().unsqueeze(1) / 255, labels.long()))
    return parts[0], parts[1]
