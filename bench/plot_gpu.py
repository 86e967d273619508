"""Draws docs/images/gpu-layers.svg, gpu-convs.svg and gpu-convs-nchw.svg from the numbers of bench/gpu_layers.py and
bench/gpu_convs.py.

python bench/plot_gpu.py LAYERS.json CONVS.json
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import matplotlib.pyplot as plt

IMAGES = Path(__file__).parent.parent / "docs" / "images"
COLORS = {
    "1 bit": "#d1495b",
    "4 bit": "#edae49",
    "8 bit": "#00798c",
    "fp8": "#8d96a3",
    "_int_mm": "#c3c9d1",
    "fastest of torch": "#8d96a3",
}


def draw(labels: list[str], times: list[dict[str, float]], names: list[str], rival: str, path: Path) -> None:
    """Bars of how many times faster than `rival` the others are, one group a label."""
    figure, axes = plt.subplots(figsize=(9, 0.62 * len(labels) + 1.2))
    height = 0.8 / len(names)
    for place, name in enumerate(names):
        rows = [(y, us[rival] / us[name]) for y, us in enumerate(times) if name in us]
        offsets = [y - 0.4 + (place + 0.5) * height for y, _ in rows]
        bars = axes.barh(
            offsets, [times_faster for _, times_faster in rows], height, label=name.strip("_"), color=COLORS[name]
        )
        axes.bar_label(bars, fmt="%.1f", padding=2, fontsize=7, color="#57606a")
    axes.axvline(1, color="#57606a", linewidth=1)
    axes.set_yticks(range(len(labels)), labels)
    axes.invert_yaxis()
    axes.set_xlabel(f"times faster than {rival}")
    axes.legend(frameon=False, loc="lower right")
    axes.spines[["top", "right"]].set_visible(False)
    figure.tight_layout()
    figure.savefig(path, metadata={"Date": None})
    plt.close(figure)


def main(layers_file: str, convs_file: str) -> None:
    plt.rcParams.update({"svg.hashsalt": "bie", "font.size": 9})
    layers = json.loads(Path(layers_file).read_text())
    labels = [f"{r['m']}, {r['n']}, {r['k']}" for r in layers["results"]]
    names = ["1 bit", "4 bit", "8 bit", "fp8", "_int_mm"]
    draw(labels, [r["us"] for r in layers["results"]], names, "fp16", IMAGES / "gpu-layers.svg")
    convs = json.loads(Path(convs_file).read_text())
    labels = [
        f"{r['batch']} x {r['height']}x{r['width']}, {r['in_c']} to {r['out_c']}, {r['kernel']}x{r['kernel']}"
        + (f" stride {r['stride']}" if r["stride"] > 1 else "")
        for r in convs["results"]
    ]
    names = ["1 bit", "4 bit", "8 bit"]
    for layout, name in (("", "gpu-convs.svg"), (" NCHW", "gpu-convs-nchw.svg")):
        times = [{column: r["us"][column + layout] for column in [*names, "fp16"]} for r in convs["results"]]
        draw(labels, times, names, "fp16", IMAGES / name)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
