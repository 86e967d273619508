"""Low-bit linear layers on a GPU against torch's own in one run: from float16 activations to float16 results.

python bench/gpu_layers.py [--json FILE] [--markdown] [--roofline PROGRAM] [M,N,K ...]

Shapes, unless named: bench/shapes/gemm.txt and larger ones. Device time of one call from CUDA-graph replays, the rivals
taking turns, the median of nine rounds; as many weights as do not fit the cache take turns too. A result of ours is
checked against the product of its codes before it is timed.
The rivals: F.linear in float16, torch._int_mm (int32 results of int8 tensors that somebody else quantised), and
torch._scaled_mm of float8_e4m3 tensors that somebody else quantised. bench/cuda_gemm_bench.cpp times our rows alone.
PROGRAM is bie_cuda_roofline: it runs first, and each of our times gets its share of what the GPU gives, which is the
longest of an empty launch, of the products at the instruction's rate, and of reading the weight from memory and the
float16 activations and results at the cache's rate.
"""

from __future__ import annotations

import json
import subprocess
import sys

import torch
from gpu_timing import CACHE_BYTES, Call, codes_of, options, race, read_shapes, report

import bie  # noqa: F401  loads the operators

GOALS = [  # m, n, k
    (1, 4096, 4096),
    (16, 4096, 4096),
    (128, 4096, 4096),
    (4096, 4096, 4096),
    (1, 8192, 8192),
    (4096, 8192, 8192),
    (128, 11008, 4096),
    (4096, 11008, 4096),
    (128, 1024, 1024),
]
OURS = {"1 bit": 1, "8 bit": 8, "4 bit": 4}


def shapes() -> list[tuple[int, int, int]]:
    """m, n, k of bench/shapes/gemm.txt and of GOALS, those of one weight beside one another."""
    return sorted(
        {(m, n, k) for m, k, n in read_shapes("gemm.txt", 3)} | set(GOALS), key=lambda s: (s[1] * s[2], s[1], s[0])
    )


def linear_of(bits: int, x: torch.Tensor, weights: list[torch.Tensor]) -> Call:
    """A call of our layer on weight number i, checked."""
    step, scale = 0.02, 0.01
    ops = torch.ops.bie
    scale_a = torch.tensor(step, device=x.device)
    scale_w = torch.tensor(scale, device=x.device)
    n, k = weights[0].shape
    codes = [codes_of(w, scale, bits).to(torch.int8) for w in weights]
    if bits == 1:
        packed = [ops.pack_signs(c) for c in codes]
        panels = [ops.binary_prepack(w, k) for w in packed]
    elif bits == 4:
        packed = [ops.pack_int4(c) for c in codes]
        panels = [ops.q4_prepack(w, k) for w in packed]
    else:
        packed = codes
        panels = [ops.q8_prepack(w) for w in packed]
    op = {1: ops.binary_linear, 4: ops.q4_linear, 8: ops.q8_linear}[bits]

    def call(i: int) -> torch.Tensor:
        j = i % len(packed)
        return op(x, packed[j], scale_a, scale_w, in_features=k, panels=panels[j])

    a, w = codes_of(x[:64], step, bits).double(), codes[-1][:256].double()
    expected = ((a @ w.T).float() * (scale_a * scale_w)).half()
    found = call(len(packed) - 1)[:64, :256]
    if not torch.equal(found, expected):
        raise SystemExit(f"{bits} bit, {x.shape[0]}x{n}x{k}: results differ from the formula's")
    return call


def rivals_of(x: torch.Tensor, weights: list[torch.Tensor]) -> dict[str, Call]:
    count = len(weights)
    one = torch.ones((), device=x.device)
    x8, w8 = (50 * x).to(torch.int8), [(50 * w).to(torch.int8).T for w in weights]
    xf, wf = x.to(torch.float8_e4m3fn), [w.to(torch.float8_e4m3fn).T for w in weights]
    calls: dict[str, Call] = {
        "fp16": lambda i: torch.nn.functional.linear(x, weights[i % count]),
        "fp8": lambda i: torch._scaled_mm(xf, wf[i % count], one, one, out_dtype=torch.half),
    }
    if x.shape[0] > 16:  # fewer are refused
        calls["_int_mm"] = lambda i: torch._int_mm(x8, w8[i % count])
    return calls


def measure(m: int, n: int, k: int) -> dict[str, object]:
    count = max(1, min(16, CACHE_BYTES // (2 * n * k)))
    calls = max(count, 40)  # starting a graph takes as long as a call or two
    x = torch.randn(m, k, device="cuda", dtype=torch.half)
    weights = [torch.randn(n, k, device="cuda", dtype=torch.half) for _ in range(count)]
    every = rivals_of(x, weights) | {name: linear_of(bits, x, weights) for name, bits in OURS.items()}
    median, spread = race(every, calls)
    return {"m": m, "n": n, "k": k, "us": median, "spread": spread}


def least_us(m: int, n: int, k: int, bits: int, rates: dict[str, float]) -> float:
    """Microseconds that the GPU needs at least for a layer."""
    instruction = "wgmma b1 and.popc" if bits == 1 else "wgmma s8"
    multiplying = 2e-6 * m * n * k / rates[instruction]
    memory = 1e-3 * n * k * bits / 8 / rates["reading memory"]
    cache = 1e-3 * 2 * m * (n + k) / rates["reading what is in the L2"]
    return max(rates["an empty launch"], multiplying, memory + cache)


def markdown(results: list[dict]) -> str:
    lines = [
        "| m, n, k | fp16 | fp8 | `_int_mm` | 1 bit (of fp16) | 8 bit (of fp16) | 4 bit (of fp16) |",
        "| --- | --- | --- | --- | --- | --- | --- |",
    ]
    for r in results:
        us = r["us"]
        share = {name: f", {100 * least / us[name]:.0f} %" for name, least in r.get("least_us", {}).items()}
        ours = [f"{us[name]:.1f} ({us['fp16'] / us[name]:.2f}x{share.get(name, '')})" for name in OURS]
        int_mm = f"{us['_int_mm']:.1f}" if "_int_mm" in us else "-"
        row = [f"{r['m']}, {r['n']}, {r['k']}", f"{us['fp16']:.1f}", f"{us['fp8']:.1f}", int_mm, *ours]
        lines.append(f"| {' | '.join(row)} |")
    return "\n".join(lines)


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("shapes", nargs="*", metavar="M,N,K")
    parser.add_argument("--roofline", metavar="PROGRAM", help="bie_cuda_roofline, to run first")
    arguments = parser.parse_args()
    rates = {}
    if arguments.roofline:
        rates = json.loads(subprocess.run([arguments.roofline], check=True, capture_output=True, text=True).stdout)
    wanted = [tuple(map(int, text.split(","))) for text in arguments.shapes] or shapes()
    results = [measure(*shape) for shape in wanted]
    if rates:
        for r in results:
            r["least_us"] = {name: least_us(r["m"], r["n"], r["k"], bits, rates) for name, bits in OURS.items()}
    report(arguments, results, markdown, roofline=rates)


if __name__ == "__main__":
    sys.exit(main())
