"""Counts the instructions of the hot loops of ARM's tiles against what the pipes of some cores take.

python tools/arm_counts.py [BUILD]      after `cmake --build --preset aarch64-kernels`; prints a table

A count, no measurement: cycles of a turn are those of the pipe with most work, of loads, or of as many instructions as
a core takes in a cycle. The limit is the multiplications (with what adds their products) alone. Pipes and throughputs
are those of Arm's software optimisation guides of the cores, as LLVM's scheduling models have them too.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

# Object to (how its multiplications begin, what belongs to a multiplication).
TILES = {
    "neon/binary_gemm": ("cnt", ("cnt", "eor", "add v")),
    "neon/int8_gemm": ("smull", ("smull", "sadalp")),
    "neon/int4_gemm": ("smlal", ("smlal",)),
    "portable/int8_gemm": ("fmla", ("fmla",)),
    "dotprod/int8_gemm": ("sdot", ("sdot",)),
    "dotprod/int4_gemm": ("sdot", ("sdot",)),
    "dotprod/grouped_conv2d": ("sdot", ("sdot",)),
    "i8mm/int8_gemm": ("smmla", ("smmla",)),
    "i8mm/int4_gemm": ("smmla", ("smmla",)),
}
# Core: vector pipes, of which the first share multiplies long and the second shifts and adds pairs; loads a cycle;
# stores a cycle; instructions a cycle; whether it has SMMLA.
CORES = {
    "Cortex-A76, Neoverse N1": (2, 1, 1, 2, 1, 4, False),
    "Neoverse V1": (4, 2, 2, 3, 2, 8, True),
    "Neoverse V2": (4, 2, 2, 3, 2, 8, True),
}
LONG, SHIFTS = ("smull", "smlal"), ("sadalp", "shl", "sshr", "sshll")


def loops(path: Path) -> list[list[str]]:
    """The instructions of every innermost loop."""
    command = ("aarch64-linux-gnu-objdump", "-d", "--no-show-raw-insn", path)
    text = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout
    lines = re.findall(r"(?m)^\s*([0-9a-f]+):\s+(\S.*?)\s*(?://.*)?$", text)
    code = [(int(address, 16), instruction) for address, instruction in lines]
    places = {address: place for place, (address, _) in enumerate(code)}
    spans = []
    for place, (address, instruction) in enumerate(code):
        branch = re.match(r"(?:b\.\w+|b|cbn?z\s+\w+,|tbn?z\s+\w+,\s*#\d+,)\s+([0-9a-f]+)\b", instruction)
        if branch and (target := int(branch[1], 16)) <= address and target in places:
            spans.append((places[target], place))
    inner = [s for s in spans if not any(s != o and s[0] <= o[0] and o[1] <= s[1] for o in spans)]
    return [[instruction for _, instruction in code[first : last + 1]] for first, last in inner]


def of_kind(instruction: str, kinds: tuple[str, ...]) -> bool:
    return any(re.match(kind.replace(" ", r"\s+"), instruction) for kind in kinds)


def cycles(body: list[str], core: tuple) -> float:
    """Of a turn: the resource that takes longest."""
    pipes, long_pipes, shift_pipes, load_width, store_width, width, _ = core
    names = [instruction.split()[0] for instruction in body]
    loads = sum(2 if name == "ldp" else 1 for name in names if name.startswith("ld"))
    stores = sum(name.startswith("st") for name in names)
    # LD1 of a lane or of all lanes takes a vector pipe too; DUP of a general register takes none.
    vectors = sum(
        bool(re.search(r"\bv\d+\.", i)) and not i.startswith(("ldr", "ldp", "str", "stp"))
        for i in body
        if not re.match(r"dup\s+v\d+\.\w+,\s*[wx]\d+", i)
    )
    longs, shifts = (sum(of_kind(i, kinds) for i in body) for kinds in (LONG, SHIFTS))
    return max(
        vectors / pipes,
        longs / long_pipes,
        shifts / shift_pipes,
        loads / load_width,
        stores / store_width,
        len(body) / width,
    )


def main() -> None:
    build = Path(sys.argv[1] if len(sys.argv) > 1 else "build/aarch64-kernels")
    print(f"| loop | instructions of a turn | multiply | {' | '.join(CORES)} |")
    print("| --- " * (3 + len(CORES)) + "|")
    for name, (multiply, part) in TILES.items():
        folder = name.split("/")[0]
        path = build / f"src/kernels/CMakeFiles/bie_kernels_{folder}.dir/cpu/{name}.cpp.o"
        body = max(loops(path), key=lambda b, multiply=multiply: (sum(i.startswith(multiply) for i in b), -len(b)))
        needed = [i for i in body if of_kind(i, part)]
        cells = []
        for core in CORES.values():
            runs = core[-1] or not name.startswith("i8mm")
            cells.append(f"{100 * cycles(needed, core) / cycles(body, core):.0f} %" if runs else "")
        counts = Counter(i.split()[0] for i in body)
        said = ", ".join(f"{count} {kind}" for kind, count in counts.most_common() if kind.startswith(multiply))
        print(f"| {name} | {len(body)} | {said} | {' | '.join(cells)} |")


if __name__ == "__main__":
    main()
