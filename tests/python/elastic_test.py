"""A rank that is killed: the others say so, torchrun starts the group again, the training ends as if nothing was."""

import os
import random
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

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


def test_who_is_left_says_that_the_group_is_lost(tmp_path):
    script = """
        import os, sys, torch
        from torch.nn.parallel import DistributedDataParallel
        import bie
        rank = int(sys.argv[2])
        torch.set_num_threads(1)
        store = torch.distributed.FileStore(sys.argv[1], 2)
        torch.distributed.init_process_group("gloo", store=store, rank=rank, world_size=2)
        layer = bie.nn.BinaryLinear(16, 8)
        # The float parameters stay out of the wrapper's own reductions, which would fail first.
        layer._ddp_params_and_buffers_to_ignore = ["bias_a"]
        model = DistributedDataParallel(layer)
        model(torch.randn(2, 16)).sum().backward()
        if rank == 1:
            os.kill(os.getpid(), 9)
        model(torch.randn(2, 16)).sum().backward()
    """
    programs = [
        subprocess.Popen(
            [sys.executable, "-c", textwrap.dedent(script), str(tmp_path / "store"), str(rank)],
            stderr=subprocess.PIPE,
            text=True,
            env=os.environ | {"OMP_NUM_THREADS": "1"},
        )
        for rank in (0, 1)
    ]
    said = programs[0].communicate(timeout=120)[1]
    assert programs[1].wait(20) == -signal.SIGKILL
    assert programs[0].returncode not in (0, None)
    assert "lost its group" in said or "Connection closed" in said or "reset by peer" in said, said[-3000:]
