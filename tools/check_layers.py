"""Includes go downward only: reports every include that points up, sideways into an ISA folder, or out to torch, and
every operator that asks which device it is on, every loop over elements outside the kernels, every library that
prints, ends the process, asks the environment or keeps what a second caller would share, and every error that says what
is wanted behind what was got.

Usage: check_layers.py [ROOT]. One line per offence and exit status 1; silent otherwise.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path, PurePosixPath

KERNELS, OPS, FORMATS, DATA = "kernels", "ops", "formats", "data"
LAYERS, OPTIM, MODELS, TRAIN, CLI = "layers", "optim", "models", "train", "cli"
REPORT, RUNTIME, ONNX = "report", "runtime", "onnx"
WEIGHTS, TEXT, LLM = "weights", "text", "llm"

# Rooms that a room under src/ and include/bie/ may include.
MAY_INCLUDE = {
    KERNELS: {KERNELS},
    FORMATS: {FORMATS},
    WEIGHTS: {KERNELS, FORMATS, WEIGHTS},
    TEXT: {FORMATS, TEXT},
    LLM: {KERNELS, FORMATS, WEIGHTS, TEXT, LLM},
    OPS: {KERNELS, WEIGHTS, OPS},
    RUNTIME: {KERNELS, FORMATS, RUNTIME},
    ONNX: {KERNELS, FORMATS, RUNTIME, ONNX},
    DATA: {FORMATS, DATA},
    LAYERS: {KERNELS, OPS, FORMATS, WEIGHTS, DATA, LAYERS},
    OPTIM: {KERNELS, OPS, LAYERS, OPTIM},
    MODELS: {KERNELS, OPS, FORMATS, DATA, LAYERS, RUNTIME, MODELS},
    TRAIN: {KERNELS, OPS, FORMATS, DATA, LAYERS, OPTIM, RUNTIME, MODELS, TRAIN},
    CLI: {KERNELS, OPS, FORMATS, DATA, LAYERS, OPTIM, RUNTIME, MODELS, TRAIN, ONNX, REPORT, TEXT, LLM, CLI},
    REPORT: {REPORT},
}
# Rooms that must build where torch and Python are absent, and how sentences call them.
TORCH_FREE = {
    KERNELS: "the kernels know",
    FORMATS: "the formats know",
    REPORT: "the reports know",
    RUNTIME: "the runtime knows",
    ONNX: "the import of ONNX files knows",
    WEIGHTS: "the weights of files know",
    TEXT: "the tokenizers know",
    LLM: "the language models know",
}
# A header of an ISA folder is compiled with that folder's flags; elsewhere its inline functions could be the copy the
# linker keeps, and run on a CPU that lacks the instructions.
CPU = PurePosixPath("src/kernels/cpu")


def isa_folders() -> list[PurePosixPath]:
    """The folders that CMake compiles with flags of their own, in its order."""
    text = (Path(__file__).parent.parent / "src/kernels/CMakeLists.txt").read_text(encoding="utf-8")
    calls = re.findall(r"^ *bie_isa_folder\((\w+)(?: FOLDER (\w+))?", text, re.MULTILINE)
    return list(
        dict.fromkeys(
            CPU / (folder or isa) for isa, folder in calls if not (folder or isa).startswith(("isa", "passes"))
        )
    )


ISA_FOLDERS = isa_folders()
# Loops of unnamed namespaces, of which these folders make copies of their own; any may take the portable ones.
BUILT_ON = {
    CPU / "avx512bw": CPU / "avx2",
    CPU / "avxvnni": CPU / "avx2",
    CPU / "dotprod": CPU / "neon",
    CPU / "i8mm": CPU / "neon",
}
PORTABLE = CPU / "portable"
# Compiled once with flags and once without.
PASSES = PurePosixPath("src/kernels/cpu/passes")
REFERENCE = PurePosixPath("src/kernels/reference")
# Differences between devices are behind one interface, one folder per device.
OPERATORS = PurePosixPath("src/ops")
BACKEND = OPERATORS / "backend"
# Operators on files, for Python: what C++ asks of formats itself.
FILE_OPERATORS = OPERATORS / "files"
DEVICES = [BACKEND / device for device in ("cpu", "cuda")]

FOLDERS = ["include", "src", "tests", "bench", "examples"]
SUFFIXES = {".h", ".hpp", ".inc", ".cuh", ".cpp", ".cc", ".cu"}
INCLUDE = re.compile(r'^\s*#\s*include\s*[<"]([^>"]+)[>"]')
ASKS_DEVICE = re.compile(r"\b(is_cuda\(|with_cuda\b|kCUDA\b)")
# Things that no library does, with the files that may, each for one purpose that their documents state.
PROMISES = {
    "prints: results and logs are the command's": (
        re.compile(r"\b(printf|fprintf|puts|fputs|putchar|perror)\(|\bstd::(cout|cerr|clog)\b"),
        {"src/ops/tuning/dispatch_log.cpp"},
    ),
    "asks the environment": (
        re.compile(r"\bgetenv\("),
        {
            "src/kernels/cpu/isa.cpp",
            "src/kernels/cuda/device.cu",
            "src/data/room_for_bytes.cpp",
            "src/ops/tuning/tuning_file.cpp",
            "src/ops/tuning/dispatch_log.cpp",
        },
    ),
    "ends the process": (re.compile(r"\b(exit|abort|_exit|_Exit|quick_exit|terminate)\("), set()),
    "keeps what all callers share": (
        re.compile(r"^\s*static (?!const\b|constexpr\b|inline\b|_)[^()]*;\s*$|^(static )?std::(atomic\w*<|mutex\b).*;"),
        {
            "src/ops/tuning/tuning_file.cpp",
            "src/ops/tuning/dispatch_log.cpp",
            "include/bie/train/passive_threads.h",
            "src/kernels/cuda/device.cu",
            "src/ops/backend/cuda/conv_grads.cpp",
            "src/ops/gradient/integer_grad.cpp",
        },
    ),
}
# An error names the thing at fault, then what was expected, then what was got.
SPEAKING = ["include", "src", "python"]
WANTED = re.compile(r'"(?:[^"\\]|\\.)*\b(?:is|are) wanted\b')
FOREIGN = re.compile(r"^(torch|ATen|c10|caffe2|pybind11)/|^(Python|pyconfig)\.h$")


def room_of(path: PurePosixPath) -> str | None:
    """The room a file belongs to: src/ROOM/..., include/bie/ROOM/... or include/bie/ROOM.h."""
    parts = path.parts
    if parts[:1] == ("src",) and len(parts) > 2:
        return parts[1]
    if parts[:2] == ("include", "bie") and len(parts) > 2:
        return parts[2].removesuffix(".h")
    return None


def resolve(root: Path, file: PurePosixPath, text: str) -> PurePosixPath | None:
    """The file of this tree that `text` names, by the search order of our targets; None for anything else."""
    for base in (file.parent, PurePosixPath("include"), PurePosixPath("src"), PurePosixPath(".")):
        candidate = root / base / text
        if candidate.is_file():
            resolved = candidate.resolve()
            if resolved.is_relative_to(root):
                return PurePosixPath(resolved.relative_to(root))
    # Not written yet, or generated: judged by its name.
    if text.startswith("bie/"):
        return PurePosixPath("include") / text
    if text.split("/")[0] in MAY_INCLUDE and "/" in text:
        return PurePosixPath("src") / text
    return None


def offence(file: PurePosixPath, text: str, target: PurePosixPath | None) -> str | None:
    """Why `file` must not include `text`, or None where it may."""
    room = room_of(file)
    if room in TORCH_FREE and FOREIGN.search(text):
        return f"{TORCH_FREE[room]} neither torch nor Python"
    if target is None:
        return None
    for folder in [*ISA_FOLDERS, PASSES]:
        may = file.is_relative_to(folder) or BUILT_ON.get(file.parent) == folder
        may = may or (folder == PORTABLE and file.parent in ISA_FOLDERS)
        if target.is_relative_to(folder) and not may:
            return f"{folder} is compiled with its own flags and is included by nobody else"
    for folder in DEVICES:
        if target.is_relative_to(folder) and not (file.is_relative_to(folder) or file.parent == BACKEND):
            return f"{folder} is included by itself and {BACKEND}/*.cpp alone"
    if target.is_relative_to(REFERENCE):
        has_tables = file.parent == CPU or (file.parent.parent == CPU and file.parent not in [*ISA_FOLDERS, PASSES])
        if not (has_tables and file.suffix == ".cpp") and not file.is_relative_to(REFERENCE):
            return f"{REFERENCE} is included by itself and the tables of {CPU} alone"
    target_room = room_of(target)
    if room is None or target_room is None or target_room in MAY_INCLUDE.get(room, ()):
        return None
    if target_room in (FORMATS, RUNTIME) and file.is_relative_to(FILE_OPERATORS):
        return None
    if target_room not in MAY_INCLUDE:
        return f"the room {target_room} has no place in the order of tools/check_layers.py"
    return f"{room} must not know {target_room}"


def misplaced(file: PurePosixPath, line: str) -> str | None:
    """Why this line belongs into another room, or None where it does not."""
    code = line.split("//")[0]
    if not file.is_relative_to("src") or file.is_relative_to("src/kernels") or file.is_relative_to(BACKEND):
        return None
    if file.is_relative_to(OPERATORS) and ASKS_DEVICE.search(code):
        return f"asks which device it is on: that is for {BACKEND}"
    if "parallel_for(" in code:
        return "shares a loop among threads: that is for src/kernels"
    return None


def broken_promise(file: PurePosixPath, line: str) -> str | None:
    """Which promise of a library this line breaks, or None."""
    if room_of(file) in (None, CLI):
        return None
    if line.lstrip().startswith("*"):  # inside a comment of C
        return None
    code = re.sub(r'"(?:[^"\\\\]|\\\\.)*"', '""', line.split("//")[0])
    for promise, (pattern, may) in PROMISES.items():
        if pattern.search(code) and str(file) not in may:
            return promise
    return None


def misworded(root: Path) -> list[str]:
    """One line per sentence of another form in the tree at `root`."""
    found = []
    for folder in SPEAKING:
        for path in sorted((root / folder).rglob("*")):
            if path.suffix not in {*SUFFIXES, ".py"}:
                continue
            for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
                code = line.replace('"""', "") if path.suffix == ".py" else line.split("//")[0]
                if WANTED.search(code):
                    found.append(f"{path.relative_to(root)}:{number}: says what is wanted: expected B, got A")
    return found


def check(root: Path) -> list[str]:
    """One line per offence in the tree at `root`."""
    root = root.resolve()
    found = []
    for folder in FOLDERS:
        for path in sorted((root / folder).rglob("*")):
            if path.suffix not in SUFFIXES:
                continue
            file = PurePosixPath(path.relative_to(root))
            room = room_of(file)
            if room is not None and room not in MAY_INCLUDE:
                found.append(f"{file}: the room {room} has no place in the order of tools/check_layers.py")
                continue
            for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
                if reason := misplaced(file, line) or broken_promise(file, line):
                    found.append(f"{file}:{number}: {reason}")
                match = INCLUDE.match(line)
                reason = match and offence(file, match[1], resolve(root, file, match[1]))
                if reason:
                    found.append(f"{file}:{number}: includes {match[1]}: {reason}")
    return found + misworded(root)


def main() -> int:
    root = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parent.parent
    found = check(root)
    print("\n".join(found), end="\n" if found else "")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
