"""Device time of calls that take turns, for the GPU benches."""

from __future__ import annotations

import argparse
import json
import statistics
from collections.abc import Callable
from pathlib import Path

import torch

CACHE_BYTES = 200 << 20  # what no GPU's cache holds: as many weights take turns
ROUNDS = 9
Call = Callable[[int], object]


def read_shapes(name: str, integers: int) -> list[tuple[int, ...]]:
    """The first integers of the lines of a file of bench/shapes."""
    lines = (Path(__file__).parent / "shapes" / name).read_text().splitlines()
    return [tuple(map(int, line.split()[:integers])) for line in lines if line.strip() and not line.startswith("#")]


def codes_of(t: torch.Tensor, step: float | torch.Tensor, bits: int) -> torch.Tensor:
    """What a layer multiplies: signs, or t / step rounded and clamped."""
    if bits == 1:
        return torch.where(t >= 0, 1.0, -1.0)
    bound = 2 ** (bits - 1)
    return (t.float() / step).round().clamp(-bound, bound - 1)


def replay_of(call: Call, calls: int) -> torch.cuda.CUDAGraph:
    call(0)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for i in range(calls):
            call(i)
    return graph


def microseconds(graph: torch.cuda.CUDAGraph, calls: int) -> float:
    start, stop = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    start.record()
    graph.replay()
    stop.record()
    stop.synchronize()
    return 1000 * start.elapsed_time(stop) / calls


def race(every: dict[str, Call], calls: int) -> tuple[dict[str, float], dict[str, float]]:
    """Median microseconds of a call, and the spread over the rounds relative to it; each is a replay of a CUDA graph of
    call(0) ... call(calls - 1), in turns."""
    graphs = {name: replay_of(call, calls) for name, call in every.items()}
    times: dict[str, list[float]] = {name: [] for name in graphs}
    for round_ in range(ROUNDS + 1):
        for name, graph in graphs.items():
            us = microseconds(graph, calls)
            if round_ > 0:
                times[name].append(us)
    median = {name: statistics.median(us) for name, us in times.items()}
    return median, {name: (max(us) - min(us)) / median[name] for name, us in times.items()}


def options(doc: str | None) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", metavar="FILE", help="where to write every number")
    parser.add_argument("--markdown", action="store_true", help="print a table instead of JSON lines")
    return parser


def report(
    arguments: argparse.Namespace, results: list[dict], markdown: Callable[[list[dict]], str], **more: object
) -> None:
    """Prints and writes what the arguments of `options` ask for; `more` goes to the file."""
    print(markdown(results) if arguments.markdown else "\n".join(map(json.dumps, results)))
    if arguments.json:
        versions = {"torch": torch.__version__, "cuda": torch.version.cuda}
        with open(arguments.json, "w") as file:
            device = torch.cuda.get_device_name() if torch.cuda.is_available() else "CPU"
            json.dump({"device": device, **versions, **more, "results": results}, file, indent=1)
