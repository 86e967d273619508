"""Folders of PNG files, a folder a class: src/data/image_folder.cpp."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor

_EVERY = 5  # this image of a class, in the order of the names, is for testing
_MOST = 4096  # pixels of a side


class ImageFolder(NamedTuple):
    """(images [n, channels, h, w] in [0, 1], labels) twice, and the names of the classes."""

    train: tuple[Tensor, Tensor]
    test: tuple[Tensor, Tensor]
    classes: list[str]


def _names(folder: Path, folders: bool) -> list[str]:
    def wanted(path: Path) -> bool:
        return path.is_dir() and not path.name.startswith(".") if folders else path.suffix.lower() == ".png"

    return sorted(path.name for path in folder.iterdir() if wanted(path))


def _files(folder: Path) -> tuple[list[str], list[Path], list[int]]:
    """(classes, paths, labels)."""
    classes = _names(folder, folders=True)
    if len(classes) < 2:
        raise ValueError(f"image folder {folder}: holds {len(classes)} class folders, at least 2 are wanted")
    paths: list[Path] = []
    labels: list[int] = []
    for label, name in enumerate(classes):
        names = _names(folder / name, folders=False)
        if not names:
            raise ValueError(f"image folder {folder / name}: holds no .png file")
        paths += [folder / name / file for file in names]
        labels += [label] * len(names)
    return classes, paths, labels


def _read(path: Path) -> Tensor:
    """[channels, h, w] uint8, one channel or three."""
    try:
        from PIL import Image, UnidentifiedImageError
    except ImportError:
        raise ValueError("--data images:DIR wants Pillow") from None
    try:
        with Image.open(path, formats=["PNG"]) as image:
            if max(image.size) > _MOST:
                raise ValueError(f"PNG file {path}: is {image.height}x{image.width}, at most {_MOST} a side is read")
            if image.mode not in ("1", "L", "P", "RGB") or "transparency" in image.info:
                raise ValueError(f"PNG file {path}: is transparent or of 16 bits, which `bie train` reads and this not")
            colour = image.mode in ("P", "RGB")
            pixels = image.convert("RGB" if colour else "L")
            flat = torch.frombuffer(bytearray(pixels.tobytes()), dtype=torch.uint8)
            return flat.view(image.height, image.width, 3 if colour else 1).permute(2, 0, 1)
    except (UnidentifiedImageError, OSError, SyntaxError) as error:
        raise ValueError(f"PNG file {path}: cannot be read: {error}") from None


def _load(paths: list[Path]) -> Tensor:
    """[n, channels, h, w] in [0, 1]: three channels where one image has colour."""
    images = [_read(path) for path in paths]
    size = images[0].shape[1:]
    for path, image in zip(paths, images, strict=True):
        if image.shape[1:] != size:
            own, other = ("x".join(map(str, sides)) for sides in (image.shape[1:], size))
            raise ValueError(f"PNG file {path}: is {own}, {paths[0]} is {other}")
    channels = max(image.size(0) for image in images)
    return torch.stack([image.expand(channels, -1, -1) for image in images]).float() / 255


def load_image_folder(folder: Path) -> ImageFolder:
    """DIR/CLASS/*.png, every fifth image of a class for testing, or DIR/train/CLASS/*.png and DIR/test/CLASS/*.png."""
    if (folder / "train").is_dir() and (folder / "test").is_dir():
        (classes, paths, labels), (others, test_paths, test_labels) = (
            _files(folder / part) for part in ("train", "test")
        )
        if classes != others:
            raise ValueError(f"image folder {folder}: has not the same classes in train and in test")
        images = _load([*paths, *test_paths])
        train, test = images.split([len(paths), len(test_paths)])
        return ImageFolder((train, torch.tensor(labels)), (test, torch.tensor(test_labels)), classes)
    classes, paths, labels = _files(folder)
    seen: Counter[int] = Counter()
    for_test = []
    for label in labels:
        seen[label] += 1
        for_test.append(seen[label] % _EVERY == 0)
    if not any(for_test):
        raise ValueError(f"image folder {folder}: every fifth row of a class is for testing, and no class has five")
    images, truth, test = _load(paths), torch.tensor(labels), torch.tensor(for_test)
    return ImageFolder((images[~test], truth[~test]), (images[test], truth[test]), classes)
