"""A training step with clip_grad_norm_ on int8 gradients and on wide ones: milliseconds, and bytes of the gradients.

python bench/gradient_clipping.py [--width 2048] [--layers 6] [--batch 64] [--steps 12]
"""

import argparse
import itertools
import statistics
import time

import torch
from torch import nn

import bie


def measure(width: int, layers: int, batch: int, steps: int, wide: bool) -> tuple[int, list[float]]:
    """Bytes of the integer weights' gradients; medians of backward pass, clipping and optimizer step in ms."""
    torch.manual_seed(0)
    pairs = [(nn.BatchNorm1d(width), bie.nn.BinaryLinear(width, width)) for _ in range(layers)]
    model = nn.Sequential(*(layer for pair in pairs for layer in pair))
    x = torch.randn(batch, width)
    model(x)
    if wide:
        bie.optim.wide_gradients(model)
    optimizer = bie.optim.DiodeMix(model.parameters(), lr=1e-3)
    times = []
    for _ in range(steps):
        optimizer.zero_grad()
        marks = [time.perf_counter()]
        for phase in (
            lambda: model(x).square().mean().backward(),
            lambda: nn.utils.clip_grad_norm_(model.parameters(), 1.0),
            optimizer.step,
        ):
            phase()
            marks.append(time.perf_counter())
        times.append([1e3 * (b - a) for a, b in itertools.pairwise(marks)])
    grads = [weight.grad for weight in bie.optim.integer_parameters(model)]
    size = sum(grad.numel() * grad.element_size() for grad in grads)
    return size, [statistics.median(phase) for phase in zip(*times[2:], strict=True)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    for name, value in (("width", 2048), ("layers", 6), ("batch", 64), ("steps", 12)):
        parser.add_argument(f"--{name}", type=int, default=value)
    options = vars(parser.parse_args())
    print("gradients  MB      pass, ms  clipping, ms  step, ms")
    for wide in (False, True):
        size, (forward_backward, clip, step) = measure(**options, wide=wide)
        name = "float32" if wide else "int8"
        print(f"{name:9}  {size / 1e6:6.1f}  {forward_backward:8.1f}  {clip:12.2f}  {step:8.1f}")


if __name__ == "__main__":
    main()
