"""Trains a list of `bie train` settings over several seeds and prints one Markdown table of test accuracies.

Usage: sweep.py FILE [--seeds N] [--jobs N] [--threads N] [--bie PATH] [--data SPEC]
A line of FILE is `label | options of bie train`; {a,b} in the options stands for one line each (all combinations, in
order), {} in the label for the choice; `#` begins a comment. --jobs trainings run at once, each on
--threads threads (1). A run that fails counts as 0 and is named below.
"""

from __future__ import annotations

import argparse
import itertools
import os
import re
import shlex
import statistics
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
CHOICE = re.compile(r"\{([^{}]*)\}")
RESULT = re.compile(r"test accuracy (\d+\.\d+) %(?:, binary weights flipped (\d+\.\d+) %)?, (\d+\.\d+) s")


def settings(text: str) -> list[tuple[str, list[str]]]:
    found = []
    for line in text.splitlines():
        line = line.split("#")[0].strip()
        if not line:
            continue
        label, _, options = line.rpartition("|")
        parts = CHOICE.split(options)  # text, choices, text, ...
        for chosen in itertools.product(*(choices.split(",") for choices in parts[1::2])):
            filled = "".join(itertools.chain(*itertools.zip_longest(parts[::2], chosen, fillvalue="")))
            found.append((label.strip().format(*chosen), shlex.split(filled)))
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("file", type=Path)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--bie", default=str(ROOT / "build/release/src/cli/bie"))
    parser.add_argument("--data", default="digits")
    arguments = parser.parse_args()
    grid = settings(arguments.file.read_text())

    def train(options: list[str], seed: int) -> tuple[float, float | None, float, str]:
        common = ["--threads", str(arguments.threads), "-q", "train", "--data", arguments.data, "--seed", str(seed)]
        done = subprocess.run([arguments.bie, *common, *options], capture_output=True, text=True)
        match = RESULT.search(done.stdout)
        if not match:
            return 0.0, None, 0.0, f"{' '.join(options)} --seed {seed}: {done.stderr.strip()}"
        accuracy, flipped, seconds = match.groups()
        return float(accuracy), float(flipped) if flipped else None, float(seconds), ""

    print(f"| {arguments.data}, {arguments.seeds} seeds | mean | least | most | flipped | s |")
    print("| --- | --- | --- | --- | --- | --- |", flush=True)
    results = []
    with ThreadPoolExecutor(arguments.jobs) as pool:
        rows = [
            (label, [pool.submit(train, options, seed) for seed in range(arguments.seeds)]) for label, options in grid
        ]
        for label, futures in rows:
            runs = [future.result() for future in futures]
            results += runs
            accuracies = [run[0] for run in runs]
            flips = [run[1] for run in runs if run[1] is not None]
            flipped = f"{statistics.mean(flips):.1f}" if flips else "-"
            print(
                f"| {label} | {statistics.mean(accuracies):.2f} | {min(accuracies):.2f} | {max(accuracies):.2f} "
                f"| {flipped} | {statistics.mean(run[2] for run in runs):.1f} |",
                flush=True,
            )
    failures = [run[3] for run in results if run[3]]
    for failure in failures:
        print(failure)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
