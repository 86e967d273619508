"""Nets with depthwise convolutions, untrained, as bie.convert swaps all of their layers: milliseconds of an image, one
thread.

python bench/grouped_nets.py
"""

from __future__ import annotations

import time

import torch
from torch import Tensor, nn

import bie


class ConvNeXtBlock(nn.Module):
    """Liu et al. 2022, figure 4."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.depthwise = nn.Conv2d(channels, channels, 7, padding=3, groups=channels)
        self.norm = nn.LayerNorm(channels)
        self.wide = nn.Linear(channels, 4 * channels)
        self.act = nn.GELU()
        self.narrow = nn.Linear(4 * channels, channels)

    def forward(self, x: Tensor) -> Tensor:
        y = self.norm(self.depthwise(x).permute(0, 2, 3, 1))
        return x + self.narrow(self.act(self.wide(y))).permute(0, 3, 1, 2)


class PixelNorm(nn.LayerNorm):
    """A LayerNorm of the channels of a pixel."""

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x.permute(0, 2, 3, 1)).permute(0, 3, 1, 2)


def convnext_tiny() -> nn.Module:
    layers: list[nn.Module] = [nn.Conv2d(3, 96, 4, 4), PixelNorm(96)]
    for channels, depth in ((96, 3), (192, 3), (384, 9), (768, 3)):
        if channels > 96:
            layers += [PixelNorm(channels // 2), nn.Conv2d(channels // 2, channels, 2, 2)]
        layers += [ConvNeXtBlock(channels) for _ in range(depth)]
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.LayerNorm(768), nn.Linear(768, 1000))


class Squeeze(nn.Module):
    """Squeeze and excite."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        inner = max(8, (channels // 4 + 4) // 8 * 8)
        self.gate = nn.Sequential(
            nn.AdaptiveAvgPool2d(1),
            *(nn.Conv2d(channels, inner, 1), nn.ReLU(), nn.Conv2d(inner, channels, 1), nn.Hardsigmoid()),
        )

    def forward(self, x: Tensor) -> Tensor:
        return x * self.gate(x)


class InvertedResidual(nn.Module):
    def __init__(self, given: int, wide: int, out: int, kernel: int, stride: int, squeeze: bool, act: type) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        if wide != given:
            layers += [nn.Conv2d(given, wide, 1, bias=False), nn.BatchNorm2d(wide), act()]
        layers += [nn.Conv2d(wide, wide, kernel, stride, kernel // 2, groups=wide, bias=False)]
        layers += [nn.BatchNorm2d(wide), act()]
        if squeeze:
            layers.append(Squeeze(wide))
        layers += [nn.Conv2d(wide, out, 1, bias=False), nn.BatchNorm2d(out)]
        self.layers = nn.Sequential(*layers)
        self.adds = stride == 1 and given == out

    def forward(self, x: Tensor) -> Tensor:
        y = self.layers(x)
        return x + y if self.adds else y


def mobilenet_v3_small() -> nn.Module:
    """Howard et al. 2019, table 2."""
    relu, swish = nn.ReLU, nn.Hardswish
    blocks = [
        *((16, 16, 16, 3, 2, True, relu), (16, 72, 24, 3, 2, False, relu), (24, 88, 24, 3, 1, False, relu)),
        *((24, 96, 40, 5, 2, True, swish), (40, 240, 40, 5, 1, True, swish), (40, 240, 40, 5, 1, True, swish)),
        *((40, 120, 48, 5, 1, True, swish), (48, 144, 48, 5, 1, True, swish), (48, 288, 96, 5, 2, True, swish)),
        *((96, 576, 96, 5, 1, True, swish), (96, 576, 96, 5, 1, True, swish)),
    ]
    return nn.Sequential(
        *(nn.Conv2d(3, 16, 3, 2, 1, bias=False), nn.BatchNorm2d(16), swish()),
        *(InvertedResidual(*block) for block in blocks),
        *(nn.Conv2d(96, 576, 1, bias=False), nn.BatchNorm2d(576), swish(), nn.AdaptiveAvgPool2d(1), nn.Flatten()),
        *(nn.Linear(576, 1024), swish(), nn.Linear(1024, 1000)),
    )


def fastest(net: nn.Module, x: Tensor, calls: int = 9) -> float:
    """Milliseconds of the fastest of some calls."""
    times = []
    with torch.no_grad():
        for _ in range(calls):
            start = time.perf_counter()
            net(x)
            times.append(1e3 * (time.perf_counter() - start))
    return min(times[2:])


def main() -> None:
    torch.set_num_threads(1)
    torch.manual_seed(0)
    print("| net | layout | float32 | 8 bit | 4 bit | 1 bit |\n| --- | --- | --- | --- | --- | --- |")
    for name, make in (("ConvNeXt-T", convnext_tiny), ("MobileNetV3-Small", mobilenet_v3_small)):
        for layout, memory in (("NCHW", torch.contiguous_format), ("NHWC", torch.channels_last)):
            net = make().eval().to(memory_format=memory)
            x = torch.randn(1, 3, 224, 224).contiguous(memory_format=memory)
            row = [fastest(net, x)]
            for target in ("q8", "q4", "binary"):
                swapped = bie.convert(net, target, inplace=False, batch=x).model.eval()
                bie.pack(swapped)
                row.append(fastest(swapped, x))
            print(f"| {name} | {layout} | {' | '.join(f'{ms:.1f}' for ms in row)} |", flush=True)


if __name__ == "__main__":
    main()
