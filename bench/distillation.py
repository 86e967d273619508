"""A 1-bit net on MNIST, trained on the classes and from its float twin: test accuracy of several seeds.

python bench/distillation.py FOLDER_OF_MNIST [--epochs 4] [--seeds 3]
"""

import argparse
from collections.abc import Callable

import torch
from torch import nn

import bie
from bie.train import data


def net(binary: bool) -> nn.Module:
    """Two convolutions and a linear between a float first and last layer."""
    torch.set_num_threads(2)
    conv = bie.nn.BinaryConv2d if binary else nn.Conv2d
    linear = bie.nn.BinaryLinear if binary else nn.Linear
    options = {"padding_value": 0, "latent": True} if binary else {}
    latent = {"latent": True} if binary else {}
    return nn.Sequential(
        *(nn.Conv2d(1, 16, 5, stride=2), nn.BatchNorm2d(16), nn.ReLU() if not binary else nn.Identity()),
        *(conv(16, 32, 3, padding=1, **options), nn.BatchNorm2d(32), nn.MaxPool2d(2)),
        *(nn.ReLU() if not binary else nn.Identity(), nn.Flatten()),
        *(linear(32 * 36, 64, **latent), nn.BatchNorm1d(64), nn.ReLU(), nn.Linear(64, 10)),
    )


def train(model: nn.Module, x: torch.Tensor, epochs: int, loss: Callable) -> nn.Module:
    """Adam with a cosine schedule; ``loss(logits, rows)``."""
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    steps = epochs * (len(x) // 200)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)
    for _ in range(epochs):
        for rows in torch.randperm(len(x)).split(200)[: len(x) // 200]:
            optimizer.zero_grad()
            loss(model(x[rows]), rows).backward()
            optimizer.step()
            schedule.step()
    return model.eval()


def score(model: nn.Module, x: torch.Tensor, y: torch.Tensor) -> float:
    """The percentage that the model gets right."""
    with torch.inference_mode():
        parts = zip(x.split(500), y.split(500), strict=True)
        return 100 * sum(int((model(a).argmax(1) == b).sum()) for a, b in parts) / len(x)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder")
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--seeds", type=int, default=3)
    options = parser.parse_args()
    sets = data.load(f"mnist:{options.folder}")
    (x, y), (tx, ty) = sets.train, sets.test
    torch.manual_seed(0)
    teacher = train(net(False), x, options.epochs, lambda z, rows: nn.functional.cross_entropy(z, y[rows]))
    print(f"float: {score(teacher, tx, ty):.2f} %", flush=True)
    with torch.inference_mode():
        soft = torch.cat([teacher(part) for part in x.split(1000)]).clone()
    losses = {
        "classes": lambda z, rows: nn.functional.cross_entropy(z, y[rows]),
        "float twin": lambda z, rows: bie.distillation_loss(z, soft[rows], y[rows], alpha=0.7, temperature=4.0),
    }
    for name, loss in losses.items():
        scores = []
        for seed in range(options.seeds):
            torch.manual_seed(seed)
            scores.append(score(train(net(True), x, options.epochs, loss), tx, ty))
        mean = sum(scores) / len(scores)
        print(f"{name}: {mean:.2f} % ({', '.join(f'{s:.2f}' for s in scores)})", flush=True)


if __name__ == "__main__":
    main()
