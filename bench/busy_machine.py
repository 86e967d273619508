"""What other work on the machine costs a program: its own choice of threads and waiting against every other one.

python bench/busy_machine.py [--rounds N] [--build DIR] [--program NAME]... [--beside 0|2|8|quota]...

Each program runs as it is and with threads and waiting set by hand, in turns, beside 0, 2 and 8 processes that do
nothing but keep a core busy, and under a quota of 1.5 CPUs. Wall time, median over the rounds. The last column is the
program's own choice over the best setting of its row. The table is markdown; docs/measured/threads.md holds one.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import shutil
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
BESIDE = ["0", "2", "8", "quota"]  # busy processes, or none and a quota
QUOTA = 1.5
PERIOD_US = 100_000
# libgomp's default spins 300,000 times at a barrier; tens of times slower where a core is not its own, so it is timed
# on the idle machine alone.
WAITS = {"sleep": {"OMP_WAIT_POLICY": "passive"}, "spin 1000": {"GOMP_SPINCOUNT": "1000"}}
SPIN = {"spin 300000": {"GOMP_SPINCOUNT": "300000"}}


def programs(build: Path) -> dict[str, list[str]]:
    bie = str(build / "src/cli/bie")
    return {
        "bie train --hidden 64": [bie, "train", "--hidden", "64", "--epochs", "20", "-q"],
        "bie train --hidden 256": [bie, "train", "--hidden", "256", "--epochs", "6", "-q"],
        "bie train": [bie, "train", "--epochs", "2", "-q"],
        "bie train --bits 1": [bie, "train", "--bits", "1", "--epochs", "2", "-q"],
        "examples/first_layer": [str(build / "examples/first_layer")],
    }


def bare_environment() -> dict[str, str]:
    unset = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OMP_WAIT_POLICY", "GOMP_SPINCOUNT")
    return {name: value for name, value in os.environ.items() if name not in unset}


def settings(command: list[str], idle: bool) -> dict[str, tuple[list[str], dict[str, str]]]:
    """Command and environment of every setting; the program's own choice is "own"."""
    cpus = len(os.sched_getaffinity(0))
    found: dict[str, tuple[list[str], dict[str, str]]] = {"own": (command, {})}
    for threads in sorted({1, cpus}):
        for wait, more in (WAITS | (SPIN if idle else {})).items():
            if threads == 1 and wait != "sleep":
                continue  # one thread waits for nobody
            name = "1 thread" if threads == 1 else f"{threads} threads, {wait}"
            words = [command[0], "--threads", str(threads), *command[1:]] if command[0].endswith("/bie") else command
            found[name] = (words, {"OMP_NUM_THREADS": str(threads), **more})
    return found


class Quota:
    """Runs commands under a quota of CPU time: by a control group of its own (version 1 or 2), else by cpulimit."""

    def __init__(self) -> None:
        self.group: Path | None = None
        for base, entry, text in (
            (Path("/sys/fs/cgroup/cpu"), "cpu.cfs_quota_us", f"{int(QUOTA * PERIOD_US)}"),
            (Path("/sys/fs/cgroup"), "cpu.max", f"{int(QUOTA * PERIOD_US)} {PERIOD_US}"),
        ):
            group = base / f"bie-bench-{os.getpid()}"
            with contextlib.suppress(OSError):
                group.mkdir()
                (group / entry).write_text(text)
                self.group, self.how = group, f"{group.parent}/*/{entry}"
                return
            with contextlib.suppress(OSError):
                group.rmdir()
        if not shutil.which("cpulimit"):
            sys.exit("no control group can be made here and cpulimit is not installed: the quota cannot be measured")
        self.how = "cpulimit"

    def prefix(self) -> list[str]:
        if self.group is None:
            return ["cpulimit", "-q", "-f", "-l", str(int(100 * QUOTA)), "--"]
        return ["sh", "-c", f'echo $$ > {self.group}/cgroup.procs && exec "$@"', "sh"]

    def close(self) -> None:
        if self.group is not None:
            self.group.rmdir()


@contextlib.contextmanager
def busy(count: int) -> Iterator[None]:
    processes = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(count)]
    try:
        yield
    finally:
        for process in processes:
            process.kill()
            process.wait()


def seconds(words: list[str], environment: dict[str, str]) -> float:
    start = time.perf_counter()
    subprocess.run(words, env=bare_environment() | environment, check=True, stdout=subprocess.DEVNULL)
    return time.perf_counter() - start


def medians(command: list[str], prefix: list[str], rounds: int, idle: bool) -> dict[str, float]:
    found = settings(command, idle)
    times: dict[str, list[float]] = {name: [] for name in found}
    for _ in range(rounds):
        for name, (words, environment) in found.items():
            times[name].append(seconds([*prefix, *words], environment))
    return {name: statistics.median(values) for name, values in times.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--build", type=Path, default=ROOT / "build/release")
    parser.add_argument("--program", action="append", help="time these alone, by the names of the table")
    parser.add_argument("--beside", action="append", choices=BESIDE, help="beside these alone")
    arguments = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("stopped"))  # the busy processes must not outlive this one
    quota = Quota()
    print(f"the quota is {quota.how}", file=sys.stderr)
    columns = list(settings(["/bie"], idle=True))
    print(f"| program | beside | {' | '.join(columns)} | own / best |")
    print("| --- " * (len(columns) + 3) + "|")
    try:
        for name, command in programs(arguments.build).items():
            if arguments.program and name not in arguments.program:
                continue
            for where in arguments.beside or BESIDE:
                limited = where == "quota"
                with busy(0 if limited else int(where)):
                    found = medians(command, quota.prefix() if limited else [], arguments.rounds, where == "0")
                best = min(time for setting, time in found.items() if setting != "own")
                cells = [f"{found[c]:.2f}" if c in found else "" for c in columns]
                beside = f"quota {QUOTA}" if limited else f"{where} busy"
                print(f"| {name} | {beside} | {' | '.join(cells)} | {found['own'] / best:.2f} |", flush=True)
    finally:
        quota.close()


if __name__ == "__main__":
    main()
