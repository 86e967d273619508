"""Images a second of `bie train --device cuda` on VGG-small against the same net in PyTorch with AMP, in one run.

python bench/training_gpu.py BIE [--batch 128]: BIE is the built program. Synthetic CIFAR-sized data, SGD with Nesterov
momentum, channels_last. The rival is eager PyTorch under torch.autocast(bfloat16) and again as float32 (TF32
convolutions, torch's default); the median of five intervals. bie's rate is that of its epochs after the first, from two
runs.
"""

from __future__ import annotations

import argparse
import re
import statistics
import subprocess
import tempfile
import time
from pathlib import Path

import torch

TRAIN_IMAGES = 50000


def vgg_small() -> torch.nn.Module:
    layers: list[torch.nn.Module] = []
    channels = 3
    for width in (128, 128, 0, 256, 256, 0, 512, 512, 0):
        if width == 0:
            layers.append(torch.nn.MaxPool2d(2))
            continue
        layers += [torch.nn.Conv2d(channels, width, 3, padding=1, bias=False), torch.nn.BatchNorm2d(width)]
        layers.append(torch.nn.ReLU())
        channels = width
    return torch.nn.Sequential(*layers, torch.nn.Flatten(), torch.nn.Linear(512 * 16, 10))


def rival(batch: int, amp: bool) -> float:
    """Images a second."""
    model = vgg_small().cuda().to(memory_format=torch.channels_last)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9, nesterov=True, weight_decay=5e-4)
    images = torch.rand(TRAIN_IMAGES // 10, 3, 32, 32, device="cuda").to(memory_format=torch.channels_last)
    labels = torch.randint(0, 10, (len(images),), device="cuda")
    rates = []
    for interval in range(6):
        torch.cuda.synchronize()
        start, steps = time.perf_counter(), 100
        for _ in range(steps):
            chosen = torch.randint(0, len(images), (batch,), device="cuda")
            with torch.autocast("cuda", dtype=torch.bfloat16, enabled=amp):
                loss = torch.nn.functional.cross_entropy(model(images[chosen]), labels[chosen])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        torch.cuda.synchronize()
        if interval > 0:
            rates.append(steps * batch / (time.perf_counter() - start))
    return statistics.median(rates)


def write_data(folder: Path) -> None:
    generator = torch.Generator().manual_seed(0)
    for name, count in [(f"data_batch_{i}", TRAIN_IMAGES // 5) for i in range(1, 6)] + [("test_batch", 1000)]:
        records = torch.randint(0, 256, (count, 3073), generator=generator, dtype=torch.uint8)
        records[:, 0] %= 10
        (folder / f"{name}.bin").write_bytes(records.numpy().tobytes())


def ours(program: str, data: str, bits: int, batch: int, arch: str) -> float:
    def seconds(epochs: int) -> float:
        words = ["train", "--data", data, "--arch", arch, "--bits", bits, "--batch", batch, "--epochs", epochs]
        words += ["--optimizer", "sgd", "--augment", "crop-flip", "--device", "cuda"]
        done = subprocess.run([program, *map(str, words)], capture_output=True, text=True, check=True)
        return float(re.search(r", ([\d.]+) s$", done.stdout, re.MULTILINE)[1])

    return 3 * (TRAIN_IMAGES // batch * batch) / (seconds(4) - seconds(1))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("program")
    parser.add_argument("--batch", type=int, default=128)
    parser.add_argument("--arch", default="vgg-small")
    options = parser.parse_args()
    print(f"{torch.cuda.get_device_name()}, torch {torch.__version__}, {options.arch}, batch {options.batch}")
    amp = rival(options.batch, amp=True)
    print(f"{'torch AMP bfloat16':<22} {amp:9.0f} images/s")
    print(f"{'torch float32 (TF32)':<22} {rival(options.batch, amp=False):9.0f} images/s")
    with tempfile.TemporaryDirectory() as folder:
        write_data(Path(folder))
        for bits in (32, 8, 4):
            rate = ours(options.program, f"cifar10:{folder}", bits, options.batch, options.arch)
            print(f"{f'bie train, {bits} bit':<22} {rate:9.0f} images/s, {rate / amp:.2f} of AMP")


if __name__ == "__main__":
    main()
