"""Low-bit linear layers and convolutions of other engines on the shapes of bench/shapes, one pinned thread.

    python -m venv build/rivals && build/rivals/bin/pip install onnx onnxruntime numpy ai-edge-litert
    build/rivals/bin/python bench/rivals_cpu.py [--rival NAME] [--filter TEXT] [--json FILE] [--core N]
                                                [--bench JSON OF bie_bench]

Packages that bie does not depend on, so they have an environment of their own; and each rival has a process of its own:
two thread pools in one process disturb each other. The rivals, one after the other unless --rival names one:

    onnxruntime        int8 linear (dynamic, float32 in and out); QLinearConv, codes in and out
    onnxruntime-nbits  MatMulNBits: 4 bit weights in blocks of 128, int8 activations, float32 in and out
    litert             LiteRT with XNNPACK: int8 linear (dynamic range, float32 in and out); CONV_2D, codes in and out

What a run is and how a result is compared with its formula before it is timed is in bench/rivals. Medians of CPU time
of the thread; with --bench the times of our rows stand beside them.
"""

from __future__ import annotations

import argparse
import importlib
import importlib.metadata
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

SHAPES = Path(__file__).parent / "shapes"
KINDS = {
    "linear": ("gemm.txt", ("m", "k", "n")),
    "conv2d": ("conv2d.txt", ("in_c", "height", "width", "out_c", "kernel", "stride", "pad")),
}


class Rival(NamedTuple):
    module: str
    package: str
    name: str  # in the results
    makers: dict[str, str]  # the module's function for each kind of layer


RIVALS = {
    "onnxruntime": Rival(
        "rivals.onnx_runtime", "onnxruntime", "onnxruntime int8", {"linear": "int8_linear", "conv2d": "int8_conv2d"}
    ),
    "onnxruntime-nbits": Rival("rivals.onnx_runtime", "onnxruntime", "onnxruntime int4", {"linear": "nbits_linear"}),
    "litert": Rival("rivals.litert", "ai-edge-litert", "litert int8", {"linear": "linear", "conv2d": "conv2d"}),
}


def read_shapes(kind: str) -> list[dict[str, int]]:
    name, keys = KINDS[kind]
    lines = (SHAPES / name).read_text().splitlines()
    return [dict(zip(keys, map(int, line.split()), strict=False)) for line in lines if line and line[0] != "#"]


def title(kind: str, shape: dict[str, int]) -> str:
    """As bie_bench writes it, for the same --filter."""
    if kind == "linear":
        return "linear m={m} k={k} n={n}".format(**shape)
    form = "conv2d {kernel}x{kernel} {in_c} to {out_c} channels, image {height}x{width}, stride {stride}"
    return form.format(**shape)


def seconds(run: Callable[[], object], budget: float) -> dict[str, float]:
    run()
    times: list[float] = []
    while len(times) < 7 or (sum(times) < budget and len(times) < 2000):
        start = time.thread_time()
        run()
        times.append(time.thread_time() - start)
    low, middle, high = statistics.quantiles(times, n=4)
    return {"median_s": middle, "q1_s": low, "q3_s": high}


def ours(bench: list[dict[str, Any]], shape: dict[str, int]) -> dict[str, float]:
    """Medians of our AVX-512 rows in the results of bie_bench."""
    for result in bench:
        if all(result["shape"].get(key) == value for key, value in shape.items()):
            return {row["name"]: row["median_s"] for row in result["contenders"] if "_avx512" in row["name"]}
    return {}


def measure(rival: Rival, arguments: argparse.Namespace) -> dict[str, Any]:
    """The JSON of one rival: the version of its package and its results."""
    os.sched_setaffinity(0, {arguments.core})
    module = importlib.import_module(rival.module)
    rng = np.random.default_rng(1)
    bench = [result for path in arguments.bench for result in json.loads(path.read_text())["results"]]
    results = []
    layers = [(kind, shape) for kind in rival.makers for shape in read_shapes(kind)]
    for kind, shape in layers:
        text = title(kind, shape)
        if arguments.filter not in text:
            continue
        layer = getattr(module, rival.makers[kind])(*shape.values(), rng)
        if layer is None:
            print(f"{rival.name}, {text}: does not fit", flush=True)
            continue
        if not layer.difference <= layer.tolerance:
            raise SystemExit(f"{rival.name}, {text}: {layer.difference} from the formula, not {layer.tolerance}")
        timing = seconds(layer.run, arguments.seconds)
        beside = ours(bench, shape)
        results.append({"kind": kind, "shape": shape, "name": rival.name, **timing, "ours_s": beside})
        print(f"{rival.name}, {text}: {1e6 * timing['median_s']:.1f} us", flush=True)
        for name, time_of_ours in beside.items():
            print(f"    {name}: {1e6 * time_of_ours:.1f} us, {timing['median_s'] / time_of_ours:.2f}x")
    return {rival.package: importlib.metadata.version(rival.package), "results": results}


def measure_all() -> dict[str, Any]:
    """The same of each rival in a process of its own with this one's options."""
    merged: dict[str, Any] = {}
    results: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as folder:
        part = Path(folder) / "part.json"
        for rival in RIVALS:
            command = [sys.executable, __file__, *sys.argv[1:], "--rival", rival, "--json", str(part)]
            if subprocess.run(command).returncode != 0:
                raise SystemExit(f"{rival} failed")
            measured = json.loads(part.read_text())
            results += measured.pop("results")
            merged |= measured
    return {**merged, "results": results}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rival", choices=RIVALS)
    parser.add_argument("--filter", default="", help="only shapes whose title has this, such as 'linear m=1 '")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--bench", type=Path, action="append", default=[])
    parser.add_argument("--core", type=int, default=0)
    parser.add_argument("--seconds", type=float, default=0.2)
    arguments = parser.parse_args()
    measured = measure(RIVALS[arguments.rival], arguments) if arguments.rival else measure_all()
    if arguments.json:
        arguments.json.write_text(json.dumps(measured, indent=1) + "\n")


if __name__ == "__main__":
    main()
