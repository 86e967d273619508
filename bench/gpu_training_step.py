"""A training step of a net of quantised layers against the same net of torch's under AMP, in one run.

python bench/gpu_training_step.py [--net mlp|vgg-small] [--json FILE] [--markdown]

mlp: 1024 inputs, hidden layers of one width with BatchNorm and PReLU between them, 10 classes; all layers but the last
are BinaryLinear with int8 weights. AMP steps with fused AdamW. vgg-small: the net of `bie train`, whose first and last
layer are float, AMP's of torch's own modules, and 128 images of 3x32x32; images and float convolutions are
channels_last. AMP and float weights step with fused SGD (Nesterov). DiodeMix steps the nets of int8 weights.

Forward, loss, backward and optimizer, under autocast to bfloat16, each as a loop written out and by bie.CapturedStep,
which makes a graph of the forward and backward passes. The median of five intervals of 20 steps, in turns. Memory, of
the loops: the most that torch had allocated during steps, weights and optimizer included. --tiny runs small shapes on
any device: it shows that the bench works.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Callable
from typing import NamedTuple

import torch
from gpu_timing import options, report
from torch import Tensor, nn

import bie
from bie.train.config import NetConfig
from bie.train.nets import build

CLASSES = 10
INTERVALS = 5


class Parts(NamedTuple):
    model: nn.Module
    optimizer: torch.optim.Optimizer
    x: Tensor


Maker = Callable[[torch.device], Parts]


class Contestant:
    def __init__(self, make: Maker, captured: bool, device: torch.device) -> None:
        self.before = torch.cuda.memory_allocated() if device.type == "cuda" else 0
        self.model, self.optimizer, self.x = make(device)
        self.y = torch.randint(0, CLASSES, (len(self.x),), device=device)
        self.captured = bie.CapturedStep(self.loss_of, self.optimizer) if captured else None

    def loss_of(self, x: Tensor, y: Tensor) -> Tensor:
        with torch.autocast(x.device.type, dtype=torch.bfloat16):
            return nn.functional.cross_entropy(self.model(x), y)

    def step(self) -> None:
        if self.captured is not None:
            self.captured(self.x, self.y)
            return
        loss = self.loss_of(self.x, self.y)
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()

    def milliseconds(self, steps: int) -> float:
        synchronize(self.x.device)
        start = time.perf_counter()
        for _ in range(steps):
            self.step()
        synchronize(self.x.device)
        return 1000 * (time.perf_counter() - start) / steps


def synchronize(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize()


def peak_bytes(make: Maker, device: torch.device) -> int:
    if device.type != "cuda":
        return 0
    torch.cuda.empty_cache()
    contestant = Contestant(make, False, device)
    contestant.step()
    torch.cuda.reset_peak_memory_stats()
    contestant.step()
    return torch.cuda.max_memory_allocated() - contestant.before


def measure(makers: dict[str, Maker], args: argparse.Namespace) -> dict:
    peak = {name: peak_bytes(make, args.device) for name, make in makers.items()}
    racers = {name: Contestant(make, False, args.device) for name, make in makers.items()}
    racers |= {f"{name}, captured": Contestant(make, True, args.device) for name, make in makers.items()}
    times: dict[str, list[float]] = {name: [] for name in racers}
    for interval in range(INTERVALS + 1):
        for name, racer in racers.items():
            ms = racer.milliseconds(args.steps)
            if interval > 0:
                times[name].append(ms)
    return {"ms": {name: statistics.median(ms) for name, ms in times.items()}, "peak_bytes": peak}


class Mlp:
    """Rows of its table are shapes."""

    shapes = ((512, 4, 4096), (4096, 4, 4096), (512, 4, 8192), (4096, 4, 8192))  # batch, hidden layers, width
    tiny = ((8, 2, 64),)
    inputs = 1024

    @staticmethod
    def net(layer: Callable[[int, int], nn.Module], depth: int, width: int) -> nn.Module:
        layers: list[nn.Module] = []
        for i in range(depth):
            layers += [layer(Mlp.inputs if i == 0 else width, width), nn.BatchNorm1d(width), nn.PReLU()]
        return nn.Sequential(*layers, nn.Linear(width, CLASSES))

    @staticmethod
    def results(args: argparse.Namespace) -> list[dict]:
        def amp(device: torch.device) -> Parts:
            model = Mlp.net(nn.Linear, depth, width).to(device)
            return Parts(model, torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True), images(device))

        def one_bit(device: torch.device) -> Parts:
            model = Mlp.net(bie.nn.BinaryLinear, depth, width).to(device)
            optimizer = bie.optim.DiodeMix(model.parameters(), lr=1e-2, betas=(0.99, 0.999))
            return Parts(model, optimizer, images(device))

        def images(device: torch.device) -> Tensor:
            return torch.randn(batch, Mlp.inputs, device=device, dtype=torch.bfloat16)

        found = []
        for batch, depth, width in Mlp.tiny if args.tiny else Mlp.shapes:
            sizes = {"batch": batch, "depth": depth, "width": width}
            found.append(sizes | measure({"AMP": amp, "1 bit": one_bit}, args))
        return found

    @staticmethod
    def markdown(results: list[dict]) -> str:
        names = ["AMP", "1 bit", "times faster", "AMP, captured", "1 bit, captured", "times faster", "AMP: MB"]
        names += ["1 bit: MB", "of it"]
        lines = [f"| batch, hidden layers, width | {' | '.join(names)} |", "| --- " * (len(names) + 1) + "|"]
        for r in results:
            amp, ours, amp_captured, ours_captured = r["ms"].values()
            amp_bytes, our_bytes = r["peak_bytes"].values()
            times = [amp, ours, amp / ours, amp_captured, ours_captured, amp_captured / ours_captured]
            cells = [f"{r['batch']}, {r['depth']}, {r['width']}", *(f"{time:.2f}" for time in times)]
            cells += [f"{amp_bytes / 1e6:.0f}", f"{our_bytes / 1e6:.0f}", f"{our_bytes / max(amp_bytes, 1):.2f}"]
            lines.append(f"| {' | '.join(cells)} |")
        return "\n".join(lines)


VGG_SMALL = {  # bits, form of the weights
    "AMP": (32, "float"),
    "8 bit, float weights": (8, "float"),
    "8 bit, int8 weights": (8, "int8"),
    "4 bit, float weights": (4, "float"),
    "4 bit, int8 weights": (4, "int8"),
    "1 bit, float weights": (1, "float"),
    "1 bit, int8 weights": (1, "int8"),
}


def torchs_vgg_small(width: int) -> nn.Sequential:
    """The net of `bie train` as torch has it: its rival."""
    layers: list[nn.Module] = [nn.BatchNorm2d(3, affine=False)]
    inputs, side = 3, 32
    for outputs in (width, 2 * width, 4 * width):
        for last in (False, True):
            layers += [nn.Conv2d(inputs, outputs, 3, padding=1, bias=False), nn.BatchNorm2d(outputs), nn.ReLU()]
            layers += [nn.MaxPool2d(2)] if last else []
            inputs = outputs
        side //= 2
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(inputs * side * side, CLASSES))


class VggSmall:
    """Rows of its table are contestants, its numbers images a second."""

    @staticmethod
    def maker(bits: int, weights: str, batch: int, width: int | None) -> Maker:
        def make(device: torch.device) -> Parts:
            config = NetConfig("vgg-small", bits, image=(3, 32, 32), classes=CLASSES, width=width, weights=weights)
            model = (torchs_vgg_small(config.own_width) if bits == 32 else build(config)).to(device)
            for module in model.modules():
                if isinstance(module, nn.Conv2d):
                    module.to(memory_format=torch.channels_last)
            x = torch.randn(batch, *config.image, device=device).contiguous(memory_format=torch.channels_last)
            if weights == "float":
                sgd = torch.optim.SGD(
                    model.parameters(), lr=0.01, momentum=0.9, nesterov=True, weight_decay=5e-4, fused=True
                )
                return Parts(model, sgd, x)
            betas = (0.99, 0.999) if bits == 1 else (0.9, 0.999)
            return Parts(model, bie.optim.DiodeMix(model.parameters(), lr=1e-3, betas=betas), x)

        return make

    @staticmethod
    def results(args: argparse.Namespace) -> list[dict]:
        batch, width = (4, 16) if args.tiny else (128, None)
        makers = {name: VggSmall.maker(*kind, batch, width) for name, kind in VGG_SMALL.items()}
        return [{"batch": batch} | measure(makers, args)]

    @staticmethod
    def markdown(results: list[dict]) -> str:
        lines = ["|  | images/s | of AMP | captured: images/s | of AMP | MB | of AMP |", "| --- " * 7 + "|"]
        for r in results:
            rate = {name: 1000 * r["batch"] / ms for name, ms in r["ms"].items()}
            for name, size in r["peak_bytes"].items():
                cells = [name]
                for form in ("", ", captured"):
                    cells += [f"{rate[name + form]:,.0f}", f"{rate[name + form] / rate['AMP' + form]:.2f}"]
                cells += [f"{size / 1e6:.0f}", f"{size / max(r['peak_bytes']['AMP'], 1):.2f}"]
                lines.append(f"| {' | '.join(cells)} |")
        return "\n".join(lines)


NETS = {"mlp": Mlp, "vgg-small": VggSmall}


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("--net", choices=NETS, default="mlp")
    parser.add_argument("--device", type=torch.device, default="cuda")
    parser.add_argument("--steps", type=int, default=20, help="of an interval")
    parser.add_argument("--tiny", action="store_true")
    args = parser.parse_args()
    torch.backends.cudnn.benchmark = True
    net = NETS[args.net]
    report(args, net.results(args), net.markdown)


if __name__ == "__main__":
    sys.exit(main())
