"""What all suites count together."""

from __future__ import annotations

import threading

FAILURE_LINES = 12


class Tally:
    """Counts over all suites, and one printed line for each part of a suite."""

    def __init__(self) -> None:
        self.passed = 0
        self.failed = 0
        self.skips: list[tuple[str, str]] = []
        self.failures: list[str] = []
        self.lock = threading.Lock()  # suites may run side by side

    def add(
        self,
        label: str,
        seconds: float,
        passed: int,
        failed: int,
        skips: list[str],
        output: str = "",
        failures: list[tuple[str, str]] | None = None,
    ) -> None:
        """`failures`: names of the failed tests and what they said; without them the suite's last lines are told."""
        with self.lock:
            self.passed += passed
            self.failed += failed
            self.skips += [(label, reason) for reason in skips]
            counts = [f"{passed} passed"] if passed else []
            counts += [f"{failed} FAILED"] if failed else []
            counts += [f"{len(skips)} skipped"] if skips else []
            print(f"{label:<40} {', '.join(counts) or 'nothing ran':<34} {seconds:7.1f} s", flush=True)
            if failed and output:
                print(f"---- {label}\n{output.rstrip()}\n----", flush=True)
            if failed and failures:
                for name, said in failures:
                    lines = [line for line in said.splitlines() if line.strip()]
                    self.failures.append("\n  ".join([f"{label}: {name}", *lines[:FAILURE_LINES]]))
            elif failed:
                self.failures.append("\n  ".join([label, *output.rstrip().splitlines()[-FAILURE_LINES:]]))

    def check(self, label: str, seconds: float, ok: bool, output: str) -> bool:
        self.add(label, seconds, int(ok), int(not ok), [], output)
        return ok

    def skip(self, label: str, reason: str) -> None:
        self.add(label, 0.0, 0, 0, [reason])

    def last_line(self) -> int:
        """Prints the counts; the exit status is 1 on a failure or an empty run."""
        print(f"{self.passed} passed, {self.failed} failed, {len(self.skips)} skipped", flush=True)
        return 1 if self.failed or not self.passed else 0


TALLY = Tally()
