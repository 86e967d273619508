"""Kills random ranks of a training while torchrun restarts it, and compares the model with an undisturbed run's.

python bench/distributed_kills.py [--kills N] [--ranks N] [--data FOLDER_OF_MNIST] [--epochs N]

Runs examples/python/train_ddp.py twice. A rank is killed (SIGKILL) at a random time once the training has written a
checkpoint since the last kill. Prints what differs: nothing, where weights and optimizer are those of the undisturbed
run to the bit.
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import torch

SCRIPT = Path(__file__).resolve().parents[1] / "examples" / "python" / "train_ddp.py"


def start(ranks: int, restarts: int, out: Path, options: list[str]) -> subprocess.Popen:
    command = [sys.executable, "-m", "torch.distributed.run", f"--nproc-per-node={ranks}"]
    # At an address of its own: the default port may be another run's.
    command += ["--rdzv-backend=c10d", "--rdzv-endpoint=localhost:0", f"--max-restarts={restarts}"]
    # Else torch 2.11 gives restarted ranks the addresses of those before them.
    environment = os.environ | {"OMP_NUM_THREADS": "1", "TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"}
    return subprocess.Popen(
        [*command, str(SCRIPT), "--out", str(out), *options],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def children(pid: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def ranks_of(run: subprocess.Popen) -> list[int]:
    """The processes that train."""
    found = []
    for child in children(run.pid):
        try:
            command = Path(f"/proc/{child}/cmdline").read_text()
        except OSError:  # it ended meanwhile
            continue
        if SCRIPT.name in command:
            found.append(child)
    return found


def kill_some(run: subprocess.Popen, out: Path, kills: int, ranks: int, generator: random.Random) -> int:
    """Kills a rank so many times, each time after a checkpoint that is younger than the last kill."""
    done, seen = 0, None
    while done < kills and run.poll() is None:
        written = out.stat().st_mtime_ns if out.exists() else None
        workers = ranks_of(run)
        if written is None or written == seen or len(workers) != ranks:
            time.sleep(0.02)
            continue
        time.sleep(generator.uniform(0, 0.2))
        try:
            os.kill(generator.choice(workers), signal.SIGKILL)
        except ProcessLookupError:
            continue
        done, seen = done + 1, written
    return done


def differences(first: Any, other: Any, place: str = "") -> list[str]:
    if isinstance(first, dict):
        return [found for key in first for found in differences(first[key], other[key], f"{place}/{key}")]
    if isinstance(first, list):
        pairs = enumerate(zip(first, other, strict=True))
        return [found for i, (one, two) in pairs for found in differences(one, two, f"{place}/{i}")]
    equal = torch.equal(first, other) if isinstance(first, torch.Tensor) else first == other
    return [] if equal else [place]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--data")
    parser.add_argument("--epochs", type=int, default=40)
    parser.add_argument("--every", type=int, default=5)
    arguments = parser.parse_args()
    options = [f"--epochs={arguments.epochs}", f"--every={arguments.every}"]
    options += [f"--data={arguments.data}"] if arguments.data else []
    with tempfile.TemporaryDirectory() as folder:
        states = []
        for name, kills in (("undisturbed", 0), ("killed", arguments.kills)):
            out = Path(folder) / f"{name}.pt"
            begin = time.monotonic()
            run = start(arguments.ranks, kills, out, options)
            done = kill_some(run, out, kills, arguments.ranks, random.Random(0))
            said = run.communicate()[0]
            if run.returncode:
                sys.exit(f"{said}\nthe training ended with {run.returncode}")
            lost = said.count("RuntimeError: bie.distributed: rank")
            print(
                f"{name}: {done} kills, {time.monotonic() - begin:.0f} s; {lost} ranks said that they lost their group"
            )
            states.append(torch.load(out, weights_only=True))
    different = differences(*states)
    print(f"differs: {', '.join(different) or 'nothing'}")
    sys.exit(bool(different) or done < arguments.kills)


if __name__ == "__main__":
    main()
