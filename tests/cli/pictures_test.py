"""Folders of photos: JPEG and PNG of any size."""

import io
import os

import numpy as np
import pytest
from PIL import Image
from user_files import striped, write_png

TINY = ["--epochs", "2", "--hidden", "16", "--depth", "1"]


def photo(kind: int, number: int) -> Image.Image:
    """A photo with a warm sky or a cold one, of a size of its own."""
    random = np.random.default_rng(100 * kind + number)
    height, width = 90 + 7 * (number % 5), 120 - 11 * (number % 4)
    pixels = random.integers(0, 90, (height, width, 3))
    pixels[: height // 2, :, 0 if kind else 2] += 140
    return Image.fromarray(pixels.astype(np.uint8))


@pytest.fixture
def camera(tmp_path):
    """A folder of 2 x 100 photos."""
    folder = tmp_path / "photos"
    for kind, name in enumerate(("evening", "morning")):
        (folder / name).mkdir(parents=True)
        for number in range(100):
            suffix = "png" if number % 10 == 0 else ("jpg", "JPEG")[number % 2]
            photo(kind, number).save(folder / name / f"{number}.{suffix}", "PNG" if suffix == "png" else "JPEG")
    return folder


def test_photos_become_a_net(program, tmp_path, camera):
    (camera / "evening" / "notes.txt").write_text("sunset")
    path, net = tmp_path / "sky.safetensors", tmp_path / "sky.net.bie"
    trained = program.run("train", "--data", f"images:{camera}", "--bits", "8", "-o", path, "--epochs", "4")
    assert float(program.accuracy(trained)) > 95
    assert "pictures of several sizes are brought to 64x64; --size HxW" in trained.stderr
    assert "1 entry left out that are no pictures, such as" in trained.stderr
    assert program.accuracy(program.run("eval", path, "--data", f"images:{camera}")) == program.accuracy(trained)
    program.json("export", path, "-o", net)
    asked = [camera / "morning" / "1.JPEG", camera / "evening" / "10.png"]
    said = [program.json("predict", file, *asked)["predictions"] for file in (path, net)]
    assert [[g["class"] for g in p["guesses"][:1]] for p in said[0]] == [["morning"], ["evening"]]
    for one, two in zip(*said, strict=True):
        assert one["guesses"][0] == pytest.approx(two["guesses"][0], abs=1e-5)


@pytest.mark.parametrize("fit", ["crop", "pad", "stretch"])
def test_every_fit_is_kept_in_the_model(program, tmp_path, camera, fit):
    path = tmp_path / "model"
    options = ["--size", "12x20", "--fit", fit, *TINY, "-o", path]
    program.accuracy(program.run("train", "--data", f"images:{camera}", *options))
    model = program.json("inspect", path)["model"]
    assert model["image"] == [3, 12, 20] and model["fit"] == fit


def test_folders_within_folders(program, tmp_path):
    folder = tmp_path / "set"
    for i in range(10):
        for name, upright in (("a", False), ("b", True)):
            write_png(folder / name / f"day{i % 2}" / f"{i}.png", striped(i, upright))
    train = ["train", "--data", f"images:{folder}", *TINY]
    program.refused(program.run(*train), "holds no .png, .jpg", "--nested")
    assert "16 training and 4 test images" in program.run(*train, "--nested").stderr


def jpeg(**options) -> bytes:
    file = io.BytesIO()
    photo(0, 1).save(file, "JPEG", **options)
    return file.getvalue()


def cmyk() -> bytes:
    file = io.BytesIO()
    photo(0, 1).convert("CMYK").save(file, "JPEG")
    return file.getvalue()


@pytest.mark.parametrize(
    ("name", "content", "sentence"),
    [
        ("x.jpg", b"", "cannot be read"),
        ("x.jpg", b"no picture", "cannot be read"),
        ("x.jpg", b"\xff\xd8\xff", "cannot be read"),
        ("x.jpg", jpeg()[:400], "cannot be read"),
        ("x.jpg", jpeg()[:-200], "cannot be read"),
        ("x.jpg", jpeg(progressive=True)[:1500], "cannot be read"),
        ("x.jpg", cmyk(), "CMYK"),
        ("x.jpeg", b"GIF89a" + bytes(50), "cannot be read"),
        ("x.png", b"\x89PNG\r\n\x1a\n", "cannot be read"),
        ("x.jpg", jpeg()[:163] + b"\xff\xff\xff\xff" + jpeg()[167:], None),
    ],
)
def test_what_is_no_picture_is_told(program, camera, name, content, sentence):
    path = camera / "evening" / name
    path.write_bytes(content)
    done = program.run("train", "--data", f"images:{camera}", *TINY)
    if sentence is None:  # damaged: a sentence or a picture, never a crash
        assert done.returncode in (0, 3), done
    else:
        program.refused(done, str(path), sentence)


@pytest.mark.parametrize("size", ["64", "0x8", "8x", "x8", "8x8x3", "99999x8", "-8x8", "8 x8 "])
def test_sizes_are_two_numbers(program, camera, size):
    done = program.run("train", "--data", f"images:{camera}", f"--size={size}", *TINY)
    assert done.returncode == 2 and "is no size like 64x48" in done.stderr


def test_a_pipe_is_no_picture(program, camera):
    os.mkfifo(camera / "evening" / "x.jpg")
    program.refused(program.run("train", "--data", f"images:{camera}", *TINY), "x.jpg", "is not a regular file")


def test_a_model_of_pictures_of_one_size_takes_no_others(program, tmp_path, photos):
    path, other = tmp_path / "model", tmp_path / "other.jpg"
    program.accuracy(program.run("train", "--data", f"images:{photos}", *TINY, "-o", path))
    photo(0, 1).save(other)
    program.refused(program.run("predict", path, other), "other.jpg", "the model takes images of [1, 16, 16]")
