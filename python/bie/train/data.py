"""The data sets of ``python -m bie.train``: digits, and MNIST's four IDX files."""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor


class Split(NamedTuple):
    """Images [n, 1, h, w] in [0, 1] and their labels."""

    images: Tensor
    labels: Tensor


def _idx(folder: Path, name: str) -> Tensor:
    """An IDX file of bytes, .gz or not; ``ValueError`` for another file."""
    path = folder / name if (folder / name).exists() else folder / f"{name}.gz"
    data = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    rank = data[3] if len(data) > 3 else 0
    shape = [int.from_bytes(data[4 + 4 * i : 8 + 4 * i], "big") for i in range(rank)]
    values = torch.frombuffer(bytearray(data), dtype=torch.uint8)[4 + 4 * rank :]
    if data[:3] != b"\0\0\x08" or values.numel() != torch.Size(shape).numel():
        raise ValueError(f"{path} is no IDX file of bytes")
    return values.view(shape)


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
        parts.append(Split(images.float().unsqueeze(1) / 255, labels.long()))
    return parts[0], parts[1]
