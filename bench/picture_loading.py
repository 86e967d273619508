"""Photos of a folder read for training, beside torchvision's ImageFolder and DataLoader.

python bench/picture_loading.py build/release/src/cli/bie [--photos 300] [--threads 1]

Wants Pillow and torchvision. Writes JPEG photos of 1600 x 1200 pixels, then reads them in turn, three times: with
`bie train --dry-run`, which reads a data set as training does, once, and keeps it; and with torchvision (Resize, which
averages, CenterCrop, ToTensor), as every epoch does. A time is that of the processes and their children without their
start, photos a second of processor time.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
from PIL import Image

SIZE = 64
LOADER = """
import sys, torch
from torchvision import datasets, transforms
torch.set_num_threads(1)
steps = [transforms.Resize({size}), transforms.CenterCrop({size}), transforms.ToTensor()]
data = datasets.ImageFolder(sys.argv[1], transforms.Compose(steps))
if sys.argv[2] == "read":
    for images, labels in torch.utils.data.DataLoader(data, batch_size=64, num_workers=int(sys.argv[3])):
        pass
"""


def photos(folder: Path, count: int) -> None:
    """Two classes of smooth pictures with some noise, which compress as photos do."""
    random = np.random.default_rng(0)
    for i in range(count):
        coarse = Image.fromarray(random.integers(0, 255, (12, 16, 3), dtype=np.uint8))
        smooth = np.asarray(coarse.resize((1600, 1200), Image.Resampling.BICUBIC), dtype=np.int16)
        noisy = np.clip(smooth + random.integers(-8, 8, smooth.shape), 0, 255).astype(np.uint8)
        path = folder / "ab"[i % 2] / f"{i}.jpg"
        path.parent.mkdir(exist_ok=True)
        Image.fromarray(noisy).save(path, quality=90)


def seconds(*words: object) -> float:
    """Processor time of a process and its children."""
    before = os.times()
    subprocess.run([str(word) for word in words], check=True, capture_output=True)
    after = os.times()
    return after.children_user + after.children_system - before.children_user - before.children_system


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program")
    parser.add_argument("--photos", type=int, default=300)
    parser.add_argument("--threads", type=int, default=1)
    a = parser.parse_args()
    loader = LOADER.format(size=SIZE)
    with tempfile.TemporaryDirectory() as name:
        folder, few = Path(name) / "photos", Path(name) / "few"
        folder.mkdir()
        few.mkdir()
        photos(folder, a.photos)
        photos(few, 10)
        bie = (a.program, "--threads", a.threads, "train", "--dry-run", "--size", f"{SIZE}x{SIZE}", "--data")
        speeds: dict[str, list[float]] = {"bie": [], "torchvision": []}
        for _ in range(3):
            taken = seconds(*bie, f"images:{folder}") - seconds(*bie, f"images:{few}")
            speeds["bie"].append((a.photos - 10) / taken)
            taken = seconds(sys.executable, "-c", loader, folder, "read", a.threads - 1)
            taken -= seconds(sys.executable, "-c", loader, folder, "start", 0)
            speeds["torchvision"].append(a.photos / taken)
    print({name: f"{statistics.median(found):.0f} photos a second" for name, found in speeds.items()})


if __name__ == "__main__":
    main()
