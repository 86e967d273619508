"""Int8 linear layers and convolutions of ONNX Runtime on the shapes of bench/shapes, one pinned thread.

    python -m venv build/rivals && build/rivals/bin/pip install onnx onnxruntime numpy
    build/rivals/bin/python bench/rivals_cpu.py [--json FILE] [--core N] [--bench JSON OF bie_bench]

Packages that bie does not depend on, so they have an environment of their own and a process of their own: two thread
pools in one process disturb each other. Linear: DynamicQuantizeLinear, MatMulInteger and the scale, float32 in and out,
as quantize_dynamic writes them. Convolution: QLinearConv, codes in and out. A result is compared with its formula
before it is timed. Medians of CPU time of the thread; with --bench the times of our rows stand beside them.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import time
from pathlib import Path

import numpy as np
import onnxruntime as ort
from onnx import TensorProto, helper, numpy_helper

SHAPES = Path(__file__).parent / "shapes"
CONV_KEYS = ("in_c", "height", "width", "out_c", "kernel", "stride", "pad")


def read_shapes(name: str, integers: int) -> list[tuple[int, ...]]:
    lines = (SHAPES / name).read_text().splitlines()
    return [tuple(int(word) for word in line.split()[:integers]) for line in lines if line and line[0] != "#"]


def session_of(nodes, weights: dict[str, np.ndarray], x_type, y_type) -> ort.InferenceSession:
    graph = helper.make_graph(
        nodes,
        "layer",
        [helper.make_tensor_value_info("x", x_type, None)],
        [helper.make_tensor_value_info("y", y_type, None)],
        [numpy_helper.from_array(value, name) for name, value in weights.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    options = ort.SessionOptions()
    options.intra_op_num_threads = 1
    return ort.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])


def linear(m: int, k: int, n: int, rng: np.random.Generator):
    """The session, its input, and the largest difference from the product of codes."""
    x = rng.standard_normal((m, k), dtype=np.float32)
    w = rng.integers(-127, 128, (k, n), dtype=np.int8)
    nodes = [
        helper.make_node("DynamicQuantizeLinear", ["x"], ["q", "step", "zero"]),
        helper.make_node("MatMulInteger", ["q", "w", "zero"], ["acc"]),
        helper.make_node("Cast", ["acc"], ["wide"], to=TensorProto.FLOAT),
        helper.make_node("Mul", ["step", "scale"], ["both"]),
        helper.make_node("Mul", ["wide", "both"], ["y"]),
    ]
    weights = {"w": w, "scale": np.array(0.01, np.float32)}
    session = session_of(nodes, weights, TensorProto.FLOAT, TensorProto.FLOAT)
    lo, hi = min(x.min(), 0), max(x.max(), 0)
    step = np.float32((hi - lo) / 255)
    zero = np.rint(-lo / step)
    codes = np.clip(np.rint(x[:8] / step) + zero, 0, 255) - zero
    expected = codes @ w.astype(np.float64) * float(step) * 0.01
    return session, x, np.abs(session.run(None, {"x": x})[0][:8] - expected).max() / np.abs(expected).max()


def conv2d(c: int, height: int, width: int, out: int, kernel: int, stride: int, pad: int, rng: np.random.Generator):
    """The same for a convolution of batch 1; the difference is of the pixel in the middle, in codes."""
    x = rng.integers(0, 256, (1, c, height, width), dtype=np.uint8)
    w = rng.integers(-127, 128, (out, c, kernel, kernel), dtype=np.int8)
    scale = np.float32(1 / (c * kernel * kernel) ** 0.5 / 64)
    names = ["x", "sx", "zx", "w", "sw", "zw", "sy", "zy"]
    node = helper.make_node("QLinearConv", names, ["y"], strides=[stride] * 2, pads=[pad] * 4)
    weights = {
        "sx": np.array(1, np.float32),
        "zx": np.array(128, np.uint8),
        "w": w,
        "sw": np.array(scale, np.float32),
        "zw": np.array(0, np.int8),
        "sy": np.array(1, np.float32),
        "zy": np.array(128, np.uint8),
    }
    session = session_of([node], weights, TensorProto.UINT8, TensorProto.UINT8)
    y = session.run(None, {"x": x})[0]
    row, column = y.shape[2] // 2, y.shape[3] // 2
    top, left = row * stride - pad, column * stride - pad
    window = x[0, :, top : top + kernel, left : left + kernel].astype(np.float64) - 128
    expected = np.clip(np.rint((window * w).sum((1, 2, 3)) * float(scale)) + 128, 0, 255)
    return session, x, np.abs(y[0, :, row, column] - expected).max()


def seconds(session: ort.InferenceSession, x: np.ndarray, budget: float) -> dict[str, float]:
    session.run(None, {"x": x})
    times: list[float] = []
    while len(times) < 7 or (sum(times) < budget and len(times) < 2000):
        start = time.thread_time()
        session.run(None, {"x": x})
        times.append(time.thread_time() - start)
    low, middle, high = statistics.quantiles(times, n=4)
    return {"median_s": middle, "q1_s": low, "q3_s": high}


def ours(bench: dict, shape: dict) -> dict[str, float]:
    """Medians of our AVX-512 rows in a JSON of bie_bench."""
    for result in bench.get("results", []):
        if all(result["shape"].get(key) == value for key, value in shape.items()):
            return {row["name"]: row["median_s"] for row in result["contenders"] if "_avx512" in row["name"]}
    return {}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--bench", type=Path, action="append", default=[])
    parser.add_argument("--core", type=int, default=0)
    parser.add_argument("--seconds", type=float, default=0.2)
    arguments = parser.parse_args()
    os.sched_setaffinity(0, {arguments.core})
    rng = np.random.default_rng(1)
    bench = {"results": [r for path in arguments.bench for r in json.loads(path.read_text())["results"]]}
    layers = [("linear", dict(zip("mkn", s, strict=True)), linear, s, 1e-4) for s in read_shapes("gemm.txt", 3)] + [
        ("conv2d", dict(zip(CONV_KEYS, s, strict=True)), conv2d, s, 1) for s in read_shapes("conv2d.txt", 7)
    ]
    results = []
    for kind, shape, make, sizes, tolerance in layers:
        session, x, difference = make(*sizes, rng)
        if not difference <= tolerance:
            raise SystemExit(f"{kind} {shape}: ONNX Runtime is {difference} from the formula")
        timing = seconds(session, x, arguments.seconds)
        beside = ours(bench, shape)
        results.append({"kind": kind, "shape": shape, "name": "onnxruntime int8", **timing, "ours_s": beside})
        print(f"{kind} {shape}: {1e6 * timing['median_s']:.1f} us", flush=True)
        for name, time_of_ours in beside.items():
            print(f"    {name}: {1e6 * time_of_ours:.1f} us, {timing['median_s'] / time_of_ours:.2f}x")
    if arguments.json:
        arguments.json.write_text(json.dumps({"onnxruntime": ort.__version__, "results": results}, indent=1) + "\n")


if __name__ == "__main__":
    main()
