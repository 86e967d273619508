"""The two data sets of the examples: scikit-learn's digits, and MNIST from its four IDX files (.gz or not)."""

from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np
import torch
from torch.utils.data import TensorDataset


def digits() -> tuple[TensorDataset, TensorDataset]:
    """(train, test): 1,437 and 360 images [1, 8, 8] in [0, 1]; every fifth one is a test image."""
    from sklearn.datasets import load_digits

    data = load_digits()
    images = torch.from_numpy(data.images).float().unsqueeze(1) / 16
    labels = torch.from_numpy(data.target).long()
    test = torch.arange(len(labels)) % 5 == 0
    return TensorDataset(images[~test], labels[~test]), TensorDataset(images[test], labels[test])


def mnist(folder: Path) -> tuple[TensorDataset, TensorDataset]:
    """(train, test): 60,000 and 10,000 images [1, 28, 28] in [0, 1]."""

    def read(name: str) -> torch.Tensor:
        path = folder / name if (folder / name).exists() else folder / f"{name}.gz"
        data = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
        rank = data[3]
        shape = np.frombuffer(data, ">i4", rank, 4)
        return torch.from_numpy(np.frombuffer(data, np.uint8, offset=4 + 4 * rank).reshape(shape).copy())

    return tuple(
        TensorDataset(
            read(f"{part}-images-idx3-ubyte").float().unsqueeze(1) / 255, read(f"{part}-labels-idx1-ubyte").long()
        )
        for part in ("train", "t10k")
    )


def load(folder: str | None) -> tuple[TensorDataset, TensorDataset]:
    """MNIST where a folder is given, else the digits."""
    return digits() if folder is None else mnist(Path(folder))


@torch.no_grad()
def accuracy(model: torch.nn.Module, data: TensorDataset) -> float:
    """Share of images that the model names rightly, in evaluation; the model goes back to training."""
    model.eval()
    images, labels = data.tensors
    right = sum(int((model(x).argmax(1) == y).sum()) for x, y in zip(images.split(500), labels.split(500), strict=True))
    model.train()
    return right / len(labels)
