"""The suites that tools/gpu_check.sh runs once everything is built. Counts as tools/run_tests.py counts."""

from __future__ import annotations

import os
import re
import shutil
import sys
import time
from pathlib import Path

from suites.commands import BUILD, ROOT, run
from suites.junit import run_gtest, run_junit
from suites.python import package_environment
from suites.tally import TALLY

PYTHON = os.environ["BIE_PYTHON"]
KERNELS = BUILD / "release/tests/kernels/bie_cuda_test"
RANDOM_SHAPES = "2000"  # of each of the five tables: 10,000
SMALL = (
    "*SmallOdd*:*EveryMixOfChannel*:*FloatWeights*:*FloatFilters*:*HalvesWith*:*HalvesInPlanes*:*HalvesOfOneTap*:"
    "*FewChannels*:MixedProduct.Convolutions"
)
# racecheck takes the sums of warps, written before a barrier and read behind it (STS, BAR.SYNC and LDS in a row in the
# kernel's disassembly), for a hazard where warps met at named barriers before.
BUT = {"racecheck": "-CudaWeightOnly.*"}


def kernels() -> None:
    """Every kernel against the formula, on the odd-shape sweep and on random shapes."""
    run_gtest(KERNELS, env=os.environ | {"BIE_TEST_SHAPES": RANDOM_SHAPES})


def sanitizers() -> None:
    """Each tool counts as one test."""
    sanitizer = shutil.which("compute-sanitizer") or "/usr/local/cuda/bin/compute-sanitizer"
    for tool in ("memcheck", "racecheck", "synccheck", "initcheck"):
        if not Path(sanitizer).exists():
            TALLY.skip(tool, "compute-sanitizer is not installed")
            continue
        status, output, seconds = run(
            *(
                sanitizer,
                "--tool",
                tool,
                "--error-exitcode",
                "9",
                KERNELS,
                f"--gtest_filter={SMALL}{BUT.get(tool, '')}",
                "--gtest_brief=1",
            )
        )
        clean = re.search(r"ERROR SUMMARY: 0 errors|RACECHECK SUMMARY: 0 hazards", output) is not None
        TALLY.check(f"compute-sanitizer {tool}", seconds, status == 0 and clean, output[-6000:])


def pytest(label: str, *paths: str) -> None:
    command = (PYTHON, "-m", "pytest", "-q", "-p", "no:cacheprovider", *paths)
    env = package_environment() | {"OMP_NUM_THREADS": "4"}
    run_junit(label, *command, report="--junitxml=", env=env)


def main() -> int:
    start = time.monotonic()
    kernels()
    sanitizers()
    pytest("operators", *sorted(map(str, (ROOT / "tests/ops").glob("cuda_*_test.py"))))
    layers = ("cuda_test.py", "cuda_weight_only_test.py", "captured_step_test.py")
    pytest("python layers", *(f"tests/python/{name}" for name in layers))
    pytest("several GPUs", "tests/python/cuda_distributed_test.py")
    pytest("bie --device cuda", "tests/cli/gpu_test.py")
    print(f"{'GPU suites':<75} {time.monotonic() - start:7.1f} s")
    for label, reason in TALLY.skips:
        print(f"skipped in {label}: {reason}")
    return TALLY.last_line()


if __name__ == "__main__":
    sys.exit(main())
