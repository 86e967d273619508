"""Weight-only linear layers on a GPU against other engines in one run: float16 activations, weights in groups of 128.

python bench/gpu_weight_only.py [--json FILE] [--markdown] [--marlin LIBRARY] [M,N,K ...]

Device time of one call from CUDA-graph replays, the contenders taking turns, the median of nine rounds; as many weights
as do not fit the cache take turns too. A result of ours is checked against the product in float64 before it is timed.

    w8 w4 w2 w1   torch.ops.bie.weight_only_linear with its panels, scales of 16 bits, whole zeros
    w4 floats     the same of 4 bits with float zeros (BITorch Engine's)
    w8 i8 ...     the same of activations that become 8-bit codes (int8_activations)
    fp16          F.linear of an opened weight (cuBLAS)
    tinygemm      torch._weight_int4pack_mm, bfloat16, 4 bits; up to 16 rows
    marlin        IST-DASLab's Marlin, 4 bits, symmetric, of random codes: not checked

LIBRARY is Marlin's marlin_cuda_kernel.cu as a shared library (nvcc -O3 -std=c++17 --expt-relaxed-constexpr -arch=sm_90a
-shared -Xcompiler=-fPIC) with one function more, extern "C" int marlin_run(a, b, c, s, m, n, k, locks, group, stream),
that calls marlin_cuda on device 0. On sm_90 its cp_async4_stream must lose the hint for the L2 cache, an illegal
instruction there.
"""

from __future__ import annotations

import ctypes
import sys
from functools import partial

import torch
from gpu_timing import CACHE_BYTES, Call, options, race, report

import bie  # noqa: F401  loads the operators

GROUP = 128
SIZES = [(4096, 4096), (8192, 8192), (11008, 4096), (4096, 11008), (1024, 1024)]  # n, k
ROWS = [1, 2, 4, 8, 16, 32, 64, 128, 1024, 4096]
CALLS = 40


