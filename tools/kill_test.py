"""Kills `bie train` inside the saves of its checkpoints and checks that nothing is lost.

Usage: kill_test.py [--kills N] [--seed N] [--hidden N] [--bie PROGRAM]

Each process goes on from the checkpoints of the killed one before it, and dies at a random moment between the first
byte and the rename of a save that takes a second or more. It has to have gone on from the newest whole checkpoint, with
none passed over. The last one runs to its end; its model has to be byte-identical to that of a run nobody killed.
"""

from __future__ import annotations

import argparse
import random
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
POLL_S = 0.0005
LEAST_SAVE_S = 1.0
EVERY = 5
MOST_REPEATS = 40


class Failure(Exception):
    pass


def require(fact: bool, sentence: str) -> None:
    if not fact:
        raise Failure(sentence)


def step_of(path: Path | None) -> int:
    return int(path.name[len("step-") :].split(".")[0]) if path else 0


def newest_whole(folder: Path) -> Path | None:
    return max(folder.glob("step-*.safetensors"), default=None)


@dataclass
class Run:
    """One run in processes of its own; the temporary file of a save is step-N.safetensors.tmp-PID."""

    bie: Path
    folder: Path
    options: list[str]
    log: Path = field(init=False)
    out: Path = field(init=False)
    checkpoints: Path = field(init=False)

    def __post_init__(self) -> None:
        self.checkpoints, self.out, self.log = (self.folder / n for n in ("checkpoints", "model.safetensors", "log"))
        self.checkpoints.mkdir(parents=True)

    @contextmanager
    def process(self) -> Iterator[subprocess.Popen]:
        command = [self.bie, "--threads", "1", "train", *self.options, "-o", self.out, "--resume"]
        command += ["--checkpoints", self.checkpoints, "--checkpoint-every", EVERY]
        with self.log.open("wb") as log:
            process = subprocess.Popen([str(word) for word in command], stdout=log, stderr=log)
        try:
            yield process
        finally:
            process.kill()
            process.wait()

    def next_save(self, process: subprocess.Popen, after: Path | None = None) -> Path | None:
        """The temporary file of the next save, as soon as it is there; None where the process ends first."""
        while True:
            running = process.poll() is None
            for path in self.checkpoints.glob(f"step-*.tmp-{process.pid}"):
                if path != after:
                    return path
            if not running:
                return None
            time.sleep(POLL_S)

    def finish(self) -> list[tuple[int, float, int]]:
        """Runs to the end. Step, seconds and bytes of each save."""
        saves, path = [], None
        with self.process() as process:
            while (path := self.next_save(process, path)) is not None:
                start = time.monotonic()
                while path.exists():
                    time.sleep(POLL_S)
                seconds = time.monotonic() - start
                saves.append((step_of(path), seconds, path.with_name(path.name.split(".tmp-")[0]).stat().st_size))
            require(process.wait() == 0, f"a run failed: {self.log.read_text()}")
        return saves

    def kill_inside(self, step: int, delay: float) -> tuple[float, int] | None:
        """Kills a process `delay` seconds into its save of that step. Seconds and bytes of the save so far; None where
        the save was over."""
        with self.process() as process:
            path = self.next_save(process)
            while path is not None and step_of(path) != step:
                path = self.next_save(process, path)
            require(path is not None, f"no save of step {step} was seen: {self.log.read_text()}")
            start = time.monotonic()
            time.sleep(delay)
            seconds = time.monotonic() - start
            process.kill()
            process.wait()
        return (seconds, path.stat().st_size) if path.exists() else None

    def resumed_after(self) -> int:
        """Where the process that was started last went on; it has to have found every checkpoint whole."""
        log = self.log.read_text()
        require("passed over" not in log, f"a checkpoint was passed over: {log}")
        found = re.search(r"resumed after step (\d+)", log)
        require(found is not None or "from the beginning" in log, f"the run did not say where it went on: {log}")
        return int(found[1]) if found else 0


def kill_and_compare(bie: Path, folder: Path, options: list[str], kills: int, seed: int, least_save: float) -> str:
    """The whole test in an empty folder: prints a line for each kill, returns the summary."""
    reference = Run(bie, folder / "reference", options)
    saves = reference.finish()
    shortest, longest = min(s for _, s, _ in saves), max(s for _, s, _ in saves)
    size = saves[-1][2]
    print(f"{len(saves)} saves of {size} bytes took {shortest:.3f} to {longest:.3f} s", flush=True)
    if shortest < least_save:
        raise TooFast
    rng = random.Random(seed)
    killed, late = Run(bie, folder / "killed", options), 0
    steps = [saves[i * len(saves) // kills][0] for i in range(kills)]
    for number, step in enumerate(steps, 1):
        for _ in range(MOST_REPEATS):
            before = step_of(newest_whole(killed.checkpoints))
            inside = killed.kill_inside(step, rng.uniform(0, shortest))
            after = newest_whole(killed.checkpoints)
            went_on = killed.resumed_after()
            require(went_on == before, f"went on after step {went_on}, the newest whole checkpoint is {before}")
            require(step_of(after) == (step - EVERY if inside else step), f"{after} is the newest after a kill")
            if inside:
                break
            late += 1
            after.unlink()
        require(inside is not None, f"{MOST_REPEATS} saves of step {step} were over before the kill")
        seconds, partial = inside
        print(
            f"kill {number:2}: save of step {step:3}, {seconds:.3f} s into it, {partial:>10} of {size} bytes found; "
            f"this process had gone on after step {went_on}",
            flush=True,
        )
    killed.finish()
    require(killed.resumed_after() == steps[-1] - EVERY, "the last process went on from another checkpoint")
    names = [[path.name for path in sorted(run.checkpoints.iterdir())] for run in (killed, reference)]
    require(names[0] == names[1], f"the checkpoint folder holds {names[0]}, the other run's {names[1]}")
    require(killed.out.read_bytes() == reference.out.read_bytes(), "the models differ")
    return f"{kills} kills inside saves ({late} more came too late and were repeated); the models are byte-identical"


class TooFast(Exception):
    pass


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--hidden", type=int, default=4096, help="grows until a save takes a second")
    parser.add_argument("--bie", type=Path, default=ROOT / "build/release/src/cli/bie")
    arguments = parser.parse_args()
    hidden = arguments.hidden
    while True:
        options = ["--bits", "1", "--depth", "3", "--epochs", "1", "--hidden", str(hidden)]
        print("bie train", *options, "--checkpoint-every", EVERY, flush=True)
        with tempfile.TemporaryDirectory(prefix="bie-kill-") as folder:
            try:
                done = kill_and_compare(
                    arguments.bie, Path(folder), options, arguments.kills, arguments.seed, LEAST_SAVE_S
                )
            except TooFast:
                hidden = hidden * 5 // 4
                continue
            except Failure as failure:
                print(f"FAILED: {failure}")
                return 1
        print(done)
        return 0


if __name__ == "__main__":
    sys.exit(main())
