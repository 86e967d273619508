"""Tables and plots of docs/measured/cpu-linear.md and cpu-conv2d.md from the JSON of bie_bench.

python bench/report_cpu.py LINEAR.json CONVS.json
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import matplotlib.pyplot as plt
from plot_gpu import IMAGES, draw

ROWS = {"1 bit": "b1xb1", "8 bit": "s8xs8", "4 bit": "s4xs4"}


def row_of(result: dict, bits: str, note: str = "") -> dict:
    """Our AVX-512 row of that width."""
    return next(
        c for c in result["contenders"] if c["name"].startswith(ROWS[bits]) and c["name"].endswith(f"_avx512{note}")
    )


def rival_of(result: dict) -> dict:
    return min((c for c in result["contenders"] if c["name"].startswith("torch")), key=lambda c: c["median_s"])


def us(seconds: float) -> str:
    return f"{1e6 * seconds:.3g}" if seconds < 999.5e-6 else f"{1e6 * seconds:,.0f}"


def cell(row: dict) -> str:
    return f"{us(row['median_s'])} ({100 * row['of_limit']:.0f} %, {row['times_fastest_rival']:.2f}x)"


def table(results: list[dict], head: str, label, note: str) -> list[str]:
    lines = [
        f"| {head} | torch float32 | fastest of torch | {' | '.join(ROWS)} |",
        "| --- " * (3 + len(ROWS)) + "|",
    ]
    for result in results:
        rival = rival_of(result)
        cells = " | ".join(cell(row_of(result, bits, note)) for bits in ROWS)
        lines.append(
            f"| {label(result['shape'])} | {us(result['contenders'][0]['median_s'])} | "
            f"{us(rival['median_s'])} {rival['name'].removeprefix('torch ')} | {cells} |"
        )
    return lines


def linear_label(s: dict) -> str:
    return f"{s['m']}, {s['k']}, {s['n']}"


def conv_label(s: dict) -> str:
    stride = f" stride {s['stride']}" if s["stride"] > 1 else ""
    return f"{s['in_c']} to {s['out_c']}, {s['height']}x{s['width']}, {s['kernel']}x{s['kernel']}{stride}"


def plot(results: list[dict], label, note: str, path: Path) -> None:
    times = []
    for result in results:
        seconds = {bits: row_of(result, bits, note)["median_s"] for bits in ROWS}
        times.append(
            {
                "float32": result["contenders"][0]["median_s"],
                "fastest of torch": rival_of(result)["median_s"],
                **seconds,
            }
        )
    draw([label(r["shape"]) for r in results], times, ["1 bit", "4 bit", "8 bit", "fastest of torch"], "float32", path)


def main(linear_file: str, convs_file: str) -> None:
    plt.rcParams.update({"svg.hashsalt": "bie", "font.size": 9})
    linear = json.loads(Path(linear_file).read_text())["results"]
    convs = json.loads(Path(convs_file).read_text())["results"]
    print("\n".join(table(linear, "m, k, n", linear_label, "")))
    for note in (" NHWC", ""):
        print("\n" + "\n".join(table(convs, f"channels, image, kernel{note}", conv_label, note)))
    plot(linear, linear_label, "", IMAGES / "cpu-linear.svg")
    plot(convs, conv_label, " NHWC", IMAGES / "cpu-conv2d.svg")


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
