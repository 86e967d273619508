"""clang-tidy, with a stamp for each file that passed."""

from __future__ import annotations

import hashlib
import json
import os
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from suites.builds import build
from suites.commands import BIN, BUILD, ROOT, run
from suites.style import sources
from suites.tally import TALLY

CLANG_TIDY = BIN / "clang-tidy"


def tidy_keys(files: list[Path], build_folder: Path) -> dict[Path, str]:
    """For each file a hash of all that clang-tidy's answer depends on: its version and options, the compiler's command,
    the file and what of the project it includes (from ninja's log of dependencies)."""
    objects = {entry["file"]: entry for entry in json.loads((build_folder / "compile_commands.json").read_text())}
    includes: dict[str, list[str]] = {}
    target = ""
    for line in run(BIN / "ninja", "-C", build_folder, "-t", "deps")[1].splitlines():
        if line.startswith("    "):
            includes[target].append(line.strip())
        elif ": #deps" in line:
            target = line.split(": #deps")[0]
            includes[target] = []
    common = run(CLANG_TIDY, "--version")[1] + (ROOT / ".clang-tidy").read_text()
    keys = {}
    for file in files:
        entry = objects[str(file)]
        seen = {file, *((build_folder / name).resolve() for name in includes.get(entry["output"], []))}
        ours = [path for path in sorted(seen) if path.is_relative_to(ROOT) and path.suffix in (".h", ".cpp")]
        texts = [common, entry["command"], *(path.read_text() for path in ours)]
        keys[file] = hashlib.sha256("".join(texts).encode()).hexdigest()
    return keys


def suite_tidy() -> None:
    """clang-tidy on the rooms without torch and the headers they include; counts as one test. A file
    that passed and has not changed since, nor what it includes, is not read again."""
    preset = "release" if build("release") else "kernels-only"
    database = BUILD / preset / "compile_commands.json"
    if not database.exists():
        return
    listed = database.read_text()
    files = [
        file
        for file in sources(
            "src/kernels", "src/formats", "src/runtime", "src/weights", "src/text", "src/llm", suffixes=(".cpp",)
        )
        if f'{file}"' in listed
    ]
    start = time.monotonic()
    stamps = BUILD / "tidy.json"
    passed = json.loads(stamps.read_text()) if stamps.exists() else {}
    keys = tidy_keys(files, database.parent)
    changed = [file for file in files if passed.get(str(file)) != keys[file]]

    def tidy(file: Path) -> str:
        # g++ brings an OpenMP header and clang none.
        status, output, _ = run(CLANG_TIDY, "--quiet", "-p", database.parent, "--extra-arg=-fno-openmp", file)
        if status == 0:
            passed[str(file)] = keys[file]
        return f"{file.relative_to(ROOT)}\n{output}" if status != 0 else ""

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        complaints = "".join(pool.map(tidy, changed))
    stamps.write_text(json.dumps(passed))
    label = f"clang-tidy, {len(changed)} of {len(files)} files changed"
    TALLY.check(label, time.monotonic() - start, bool(files) and not complaints, complaints)
