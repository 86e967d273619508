"""The data sets of ``python -m bie.train``: what is read, how it is split, what is refused."""

import gzip

import pytest
import torch

from bie.train.data import load


def idx(kind, *shape, data):
    return bytes([0, 0, kind, len(shape)]) + b"".join(size.to_bytes(4, "big") for size in shape) + data


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("train-images-idx3-ubyte", b""),
        ("train-images-idx3-ubyte", b"\x89PNG"),
        ("train-images-idx3-ubyte", idx(8, 1 << 31, 1 << 31, 1 << 31, data=b"")),
        ("train-images-idx3-ubyte", idx(8, 2, 3, 3, data=bytes(17))),
        ("train-images-idx3-ubyte", idx(8, 2, 3, 3, data=bytes(19))),
        ("train-images-idx3-ubyte", idx(13, 2, 3, 3, data=bytes(72))),
        ("train-images-idx3-ubyte.gz", b"no gzip"),
        ("train-images-idx3-ubyte.gz", gzip.compress(idx(8, 2, 3, 3, data=bytes(18)), mtime=0)[:-9]),
        ("train-images-idx3-ubyte.gz", gzip.compress(idx(8, 2, 3, 3, data=bytes(1 << 26)), mtime=0)),
    ],
)
def test_other_files_are_no_images(tmp_path, name, content):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(ValueError, match="is no IDX file of bytes"):
        load(f"mnist:{tmp_path}")


@pytest.mark.parametrize("dot", ["-", "."])
def test_mnist(tmp_path, dot):
    for part, count in (("train", 3), ("t10k", 2)):
        (tmp_path / f"{part}-images{dot}idx3-ubyte").write_bytes(idx(8, count, 2, 4, data=bytes(range(8 * count))))
        packed = gzip.compress(idx(8, count, data=bytes(range(count))))
        (tmp_path / f"{part}-labels{dot}idx1-ubyte.gz").write_bytes(packed)
    found = load(f"mnist:{tmp_path}")
    assert found.train.images.shape == (3, 1, 2, 4) and found.test.labels.tolist() == [0, 1]
    assert torch.equal(found.test.images[1, 0], torch.arange(8.0, 16).view(2, 4) / 255)


@pytest.mark.parametrize(
    ("labels", "sentence"),
    [(idx(8, 2, data=b"\1\12"), "holds the label 10"), (idx(8, 1, data=b"\1"), r"has images \[2, 2, 2\] and labels")],
)
def test_labels_are_looked_at(tmp_path, labels, sentence):
    (tmp_path / "train-images-idx3-ubyte").write_bytes(idx(8, 2, 2, 2, data=bytes(8)))
    (tmp_path / "train-labels-idx1-ubyte").write_bytes(labels)
    with pytest.raises(ValueError, match=sentence):
        load(f"mnist:{tmp_path}")


def record(label):
    return bytes([label]) + bytes([255, 0] * 1536)


def test_cifar10(tmp_path):
    for i in range(1, 6):
        (tmp_path / f"data_batch_{i}.bin").write_bytes(record(i) * 2)
    (tmp_path / "test_batch.bin").write_bytes(record(9))
    found = load(f"cifar10:{tmp_path}")
    assert found.train.labels.tolist() == [1, 1, 2, 2, 3, 3, 4, 4, 5, 5]
    assert found.test.images.shape == (1, 3, 32, 32)
    assert found.test.images[0, 0, 0, :3].tolist() == [1, 0, 1]


@pytest.mark.parametrize(
    ("content", "sentence"),
    [(b"", "are not whole records"), (bytes(3074), "are not whole records"), (record(10), "holds the label 10")],
)
def test_bad_records(tmp_path, content, sentence):
    for name in ("test_batch", *(f"data_batch_{i}" for i in range(1, 6))):
        (tmp_path / f"{name}.bin").write_bytes(content)
    with pytest.raises(ValueError, match=sentence):
        load(f"cifar10:{tmp_path}")


def test_the_digits_are_split_by_class():
    found = load("digits")
    assert len(found.train.labels) == 1437 and len(found.test.labels) == 360
    assert 34 <= int(found.test.labels.bincount().min()) <= int(found.test.labels.bincount().max()) <= 37


def draw(path, size=(4, 3), mode="L", value=100):
    image = pytest.importorskip("PIL.Image", reason="Pillow is not installed")
    path.parent.mkdir(parents=True, exist_ok=True)
    image.new(mode, size, value).save(path)


def test_image_folders(tmp_path):
    for name, count in (("cat", 6), ("dog", 5)):
        for i in range(count):
            draw(tmp_path / name / f"{i}.png", value=10 * i)
    found = load(f"images:{tmp_path}")
    assert found.class_names == ["cat", "dog"] and found.classes == 2 and found.name == tmp_path.name
    assert found.train.labels.tolist() == [0] * 5 + [1] * 4 and found.test.labels.tolist() == [0, 1]
    assert found.test.images.shape == (2, 1, 3, 4)
    assert float(found.test.images[0, 0, 0, 0]) == pytest.approx(40 / 255)
    draw(tmp_path / "cat" / "9.png", mode="RGB", value=(1, 2, 3))
    assert load(f"images:{tmp_path}").train.images.shape == (10, 3, 3, 4)


