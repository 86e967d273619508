"""Work beside the backward pass, one piece after another: a thread where tensors are on the CPU, a stream on CUDA."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable

import torch

_Work = Callable[[], None]


class Line:
    """Pieces run in the order in which they were put, so that all ranks' collectives have one order."""

    def __init__(self) -> None:
        self._pieces: queue.SimpleQueue[tuple[_Work | None, int]] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        self._error: BaseException | None = None
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
            self._thread = threading.Thread(target=self._serve, args=(pieces,), daemon=True, name="bie.distributed")
            self._thread.start()
        self._pieces.put((work, torch.get_num_threads()))

    def _serve(self, pieces: queue.SimpleQueue) -> None:
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
            if self._error is None:
                try:
                    with torch.no_grad():
                        work()
                except BaseException as error:  # handed to who waits
                    self._error = error

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
        error, self._error = self._error, None
        if error is not None:
            raise error

    def close(self) -> None:
        if self._thread is not None:
            self._pieces.put((None, 0))
            self._thread = None
