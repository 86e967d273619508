"""A float torch model converted: 8 bits without training, then 4 bits with two epochs of training.

python examples/python/convert_model.py [--data FOLDER_OF_MNIST] [--epochs N]
"""

from __future__ import annotations

import argparse

import torch
from datasets import accuracy, load
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from bie import convert


def train(model: nn.Module, data: TensorDataset, epochs: int, lr: float) -> None:
    optimizer = torch.optim.Adam(model.parameters(), lr=lr)
    for _ in range(epochs):
        for x, y in DataLoader(data, batch_size=64, shuffle=True):
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(x), y).backward()
            optimizer.step()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", help="folder of MNIST's four IDX files; the digits of scikit-learn without it")
    parser.add_argument("--epochs", type=int, default=10, help="of the float model")
    arguments = parser.parse_args()

    torch.manual_seed(0)
    data, test = load(arguments.data)
    side = data.tensors[0].shape[-1]
    model = nn.Sequential(
        *(nn.Conv2d(1, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Conv2d(32, 64, 3, padding=1), nn.BatchNorm2d(64), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Flatten(), nn.Linear(64 * (side // 4) ** 2, 256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU()),
        nn.Linear(256, 10),
    )
    train(model, data, arguments.epochs, lr=1e-3)
    print(f"float: test accuracy {100 * accuracy(model, test):.2f} %")

    # The first and the last layer stay float; all others become 8-bit, with their weights and biases.
    inner = [name for name, module in model.named_modules() if isinstance(module, nn.Linear | nn.Conv2d)][1:-1]
    report = convert(model, "q8", filter=lambda name, module: name in inner, inplace=False)
    print(report)
    report.model(data.tensors[0][:256])  # one batch sets the activations' scales
    print(f"8-bit linear and convolution layers: test accuracy {100 * accuracy(report.model, test):.2f} %")

    report = convert(model, "q4", filter=lambda name, module: name in inner)
    train(report.model, data, 2, lr=3e-4)
    print(report)
    print(f"4-bit linear and convolution layers, 2 epochs: test accuracy {100 * accuracy(report.model, test):.2f} %")


if __name__ == "__main__":
    main()