def copies(n: int, k: int, bits: int) -> int:
    return max(1, min(32, CACHE_BYTES // (n * k * bits // 8)))


def quantised(x: torch.Tensor) -> torch.Tensor:
    """x as its 8-bit codes have it (docs/spec/weight-only.md), float64."""
    groups = x.float().view(x.shape[0], -1, GROUP)
    largest, top = groups.abs().amax(-1, keepdim=True), torch.full((), 127.0, device=x.device)
    return (torch.round(groups * (top / largest)) * (largest / top)).double().view(x.shape)


def ours(x: torch.Tensor, n: int, bits: int, float_zeros: bool = False, int8: bool = False) -> Call:
    operators, k = torch.ops.bie, x.shape[1]
    words = torch.randint(-(2**31), 2**31 - 1, (k * bits // 32, n), dtype=torch.int64, device="cuda").int()
    scales = torch.rand(k // GROUP, n, device="cuda").mul(0.01).add(0.005).half()
    if float_zeros:
        zeros = torch.rand(k // GROUP, n, device="cuda").mul(0.05).half()
    else:
        zeros = operators.pack_words(torch.full_like(scales, 2 ** (bits - 1) - 1, dtype=torch.int32), bits, 1)
    keywords = {"bits": bits, "group_size": GROUP}
    values = operators.weight_only_open(words, scales, zeros, in_features=k, dtype=torch.float32, **keywords)
    if int8:
        keywords["int8_activations"] = True
    panels = operators.weight_only_prepack(words, scales, zeros, in_features=k, **keywords)
    found = operators.weight_only_linear(x, words, scales, zeros, panels=panels, **keywords)[:64]
    wanted = (quantised(x[:64]) if int8 else x[:64].double()) @ values.double()
    if not (found - wanted).abs().max() <= 2e-3 * wanted.abs().max():
        raise SystemExit(f"{bits} bits, {x.shape[0]}x{n}x{k}: the result is not the product")
    every = [panels] + [panels.clone() for _ in range(copies(n, k, bits) - 1)]
    return lambda i: operators.weight_only_linear(x, words, scales, zeros, panels=every[i % len(every)], **keywords)


def marlin(library: ctypes.CDLL, x: torch.Tensor, n: int) -> Call:
    m, k = x.shape
    words = [
        torch.randint(-(2**31), 2**31 - 1, (k // 16, 2 * n), dtype=torch.int64, device="cuda").int()
        for _ in range(copies(n, k, 4))
    ]
    scales, locks = (
        torch.rand(k // GROUP, n, device="cuda").half(),
        torch.zeros(16 * n, device="cuda", dtype=torch.int32),
    )
    y = torch.empty(m, n, device="cuda", dtype=torch.half)

    def call(i: int) -> None:
        pointers = (x, words[i % len(words)], y, scales)
        status = library.marlin_run(
            *(ctypes.c_void_p(t.data_ptr()) for t in pointers),
            *(m, n, k, ctypes.c_void_p(locks.data_ptr()), GROUP),
            ctypes.c_void_p(torch.cuda.current_stream().cuda_stream),
        )
        if status != 0:
            raise SystemExit(f"marlin, {m}x{n}x{k}: error {status}")

    return call


def tinygemm(x: torch.Tensor, n: int) -> Call:
    k = x.shape[1]
    packed = torch._convert_weight_to_int4pack(torch.randint(0, 256, (n, k // 2), device="cuda", dtype=torch.uint8), 8)
    every = [packed] + [packed.clone() for _ in range(copies(n, k, 4) - 1)]
    numbers, rows = torch.rand(k // GROUP, n, 2, device="cuda").bfloat16(), x.bfloat16()
    return lambda i: torch._weight_int4pack_mm(rows, every[i % len(every)], GROUP, numbers)


def measure(library: ctypes.CDLL | None, m: int, n: int, k: int) -> dict[str, object]:
    x = torch.randn(m, k, device="cuda", dtype=torch.half)
    floats = [torch.randn(n, k, device="cuda", dtype=torch.half) for _ in range(max(1, copies(n, k, 16)))]
    every: dict[str, Call] = {"fp16": lambda i: torch.nn.functional.linear(x, floats[i % len(floats)])}
    every |= {f"w{bits}": ours(x, n, bits) for bits in (8, 4, 2, 1)} | {"w4 floats": ours(x, n, 4, float_zeros=True)}
    every |= {f"w{bits} i8": ours(x, n, bits, int8=True) for bits in (8, 4, 2, 1)}
    if m <= 16:
        every["tinygemm"] = tinygemm(x, n)
    if library is not None:
        every["marlin"] = marlin(library, x, n)
    median, spread = race(every, CALLS)
    return {"m": m, "n": n, "k": k, "us": median, "spread": spread}


def markdown(results: list[dict]) -> str:
    names = ["fp16", "w8", "w4", "w4 floats", "w2", "w1", "w8 i8", "w4 i8", "w2 i8", "w1 i8", "marlin", "tinygemm"]
    lines = [f"| m, n, k | {' | '.join(names)} |", "| --- |" + " --- |" * len(names)]
    for r in results:
        cells = [f"{r['us'][name]:.1f}" if name in r["us"] else "-" for name in names]
        lines.append(f"| {r['m']}, {r['n']}, {r['k']} | {' | '.join(cells)} |")
    return "\n".join(lines)


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("shapes", nargs="*", metavar="M,N,K")
    parser.add_argument("--marlin", metavar="LIBRARY", help="Marlin as a shared library")
    arguments = parser.parse_args()
    run = partial(measure, ctypes.CDLL(arguments.marlin) if arguments.marlin else None)
    wanted = [tuple(map(int, text.split(","))) for text in arguments.shapes] or [
        (m, n, k) for n, k in SIZES for m in ROWS
    ]
    report(arguments, [run(*shape) for shape in wanted], markdown)


if __name__ == "__main__":
    sys.exit(main())
