"""Backward passes on a GPU: layers of 1, 8 and 4 bits against torch's products of the same shape, in one run.

python bench/gpu_backward.py [--json FILE] [--markdown]

A linear layer's rival is the two products of its backward pass, g @ weight and g.T @ x, by cuBLAS; a convolution's is
aten::convolution_backward in channels_last, by cuDNN with its benchmark on. Both run in bfloat16, as under autocast,
and in float32 with TF32 allowed. Ours is the operator's whole backward pass: the two products, the straight-through
estimator and the gradient of the step size; the weight's gradient is float32. Microseconds of device time from
CUDA-graph replays, in turns, medians.
"""

from __future__ import annotations

import sys

import torch
from backward_calls import BITS, convs, linears
from gpu_timing import options, race, report

LINEARS = [(512, 1024, 1024), (512, 4096, 4096), (4096, 4096, 4096), (512, 8192, 8192), (4096, 8192, 8192)]
CONVS = [(128, 64, 56), (128, 128, 28), (128, 256, 14), (128, 512, 7)]  # batch, channels, height and width; 3x3
DTYPES = {"bfloat16": torch.bfloat16, "float32 (TF32)": torch.float32}


def measure() -> list[dict]:
    every = [(f"{m}, {k}, {n}", linears, (m, k, n)) for m, k, n in LINEARS]
    every += [(f"{b} images, {c} channels, {side}x{side}, 3x3", convs, (b, c, side)) for b, c, side in CONVS]
    results = []
    for title, make, sizes in every:
        us, spread = {}, {}
        for name, dtype in DTYPES.items():
            calls = make("torch", *sizes, device="cuda", dtype=dtype)
            us[name], spread[name] = race({key: lambda _, call=call: call() for key, call in calls.items()}, calls=5)
        results.append({"shape": title, "us": us, "spread": spread})
    return results


def markdown(results: list[dict]) -> str:
    names = [column for dtype in DTYPES for column in (dtype, *(f"{bits} (of that)" for bits in BITS))]
    lines = [f"| backward pass, us | {' | '.join(names)} |", "| --- " * (1 + len(names)) + "|"]
    for r in results:
        cells = []
        for dtype in DTYPES:
            us = r["us"][dtype]
            cells += [f"{us['torch']:.1f}", *(f"{us[bits]:.1f} ({us['torch'] / us[bits]:.2f}x)" for bits in BITS)]
        lines.append(f"| {r['shape']} | {' | '.join(cells)} |")
    return "\n".join(lines)


def main() -> None:
    arguments = options(__doc__).parse_args()
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = torch.backends.cudnn.benchmark = True
    with torch.no_grad():
        report(arguments, measure(), markdown)


if __name__ == "__main__":
    sys.exit(main())
