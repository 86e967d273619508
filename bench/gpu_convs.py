"""1-, 8- and 4-bit convolutions on a GPU against cuDNN in float16, in one run: from float16 images to float16 images.

python bench/gpu_convs.py [--json FILE] [--markdown]

Shapes: bench/shapes/conv2d.txt at batches 1 and 128. The rival is F.conv2d of channels_last float16 with
cudnn.benchmark, and the same in the default layout; ours takes both too. Device time from CUDA-graph replays, in
turns, the median of nine rounds; a result of ours is checked against the convolution of its codes before it is timed.
"""

from __future__ import annotations

import sys

import torch
from gpu_timing import CACHE_BYTES, Call, codes_of, options, race, read_shapes, report

import bie  # noqa: F401  loads the operators

BATCHES = [1, 128]
STEP, SCALE = torch.tensor(0.02), torch.tensor(0.01)


def conv_of(
    bits: int, images: list[torch.Tensor], weight: torch.Tensor, stride: int, padding: int, groups: int
) -> Call:
    """A call of our layer on image number i, checked."""
    ops = torch.ops.bie
    scale_a, scale_w = STEP.cuda(), SCALE.cuda()
    out_c, depth, kernel, _ = weight.shape
    in_c = depth * groups
    codes = codes_of(weight, scale_w, bits).to(torch.int8)
    if bits == 1:
        stored = ops.pack_signs(codes.reshape(out_c, -1))
        panels, op = ops.binary_conv2d_prepack(stored, in_c, [kernel, kernel], groups), ops.binary_conv2d
    elif bits == 8:
        stored, panels, op = codes, ops.q8_conv2d_prepack(codes, groups), ops.q8_conv2d
    else:
        stored = ops.pack_int4(codes.reshape(out_c, -1))
        panels, op = ops.q4_conv2d_prepack(stored, in_c, [kernel, kernel], groups), ops.q4_conv2d
    more = {"stride": [stride] * 2, "padding": [padding] * 2, "groups": groups, "panels": panels}
    if bits != 8:
        more["kernel_size"] = [kernel, kernel]

    def call(i: int) -> torch.Tensor:
        return op(images[i % len(images)], stored, scale_a, scale_w, **more)

    few = codes_of(images[0][:2], scale_a, bits).double()
    padded = torch.nn.functional.pad(few.cpu(), [padding] * 4, value=-1.0 if bits == 1 else 0.0)
    sums = torch.nn.functional.conv2d(padded, codes.double().cpu(), stride=stride, groups=groups)
    expected = (sums.float() * (STEP * SCALE)).half()
    if not torch.equal(call(0)[:2].cpu(), expected):
        raise SystemExit(f"{bits} bit, {tuple(images[0].shape)}: results differ from the formula's")
    return call


def measure(
    batch: int, in_c: int, height: int, width: int, out_c: int, kernel: int, stride: int, padding: int, groups: int = 1
) -> dict:
    torch.backends.cudnn.benchmark = True
    count = max(1, min(16, CACHE_BYTES // (2 * batch * in_c * height * width)))
    planes = [torch.randn(batch, in_c, height, width, device="cuda", dtype=torch.half) for _ in range(count)]
    pixels = [p.contiguous(memory_format=torch.channels_last) for p in planes]
    weight = torch.randn(out_c, in_c // groups, kernel, kernel, device="cuda", dtype=torch.half) * 0.5
    last = weight.contiguous(memory_format=torch.channels_last)
    move = {"stride": stride, "padding": padding, "groups": groups}
    every: dict[str, Call] = {
        "fp16": lambda i: torch.nn.functional.conv2d(pixels[i % count], last, **move),
        "fp16 NCHW": lambda i: torch.nn.functional.conv2d(planes[i % count], weight, **move),
    }
    for bits in (1, 8, 4):
        every[f"{bits} bit"] = conv_of(bits, pixels, weight, **move)
        every[f"{bits} bit NCHW"] = conv_of(bits, planes, weight, **move)
    median, spread = race(every, max(count, 40))
    return {
        "batch": batch,
        "in_c": in_c,
        "height": height,
        "width": width,
        "out_c": out_c,
        "kernel": kernel,
        "stride": stride,
        "padding": padding,
        "groups": groups,
        "us": median,
        "spread": spread,
    }


def markdown(results: list[dict]) -> str:
    """Ours against cuDNN's in channels_last, and in the default layout against cuDNN's in that."""
    rivals = {"": "fp16", " NCHW": "fp16 NCHW"}
    columns = [(f"{bits} bit{layout}", rivals[layout]) for layout in rivals for bits in (1, 8, 4)]
    names = ["batch, channels, image, kernel", *rivals.values(), *(name for name, _ in columns)]
    lines = [f"| {' | '.join(names)} |", "| --- " * len(names) + "|"]
    for r in results:
        us = r["us"]
        cells = [f"{us[name]:.1f} ({us[rival] / us[name]:.2f}x)" for name, rival in columns]
        stride = f" stride {r['stride']}" if r["stride"] != 1 else ""
        groups = f" in {r['groups']} groups" if r["groups"] != 1 else ""
        image = f"{r['in_c']} to {r['out_c']}{groups}, {r['height']}x{r['width']}"
        name = f"{r['batch']}, {image}, {r['kernel']}x{r['kernel']}{stride}"
        lines.append(f"| {' | '.join([name, *(f'{us[rival]:.1f}' for rival in rivals.values()), *cells])} |")
    return "\n".join(lines)


def main() -> None:
    arguments = options(__doc__).parse_args()
    report(arguments, [measure(batch, *shape) for batch in BATCHES for shape in read_shapes("conv2d.txt", 7)], markdown)


if __name__ == "__main__":
    sys.exit(main())
