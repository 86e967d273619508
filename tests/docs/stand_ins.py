"""Small data sets and files in place of those that the pages name."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from user_files import SPECIES, flower, striped, write_idx, write_png


def rows(label: int, i: int, side: int) -> bytes:
    """A bright row where the label says."""
    return bytes(200 if y == label else (x * y + i) % 60 for y in range(side) for x in range(side))


def mnist(folder: Path) -> None:
    folder.mkdir()
    for stem, count in (("train", 96), ("t10k", 40)):
        labels = bytes((i * 7) % 10 for i in range(count))
        images = b"".join(rows(label, i, 28) for i, label in enumerate(labels))
        write_idx(folder / f"{stem}-images-idx3-ubyte", (count, 28, 28), images)
        write_idx(folder / f"{stem}-labels-idx1-ubyte", (count,), labels)


def cifar10(folder: Path) -> None:
    folder.mkdir()
    records = [bytes([(i * 7) % 10]) + 3 * rows((i * 7) % 10, i, 32) for i in range(40)]
    for number in range(5):
        (folder / f"data_batch_{number + 1}.bin").write_bytes(b"".join(records[8 * number : 8 * number + 8]))
    (folder / "test_batch.bin").write_bytes(b"".join(records[:12]))


def images(folder: Path) -> None:
    for i in range(20):
        write_png(folder / "cat" / f"{i}.png", striped(i, upright=False))
        write_png(folder / "dog" / f"{i}.png", striped(i, upright=True))


def photos(folder: Path) -> None:
    """JPEG files of several sizes: stripes across are cats, stripes down are dogs."""
    from PIL import Image

    for name, upright in (("cat", False), ("dog", True)):
        (folder / name).mkdir(parents=True)
        for i in range(30):
            stripes = [bytes(row) for row in striped(i, upright)]
            picture = Image.frombytes("L", (16, 16), b"".join(stripes)).resize((96 + 8 * (i % 3), 96))
            picture.convert("RGB").save(folder / name / f"{i}.jpg")


def tables(folder: Path) -> None:
    """iris.csv with labels, flowers.csv without."""
    rows = [f"{','.join(map(str, flower(i)))},{SPECIES[i % 3]}" for i in range(60)]
    (folder / "iris.csv").write_text("\n".join(["length,width,hue,species", *rows]) + "\n")
    asked = [",".join(map(str, flower(i))) for i in range(2)]
    (folder / "flowers.csv").write_text("\n".join(["length,width,hue", *asked]) + "\n")


def digit(path: Path) -> None:
    write_png(path, [list(rows(7, 1, 28)[28 * y : 28 * y + 28]) for y in range(28)])


def language_model(path: Path) -> None:
    from small_models import write_model

    path.parent.mkdir(parents=True, exist_ok=True)
    write_model(path, "llama", "Q8_0")


def _served() -> str:
    """The address of a server of a small model, which lives until the process ends."""
    import atexit
    import os

    from serving import Server

    language_model(Path("served.gguf"))
    build = Path(__file__).parents[2] / os.environ.get("BIE_BUILD_DIR", "build/release")
    server = Server(build / "src/cli/bie", Path("served.gguf"))
    atexit.register(server.kill)
    return f"http://127.0.0.1:{server.port}"


def openai_server() -> None:
    """Has openai's clients ask such a server."""
    import openai

    address, client = _served(), openai.OpenAI
    openai.OpenAI = lambda base_url, **rest: client(base_url=address + "/v1", **rest)


def anthropic_server() -> None:
    """Has Anthropic's clients ask such a server."""
    import anthropic

    address, client = _served(), anthropic.Anthropic
    anthropic.Anthropic = lambda base_url, **rest: client(base_url=address, **rest)


def served_model() -> None:
    """model.gguf, and the program of this build where a shell would find it."""
    import os

    language_model(Path("model.gguf"))
    build = Path(__file__).parents[2] / os.environ.get("BIE_BUILD_DIR", "build/release")
    os.environ["PATH"] = f"{build / 'src/cli'}{os.pathsep}{os.environ['PATH']}"


def onnx_net(path: Path) -> None:
    from onnx_models import small_net

    path.write_bytes(small_net().SerializeToString())


def onnx_samples(path: Path) -> None:
    np.save(path, np.random.default_rng(1).standard_normal((8, 3, 12, 12)).astype(np.float32))
