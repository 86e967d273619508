"""The data sets of ``python -m bie.train``, split as ``bie train`` splits them: include/bie/data/dataset.h."""

from __future__ import annotations

import dataclasses
import gzip
import math
import zlib
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor

from bie.train.image_folder import load_image_folder

_MOST_BYTES = 1 << 30  # MNIST's images have 47 million
_RECORD = 1 + 3 * 32 * 32  # of CIFAR-10: a label and three planes


class Split(NamedTuple):
    """Images [n, channels, h, w] in [0, 1] and their labels."""

    images: Tensor
    labels: Tensor

    def to(self, device: torch.device) -> Split:
        return Split(self.images.to(device), self.labels.to(device))


@dataclasses.dataclass
class Dataset:
    name: str
    train: Split
    test: Split
    classes: int = 10
    class_names: list[str] = dataclasses.field(default_factory=list)
    validation: Split | None = None
    fit: str | None = None  # of pictures: crop, pad or stretch
    notes: list[str] = dataclasses.field(default_factory=list)


def _idx(folder: Path, name: str) -> Tensor:
    """An IDX file of bytes, .gz or not; ``ValueError`` for another file. Reads what the header says and no more."""
    dotted = name.replace("-idx", ".idx")
    names = (name, f"{name}.gz", dotted, f"{dotted}.gz")
    path = next((folder / other for other in names if (folder / other).exists()), folder / name)
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


def _check_labels(path: Path, labels: Tensor) -> Tensor:
    if int(labels.max()) > 9:
        raise ValueError(f"{path} holds the label {int(labels.max())}, labels are below 10")
    return labels.long()


def _mnist(folder: Path) -> Dataset:
    parts = []
    for part in ("train", "t10k"):
        images, labels = (_idx(folder, f"{part}-{what}-ubyte") for what in ("images-idx3", "labels-idx1"))
        if images.dim() != 3 or labels.shape != images.shape[:1]:
            raise ValueError(f"mnist:{folder}: {part} has images {list(images.shape)} and labels {list(labels.shape)}")
        parts.append(Split(images.float().unsqueeze(1) / 255, _check_labels(folder, labels)))
    sizes = [list(part.images.shape[2:]) for part in parts]
    if sizes[0] != sizes[1]:
        raise ValueError(f"mnist:{folder} has train images of {sizes[0]} and test images of {sizes[1]}")
    return Dataset("mnist", *parts)


def _records(path: Path) -> Tensor:
    """[n, 3073] uint8 of one of CIFAR-10's binary files."""
    data = path.read_bytes()
    if not data or len(data) % _RECORD:
        raise ValueError(f"{path}: its {len(data)} bytes are not whole records of {_RECORD} bytes, as CIFAR-10's are")
    records = torch.frombuffer(bytearray(data), dtype=torch.uint8).view(-1, _RECORD)
    _check_labels(path, records[:, 0])
    return records


def _cifar10(folder: Path) -> Dataset:
    def split(names: list[str]) -> Split:
        records = torch.cat([_records(folder / name) for name in names])
        return Split(records[:, 1:].float().div_(255).view(-1, 3, 32, 32), records[:, 0].long())

    return Dataset("cifar10", split([f"data_batch_{i}.bin" for i in range(1, 6)]), split(["test_batch.bin"]))


def _digits() -> Dataset:
    """The split of tools/make_digits.py, which the command has built in."""
    try:
        from sklearn.datasets import load_digits
        from sklearn.model_selection import train_test_split
    except ImportError:
        raise ValueError("--data digits wants scikit-learn; files are read without it") from None
    found = load_digits()
    images, labels = torch.from_numpy(found.images).float().unsqueeze(1) / 16, torch.from_numpy(found.target).long()
    places = range(len(labels))
    train, test = train_test_split(places, test_size=0.2, random_state=0, stratify=found.target)
    return Dataset("digits", Split(images[train], labels[train]), Split(images[test], labels[test]))


def _images(folder: Path, size: tuple[int, int] | None, fit: str | None) -> Dataset:
    found = load_image_folder(folder, size, fit)
    train, test = Split(*found.train), Split(*found.test)
    validation = None if found.validation is None else Split(*found.validation)
    name, classes = folder.resolve().name, found.classes
    return Dataset(name, train, test, len(classes), classes, validation, found.fit, found.notes)


def load(spec: str, size: tuple[int, int] | None = None, fit: str | None = None) -> Dataset:
    """``digits``, ``mnist:DIR``, ``cifar10:DIR`` or ``images:DIR``; ``ValueError`` for another word or a bad file.

    ``size`` and ``fit`` are of pictures: what they are brought to.
    """
    kind, _, folder = spec.partition(":")
    if kind == "images" and folder:
        return _images(Path(folder), size, fit)
    if size is not None or fit is not None:
        raise ValueError(f"{'--size' if size is not None else '--fit'} is of pictures, --data is {spec}")
    if spec == "digits":
        return _digits()
    read = {"mnist": _mnist, "cifar10": _cifar10}.get(kind)
    if read is None or not folder:
        raise ValueError(f"--data: expected digits, mnist:DIR, cifar10:DIR or images:DIR, got {spec}")
    return read(Path(folder))
