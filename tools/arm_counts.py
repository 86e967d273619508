"""Counts the instructions of the hot loops of ARM's kernels against what the pipes of some cores take.

python tools/arm_counts.py [BUILD]      after `cmake --build --preset aarch64-kernels`; prints a table

A count, no measurement: llvm-mca of LLVM 19 (Debian: llvm-19), whose models of the cores follow Arm's software
optimisation guides, says how many cycles a turn's instructions take from pipes, loads, stores and issue. The limit is
that of the instructions alone that the formula asks for.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

# Core: the options of its model and of how many instructions it takes a cycle.
CORES = {
    "Cortex-A76, Neoverse N1": ("-mcpu=neoverse-n1", "-dispatch=4"),
    "Neoverse V1": ("-mcpu=neoverse-v1", "-dispatch=8"),
    "Neoverse V2": ("-mcpu=neoverse-v2", "-dispatch=8"),
}
# Columns of LOOPS: the table's name of a loop; object; its function without namespaces ("": any); elements per turn, or
# None where a turn is products; beginnings of the instructions that tell the loop; those that the formula asks for. The
# last two are regular expressions.
SIGNS = ("ld[rp]", "fadd", "uzp2", "cmge", "and", "addp", "shl", "umax", "st[rp]")  # SHL and UMAX look for NaN
CODES = ("ld[rp]", "fadd", "fmul", "sqsub", "sqxtn", "smax", "smin", "st[rp]")
TABLES = ("ldr", "fmla", "and", "ushr", "tbl", "trn", "shl")
OPENED = (r"ldr\s+q", "sdot", "smlal", "and", "ushl", "ushr")  # what one row has to do with each line
LOOPS = [
    ("1 bit", "neon/binary_gemm", "", None, "cnt", ("cnt", "eor", r"add\s+v")),
    ("8 bits", "neon/int8_gemm", "", None, "smull", ("smull", "sadalp")),
    ("4 bits", "neon/int4_gemm", "", None, "smlal", ("smlal",)),
    ("8 bits as floats", "portable/int8_gemm", "", None, "fmla", ("fmla",)),
    ("8 bits", "dotprod/int8_gemm", "", None, "sdot", ("sdot",)),
    ("4 bits", "dotprod/int4_gemm", "", None, "sdot", ("sdot",)),
    ("grouped", "dotprod/grouped_conv2d", "", None, "sdot", ("sdot",)),
    ("8 bits", "i8mm/int8_gemm", "", None, "smmla", ("smmla",)),
    ("4 bits", "i8mm/int4_gemm", "", None, "smmla", ("smmla",)),
    ("1 bit, one row", "neon/weight_only_gemm", "add_group<1>", None, "fmla", ("ldr", "fmla", "cmtst", "bic")),
    ("2 bits, one row", "neon/weight_only_gemm", "add_group<2>", None, "fmla", TABLES),
    ("4 bits, one row", "neon/weight_only_gemm", "add_group<4>", None, "fmla", TABLES),
    ("8 bits, one row", "neon/weight_only_gemm", "add_group<8>", None, "fmla", ("ldr", "fmla", "fadd", "trn")),
    ("4 rows", "neon/weight_only_gemm", "multiply<4>", None, "fmla", ("fmla",)),
    ("6 rows", "neon/weight_only_gemm", "multiply<6>", None, "fmla", ("fmla",)),
    ("int8 activations, 4 bits, one row", "dotprod/weight_only_q8", "4, 1>", None, "sdot", OPENED),
    ("int8 activations, 4 bits, 6 rows", "dotprod/weight_only_q8", "4, 6>", None, "sdot", ("sdot",)),
    ("int8 activations, 4 bits, one row", "neon/weight_only_q8", "4, 1>", None, "smlal", OPENED),
    ("int8 activations, 4 bits, 3 rows", "neon/weight_only_q8", "4, 3>", None, "smlal", ("smlal",)),
    ("float32 to signs", "neon/signs", "sign_row<(Dtype)0, (Code)0, (Added)1>", 64, "addp", SIGNS),
    ("the same, a bias each", "neon/signs", "sign_row<(Dtype)0, (Code)0, (Added)2>", 64, "addp", SIGNS),
    ("float16 to signs", "neon/signs", "sign_row<(Dtype)2, (Code)0, (Added)1>", 64, "addp", (*SIGNS, "fcvtl")),
    ("planes to signs", "neon/signs", "sign_planes_as<(Dtype)0>", None, "sri", ("ld[rp]", "fadd", "fmla", "sri")),
    ("float32 to 8 bits", "neon/encode", "code_row<(Dtype)0, (Code)4, (Added)0>", 32, "fabd", CODES),
    ("the same, a bias each", "neon/encode", "code_row<(Dtype)0, (Code)4, (Added)2>", 32, "fabd", CODES),
    ("nibbles", "neon/encode", "pack_int4", 64, "sli", ("ld[rp]", "uzp", "sli", "st[rpu]")),
    ("sums to float32", "neon/store", "store", 16, "scvtf", ("ld[rp]", "scvtf", "fmul", "st[rp]")),
]


def functions(path: Path) -> dict[str, list[tuple[int, str]]]:
    """Address and instruction of every function."""
    command = ("aarch64-linux-gnu-objdump", "-dC", "--no-show-raw-insn", path)
    text = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout
    found: dict[str, list[tuple[int, str]]] = {}
    code: list[tuple[int, str]] = []
    for line in text.splitlines():
        if head := re.match(r"[0-9a-f]+ <(.*)>:$", line):
            code = found.setdefault(re.sub(r"(\(anonymous namespace\)|\w+)::", "", head[1]), [])
        elif step := re.match(r"\s*([0-9a-f]+):\s+(\S.*?)\s*(?://.*)?$", line):
            code.append((int(step[1], 16), step[2]))
    return found


def loops(code: list[tuple[int, str]]) -> list[list[str]]:
    """The instructions of every innermost loop."""
    places = {address: place for place, (address, _) in enumerate(code)}
    spans = []
    for place, (address, instruction) in enumerate(code):
        branch = re.match(r"(?:b\.\w+|b|cbn?z\s+\w+,|tbn?z\s+\w+,\s*#\d+,)\s+([0-9a-f]+)\b", instruction)
        if branch and (target := int(branch[1], 16)) <= address and target in places:
            spans.append((places[target], place))
    inner = [s for s in spans if not any(s != o and s[0] <= o[0] and o[1] <= s[1] for o in spans)]
    return [[instruction for _, instruction in code[first : last + 1]] for first, last in inner]


def cycles(body: list[str], core: tuple[str, ...]) -> float:
    """Of a turn: those of the fullest unit, or of issue. Branches are left out: their addresses mean nothing here."""
    text = "\n".join(i for i in body if not re.match(r"(b|b\.\w+|bl|cbn?z|tbn?z|adrp)\s", i))
    command = ("llvm-mca-19", "-march=aarch64", *core, "-mattr=+i8mm", "-instruction-info=0", "-iterations=100")
    said = subprocess.run(command, input=text, stdout=subprocess.PIPE, text=True, check=True).stdout
    units = re.search(r"Resource pressure per iteration:\n.*\n(.*)\n", said)[1].split()
    issued = int(re.search(r"Total uOps:\s+(\d+)", said)[1]) / 100 / int(core[1].split("=")[1])
    return max(issued, *(float(unit) for unit in units if unit != "-"))


def main() -> None:
    build = Path(sys.argv[1] if len(sys.argv) > 1 else "build/aarch64-kernels")
    print(f"| loop | | instructions of a turn | of them | {' | '.join(CORES)} |")
    print("| --- " * (4 + len(CORES)) + "|")
    for label, name, function, elements, tell, part in LOOPS:
        folder = name.split("/")[0]
        path = build / f"src/kernels/CMakeFiles/bie_kernels_{folder}.dir/cpu/{name}.cpp.o"
        bodies = [body for head, code in functions(path).items() if function in head for body in loops(code)]
        told = re.compile(tell)
        body = max(bodies, key=lambda b, told=told: (sum(bool(told.match(i)) for i in b), -len(b)))
        needed = [i for i in body if any(re.match(kind, i) for kind in part)]
        cells = []
        for core in CORES.values():
            if folder == "i8mm" and core[0].endswith("n1"):
                cells.append("")
                continue
            turn = cycles(body, core)
            share = f"{100 * cycles(needed, core) / turn:.0f} %"
            cells.append(share if elements is None else f"{elements / turn:.1f} a cycle, {share}")
        counts = Counter(i.split()[0] for i in body)
        said = ", ".join(f"{count} {kind}" for kind, count in counts.most_common() if told.match(kind))
        print(f"| {name} | {label} | {len(body)} | {said} | {' | '.join(cells)} |")


if __name__ == "__main__":
    main()
