"""Weight-only linears against those of other engines, one pinned thread, interleaved in one process.

    python -m venv build/rivals && build/rivals/bin/pip install onnx onnxruntime numpy llama-cpp-python
    PYTHONPATH=.venv/lib/python3.11/site-packages build/rivals/bin/python bench/weight_only.py
        [--library build/release/src/ops/libbie_ops.so] [--filter TEXT] [--core N] [--seconds S] [--json FILE]

Every engine has float32 (torch's int4pack bfloat16) activations, weights of few bits in groups and float32 sums:

    bie           torch.ops.bie.weight_only_linear with its panels, scales of 16 bits, whole zeros
    onnxruntime   MatMulNBits, accuracy_level 0: float32 activations; scales of 32 bits, symmetric
    int4pack      torch._weight_int4pack_mm_for_cpu, bfloat16 in and out
    float32       torch's float32 linear with an opened weight

and these quantise activations to 8 bits in the call, a scale for each row and group:

    bie int8          the same operator with int8_activations
    onnxruntime int8  accuracy_level 4
    ggml              ggml_mul_mat of llama-cpp-python: Q4_0, groups of 32

Medians of CPU time of the thread. A rival that is not installed or does not take a shape is left out.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

SHAPES = Path(__file__).parent / "shapes/weight_only.txt"
Run = Callable[[], object]


def shapes() -> list[list[int]]:
    lines = SHAPES.read_text().splitlines()
    return [[int(word) for word in line.split()[:5]] for line in lines if line and line[0] != "#"]


def bie(m: int, k: int, n: int, bits: int, group: int, int8: bool = False) -> Run:
    operators = torch.ops.bie
    groups = -(-k // group)
    words = torch.randint(-(2**31), 2**31 - 1, ((k * bits + 31) // 32, n), dtype=torch.int64).int()
    scales = (torch.rand(groups, n) * 0.01 + 0.005).half()
    zeros = operators.pack_words(torch.full((groups, n), 2 ** (bits - 1) - 1, dtype=torch.int32), bits, 1)
    options = {"bits": bits, "group_size": group}
    x = torch.randn(m, k)
    w = operators.weight_only_open(words, scales, zeros, in_features=k, dtype=torch.float32, **options).double()
    options |= {"int8_activations": int8}
    panels = operators.weight_only_prepack(words, scales, zeros, in_features=k, **options)
    y = operators.weight_only_linear(x, words, scales, zeros, panels=panels, **options)
    if (y - x.double() @ w).abs().max() > (0.03 if int8 else 1e-3) * y.abs().max():
        raise SystemExit(f"bie, {m}x{k}x{n}: the result is not the product")
    return lambda: operators.weight_only_linear(x, words, scales, zeros, panels=panels, **options)


def float32(m: int, k: int, n: int, bits: int, group: int) -> Run:
    x, w = torch.randn(m, k), torch.randn(n, k)
    return lambda: torch.nn.functional.linear(x, w)


def int4pack(m: int, k: int, n: int, bits: int, group: int) -> Run | None:
    if bits != 4 or group not in (32, 64, 128, 256) or k % group or n % 16:
        return None
    packed = torch._convert_weight_to_int4pack_for_cpu(torch.randint(0, 16, (n, k), dtype=torch.int32), 1)
    numbers, x = torch.rand(k // group, n, 2).bfloat16(), torch.randn(m, k).bfloat16()
    return lambda: torch._weight_int4pack_mm_for_cpu(x, packed, group, numbers)


def bie_int8(m: int, k: int, n: int, bits: int, group: int) -> Run:
    return bie(m, k, n, bits, group, int8=True)


def onnxruntime(m: int, k: int, n: int, bits: int, group: int, accuracy_level: int = 0) -> Run | None:
    if group & (group - 1) or group < 16 or group > 256 or k % group:
        return None
    import numpy as np
    import onnxruntime as ort
    from onnx import TensorProto, helper, numpy_helper

    rng = np.random.default_rng(1)
    packed = rng.integers(0, 256, (n, k // group, group * bits // 8), dtype=np.uint8)
    scale = rng.uniform(0.005, 0.015, (n, k // group)).astype(np.float32)
    sizes = {"K": k, "N": n, "bits": bits, "block_size": group, "accuracy_level": accuracy_level}
    node = helper.make_node("MatMulNBits", ["x", "w", "scale"], ["y"], domain="com.microsoft", **sizes)
    values = [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in ("x", "y")]
    weights = [numpy_helper.from_array(packed, "w"), numpy_helper.from_array(scale, "scale")]
    graph = helper.make_graph([node], "layer", values[:1], values[1:], weights)
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    options = ort.SessionOptions()
    options.intra_op_num_threads = 1
    model = helper.make_model(graph, opset_imports=opsets, ir_version=8).SerializeToString()
    try:
        session = ort.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    except Exception:  # this width is not there
        return None
    x = rng.standard_normal((m, k), dtype=np.float32)
    return lambda: session.run(None, {"x": x})


def onnxruntime_int8(m: int, k: int, n: int, bits: int, group: int) -> Run | None:
    return onnxruntime(m, k, n, bits, group, accuracy_level=4)


def ggml(m: int, k: int, n: int, bits: int, group: int) -> Run | None:
    if bits != 4 or group != 32 or k % 32:
        return None
    import ctypes
    import importlib.util

    spec = importlib.util.find_spec("llama_cpp")
    if spec is None or spec.origin is None:
        return None
    folder = Path(spec.origin).parent / "lib"
    base, cpu = (ctypes.CDLL(str(folder / name), ctypes.RTLD_GLOBAL) for name in ("libggml-base.so", "libggml-cpu.so"))

    class Memory(ctypes.Structure):
        _fields_ = [("size", ctypes.c_size_t), ("buffer", ctypes.c_void_p), ("no_alloc", ctypes.c_bool)]

    class Plan(ctypes.Structure):  # of which only the first fields are read here
        _fields_ = [("work_size", ctypes.c_size_t), ("work", ctypes.c_void_p), ("rest", ctypes.c_char * 64)]

    pointer, long = ctypes.c_void_p, ctypes.c_int64
    for library, name, result, arguments in [
        (base, "ggml_init", pointer, [Memory]),
        (base, "ggml_new_tensor_2d", pointer, [pointer, ctypes.c_int, long, long]),
        (base, "ggml_get_data", pointer, [pointer]),
        (base, "ggml_quantize_chunk", ctypes.c_size_t, [ctypes.c_int, pointer, pointer, long, long, long, pointer]),
        (base, "ggml_mul_mat", pointer, [pointer, pointer, pointer]),
        (base, "ggml_new_graph", pointer, [pointer]),
        (base, "ggml_build_forward_expand", None, [pointer, pointer]),
        (cpu, "ggml_cpu_init", None, []),
        (cpu, "ggml_graph_plan", Plan, [pointer, ctypes.c_int, pointer]),
        (cpu, "ggml_graph_compute", ctypes.c_int, [pointer, ctypes.POINTER(Plan)]),
    ]:
        function = getattr(library, name)
        function.restype, function.argtypes = result, arguments
    cpu.ggml_cpu_init()
    f32, q4_0 = 0, 2
    context = base.ggml_init(Memory(8 * k * n + 8 * m * (k + n) + (16 << 20), None, False))
    w, x = torch.randn(n, k) * 0.02, torch.randn(m, k)
    weight, input = base.ggml_new_tensor_2d(context, q4_0, k, n), base.ggml_new_tensor_2d(context, f32, k, m)
    base.ggml_quantize_chunk(q4_0, w.data_ptr(), base.ggml_get_data(weight), 0, n, k, None)
    ctypes.memmove(base.ggml_get_data(input), x.data_ptr(), 4 * m * k)
    output = base.ggml_mul_mat(context, weight, input)
    graph = base.ggml_new_graph(context)
    base.ggml_build_forward_expand(graph, output)
    plan = cpu.ggml_graph_plan(graph, 1, None)
    work = torch.empty(plan.work_size + 64, dtype=torch.uint8)
    plan.work = work.data_ptr()

    def run(keep: Any = work) -> object:
        return cpu.ggml_graph_compute(graph, ctypes.byref(plan))

    run()
    y = torch.empty(m, n)
    ctypes.memmove(y.data_ptr(), base.ggml_get_data(output), 4 * m * n)
    if (y - x @ w.t()).abs().max() > 0.3 * y.abs().max():
        raise SystemExit(f"ggml, {m}x{k}x{n}: the result is not the product")
    return run


RIVALS = {
    **{"bie int8": bie_int8, "onnxruntime int8": onnxruntime_int8, "ggml": ggml},
    **{"float32": float32, "int4pack": int4pack, "onnxruntime": onnxruntime},
}


def race(runs: dict[str, Run], budget: float) -> dict[str, float]:
    """Median seconds of a call; contenders take turns, and a turn is a few calls of at least 200 microseconds."""
    calls, times = {}, {name: [] for name in runs}
    for name, run in runs.items():
        run()
        start = time.thread_time()
        run()
        calls[name] = max(1, min(100, int(2e-4 / max(1e-7, time.thread_time() - start))))
    end = time.monotonic() + budget * len(runs)
    while len(times["bie"]) < 7 or (time.monotonic() < end and len(times["bie"]) < 500):
        for name, run in runs.items():
            run()
            start = time.thread_time()
            for _ in range(calls[name]):
                run()
            times[name].append((time.thread_time() - start) / calls[name])
    return {name: statistics.median(values) for name, values in times.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--library", default="build/release/src/ops/libbie_ops.so")
    parser.add_argument("--filter", default="", help="only shapes whose title has this, such as 'm=1 '")
    parser.add_argument("--without", nargs="*", default=[], help="contenders that are left out")
    parser.add_argument("--core", type=int, default=0)
    parser.add_argument("--seconds", type=float, default=0.5)
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    os.sched_setaffinity(0, {arguments.core})
    torch.set_num_threads(1)
    torch.ops.load_library(arguments.library)
    results: list[dict[str, Any]] = []
    for m, k, n, bits, group in shapes():
        title = f"m={m} k={k} n={n} bits={bits} group={group}"
        if arguments.filter not in title:
            continue
        runs = {"bie": bie(m, k, n, bits, group)}
        for name, make in RIVALS.items():
            if name in arguments.without:
                continue
            try:
                run = make(m, k, n, bits, group)
            except ImportError:
                continue
            if run is not None:
                runs[name] = run
        with torch.no_grad():
            medians = race(runs, arguments.seconds)
        results.append({"shape": title, "median_s": medians})
        times = "  ".join(
            f"{name} {1e6 * t:.1f} ({t / medians['bie']:.2f}x, {t / medians['bie int8']:.2f}x)"
            for name, t in medians.items()
        )
        print(f"{title}: {times}", flush=True)
    if arguments.json:
        arguments.json.write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()
