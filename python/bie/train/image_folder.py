"""Folders of pictures, a folder a class: src/data/image_folder.cpp."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor

from bie.train.pictures import facts_of, load_picture

_EVERY = 5  # this image of a class, in the order of the names, is for testing
_LARGEST, _USUAL = 128, 64  # pixels of a side
_PART_NAMES = {  # in any case
    "train": ("train", "training"),
    "validation": ("validation", "valid", "val", "dev"),
    "test": ("test", "testing"),
}
_SUFFIXES = (".png", ".jpg", ".jpeg", ".webp")

Part = tuple[Tensor, Tensor]


class ImageFolder(NamedTuple):
    """(images [n, channels, h, w] in [0, 1], labels) of each part, and the names of the classes."""

    train: Part
    test: Part
    validation: Part | None
    classes: list[str]
    fit: str | None  # how pictures of other sizes were brought to this one; None: all have it
    notes: list[str]


class _Form(NamedTuple):
    """What all pictures have in common, or are brought to."""

    channels: int
    size: tuple[int, int]
    fit: str | None


def _names(folder: Path, folders: bool) -> list[str]:
    def wanted(path: Path) -> bool:
        if path.name.startswith("."):
            return False
        return path.is_dir() if folders else path.suffix.lower() in _SUFFIXES

    return sorted(path.name for path in folder.iterdir() if wanted(path))


def _files(folder: Path) -> tuple[list[str], list[Path], list[int]]:
    """(classes, paths, labels)."""
    classes = _names(folder, folders=True)
    if len(classes) < 2:
        raise ValueError(f"image folder {folder}: expected at least 2 class folders, got {len(classes)}")
    paths: list[Path] = []
    labels: list[int] = []
    for label, name in enumerate(classes):
        names = _names(folder / name, folders=False)
        if not names:
            raise ValueError(f"image folder {folder / name}: holds no .png, .jpg, .jpeg or .webp file")
        paths += [folder / name / file for file in names]
        labels += [label] * len(names)
    return classes, paths, labels


def _form(folder: Path, paths: Sequence[Path], size: tuple[int, int] | None, fit: str | None) -> tuple[_Form, str]:
    """What the pictures are brought to, and a sentence where nobody asked for it."""
    every = [facts_of(path) for path in paths]
    channels = 3 if any(facts.colour for facts in every) else 1
    own = (every[0].height, every[0].width)
    alike = all((facts.height, facts.width) == own for facts in every)
    if size is None and fit is None and alike and max(own) <= _LARGEST:
        return _Form(channels, own, None), ""
    form = _Form(channels, size or (_USUAL, _USUAL), fit or "crop")
    was = f"{own[0]}x{own[1]}" if alike else "several sizes"
    note = f"{folder}: pictures of {was} are brought to {_USUAL}x{_USUAL}; --size HxW names another size"
    return form, "" if size else note


def _load(paths: Sequence[Path], labels: Sequence[int], form: _Form) -> Part:
    images = torch.empty(len(paths), form.channels, *form.size)
    for image, path in zip(images, paths, strict=True):
        image.copy_(load_picture(path, form.channels, form.size, form.fit or "crop"))
    return images.div_(255), torch.tensor(labels)


def _parts(folder: Path) -> tuple[dict[str, Path], list[str]]:
    """The folders of a data set that is split already, none where the folder is one heap; and those beside them."""
    found: dict[str, Path] = {}
    twice, others = "", []
    for name in _names(folder, folders=True):
        part = next((part for part, names in _PART_NAMES.items() if name.lower() in names), None)
        if part is None:
            others.append(name)
        elif part in found:
            twice = twice or f"{found[part].name} and {name}"
        else:
            found[part] = folder / name
    if "train" not in found or len(found) == 1:
        return {}, []
    if twice:
        raise ValueError(f"image folder {folder}: has two folders for one part: {twice}")
    return found, others


def load_image_folder(folder: Path, size: tuple[int, int] | None = None, fit: str | None = None) -> ImageFolder:
    """DIR/CLASS/*, every fifth image of a class for testing, or DIR/train/CLASS/* and DIR/test and DIR/validation (or
    valid, val, dev), of which one is enough.

    Pictures are brought to ``size``; to 64x64 where they differ or are larger than 128.
    """
    parts, beside = _parts(folder)
    if parts:
        files = {part: _files(path) for part, path in parts.items()}
        classes = files["train"][0]
        for part, (others, _, _) in files.items():
            if others != classes:
                raise ValueError(f"image folder {folder}: has not the same classes in train and in {parts[part].name}")
        form, note = _form(folder, [path for _, paths, _ in files.values() for path in paths], size, fit)
        notes = [note] if note else []
        if beside:
            used = ", ".join(path.name for path in parts.values())
            notes.append(f"{folder}: left out beside {used}: {', '.join(beside)}")
        loaded = {part: _load(paths, labels, form) for part, (_, paths, labels) in files.items()}
        if "test" not in loaded:
            loaded["test"] = loaded.pop("validation")
            notes.append(f"{folder} has no folder test: {parts['validation']} is tested with")
        return ImageFolder(loaded["train"], loaded["test"], loaded.get("validation"), classes, form.fit, notes)
    classes, paths, labels = _files(folder)
    seen: Counter[int] = Counter()
    for_test = []
    for label in labels:
        seen[label] += 1
        for_test.append(seen[label] % _EVERY == 0)
    if not any(for_test):
        raise ValueError(f"image folder {folder}: every fifth row of a class is for testing, and no class has five")
    form, note = _form(folder, paths, size, fit)
    images, truth = _load(paths, labels, form)
    test = torch.tensor(for_test)
    return ImageFolder(
        (images[~test], truth[~test]), (images[test], truth[test]), None, classes, form.fit, [note] if note else []
    )
