"""A training step of an MLP of 1-bit layers against the same MLP of nn.Linear under AMP with fused AdamW, in one run.

python bench/gpu_mlp_step.py [--json FILE] [--markdown]

Forward, loss, backward and optimizer of 1024 inputs, hidden layers of one width with BatchNorm and PReLU between them,
10 classes. All layers but the last are BinaryLinear with int8 weights stepped by DiodeMix, the last is nn.Linear. Both
run under autocast to bfloat16 and get bfloat16 inputs, each as a loop written out and by bie.CapturedStep, which makes
a graph of the forward and backward passes. Milliseconds of a step: the median of five intervals of 20, in
turns. Memory, of the loops: the most that torch had allocated during steps, weights and optimizer included.
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable

import torch
from gpu_timing import options, report
from torch import nn

import bie

SHAPES = [(512, 4, 4096), (4096, 4, 4096), (512, 4, 8192), (4096, 4, 8192)]  # batch, hidden layers, width
INPUTS, CLASSES = 1024, 10
STEPS, INTERVALS = 20, 5


def mlp(layer: Callable[[int, int], nn.Module], depth: int, width: int) -> nn.Module:
    layers: list[nn.Module] = []
    for i in range(depth):
        layers += [layer(INPUTS if i == 0 else width, width), nn.BatchNorm1d(width), nn.PReLU()]
    return nn.Sequential(*layers, nn.Linear(width, CLASSES)).cuda()


class Contestant:
    def __init__(self, one_bit: bool, captured: bool, batch: int, depth: int, width: int) -> None:
        self.before = torch.cuda.memory_allocated()
        if one_bit:
            self.model = mlp(bie.nn.BinaryLinear, depth, width)
            self.optimizer: torch.optim.Optimizer = bie.optim.DiodeMix(
                self.model.parameters(), lr=1e-2, betas=(0.99, 0.999)
            )
        else:
            self.model = mlp(nn.Linear, depth, width)
            self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-3, fused=True)
        self.x = torch.randn(batch, INPUTS, device="cuda", dtype=torch.bfloat16)
        self.y = torch.randint(0, CLASSES, (batch,), device="cuda")

        self.captured = bie.CapturedStep(self.loss_of, self.optimizer) if captured else None

    def loss_of(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        with torch.autocast("cuda", dtype=torch.bfloat16):
            return nn.functional.cross_entropy(self.model(x), y)

    def step(self) -> None:
        if self.captured is not None:
            self.captured(self.x, self.y)
            return
        loss = self.loss_of(self.x, self.y)
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()

    def milliseconds(self) -> float:
        torch.cuda.synchronize()
        start = time.perf_counter()
        for _ in range(STEPS):
            self.step()
        torch.cuda.synchronize()
        return 1000 * (time.perf_counter() - start) / STEPS


def peak_bytes(one_bit: bool, shape: tuple[int, int, int]) -> int:
    torch.cuda.empty_cache()
    contestant = Contestant(one_bit, False, *shape)
    contestant.step()
    torch.cuda.reset_peak_memory_stats()
    contestant.step()
    return torch.cuda.max_memory_allocated() - contestant.before


def measure(batch: int, depth: int, width: int) -> dict:
    shape = (batch, depth, width)
    names = {"AMP": False, "1 bit": True}
    peak = {name: peak_bytes(one_bit, shape) for name, one_bit in names.items()}
    kinds = {name: (one_bit, False) for name, one_bit in names.items()}
    kinds |= {f"{name}, captured": (one_bit, True) for name, one_bit in names.items()}
    racers = {name: Contestant(*kind, *shape) for name, kind in kinds.items()}
    times: dict[str, list[float]] = {name: [] for name in racers}
    for interval in range(INTERVALS + 1):
        for name, racer in racers.items():
            ms = racer.milliseconds()
            if interval > 0:
                times[name].append(ms)
    median = {name: statistics.median(ms) for name, ms in times.items()}
    return {"batch": batch, "depth": depth, "width": width, "ms": median, "peak_bytes": peak}


def markdown(results: list[dict]) -> str:
    names = ["AMP", "1 bit", "times faster", "AMP, captured", "1 bit, captured", "times faster", "AMP: MB", "1 bit: MB"]
    lines = [f"| batch, hidden layers, width | {' | '.join(names)} | of it |", "| --- " * (len(names) + 2) + "|"]
    for r in results:
        amp, ours, amp_captured, ours_captured = r["ms"].values()
        amp_bytes, our_bytes = r["peak_bytes"].values()
        times = [amp, ours, amp / ours, amp_captured, ours_captured, amp_captured / ours_captured]
        cells = [f"{r['batch']}, {r['depth']}, {r['width']}", *(f"{time:.2f}" for time in times)]
        cells += [f"{amp_bytes / 1e6:.0f}", f"{our_bytes / 1e6:.0f}", f"{our_bytes / amp_bytes:.2f}"]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def main() -> None:
    arguments = options(__doc__).parse_args()
    report(arguments, [measure(*shape) for shape in SHAPES], markdown)


if __name__ == "__main__":
    sys.exit(main())