def test_image_folders_that_are_split(tmp_path):
    for part, count in (("train", 2), ("test", 1)):
        for name in ("a", "b"):
            for i in range(count):
                draw(tmp_path / part / name / f"{i}.png")
    found = load(f"images:{tmp_path}")
    assert found.train.labels.tolist() == [0, 0, 1, 1] and found.test.labels.tolist() == [0, 1]


def test_a_folder_for_validation(tmp_path):
    for part in ("train", "val"):
        for name in ("a", "b"):
            draw(tmp_path / part / name / "0.png")
    found = load(f"images:{tmp_path}")
    assert found.validation is None and len(found.test.labels) == 2 and "has no folder test" in found.notes[0]
    for name in ("a", "b"):
        draw(tmp_path / "test" / name / "0.png", value=7)
    found = load(f"images:{tmp_path}")
    assert len(found.validation.labels) == 2 and float(found.test.images.max()) == pytest.approx(7 / 255)


@pytest.mark.parametrize("names", [("Train", "valid", "TEST"), ("training", "Dev", "testing")])
def test_parts_are_known_by_more_names(tmp_path, names):
    for part, count in zip(names, (3, 2, 1), strict=True):
        for name in ("a", "b"):
            for i in range(count):
                draw(tmp_path / part / name / f"{i}.png")
    draw(tmp_path / "extra" / "a" / "0.png")
    found = load(f"images:{tmp_path}")
    assert [len(part.labels) for part in (found.train, found.validation, found.test)] == [6, 4, 2]
    assert any("left out" in note and "extra" in note for note in found.notes)
    (tmp_path / "val").mkdir()
    with pytest.raises(ValueError, match="has two folders for one part"):
        load(f"images:{tmp_path}")


@pytest.mark.parametrize(("mode", "value", "wanted"), [
    ("I;16", 16384, [64]),
    ("RGBA", (200, 100, 50, 51), [40, 20, 10]),
    ("LA", (200, 51), [40]),
    ("P", 3, None),
])  # fmt: skip
def test_transparent_and_deep_pictures_are_those_of_the_command(tmp_path, mode, value, wanted):
    for name in ("a", "b"):
        for i in range(5):
            draw(tmp_path / name / f"{i}.png", mode=mode, value=value)
    pixel = load(f"images:{tmp_path}").test.images[0, :, 0, 0] * 255
    if wanted is None:
        assert len(pixel) == 3
    else:
        torch.testing.assert_close(pixel, torch.tensor(wanted).float())


def halves(path, turned=None):
    """60 wide, 40 high: the left 30 columns black, the others white."""
    image = pytest.importorskip("PIL.Image", reason="Pillow is not installed")
    picture = image.new("RGB", (60, 40))
    picture.paste((255, 255, 255), (30, 0, 60, 40))
    path.parent.mkdir(parents=True, exist_ok=True)
    exif = image.Exif()
    if turned is not None:
        exif[0x0112] = turned
    picture.save(path, quality=100, exif=exif)


@pytest.mark.parametrize("suffix", ["jpg", "jpeg", "webp", "png"])
@pytest.mark.parametrize("fit", ["crop", "pad", "stretch"])
def test_photos_are_brought_to_a_size(tmp_path, suffix, fit):
    for name in ("a", "b"):
        for i in range(5):
            halves(tmp_path / name / f"{i}.{suffix}")
    found = load(f"images:{tmp_path}", (20, 20), fit)
    image = found.test.images[0]
    assert image.shape == (3, 20, 20) and found.fit == fit
    seen = image.mean(0)
    assert float(seen[10, 3]) < 0.05 and float(seen[10, 16]) > 0.95, "the halves lie side by side"
    assert (float(seen[1, 16]) < 0.05) == (fit == "pad"), "above it is black"


def test_photos_are_turned_as_the_camera_says(tmp_path):
    for name in ("a", "b"):
        for i in range(5):
            halves(tmp_path / name / f"{i}.jpg", turned=6)  # a quarter to the right
    seen = load(f"images:{tmp_path}").test.images[0].mean(0)
    assert seen.shape == (60, 40)
    assert float(seen[15, 20]) < 0.05 and float(seen[45, 20]) > 0.95, "left is above"


def test_sizes_are_of_pictures():
    with pytest.raises(ValueError, match="--size is of pictures, --data is digits"):
        load("digits", (20, 20))


def test_bad_image_folders(tmp_path):
    with pytest.raises(ValueError, match="expected at least 2 class folders, got 0"):
        load(f"images:{tmp_path}")
    draw(tmp_path / "a" / "0.png")
    (tmp_path / "b").mkdir()
    with pytest.raises(ValueError, match=r"holds no \.png, \.jpg, \.jpeg or \.webp file"):
        load(f"images:{tmp_path}")
    draw(tmp_path / "b" / "0.png")
    with pytest.raises(ValueError, match="no class has five"):
        load(f"images:{tmp_path}")
    for i in range(1, 5):
        draw(tmp_path / "b" / f"{i}.png")
    draw(tmp_path / "b" / "5.png", size=(3, 3))
    found = load(f"images:{tmp_path}")
    assert found.test.images.shape == (1, 1, 64, 64) and found.fit == "crop"
    assert found.notes == [f"{tmp_path}: pictures of several sizes are brought to 64x64; --size HxW names another size"]
    (tmp_path / "b" / "5.png").write_bytes(b"no image")
    with pytest.raises(ValueError, match="cannot be read"):
        load(f"images:{tmp_path}")
