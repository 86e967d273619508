"""Imported nets of floats beside onnxruntime in float32, one pinned core, one image at a time.

Usage: PYTHONPATH=python/bie-runtime:bench BIE_RUNTIME_LIBRARY=LIBRARY python float_nets.py --bie PROGRAM [--core 0]
       [--only NET,NET] [--rounds 200] [--batch 1]

Prints a table in Markdown: microseconds of the process's own time an image, medians of rounds in which both run by
turns, and their ratio; then by how much the answers differ at most. Weights are untrained, BatchNorms have statistics
of random images. Wants torch, onnx and onnxruntime.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
from rivals.net_runtimes import bie, onnxruntime
from torch import nn


def conv(cin: int, cout: int, kernel: int = 3, stride: int = 1, groups: int = 1, act=nn.ReLU) -> nn.Sequential:
    layers = [nn.Conv2d(cin, cout, kernel, stride, kernel // 2, groups=groups, bias=False), nn.BatchNorm2d(cout)]
    return nn.Sequential(*layers, *([act()] if act else []))


def head(channels: int, classes: int = 10) -> nn.Sequential:
    return nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, classes))


class Residual(nn.Module):
    def __init__(self, body: nn.Module, shortcut: nn.Module | None = None, act: nn.Module | None = None):
        super().__init__()
        self.body, self.shortcut, self.act = body, shortcut or nn.Identity(), act or nn.Identity()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.act(self.body(x) + self.shortcut(x))


class SqueezeExcite(nn.Module):
    def __init__(self, channels: int, few: int, act):
        super().__init__()
        squeeze, excite = nn.Conv2d(channels, few, 1), nn.Conv2d(few, channels, 1)
        self.gate = nn.Sequential(nn.AdaptiveAvgPool2d(1), squeeze, act(), excite, nn.Sigmoid())

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * self.gate(x)


def inverted(cin: int, cout: int, act, stride: int = 1, times: int = 3, few: int = 4) -> nn.Module:
    wide = times * cin
    excite = [SqueezeExcite(wide, few, act)] if few else []
    body = nn.Sequential(
        conv(cin, wide, 1, act=act), conv(wide, wide, 3, stride, wide, act), *excite, conv(wide, cout, 1, act=None)
    )
    return Residual(body) if cin == cout and stride == 1 else body


def basic(cin: int, cout: int, stride: int = 1) -> nn.Module:
    shortcut = None if cin == cout and stride == 1 else conv(cin, cout, 1, stride, act=None)
    return Residual(nn.Sequential(conv(cin, cout, 3, stride), conv(cout, cout, act=None)), shortcut, nn.ReLU())


NETS = {
    "SiLU, squeeze and excite, 3x16x16": (16, lambda: nn.Sequential(
        conv(3, 8, act=nn.SiLU), inverted(8, 8, nn.SiLU), head(8))),
    "the same with ReLU6 and no gate": (16, lambda: nn.Sequential(
        conv(3, 8, act=nn.ReLU6), inverted(8, 8, nn.ReLU6, few=0), inverted(8, 12, nn.ReLU6, 2, few=0), head(12))),
    "residual, 3x16x16": (16, lambda: nn.Sequential(
        conv(3, 8, 7, 2), nn.MaxPool2d(3, 2, 1), basic(8, 8), basic(8, 16, 2), head(16))),
    "EfficientNet-like, 3x64x64": (64, lambda: nn.Sequential(
        conv(3, 16, 3, 2, act=nn.SiLU), inverted(16, 16, nn.SiLU, times=4), inverted(16, 24, nn.SiLU, 2, 4),
        inverted(24, 24, nn.SiLU, times=4, few=8), inverted(24, 40, nn.SiLU, 2, 4, 8), head(40))),
    "ResNet-20, 3x32x32": (32, lambda: nn.Sequential(
        conv(3, 16), *(basic(16, 16) for _ in range(3)), basic(16, 32, 2), *(basic(32, 32) for _ in range(2)),
        basic(32, 64, 2), *(basic(64, 64) for _ in range(2)), head(64))),
}  # fmt: skip


def made(name: str, folder: Path) -> tuple[Path, int]:
    torch.manual_seed(0)
    size, make = NETS[name]
    net = make()
    with torch.no_grad():
        for _ in range(3):
            net(torch.randn(16, 3, size, size))
    path = folder / f"{list(NETS).index(name)}.onnx"
    torch.onnx.export(
        *(net.eval(), (torch.rand(1, 3, size, size),), str(path)),
        input_names=["x"], dynamic_axes={"x": {0: "n"}}, opset_version=17, dynamo=False,
    )  # fmt: skip
    return path, size


def median_us(runs: list, x: np.ndarray, rounds: int) -> list[float]:
    """Of each of `runs`, by turns: a round is as many calls as last 2 ms or so."""
    calls, times = [], [[] for _ in runs]
    for run in runs:
        run(x)
        start = time.process_time()
        run(x)
        calls.append(max(1, int(2e-3 / max(1e-6, time.process_time() - start))))
    for _ in range(rounds):
        for run, count, found in zip(runs, calls, times, strict=True):
            start = time.process_time()
            for _ in range(count):
                run(x)
            found.append((time.process_time() - start) / count)
    return [1e6 * statistics.median(found) / len(x) for found in times]


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--bie", type=Path, required=True)
    parser.add_argument("--core", type=int, default=0)
    parser.add_argument("--only", default="", help="names, or parts of them, with commas in between")
    parser.add_argument("--rounds", type=int, default=200)
    parser.add_argument("--batch", type=int, default=1)
    parser.add_argument("--keep", type=Path, help="a folder for the files of the nets")
    a = parser.parse_args()
    os.sched_setaffinity(0, {a.core})
    torch.set_num_threads(1)
    print("| net | bie | onnxruntime | times |\n| --- | --- | --- | --- |")
    with tempfile.TemporaryDirectory() as temporary:
        folder = a.keep or Path(temporary)
        for name in NETS:
            if not any(part in name for part in a.only.split(",")):
                continue
            path, size = made(name, folder)
            net = path.with_suffix(".net.bie")
            subprocess.run([a.bie, "import", path, "-o", net], check=True, capture_output=True)
            x = np.random.default_rng(1).standard_normal((a.batch, 3, size, size)).astype(np.float32)
            runs = [bie(net, a.batch, size), onnxruntime(path, a.batch, size)]
            ours, (theirs,) = (run(x) for run in runs)
            apart = np.abs(ours - theirs.reshape(ours.shape)).max() / np.abs(theirs).max()
            if apart > 1e-4:
                raise RuntimeError(f"{name}: answers differ by {apart:.1e} of the largest")
            one, other = median_us(runs, x, a.rounds)
            print(f"| {name} | {one:.1f} | {other:.1f} | {one / other:.2f} |", flush=True)


if __name__ == "__main__":
    main()
