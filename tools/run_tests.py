"""Runs every suite and ends with one line, `N passed, N failed, N skipped`; exit status 1 on a failure or an empty run.

Usage: run_tests.py [--only SUITE]... A check that is not a test framework's (a build, a format, the layers) counts as
one test. The output of whatever fails is printed in full; skips with their reasons, and after them the failures once
more with the first lines of what they said, stand at the end, where the tail of a log still has them.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter

from suites.aarch64 import suite_aarch64, suite_arm
from suites.cpp import suite_asan, suite_cpp, suite_cuda, suite_kernels_only, suite_runtime, suite_tsan
from suites.cpus import suite_avx2, suite_cpus
from suites.fuzz import suite_fuzz
from suites.install import suite_install
from suites.llm import suite_llm
from suites.python import suite_docs, suite_python, suite_wheel
from suites.serve import suite_serve
from suites.style import suite_format, suite_layers
from suites.tally import TALLY
from suites.tidy import suite_tidy

SUITES = {
    "layers": suite_layers,
    "format": suite_format,
    "cpp": suite_cpp,
    "python": suite_python,
    "avx2": suite_avx2,
    "wheel": suite_wheel,
    "docs": suite_docs,
    "kernels-only": suite_kernels_only,
    "runtime": suite_runtime,
    "asan": suite_asan,
    "tsan": suite_tsan,
    "fuzz": suite_fuzz,
    "install": suite_install,
    "tidy": suite_tidy,
    "cuda": suite_cuda,
    "cpus": suite_cpus,
    "llm": suite_llm,
    "serve": suite_serve,
    "aarch64": suite_aarch64,
    "arm": suite_arm,
}
# Suites that run where they are asked for: they take from ten minutes to an hour.
ON_REQUEST = {"cpus", "llm", "serve", "arm"}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", action="append", choices=SUITES, help="run this suite; may be repeated")
    chosen = parser.parse_args().only or [name for name in SUITES if name not in ON_REQUEST]
    start = time.monotonic()
    for name in SUITES:
        if name in chosen:
            SUITES[name]()
    print(f"{'all suites':<75} {time.monotonic() - start:7.1f} s")
    for (label, reason), count in Counter(TALLY.skips).items():
        print(f"skipped {count} in {label}: {reason}")
    for failure in TALLY.failures:
        print(f"failed: {failure}")
    return TALLY.last_line()


if __name__ == "__main__":
    sys.exit(main())
