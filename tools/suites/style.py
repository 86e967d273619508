"""What the sources look like: the order of the layers and the format."""

from __future__ import annotations

import time
from pathlib import Path

import check_layers

from suites.commands import BIN, ROOT, run
from suites.tally import TALLY


def suite_layers() -> None:
    """Includes go downward only."""
    start = time.monotonic()
    found = check_layers.check(ROOT)
    TALLY.check("layers", time.monotonic() - start, not found, "\n".join(found))


def sources(*folders: str, suffixes: tuple[str, ...]) -> list[Path]:
    return sorted(p for folder in folders for p in (ROOT / folder).rglob("*") if p.suffix in suffixes)


def suite_format() -> None:
    """clang-format and ruff have nothing to say."""
    files = sources("include", "src", "tests", "bench", "examples", suffixes=(".h", ".cpp", ".cu", ".cuh"))
    status, output, seconds = run(BIN / "clang-format", "--dry-run", "-Werror", *files)
    changed = sorted({line.split(":")[0] for line in output.splitlines() if ": error:" in line})
    summary = "\n".join(f"{Path(name).relative_to(ROOT)} differs: run `make format`" for name in changed)
    TALLY.check("clang-format", seconds, status == 0, summary or output)
    for label, *options in [("ruff check", "--quiet"), ("ruff format", "--check")]:
        status, output, seconds = run(BIN / "ruff", label.split()[1], "--no-cache", *options, ".")
        TALLY.check(label, seconds, status == 0, output)
