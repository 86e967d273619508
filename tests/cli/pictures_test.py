"""Folders of photos: JPEG and PNG of any size."""

import io
import os
import re

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


def test_broken_pictures_are_left_out_and_listed(program, camera):
    for i, content in enumerate((b"", b"no picture", jpeg()[:-200], cmyk())):
        (camera / "evening" / f"broken{i}.jpg").write_bytes(content)
    train = ["train", "--data", f"images:{camera}", *TINY]
    program.refused(program.run(*train), "broken0.jpg")
    done = program.run(*train, "--skip-broken")
    assert done.returncode == 0, done
    assert "4 pictures are left out (--skip-broken)" in done.stderr
    for i, why in enumerate(("it is empty", "it is a text", "cannot be read", "CMYK")):
        (line,) = [line for line in done.stderr.splitlines() if f"broken{i}.jpg" in line]
        assert why in line, line
    (counts,) = re.findall(r"(\d+) training and (\d+) test images", done.stderr)
    assert sum(map(int, counts)) == 200
    for file in (camera / "morning").iterdir():
        file.write_bytes(b"")
    program.refused(program.run(*train, "--skip-broken"), "morning")


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


def bright_side(left: bool, number: int) -> Image.Image:
    """A picture that is bright on one side, and brighter above, so that each of its eight positions is another one."""
    random = np.random.default_rng(number)
    pixels = random.integers(0, 60, (40, 56, 3))
    pixels[:, :28] += 120 if left else 0
    pixels[:, 28:] += 0 if left else 120
    pixels[:20] += 60
    return Image.fromarray(pixels.astype(np.uint8))


# Transposes a picture as it is shown into what is stored under an EXIF orientation.
STORED = {
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_90,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_270,
}


def test_the_note_of_a_camera_turns_the_picture(program, tmp_path):
    for left in (False, True):
        (tmp_path / "set" / str(left)).mkdir(parents=True)
        for number in range(20):
            bright_side(left, number).save(tmp_path / "set" / str(left) / f"{number}.jpg", quality=95)
    path = tmp_path / "model"
    train = ["--data", f"images:{tmp_path / 'set'}", "--size", "10x14", "--epochs", "12", "-o", path]
    assert float(program.accuracy(program.run("train", *train))) == 100
    asked, wanted = [], []
    for orientation, turn in STORED.items():
        for left in (False, True):
            exif = Image.Exif()
            exif[0x0112] = orientation
            shown = bright_side(left, 100 + orientation)
            assert shown.transpose(turn).transpose(
                {Image.Transpose.ROTATE_90: Image.Transpose.ROTATE_270,
                 Image.Transpose.ROTATE_270: Image.Transpose.ROTATE_90}.get(turn, turn)
            ) == shown  # fmt: skip
            asked.append(tmp_path / f"{orientation}{left}.jpg")
            shown.transpose(turn).save(asked[-1], quality=95, exif=exif)
            wanted.append(str(left))
    said = program.json("predict", path, *asked, "--top", "1")["predictions"]
    assert [p["guesses"][0]["class"] for p in said] == wanted


def test_webp_is_read(program, tmp_path, camera):
    for name in ("evening", "morning"):
        for file in sorted((camera / name).iterdir())[:50]:
            Image.open(file).save(file.with_suffix(".webp"), lossless=file.stem.endswith("1"))
            file.unlink()
    path = tmp_path / "model"
    trained = program.run("train", "--data", f"images:{camera}", "--bits", "8", "-o", path, "--epochs", "4")
    assert float(program.accuracy(trained)) > 95
    moving = tmp_path / "moving.webp"
    photo(0, 1).save(moving, save_all=True, append_images=[photo(1, 1)])
    program.refused(program.run("predict", path, moving), "moving.webp", "expected one picture, got a moving one")
    cut = tmp_path / "cut.webp"
    cut.write_bytes(next((camera / "evening").glob("*.webp")).read_bytes()[:300])
    program.refused(program.run("predict", path, cut), "cut.webp", "damaged or cut off")


def split_set(folder, parts):
    for part, count in parts.items():
        for i in range(count):
            for name, upright in (("a", False), ("b", True)):
                write_png(folder / part / name / f"{i}.png", striped(i, upright))
    return f"images:{folder}"


@pytest.mark.parametrize("name", ["validation", "val", "valid", "Dev"])
def test_a_folder_for_validation(program, tmp_path, name):
    data = split_set(tmp_path / "set", {"train": 12, name: 4, "test": 6})
    done = program.run("train", "--data", data, *TINY, "--best", "--run", tmp_path / "run")
    assert "24 training, 8 validation and 12 test images" in done.stderr
    assert "kept the weights of epoch" in done.stderr
    log = [line for line in (tmp_path / "run" / "log.jsonl").read_text().splitlines()]
    assert len(log) == 2 and all('"validation_accuracy":' in line for line in log)
    refused = program.run("train", "--data", data, *TINY, "--best", "--validation-share", "0.2")
    program.refused(refused, "the folder has its own validation pictures")
    (tmp_path / "set" / "spare").mkdir()
    assert "spare" in program.run("train", "--data", data, *TINY).stderr
    (tmp_path / "set" / name.swapcase()).mkdir()
    program.refused(program.run("train", "--data", data, *TINY), "has two folders for one part")


def test_validation_stands_in_for_testing(program, tmp_path):
    data = split_set(tmp_path / "set", {"train": 10, "val": 5})
    done = program.run("train", "--data", data, *TINY)
    assert "20 training and 10 test images" in done.stderr and "has no folder test" in done.stderr


@pytest.mark.parametrize("augment", ["rotate", "colour", "crop-flip,rotate,colour"])
def test_augmented_pictures_train(program, camera, augment):
    train = ["train", "--data", f"images:{camera}", "--size", "16x16", "--bits", "8", "--epochs", "6"]
    assert float(program.accuracy(program.run(*train, "--augment", augment))) > 90


def test_tables_are_not_augmented(program, tmp_path):
    table = tmp_path / "t.csv"
    table.write_text("x,y,label\n" + "".join(f"{i % 7},{i % 5},{i % 2}\n" for i in range(60)))
    refused = program.run("train", "--data", f"csv:{table}", "--augment", "rotate")
    program.refused(refused, "is a table, augment is rotate")
