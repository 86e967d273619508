"""The readers of pictures against Pillow, pixel by pixel: modes, bit depths, transparency, gamma, orientation, size."""

import io
import struct
import zlib

import numpy as np
import pytest
from net_writer import float_net
from PIL import Image, ImageOps

H, W = 5, 6


def chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def png_bytes(samples: np.ndarray, depth: int, colour: int, *chunks: bytes, interlaced: bool = False) -> bytes:
    """A PNG file of samples [height, width, channels] of `depth` bits, written by the standard's text."""

    def packed(part: np.ndarray) -> bytes:
        rows = b""
        for row in part.reshape(part.shape[0], -1):
            if depth == 16:
                rows += b"\0" + row.astype(">u2").tobytes()
                continue
            bits = np.unpackbits(row.astype(np.uint8)[:, None], axis=1)[:, 8 - depth :]
            rows += b"\0" + np.packbits(bits.reshape(-1)).tobytes()
        return rows

    # Adam7: first row, first column, steps of rows and columns.
    passes = [(0, 0, 8, 8), (0, 4, 8, 8), (4, 0, 8, 4), (0, 2, 4, 4), (2, 0, 4, 2), (0, 1, 2, 2), (1, 0, 2, 1)]
    parts = [samples[y::dy, x::dx] for y, x, dy, dx in passes] if interlaced else [samples]
    height, width = samples.shape[:2]
    head = struct.pack(">IIBBBBB", width, height, depth, colour, 0, 0, int(interlaced))
    body = zlib.compress(b"".join(packed(part) for part in parts if part.size))
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + b"".join(chunks) + chunk(b"IDAT", body) + chunk(b"IEND", b"")


def saved(image: Image.Image, kind: str, **options) -> bytes:
    file = io.BytesIO()
    image.save(file, kind, **options)
    return file.getvalue()


