"""Ranks of a process group for tests: processes that stay, and call functions of test modules by their names."""

import importlib
import sys
import tempfile
import traceback
from datetime import timedelta
from pathlib import Path

import torch
import torch.multiprocessing as multiprocessing


def _serve(rank, world, store, connection, path, backend):
    sys.path[:0] = path
    torch.set_num_threads(1)
    if backend == "nccl":
        torch.cuda.set_device(rank)
    torch.distributed.init_process_group(
        backend,
        store=torch.distributed.FileStore(store, world),
        rank=rank,
        world_size=world,
        timeout=timedelta(seconds=60),
    )
    while (call := connection.recv()) is not None:
        module, function, arguments = call
        try:
            connection.send((True, getattr(importlib.import_module(module), function)(rank, world, *arguments)))
        except BaseException:
            connection.send((False, traceback.format_exc()))
    torch.distributed.destroy_process_group()


class Ranks:
    """``ranks(function, ...)`` calls ``function(rank, world, ...)`` on every rank and returns what they return."""

    def __init__(self, world, backend="gloo"):
        self.folder = tempfile.TemporaryDirectory()
        context = multiprocessing.get_context("spawn")
        self.connections, self.processes = [], []
        path = [str(Path(__file__).parent)]
        for rank in range(world):
            ours, theirs = context.Pipe()
            arguments = (rank, world, f"{self.folder.name}/store", theirs, path, backend)
            self.processes.append(context.Process(target=_serve, args=arguments, daemon=True))
            self.connections.append(ours)
            self.processes[-1].start()

    def __call__(self, function, *arguments):
        for connection in self.connections:
            connection.send((function.__module__.rpartition(".")[2], function.__name__, arguments))
        answers = []
        for rank, connection in enumerate(self.connections):
            assert connection.poll(90), f"rank {rank} does not answer"
            answers.append(connection.recv())
        wrong = [text for done, text in answers if not done]
        assert not wrong, "\n".join(wrong)
        return [answer for _, answer in answers]

    def close(self):
        for connection in self.connections:
            connection.send(None)
        for process in self.processes:
            process.join(20)
            process.kill()
        self.folder.cleanup()
