"""Grouped convolutions of a model as bie.convert could swap them: milliseconds of a call in evaluation, one thread.

python bench/grouped_convs.py
python bench/grouped_convs.py --device cuda [--json FILE] [--markdown]

On CUDA: bench/shapes/grouped_conv2d.txt at batches 1 and 32 against cuDNN in float16, as bench/gpu_convs.py does it.
"""

import time

import gpu_convs
import gpu_timing
import torch
from torch import nn

import bie

CHANNELS, IMAGE = 96, 28


def fastest(call, calls: int = 7) -> float:
    """Milliseconds of the fastest of some calls."""
    times = []
    with torch.no_grad():
        for _ in range(calls):
            start = time.perf_counter()
            call()
            times.append(1e3 * (time.perf_counter() - start))
    return min(times[1:])


def on_cpu() -> None:
    torch.set_num_threads(1)
    print(f"| kernel | channels a group | float32 | {' | '.join(f'{t}' for t in ('q8', 'q4', 'binary'))} |")
    x = torch.randn(1, CHANNELS, IMAGE, IMAGE)
    for kernel in (3, 7):
        for channels in (1, 2, 4, 8, 16, 32):
            conv = nn.Conv2d(CHANNELS, CHANNELS, kernel, padding=kernel // 2, groups=CHANNELS // channels).eval()
            row = [fastest(lambda conv=conv: conv(x))]
            for target in ("q8", "q4", "binary"):
                layer = bie.convert(conv, target, inplace=False, batch=x).model.eval()
                row.append(fastest(lambda layer=layer: layer(x)))
            print(f"| {kernel}x{kernel} | {channels} | {' | '.join(f'{ms:.2f}' for ms in row)} |", flush=True)


def main() -> None:
    parser = gpu_timing.options(__doc__)
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    arguments = parser.parse_args()
    if arguments.device == "cpu":
        on_cpu()
        return
    shapes = gpu_timing.read_shapes("grouped_conv2d.txt", 8)
    results = [gpu_convs.measure(batch, *shape) for batch in (1, 32) for shape in shapes]
    gpu_timing.report(arguments, results, gpu_convs.markdown)


if __name__ == "__main__":
    main()
