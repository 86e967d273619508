"""Pictures as users have them, read by Pillow: src/formats/picture.cpp."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor

if TYPE_CHECKING:
    from PIL.Image import Image

_FORMATS = ["PNG", "JPEG", "WEBP"]
_MOST = 1 << 14  # pixels of a side
_TURNED = (5, 6, 7, 8)  # EXIF orientations whose rows are shown as columns
_ORIENTATION = 0x0112

FITS = ("crop", "pad", "stretch")


class Facts(NamedTuple):
    """Of a picture as it is shown."""

    height: int
    width: int
    colour: bool


def _opened(path: Path) -> Image:
    try:
        from PIL import Image, UnidentifiedImageError
    except ImportError:
        raise ValueError("--data images:DIR wants Pillow") from None
    try:
        image = Image.open(path, formats=_FORMATS)
    except (UnidentifiedImageError, OSError, SyntaxError, ValueError) as error:
        raise ValueError(f"picture {path}: cannot be read: {error}") from None
    if max(image.size) > _MOST:
        raise ValueError(f"picture {path}: is {image.height}x{image.width}, at most {_MOST} a side is read")
    if image.format == "PNG" and image.mode in ("RGB", "RGBA", "LA") and _bits_of_png(path) == 16:
        raise ValueError(f"PNG file {path}: has 16 bits a colour, of which Pillow reads 8; `bie train` reads all")
    moves = getattr(image, "is_animated", False)
    if moves or image.mode not in ("1", "L", "LA", "P", "PA", "RGB", "RGBA", "I;16", "I;16B", "I"):
        what = "moves" if moves else f"has the colours {image.mode}"
        raise ValueError(f"picture {path}: {what}, which is not read here")
    return image


def _bits_of_png(path: Path) -> int:
    with path.open("rb") as file:
        return file.read(25)[24]


def _opaque(image: Image, channels: int) -> Image:
    """Grey or of three colours, 8 bits; what is transparent shows black."""
    from PIL import Image as images

    if image.mode.startswith("I"):  # 16 bits of grey
        wide = torch.frombuffer(bytearray(image.convert("I").tobytes()), dtype=torch.int32)
        grey = (wide.double() * 255 / 65535).round().to(torch.uint8)
        image = images.frombytes("L", image.size, grey.numpy().tobytes())
    elif image.mode in ("LA", "PA", "RGBA") or "transparency" in image.info:
        rgba = torch.frombuffer(bytearray(image.convert("RGBA").tobytes()), dtype=torch.uint8).view(-1, 4).int()
        rgb = (rgba[:, :3] * rgba[:, 3:] + 127) // 255
        image = images.frombytes("RGB", image.size, rgb.to(torch.uint8).numpy().tobytes())
    return image.convert("L" if channels == 1 else "RGB")


def facts_of(path: Path) -> Facts:
    """Reads the headers alone; ``ValueError``, here and below, with one sentence that names the file."""
    with _opened(path) as image:
        height, width = image.height, image.width
        if image.getexif().get(_ORIENTATION) in _TURNED:
            height, width = width, height
        return Facts(height, width, image.mode in ("P", "PA", "RGB", "RGBA"))


def _scaled(image: Image, size: tuple[int, int], fit: str) -> Image:
    """By a triangle filter that takes in every pixel where it makes smaller."""
    from PIL import Image

    (height, width), (h, w) = size, (image.height, image.width)
    if fit == "pad":
        if h * width > w * height:
            h, w = height, max(1, (w * height + h // 2) // h)
        else:
            h, w = max(1, (h * width + w // 2) // w), width
        padded = Image.new(image.mode, (width, height))
        padded.paste(image.resize((w, h), Image.Resampling.BILINEAR), ((width - w) // 2, (height - h) // 2))
        return padded
    box = (0, 0, w, h)
    if fit == "crop":
        part_h, part_w = h, w
        if h * width > w * height:
            part_h = max(1, (w * height + width // 2) // width)
        else:
            part_w = max(1, (h * width + height // 2) // height)
        left, top = (w - part_w) // 2, (h - part_h) // 2
        box = (left, top, left + part_w, top + part_h)
    return image.resize((width, height), Image.Resampling.BILINEAR, box=box)


def load_picture(path: Path, channels: int, size: tuple[int, int], fit: str) -> Tensor:
    """[channels, h, w] uint8, grey or of three colours, brought to ``size``.

    Pillow's filter rounds otherwise than that of ``bie train``: values of scikit-learn's two photos at 64x64 are 0.14
    of 255 apart on average, and 13 at most.
    """
    from PIL import ImageOps

    try:
        with _opened(path) as image:
            turned = image.getexif().get(_ORIENTATION) in _TURNED
            height, width = size[::-1] if turned else size
            image.draft(image.mode, (2 * width, 2 * height))  # of a JPEG file, to read less
            shown = _opaque(ImageOps.exif_transpose(image), channels)
    except (OSError, SyntaxError) as error:
        raise ValueError(f"picture {path}: cannot be read: {error}") from None
    if (shown.height, shown.width) != size:
        shown = _scaled(shown, size, fit)
    flat = torch.frombuffer(bytearray(shown.tobytes()), dtype=torch.uint8)
    return flat.view(*size, channels).permute(2, 0, 1)
