"""LeNet whose second convolution and first linear layer have 4-bit weights and activations, trained with Adam.

Float (latent) weights train with any optimizer; DiodeMix is needed for integer ones only.

python examples/python/lenet_4bit.py [--data FOLDER_OF_MNIST] [--epochs N]
"""

from __future__ import annotations

import argparse

import torch
from datasets import accuracy, load
from torch import nn
from torch.utils.data import DataLoader

from bie.nn import Q4Conv2d, Q4Linear


def lenet(side: int) -> nn.Sequential:
    """For images [1, side, side]."""
    after = side // 4
    return nn.Sequential(
        *(nn.Conv2d(1, 20, 3, padding=1), nn.BatchNorm2d(20), nn.PReLU(), nn.MaxPool2d(2)),
        *(Q4Conv2d(20, 50, 3, padding=1), nn.BatchNorm2d(50), nn.PReLU(), nn.MaxPool2d(2)),
        *(nn.Flatten(), Q4Linear(50 * after * after, 256), nn.BatchNorm1d(256), nn.PReLU()),
        nn.Linear(256, 10),
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", help="folder of MNIST's four IDX files; the digits of scikit-learn without it")
    parser.add_argument("--epochs", type=int, default=20)
    arguments = parser.parse_args()

    torch.manual_seed(0)
    train, test = load(arguments.data)
    model = lenet(train.tensors[0].shape[-1])
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    for epoch in range(arguments.epochs):
        for x, y in DataLoader(train, batch_size=64, shuffle=True):
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(x), y).backward()
            optimizer.step()
        print(f"epoch {epoch + 1}: test accuracy {100 * accuracy(model, test):.2f} %")


if __name__ == "__main__":
    main()
