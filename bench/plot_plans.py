"""Draws docs/images/plans.svg: the types that plans for several sizes give the matrices of a model.

python bench/plot_plans.py PLAN.json ...

Each plan is written by `bie quantize MODEL --size 60.8MB --calibrate TEXT -o PLAN.json`.
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

import matplotlib.pyplot as plt
from matplotlib.colors import Normalize
from matplotlib.patches import Patch

IMAGE = Path(__file__).parent.parent / "docs" / "images" / "plans.svg"
ROWS = {"attn_q": "q, k, v", "attn_output": "output", "ffn_gate": "gate, up", "ffn_down": "down"}


def bits(kind: str) -> float:
    """Of a weight with its share of a group's scale and zero, 16 bits each."""
    width, group = map(int, re.fullmatch(r"W(\d+)G(\d+)", kind).groups())
    return width + 32 / group


def draw(axes: plt.Axes, plan: dict, colors: dict[str, tuple]) -> None:
    types = {entry["name"].removesuffix(".weight"): entry["type"] for entry in plan["plan"]}
    layers = 1 + max(int(name.split(".")[1]) for name in types if name.startswith("blk."))
    cells = [[colors[types[f"blk.{layer}.{row}"]] for layer in range(layers)] for row in ROWS]
    axes.imshow(cells, aspect="auto", interpolation="nearest")
    axes.set_yticks(range(len(ROWS)), ROWS.values())
    axes.set_title(f"{plan['file_bytes'] / 1e6:.1f} MB, the table {types['token_embd']}", fontsize=9, loc="left")
    axes.set_xticks(range(0, layers, 5))
    axes.tick_params(length=0)
    axes.spines[:].set_visible(False)


def main(files: list[str]) -> None:
    plt.rcParams.update({"svg.hashsalt": "bie", "font.size": 9})
    plans = [json.loads(Path(file).read_text()) for file in files]
    kinds = sorted({entry["type"] for plan in plans for entry in plan["plan"]}, key=bits)
    scale = Normalize(bits(kinds[0]), bits(kinds[-1]))
    colors = {kind: plt.get_cmap("viridis")(scale(bits(kind)))[:3] for kind in kinds}
    figure, all_axes = plt.subplots(len(plans), figsize=(9, 1.3 * len(plans) + 0.8), sharex=True, squeeze=False)
    for axes, plan in zip(all_axes[:, 0], plans, strict=True):
        draw(axes, plan, colors)
    all_axes[-1, 0].set_xlabel("layer")
    legend = [Patch(color=colors[kind], label=f"{kind}, {bits(kind):g} bits") for kind in kinds]
    figure.legend(handles=legend, loc="center right", frameon=False, fontsize=8)
    figure.tight_layout(rect=(0, 0, 0.84, 1))
    figure.savefig(IMAGE, metadata={"Date": None})


if __name__ == "__main__":
    main(sys.argv[1:])
