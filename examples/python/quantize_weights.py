"""The weights of a float net at 2 bits, by round to nearest and by GPTQ: no training, some batches of data.

python examples/python/quantize_weights.py [--data FOLDER_OF_MNIST] [--epochs N] [--bits N]
"""

from __future__ import annotations

import argparse
import copy

import torch
from datasets import accuracy, load
from torch import nn
from torch.utils.data import DataLoader

from bie.quantization import quantize


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", help="folder of MNIST's four IDX files; the digits of scikit-learn without it")
    parser.add_argument("--epochs", type=int, default=10, help="of the float model")
    parser.add_argument("--bits", type=int, default=2, choices=[1, 2, 3, 4, 5, 6, 8])
    arguments = parser.parse_args()

    torch.manual_seed(0)
    data, test = load(arguments.data)
    pixels = data.tensors[0][0].numel()
    model = nn.Sequential(
        *(nn.Flatten(), nn.Linear(pixels, 256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 10))
    )
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    for _ in range(arguments.epochs):
        for x, y in DataLoader(data, batch_size=64, shuffle=True):
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(x), y).backward()
            optimizer.step()
    print(f"float: test accuracy {100 * accuracy(model, test):.2f} %")

    images = data.tensors[0][:1024].split(128)
    for method in ("nearest", "gptq"):
        options = {"bits": arguments.bits, "group_size": 64}
        report = quantize(copy.deepcopy(model), images, method=method, **options)
        print(report)
        print(f"{arguments.bits} bits, {method}: test accuracy {100 * accuracy(report.model, test):.2f} %")


if __name__ == "__main__":
    main()
