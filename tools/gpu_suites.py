"""The suites that tools/gpu_check.sh runs once everything is built. Counts as tools/run_tests.py counts."""

from __future__ import annotations

import os
import re
import shutil
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

from suites.commands import BUILD, ROOT, run
from suites.junit import run_gtest, run_junit
from suites.python import package_environment
from suites.tally import TALLY

PYTHON = os.environ["BIE_PYTHON"]
KERNELS = BUILD / "release/tests/kernels/bie_cuda_test"
SHARDS = 4
TOOLS = {"racecheck": 12, "memcheck": 1, "synccheck": 1, "initcheck": 1}  # to parts that run side by side
RANDOM_SHAPES = "2000"  # of each of the five tables: 10,000
SMALL = (
    "*SmallOdd*:*EveryMixOfChannel*:*FloatWeights*:*FloatFilters*:*HalvesWith*:*HalvesInPlanes*:*HalvesOfOneTap*:"
    "*FewChannels*:MixedProduct.Convolutions"
)
# racecheck takes the sums of warps, written before a barrier and read behind it (STS, BAR.SYNC and LDS in a row in the
# kernel's disassembly), for a hazard where warps met at named barriers before.
BUT = {"racecheck": "-CudaWeightOnly*"}

Job = Callable[[], None]


def kernels() -> list[Job]:
    """Every kernel against the formula, on the odd-shape sweep and on random shapes."""
    return [partial(shard, number) for number in range(SHARDS)]


def shard(number: int) -> None:
    settings = {"GTEST_TOTAL_SHARDS": str(SHARDS), "GTEST_SHARD_INDEX": str(number), "BIE_TEST_SHAPES": RANDOM_SHAPES}
    run_gtest(KERNELS, f", part {number + 1} of {SHARDS}", env=os.environ | settings)


def sanitizers() -> list[Job]:
    """Each part of a tool counts as one test."""
    program = shutil.which("compute-sanitizer") or "/usr/local/cuda/bin/compute-sanitizer"
    if not Path(program).exists():
        return [partial(TALLY.skip, tool, "compute-sanitizer is not installed") for tool in TOOLS]
    return [partial(sanitize, program, tool, part, parts) for tool, parts in TOOLS.items() for part in range(parts)]


def sanitize(program: str, tool: str, part: int, parts: int) -> None:
    tests = f"--gtest_filter={SMALL}{BUT.get(tool, '')}"
    command = (program, "--tool", tool, "--error-exitcode", "9", KERNELS, tests, "--gtest_brief=1")
    settings = {"GTEST_TOTAL_SHARDS": str(parts), "GTEST_SHARD_INDEX": str(part)}
    status, output, seconds = run(*command, env=os.environ | settings)
    clean = re.search(r"ERROR SUMMARY: 0 errors|RACECHECK SUMMARY: 0 hazards", output) is not None
    label = f"compute-sanitizer {tool}" + (f", part {part + 1} of {parts}" if parts > 1 else "")
    TALLY.check(label, seconds, status == 0 and clean, output[-6000:])


def pytest(*files: Path | str) -> list[Job]:
    """A job a file."""
    return [partial(pytest_of, str(Path(file).relative_to(ROOT))) for file in files]


def pytest_of(file: str) -> None:
    command = (PYTHON, "-m", "pytest", "-q", "-p", "no:cacheprovider", file)
    run_junit(file, *command, report="--junitxml=", env=package_environment() | {"OMP_NUM_THREADS": "2"})


def files_for_gpus() -> list[Path]:
    """Those of operators and Python layers that ask whether there is a GPU, or how many."""
    files = sorted((ROOT / "tests/ops").glob("*_test.py")) + sorted((ROOT / "tests/python").glob("*_test.py"))
    return [file for file in files if re.search(r"cuda\.(is_available|device_count)\(\)", file.read_text())]


def command() -> list[Job]:
    if os.environ["BIE_OPS_ONLY"] == "ON":
        return [partial(TALLY.skip, "bie --device cuda", "this build has the operators alone")]
    return pytest(ROOT / "tests/cli/gpu_test.py")


def main() -> int:
    start = time.monotonic()
    jobs = [
        *sanitizers(),  # the longest first
        *pytest(*files_for_gpus()),
        *kernels(),
        *command(),
    ]
    # All share one GPU; a job keeps about one core busy.
    with ThreadPoolExecutor(max(1, (os.cpu_count() or 1) * 3 // 4)) as pool:
        for job in [pool.submit(job) for job in jobs]:
            job.result()
    print(f"{'GPU suites':<75} {time.monotonic() - start:7.1f} s")
    for label, reason in TALLY.skips:
        print(f"skipped in {label}: {reason}")
    return TALLY.last_line()


if __name__ == "__main__":
    sys.exit(main())
