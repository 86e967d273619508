"""The table of docs/measured/grouped-convs.md from the JSON of bie_bench.

python bench/report_grouped.py GROUPS.json
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

WIDTHS = {"8 bit": "s8xs8_conv2d_avx512", "4 bit": "s4xs4_conv2d_avx512", "1 bit": "b1xb1_conv2d_avx512 pad 0"}


def main(path: str) -> None:
    """Each layout beside torch's float32 in the same one; microseconds and times as fast."""
    print(f"| channels, groups, image, kernel | layout | torch float32 | torch int8 | {' | '.join(WIDTHS)} |")
    print("| --- " * (4 + len(WIDTHS)) + "|")
    for result in json.loads(Path(path).read_text())["results"]:
        s, times = result["shape"], {c["name"]: 1e6 * c["median_s"] for c in result["contenders"]}
        int8 = min(time for name, time in times.items() if name.endswith("of float32"))
        stride = f" stride {s['stride']}" if s["stride"] > 1 else ""
        label = f"{s['in_c']}, {s['groups']}, {s['height']}x{s['width']}, {s['kernel']}x{s['kernel']}{stride}"
        for layout, floats, ending in (("NCHW", "", ""), ("NHWC", " channels_last", " NHWC")):
            float32 = times["torch float32" + floats]
            cells = [f"{times[name + ending]:.0f} ({float32 / times[name + ending]:.1f}x)" for name in WIDTHS.values()]
            print(f"| {label} | {layout} | {float32:.0f} | {int8:.0f} | {' | '.join(cells)} |")


if __name__ == "__main__":
    main(sys.argv[1])
