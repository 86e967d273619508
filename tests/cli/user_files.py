"""Files as users bring them: images, tables."""

import struct
import zlib
from pathlib import Path


def write_png(path: Path, rows):
    """8 bits, grey where a pixel is a number, coloured where it is three."""
    coloured = not isinstance(rows[0][0], int)
    lines = (bytes(value for pixel in row for value in pixel) if coloured else bytes(row) for row in rows)

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    header = struct.pack(">IIBBBBB", len(rows[0]), len(rows), 8, 2 if coloured else 0, 0, 0, 0)
    data = zlib.compress(b"".join(b"\0" + line for line in lines))
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", data) + chunk(b"IEND", b""))


def write_idx(path: Path, shape, data: bytes):
    path.write_bytes(struct.pack(f">BBBB{len(shape)}I", 0, 0, 8, len(shape), *shape) + data)


def flower(i: int) -> list[float]:
    """Three measures of a flower of species i % 3, which they tell apart."""
    return [10 * (i % 3) + i % 7, 3 - (i % 3), (i * 5) % 11 / 10]


SPECIES = ["aster", "begonia", "crocus"]


def striped(i: int, upright: bool):
    """A grey image of 16 x 16 with stripes down or across."""
    return [[200 if (x if upright else y) % 4 < 2 else (x * y + i) % 50 for x in range(16)] for y in range(16)]
