"""An MLP whose inner layers have 1-, 4- or 8-bit weights and activations, trained and saved packed.

python examples/python/mnist_mlp.py [--data FOLDER_OF_MNIST] [--bits 1|4|8] [--epochs N]
"""

from __future__ import annotations

import argparse
from pathlib import Path

import torch
from datasets import accuracy, load
from torch import nn
from torch.utils.data import DataLoader

import bie

LAYERS = {1: bie.nn.BinaryLinear, 4: bie.nn.Q4Linear, 8: bie.nn.Q8Linear}


def mlp(inputs: int, width: int, bits: int) -> nn.Sequential:
    """The first and the last layer are float, as in every net of this kind that works well."""
    layer = LAYERS[bits]
    return nn.Sequential(
        nn.Flatten(),
        *(nn.Linear(inputs, width), nn.BatchNorm1d(width), nn.PReLU()),
        *(layer(width, width), nn.BatchNorm1d(width), nn.PReLU()),
        *(layer(width, width), nn.BatchNorm1d(width), nn.PReLU()),
        nn.Linear(width, 10),
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", help="folder of MNIST's four IDX files; the digits of scikit-learn without it")
    parser.add_argument("--bits", type=int, default=1, choices=sorted(LAYERS))
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--width", type=int, default=512)
    parser.add_argument("--out", type=Path, default=Path("mlp.pt"))
    arguments = parser.parse_args()

    torch.manual_seed(0)
    train, test = load(arguments.data)
    model = mlp(train.tensors[0][0].numel(), arguments.width, arguments.bits)
    bie.prepare(model)
    # 1-bit weights flip when their second moment crosses zero: their rates are others than a float's.
    binary = {id(m.weight) for m in model if isinstance(m, bie.nn.BinaryLinear)}
    signs = [p for p in model.parameters() if id(p) in binary]
    others = [p for p in model.parameters() if id(p) not in binary]
    groups = [{"params": others, "lr": 1e-3, "betas": (0.9, 0.999)}]
    if signs:
        groups.append({"params": signs, "lr": 1e-2, "betas": (0.99, 0.999)})
    optimizer = bie.optim.DiodeMix(groups)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, arguments.epochs)
    for epoch in range(arguments.epochs):
        for x, y in DataLoader(train, batch_size=64, shuffle=True):
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(x), y).backward()
            optimizer.step()
        scheduler.step()
        print(f"epoch {epoch + 1}: test accuracy {100 * accuracy(model, test):.2f} %")

    bie.save_checkpoint(model, str(arguments.out))  # packed; the model can go on training
    twin = mlp(train.tensors[0][0].numel(), arguments.width, arguments.bits)
    bie.load_checkpoint(twin, str(arguments.out))
    print(f"{arguments.out}: {arguments.out.stat().st_size} bytes, test accuracy {100 * accuracy(twin, test):.2f} %")


if __name__ == "__main__":
    main()
