"""Writes docs/kernels.md: which CPU kernels there are for which instruction set of x86-64.

Usage: kernel_matrix.py [BIE]. BIE is the program whose `doctor --json` is asked, build/release/src/cli/bie if it is not
given. The list is that of the tables from which kernels are chosen.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs/kernels.md"
PROGRAM = ROOT / "build/release/src/cli/bie"

TEXT = """\
<!-- Written by tools/kernel_matrix.py; change that. -->
# Kernels by instruction set

A kernel is chosen from a table when its operator is called: the rightmost one that the CPU has and that takes the
shape. Where a cell is empty, the next one to the left is taken, so that an operator runs on every CPU. `BIE_MAX_ISA`
leaves out what is right of a column, and `bie doctor` says what this CPU has.

{instruction_sets}

{kernels}

`portable` kernels are loops of which a compiler makes vectors; where they are missing, the loops of the
[reference](extend.md) are taken, which define the result and are slow. 64-bit ARM has kernels of its own
([measured](measured/arm.md)), and so have [GPUs](gpu.md). What the columns are worth is
[measured](measured/cpu-other.md).
"""


def table(*rows: tuple[str, ...]) -> str:
    head, *body = ["| " + " | ".join(row) + " |" for row in rows]
    return "\n".join([head, "|" + " --- |" * len(rows[0]), *body])


def page(program: Path) -> str:
    """The text of docs/kernels.md, as this program has its tables."""
    doctor = json.loads(subprocess.run([program, "doctor", "--json"], capture_output=True, check=True).stdout)
    needs = {entry["name"]: entry["needs"] for entry in doctor["instruction_sets"]}
    columns = [name for name in needs if name != "reference"]
    found: dict[str, set[str]] = {}
    for kernel in doctor["kernels"]:
        if kernel["isa"] in needs:
            found.setdefault(kernel["name"].removesuffix("_" + kernel["isa"]), set()).add(kernel["isa"])
    rows = [(f"`{name}`", *("yes" if isa in has else "" for isa in columns)) for name, has in found.items()]
    sets = [(f"`{name}`", needs[name]) for name in columns]
    return TEXT.format(
        instruction_sets=table(("instruction set", "what it needs"), *sets),
        kernels=table(("kernel", *(f"`{name}`" for name in columns)), *rows),
    )


def main() -> None:
    PAGE.write_text(page(Path(sys.argv[1]) if len(sys.argv) > 1 else PROGRAM))


if __name__ == "__main__":
    main()