def of_pillow(data: bytes) -> np.ndarray:
    """RGB [height, width, 3] as it is shown, what is transparent on black; the stored samples, whatever their gamma."""
    image = ImageOps.exif_transpose(Image.open(io.BytesIO(data)))
    if image.mode.startswith("I"):
        grey = np.round(np.asarray(image).astype(np.float64) * 255 / 65535).astype(np.uint8)
        return np.repeat(grey[:, :, None], 3, axis=2)
    rgba = np.asarray(image.convert("RGBA")).astype(np.int64)
    return ((rgba[:, :, :3] * rgba[:, :, 3:] + 127) // 255).astype(np.uint8)


def planes(pixels: np.ndarray, channels: int) -> np.ndarray:
    if channels == 1:
        return np.asarray(Image.fromarray(pixels).convert("L"))[None]
    return pixels.transpose(2, 0, 1)


@pytest.fixture
def read(answer, tmp_path):
    """What bie reads: the answers of a net whose outputs are its inputs."""

    def pixels(data: bytes, channels: int, height: int = H, width: int = W) -> np.ndarray:
        count = channels * height * width
        net, file = tmp_path / "same.net.bie", tmp_path / "picture"
        rows = np.eye(count).tolist()
        net.write_bytes(float_net(rows, [0] * count, image=f"{channels},{height},{width}", input="bytes").bytes())
        file.write_bytes(data)
        (found,) = answer("run", net, "--input", file)["logits"]
        return np.array(found).reshape(channels, height, width)

    return pixels


def rng() -> np.random.Generator:
    return np.random.default_rng(7)


def random_image(mode: str) -> Image.Image:
    channels = len(Image.new(mode, (1, 1)).getbands())
    pixels = rng().integers(0, 256, (H, W, channels), dtype=np.uint8)
    return Image.fromarray(pixels.squeeze(), mode)


def palette(transparent: bool) -> Image.Image:
    image = Image.fromarray(rng().integers(0, 5, (H, W), dtype=np.uint8), "P")
    image.putpalette(bytes([255, 0, 0, 0, 255, 0, 0, 0, 255, 9, 80, 200, 250, 250, 3]))
    if transparent:
        image.info["transparency"] = bytes([255, 0, 128, 255, 17])
    return image


def samples(depth: int, channels: int) -> np.ndarray:
    return rng().integers(0, 1 << depth, (H, W, channels))


LINEAR = chunk(b"gAMA", struct.pack(">I", 100000))
FILES = {
    "png bits": lambda: saved(Image.fromarray(rng().integers(0, 2, (H, W)).astype(bool)), "PNG"),
    "png grey": lambda: saved(random_image("L"), "PNG"),
    "png grey and alpha": lambda: saved(random_image("LA"), "PNG"),
    "png colours": lambda: saved(random_image("RGB"), "PNG"),
    "png colours and alpha": lambda: saved(random_image("RGBA"), "PNG"),
    "png palette": lambda: saved(palette(False), "PNG"),
    "png transparent palette": lambda: saved(palette(True), "PNG"),
    "png grey of 2 bits": lambda: png_bytes(samples(2, 1), 2, 0),
    "png grey of 4 bits": lambda: png_bytes(samples(4, 1), 4, 0),
    "png grey of 16 bits": lambda: png_bytes(samples(16, 1), 16, 0),
    "png with a gamma": lambda: png_bytes(samples(8, 3), 8, 2, LINEAR),
    "png of 16 bits with a gamma": lambda: png_bytes(samples(16, 1), 16, 0, LINEAR),
    "png in passes": lambda: png_bytes(samples(8, 3), 8, 2, interlaced=True),
    "png in passes of 16 bits": lambda: png_bytes(samples(16, 1), 16, 0, interlaced=True),
    "png, one transparent grey": lambda: png_bytes(samples(8, 1) // 64, 8, 0, chunk(b"tRNS", struct.pack(">H", 2))),
    "webp": lambda: saved(random_image("RGB"), "WEBP", lossless=True),
    "webp and alpha": lambda: saved(random_image("RGBA"), "WEBP", lossless=True, exact=True),
    "webp with losses": lambda: saved(random_image("RGB"), "WEBP", quality=80),
    "jpeg": lambda: saved(random_image("RGB"), "JPEG", quality=95, subsampling=0),
    "grey jpeg": lambda: saved(random_image("L"), "JPEG", quality=95),
}


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("name", FILES)
def test_pixels_are_those_of_pillow(read, name, channels):
    data = FILES[name]()
    found, wanted = read(data, channels), planes(of_pillow(data), channels)
    # Two builds of a decoder with losses may round apart, and JPEG's own grey is the one before its colours are made.
    apart = {"jpeg": 3, "webp with losses": 2}.get(name, 0)
    assert np.abs(found - wanted).max() <= apart, f"{found}\n{wanted}"


def test_sixteen_bits_of_colours_are_rounded(read):
    """Pillow cuts the lower bits of these."""
    wide = samples(16, 3)
    wide[0, 0] = [16384, 65535, 128]
    found = read(png_bytes(wide, 16, 2), 3)
    assert found[:, 0, 0].tolist() == [64, 255, 0]
    np.testing.assert_array_equal(found, np.round(wide * 255 / 65535).transpose(2, 0, 1))


@pytest.mark.parametrize("kind", ["PNG", "WEBP", "JPEG"])
@pytest.mark.parametrize("orientation", range(1, 9))
def test_a_note_of_the_camera_turns_every_kind(read, kind, orientation):
    exif = Image.Exif()
    exif[0x0112] = orientation
    steps = np.add.outer(np.arange(H) * 20, np.arange(W) * 3).astype(np.uint8)
    image = Image.fromarray(np.repeat(steps[:, :, None], 3, axis=2))
    data = saved(image, kind, exif=exif, **({"lossless": True} if kind == "WEBP" else {}))
    wanted = of_pillow(data)
    height, width = wanted.shape[:2]
    assert (height > width) == (orientation > 4)
    assert np.abs(read(data, 3, height, width) - wanted.transpose(2, 0, 1)).max() <= (1 if kind == "JPEG" else 0)


@pytest.mark.parametrize(
    ("kind", "range_", "byte", "number"),
    [("unit", (0, 1), 1 / 255, None), ("bytes", (0, 255), 1, 7), ("any", None, 1 / 255, 7), ("numbers", None, 1, 7)],
)
def test_the_net_says_what_becomes_of_bytes(command, answer, tmp_path, kind, range_, byte, number):
    net, u8, f32 = (tmp_path / name for name in ("n.net.bie", "u8.npy", "f32.npy"))
    net.write_bytes(float_net(np.eye(4).tolist(), [0] * 4, image="1,2,2", input=kind).bytes())
    np.save(u8, np.array([[0, 30], [120, 255]], np.uint8))
    np.save(f32, np.array([[0, 7], [1, 0.5]], np.float32))
    np.testing.assert_allclose(answer("run", net, "--input", u8)["logits"][0], np.array([0, 30, 120, 255]) * byte, 1e-6)
    said = command("run", net, "--input", u8, u8)
    assert said.stderr.count("info: ") == (0 if kind == "numbers" else 1)
    assert ("divided by 255" in said.stderr) == (byte != 1)
    done = command("run", net, "--input", f32, "--json")
    if number is None:
        assert done.returncode == 3 and "holds the value 7, the model takes 0 to 1" in done.stderr
        assert answer("run", net, "--input", f32, "--white", 7)["logits"][0][1] == 1
    else:
        assert '"logits":[[0.0,7.0,1.0,0.5]]' in done.stdout.replace(" ", "")


@pytest.mark.parametrize(("channels", "wanted"), [(1, 76), (3, 255)])
@pytest.mark.parametrize("kind", ["PNG", "WEBP", "JPEG"])
def test_red_is_one_grey_in_all_files(read, channels, wanted, kind):
    red = Image.new("RGB", (W, H), (255, 0, 0))
    data = saved(red, kind, **({"lossless": True} if kind == "WEBP" else {"quality": 100} if kind == "JPEG" else {}))
    assert np.abs(read(data, channels)[0] - wanted).max() <= (1 if kind == "JPEG" else 0)


def test_a_photo_of_a_phone_of_108_megapixels_is_read(command, tmp_path):
    """12000 x 9000: read at a fraction of its size; a progressive one would take its size in memory."""
    net, photo, slow = (tmp_path / name for name in ("n.net.bie", "large.jpg", "progressive.jpg"))
    count = 3 * H * W
    same = float_net(np.eye(count).tolist(), [0] * count, image=f"3,{H},{W}", input="bytes", fit="stretch")
    net.write_bytes(same.bytes())
    large = Image.new("RGB", (12000, 9000), (200, 100, 50))
    large.save(photo, quality=90)
    done = command("run", net, "--input", photo)
    assert done.returncode == 0, done.stderr
    assert ": 0 (200, 200," in done.stdout or ": 0 (199, 199," in done.stdout, done.stdout
    large.save(slow, quality=90, progressive=True)
    done = command("run", net, "--input", slow)
    assert done.returncode == 3 and "is 9000x12000, at most" in done.stderr
