"""The nets that bench/rivals_nets.py times, as modules of torch without BatchNorms, which all runtimes fold."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn


def conv(cin: int, cout: int, size: int = 3, stride: int = 1) -> nn.Conv2d:
    return nn.Conv2d(cin, cout, size, stride, size // 2)


def lenet() -> nn.Module:
    return nn.Sequential(
        *(nn.Conv2d(3, 32, 5), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(32, 64, 5), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Flatten(), nn.Linear(1600, 1024), nn.ReLU(), nn.Linear(1024, 10)),
    )


def vgg_small() -> nn.Module:
    layers, cin = [], 3
    for width in (128, 256, 512):
        layers += [conv(cin, width), nn.ReLU(), conv(width, width), nn.ReLU(), nn.MaxPool2d(2)]
        cin = width
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(512 * 16, 10))


class Block(nn.Module):
    def __init__(self, cin: int, cout: int, stride: int, inner: Callable):
        super().__init__()
        self.first, self.second = inner(cin, cout, 3, stride), inner(cout, cout)
        self.norms = nn.ModuleList([nn.Identity(), nn.Identity()])
        if inner is not conv:  # signs want one
            self.norms = nn.ModuleList([nn.BatchNorm2d(cout), nn.BatchNorm2d(cout)])
        self.past = nn.Identity() if stride == 1 and cin == cout else conv(cin, cout, 1, stride)

    def forward(self, x: Tensor) -> Tensor:
        y = torch.relu(self.norms[0](self.first(x)))
        return torch.relu(self.norms[1](self.second(y)) + self.past(x))


def resnet(stem: nn.Module, widths: list[int], blocks: int, classes: int, inner: Callable = conv) -> nn.Module:
    layers, cin = [stem], widths[0]
    for width in widths:
        for i in range(blocks):
            layers.append(Block(cin, width, 2 if i == 0 and width != widths[0] else 1, inner))
            cin = width
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(cin, classes))


def resnet20() -> nn.Module:
    return resnet(nn.Sequential(conv(3, 16), nn.ReLU()), [16, 32, 64], 3, 10)


def resnet18(inner: Callable = conv) -> nn.Module:
    stem = nn.Sequential(conv(3, 64, 7, 2), nn.ReLU(), nn.MaxPool2d(3, 2, 1))
    return resnet(stem, [64, 128, 256, 512], 2, 1000, inner)


NETS = {"lenet": (lenet, 32), "vgg-small": (vgg_small, 32), "resnet20": (resnet20, 32), "resnet18": (resnet18, 224)}
