"""Exported nets beside the models they came from, on every test image of CIFAR-10.

Usage: PYTHONPATH=python:python/bie-runtime net_equality.py --bie PROGRAM --runtime LIBRARY --data FOLDER [--images N]
       [--only NET,NET] [--bits N,N] [--train N] [--epochs N] [--width N] [--threads N]

VGG-small and ResNet-20 of 8, 4 and 1 bits, trained on the first images, VGG-small of Python with `width` channels in
its first layers. Models of C++ (`bie train`): how many logits of the net differ in any bit from those of `bie eval`.
Models of Python, with torch's BatchNorm and sums: how many codes before the inner layers differ and by how many steps
at most, how many classes differ, and of these how many have two logits within 1e-4; images whose class differs are
named on standard error. FOLDER holds the binary version. Wants what the Python package wants. Prints a table in
Markdown.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import torch
from safetensors.numpy import load_file
from torch import Tensor, nn

RECORD = 3073


def read(path: Path, count: int) -> tuple[np.ndarray, np.ndarray]:
    """Images in 0 to 1 [count, 3, 32, 32] and labels."""
    records = np.fromfile(path, np.uint8, count * RECORD).reshape(-1, RECORD)
    return records[:, 1:].reshape(-1, 3, 32, 32).astype(np.float32) / np.float32(255), records[:, 0]


def less_data(folder: Path, to: Path, images: int) -> None:
    """The same files with fewer images: those that are tested, and a thousand to train with."""
    to.mkdir()
    for i in range(1, 6):
        name = f"data_batch_{i}.bin"
        (to / name).write_bytes((folder / name).read_bytes()[: 200 * RECORD])
    (to / "test_batch.bin").write_bytes((folder / "test_batch.bin").read_bytes()[: images * RECORD])


def cpp_row(a: argparse.Namespace, folder: Path, arch: str, bits: int, images: np.ndarray) -> list[str]:
    import bie_runtime

    def bie(*words) -> None:
        subprocess.run([str(a.bie), "--quiet", *map(str, words)], check=True, stdout=subprocess.DEVNULL)

    model, net, logits = (folder / f"{arch}{bits}.{end}" for end in ("safetensors", "net.bie", "logits"))
    data = f"cifar10:{folder / 'data'}"
    bie("train", "--data", data, "--arch", arch, "--bits", bits, "--epochs", 1, "-o", model)
    bie("eval", model, "--data", data, "--logits", logits)
    bie("export", model, "-o", net)
    mine, to = bie_runtime.Net(net).run(images), load_file(logits)["logits"]
    differ = (mine.view(np.uint32) != to.view(np.uint32)).sum()
    return [f"{differ} of {to.size}"]


def layers_of(bits: int):
    import bie

    return {8: bie.nn.Q8Conv2d, 4: bie.nn.Q4Conv2d, 1: bie.nn.BinaryConv2d}[bits]


class Block(nn.Module):
    """Two convolutions and a shortcut, with a float one where the sizes change."""

    def __init__(self, conv, cin: int, cout: int):
        super().__init__()
        stride = 1 if cin == cout else 2
        self.conv1, self.norm1 = conv(cin, cout, 3, stride=stride, padding=1), nn.BatchNorm2d(cout)
        self.conv2, self.norm2 = conv(cout, cout, 3, padding=1), nn.BatchNorm2d(cout)
        self.act1, self.act2 = nn.PReLU(), nn.PReLU()
        self.past = nn.Identity() if stride == 1 else nn.Conv2d(cin, cout, 1, stride=2)

    def forward(self, x: Tensor) -> Tensor:
        y = self.act1(self.norm1(self.conv1(x)))
        return self.act2(self.norm2(self.conv2(y)) + self.past(x))


def vgg_small(bits: int, first: int) -> nn.Sequential:
    conv, layers, cin = layers_of(bits), [], 3
    for width in (first, 2 * first, 4 * first):
        for i in range(2):
            made = nn.Conv2d(cin, width, 3, padding=1) if cin == 3 else conv(cin, width, 3, padding=1)
            layers += [made, nn.BatchNorm2d(width), nn.PReLU() if bits == 1 else nn.ReLU()]
            layers += [nn.MaxPool2d(2)] if i == 1 else []
            cin = width
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(4 * first * 16, 10))


def resnet20(bits: int, _: int) -> nn.Sequential:
    conv, layers, cin = layers_of(bits), [nn.Conv2d(3, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU()], 16
    for width in (16, 32, 64):
        for _ in range(3):
            layers.append(Block(conv, cin, width))
            cin = width
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 10))


MODELS = {"vgg-small": vgg_small, "resnet20": resnet20}


class Watched(nn.Module):
    """The model, and what its quantised layers read."""

    def __init__(self, model: nn.Module, layers: list[nn.Module]):
        super().__init__()
        self.model, self.seen = model, []
        for layer in layers:
            layer.register_forward_pre_hook(lambda _, inputs: self.seen.append(inputs[0]))

    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        self.seen.clear()
        y = self.model(x)
        return (y, *self.seen)


def codes(x: np.ndarray, layer: nn.Module, bits: int) -> np.ndarray:
    """As docs/spec has them."""
    bias = layer.bias_a.detach().float().numpy().reshape(-1)
    shape = (1, -1) + (1,) * (x.ndim - 2)
    x = x + (bias.reshape(shape) if bias.size else np.float32(0))
    if bits == 1:
        return (x >= 0).astype(np.int8)
    step = np.float32(max(float(layer.scale_a), float(getattr(layer, "eps", 0))))
    high = 127 if bits == 8 else 7
    return np.clip(np.rint(x / step), -high - 1, high).astype(np.int8)


def python_row(a: argparse.Namespace, arch: str, bits: int, train: tuple, images: np.ndarray) -> tuple[list, list]:
    """Cells, and a line for each image whose class differs."""
    import bie_runtime

    import bie

    torch.manual_seed(0)
    model = MODELS[arch](bits, a.width)
    bie.prepare(model)
    optimizer = bie.optim.DiodeMix(model.parameters(), lr=1e-3)
    x, y = torch.from_numpy(train[0]), torch.from_numpy(train[1]).long()
    for step in range(a.epochs * (len(x) // 64)):
        first = step % (len(x) // 64) * 64
        rows = slice(first, first + 64)
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(x[rows]), y[rows]).backward()
        optimizer.step()
    model.eval()
    kinds = (bie.nn.Q8Conv2d, bie.nn.Q4Conv2d, bie.nn.BinaryConv2d)
    layers = [m for m in model.modules() if isinstance(m, kinds)]
    folded = bie_runtime.Net(bie.export(model, x[:2]))
    watched = Watched(model, layers).eval()
    whole = bie_runtime.Net(bie.export(watched, x[:2]))
    all_codes = other_codes = other_classes = close = most = 0
    largest, named = 0.0, []
    for begin in range(0, len(images), 100):
        batch = images[begin : begin + 100]
        with torch.inference_mode():
            wanted = [value.numpy() for value in watched(torch.from_numpy(batch))]
        mine = whole.run(batch)
        logits, to = folded.run(batch), wanted[0]
        assert np.array_equal(logits.view(np.uint32), mine[0].view(np.uint32))
        for layer, ours, theirs in zip(layers, mine[1:], wanted[1:], strict=True):
            all_codes += theirs.size
            p, q = codes(ours.reshape(theirs.shape), layer, bits), codes(theirs, layer, bits)
            apart = p != q
            other_codes += apart.sum()
            if apart.any():
                most = max(most, np.abs(p[apart].astype(int) - q[apart]).max())
        other = logits.argmax(1) != to.argmax(1)
        top = np.sort(to, axis=1)
        other_classes += other.sum()
        close += (other & (top[:, -1] - top[:, -2] < 1e-4)).sum()
        named += [
            f"{arch}, {bits} bits, image {begin + i}: class {to[i].argmax()} becomes {logits[i].argmax()}, "
            f"whose logit is {top[i, -1] - to[i, logits[i].argmax()]:.1e} lower"
            for i in np.flatnonzero(other)
        ]
        largest = max(largest, float(np.abs(logits - to).max()))
    return [f"{other_codes} of {all_codes}", str(most), f"{other_classes}", f"{close}", f"{largest:.1e}"], named


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--bie", type=Path, required=True)
    parser.add_argument("--runtime", type=Path, required=True)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--images", type=int, default=10000)
    parser.add_argument("--only", default=",".join(MODELS))
    parser.add_argument("--bits", default="8,4,1")
    parser.add_argument("--train", type=int, default=1000, help="images that models of Python are trained with")
    parser.add_argument("--epochs", type=int, default=1)
    parser.add_argument("--width", type=int, default=128)
    parser.add_argument("--threads", type=int, default=1)
    a = parser.parse_args()
    os.environ["BIE_RUNTIME_LIBRARY"] = str(a.runtime)
    torch.set_num_threads(a.threads)
    images, _ = read(a.data / "test_batch.bin", a.images)
    train = read(a.data / "data_batch_1.bin", a.train)
    print("| net | bits | C++ logits that differ | Python codes that differ | steps | classes | of these close | by |")
    print("| --- | --- | --- | --- | --- | --- | --- | --- |")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        less_data(a.data, folder / "data", len(images))
        for arch in a.only.split(","):
            for bits in map(int, a.bits.split(",")):
                cells, named = python_row(a, arch, bits, train, images)
                cells = cpp_row(a, folder, arch, bits, images) + cells
                print(f"| {arch} | {bits} | " + " | ".join(cells) + " |", flush=True)
                for line in named:
                    print(line, file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
