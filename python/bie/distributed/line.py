"""Work beside the backward pass, one piece after another: a thread where tensors are on the CPU, a stream on CUDA."""

from __future__ import annotations

import queue
import threading
import weakref
from collections.abc import Callable

import torch

_Work = Callable[[], None]


_PATIENCE = 5.0  # seconds for a collective that will not come back


def _serve(pieces: queue.SimpleQueue, errors: list[BaseException]) -> None:
    threads = 0
    while True:
        work, wanted = pieces.get()
        if work is None:
            return
        if not wanted:  # who waits, also for an error
            work()
            continue
        if wanted != threads:
            torch.set_num_threads(wanted)
            threads = wanted
        if not errors:
            try:
                with torch.no_grad():
                    work()
            except BaseException as error:  # handed to who waits
                errors.append(error)


def _end(pieces: queue.SimpleQueue, thread: threading.Thread) -> None:
    pieces.put((None, 0))
    if thread is not threading.current_thread():
        thread.join(_PATIENCE)


class Line:
    """Pieces run in the order in which they were put, so that all ranks' collectives have one order."""

    def __init__(self) -> None:
        self._pieces: queue.SimpleQueue[tuple[_Work | None, int]] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        self._errors: list[BaseException] = []
        self._stream: torch.cuda.Stream | None = None

    def put(self, work: _Work, device: torch.device) -> None:
        """Runs work after all that was put before, and after what the device has been given so far."""
        if device.type == "cuda":
            if self._stream is None:
                self._stream = torch.cuda.Stream(device)
            self._stream.wait_stream(torch.cuda.current_stream(device))
            with torch.cuda.stream(self._stream), torch.no_grad():
                work()
            return
        if self._thread is None:
            # A daemon: a collective whose peer is gone must not keep the process.
            pieces = self._pieces
            self._thread = threading.Thread(
                target=_serve, args=(pieces, self._errors), daemon=True, name="bie.distributed"
            )
            self._thread.start()
            # Also when the interpreter ends: a thread that it cuts off inside torch takes the process along.
            self._end = weakref.finalize(self, _end, pieces, self._thread)
        self._pieces.put((work, torch.get_num_threads()))

    def wait(self, device: torch.device) -> None:
        """Until all pieces are done; raises what one of them raised, the first."""
        if device.type == "cuda":
            if self._stream is not None:
                torch.cuda.current_stream(device).wait_stream(self._stream)
            return
        if self._thread is not None:
            done = threading.Event()
            self._pieces.put((done.set, 0))
            done.wait()
        if self._errors:
            raise self._errors.pop()

    def close(self) -> None:
        if self._thread is not None:
            self._thread = None
            self._end()
