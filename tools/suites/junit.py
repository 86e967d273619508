"""Test programs whose JUnit reports are counted: gtest's and pytest's."""

from __future__ import annotations

import os
import tempfile
import xml.etree.ElementTree as ET
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

from suites.commands import BIN, ROOT, environment, run
from suites.tally import TALLY

# Processes side by side, each on one thread.
PROCESSES = max(2, os.cpu_count() or 1)
ONE_THREAD = {"OMP_NUM_THREADS": "1"}


def run_junit(label: str, *command: object, report: str, env: dict[str, str], cwd: Path = ROOT) -> None:
    """A test program that writes a JUnit report: `report` is its option, up to the file name."""
    with tempfile.TemporaryDirectory(prefix="bie-report-") as folder:
        path = Path(folder) / "report.xml"
        status, output, seconds = run(*command, f"{report}{path}", env=env, cwd=cwd)
        passed, failures, skips = 0, [], []
        try:
            cases = list(ET.parse(path).iter("testcase"))
        except (OSError, ET.ParseError):
            cases, status = [], status or 1
            output += f"\n{label} left no readable report\n"
        for case in cases:
            name = f"{case.get('classname', '')}.{case.get('name')}"
            skipped = case.find("skipped")
            failure = case.find("failure") if case.find("failure") is not None else case.find("error")
            if failure is not None:
                failures.append((name, failure.get("message") or failure.text or ""))
            elif skipped is not None:
                skips.append((skipped.get("message") or skipped.text or f"{name} gives no reason").strip())
            elif case.get("status") == "notrun":
                skips.append(f"{name} is disabled")
            else:
                passed += 1
        # A crash, a sanitizer's report, an error outside the cases.
        failed = len(failures)
        if status != 0 and failed == 0:
            failed = 1
            output += f"\n{label} ended with status {status}\n"
        TALLY.add(label, seconds, passed, failed, skips, output, failures)


def run_gtest(executable: Path, suffix: str = "", env: dict[str, str] | None = None) -> None:
    run_junit(
        executable.name + suffix, executable, "--gtest_brief=1", report="--gtest_output=xml:", env=env or environment()
    )


def run_gtest_in_parts(executable: Path, suffix: str, env: dict[str, str]) -> None:
    """All tests of a program of one thread, in as many processes as there are cores."""
    parts = PROCESSES
    run_side_by_side(
        partial(
            run_gtest,
            executable,
            f"{suffix}, part {part + 1} of {parts}",
            env | {"GTEST_TOTAL_SHARDS": str(parts), "GTEST_SHARD_INDEX": str(part)},
        )
        for part in range(parts)
    )


def run_side_by_side(jobs: Iterable[Callable[[], None]]) -> None:
    """Each job keeps about one core busy."""
    with ThreadPoolExecutor(PROCESSES) as pool:
        for job in [pool.submit(job) for job in jobs]:
            job.result()


def run_pytest(
    label: str,
    *tests: str,
    env: dict[str, str],
    python: Path = BIN / "python",
    cwd: Path = ROOT,
    processes: int = PROCESSES,
) -> None:
    """What the tests of a file share is made once: a file's tests stay in one process."""
    command = (python, "-m", "pytest", "-n", processes, "--dist", "loadfile", "-q", *tests)
    run_junit(label, *command, report="--junitxml=", env=env, cwd=cwd)
