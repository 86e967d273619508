"""A rank that is killed: the others say so, torchrun starts the group again, the training ends as if nothing was."""

import os
import random
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import torch

ROOT = Path(__file__).resolve().parents[2]
sys.path.append(str(ROOT / "bench"))
from distributed_kills import differences, kill_some, start  # noqa: E402

SHORT = ["--epochs=3", "--every=4", "--width=64"]


def finished(run):
    said = run.communicate(timeout=120)[0]
    assert run.returncode == 0, said[-3000:]
    return said


def test_a_killed_rank_leaves_no_trace(tmp_path):
    undisturbed = start(2, 0, tmp_path / "undisturbed.pt", SHORT)
    finished(undisturbed)
    killed = start(2, 1, tmp_path / "killed.pt", SHORT)
    assert kill_some(killed, tmp_path / "killed.pt", 1, 2, random.Random(0)) == 1
    assert "goes on after step" in finished(killed)
    states = [torch.load(tmp_path / f"{name}.pt", weights_only=True) for name in ("undisturbed", "killed")]
    assert differences(*states) == []


# Rank 1 is killed in a phase of its second step, or does something else there; rank 0 has to end with a sentence.
SCRIPT = """
import os, sys, time, torch
from datetime import timedelta
from torch.nn.parallel import DistributedDataParallel
import bie
from bie.distributed import exchange, reducer_of
from bie.distributed.reducer import IntegerReducer

rank, phase = int(sys.argv[2]), sys.argv[3]
torch.set_num_threads(1)
store = torch.distributed.FileStore(sys.argv[1], 2)
torch.distributed.init_process_group("gloo", store=store, rank=rank, world_size=2, timeout=timedelta(seconds=120))
group = torch.distributed.new_group(timeout=timedelta(seconds=int(sys.argv[4])))
torch.distributed.barrier()
layers = [bie.nn.BinaryLinear(16, 16), bie.nn.BinaryLinear(16, 8)]
# Most float parameters stay out of the wrapper's own reductions, which would fail first.
model = torch.nn.Sequential(*layers)
model._ddp_params_and_buffers_to_ignore = ["0.bias_a", "1.bias_a"]
model = DistributedDataParallel(model, broadcast_buffers=False, process_group=group)
reducer_of(model).check_every = 2
optimizer = bie.optim.DiodeMix(model.parameters(), lr=1e-2)

def step():
    optimizer.zero_grad()
    y = model(torch.randn(2, 16))
    if rank == 1 and armed and phase == "forward":
        die()
    y.sum().backward()
    if rank == 1 and armed and phase == "step":
        die()
    optimizer.step()

def die(*_):
    os.kill(os.getpid(), 9)

armed = False
step()
armed = True
if rank == 1:
    if phase == "amax":
        exchange.group_amax = die
    elif phase == "shards":
        exchange.requantised = die
    elif phase == "gather":
        exchange.gathered = die
    elif phase == "settle":
        IntegerReducer._settle = die
    elif phase == "check":
        IntegerReducer.check = die
    elif phase == "away":
        exchange.group_amax = lambda *_: time.sleep(120)
for _ in range(3):
    step()
"""
PHASES = ["forward", "amax", "shards", "gather", "settle", "check", "step"]


def two_ranks(folder, phase, seconds):
    return [
        subprocess.Popen(
            [sys.executable, "-c", SCRIPT, str(folder / "store"), str(rank), phase, str(seconds)],
            stderr=subprocess.PIPE,
            text=True,
            env=os.environ | {"OMP_NUM_THREADS": "1"},
        )
        for rank in (0, 1)
    ]


@pytest.mark.parametrize("phase", PHASES)
def test_who_is_left_says_that_the_group_is_lost(tmp_path, phase):
    left, killed = two_ranks(tmp_path, phase, seconds=120)
    said = left.communicate(timeout=150)[1]
    assert killed.wait(20) == -signal.SIGKILL, killed.communicate()[1][-3000:]
    assert left.returncode not in (0, None)
    assert "lost its group" in said or "Connection closed" in said or "reset by peer" in said, said[-3000:]


def test_a_rank_that_does_not_come_is_waited_for_as_long_as_the_group_says(tmp_path):
    left, away = two_ranks(tmp_path, "away", seconds=10)
    said = left.communicate(timeout=60)[1]
    away.kill()
    away.communicate()
    assert left.returncode not in (0, None)
    assert "lost its group" in said and "imed out" in said, said[-3000:]
