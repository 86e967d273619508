"""A running `bie serve`, started and ended from Python."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import threading
from collections import deque
from collections.abc import Iterable, Mapping

from bie.llm._library import SettingError


class Server:
    """A server with OpenAI's interface, from :func:`serve`; as a context manager it ends with the block."""

    def __init__(self, process: subprocess.Popen, listening: dict):
        self._process = process
        self._lines: deque[dict] = deque(maxlen=1000)
        self._reader = threading.Thread(target=self._read, daemon=True)  # a full pipe would hold the server up
        self._reader.start()
        #: The name that the server gives the model, of several the first.
        self.model: str = listening["model"]
        #: The names of all models.
        self.models: list[str] = listening["models"]
        #: Tokens of prompt and answer at most, of the first model.
        self.context: int = listening["context"]
        host = listening["host"] if ":" not in listening["host"] else f"[{listening['host']}]"
        #: Where it listens: ``http://127.0.0.1:43210``.
        self.url = f"http://{host}:{listening['port']}"

    def _read(self) -> None:
        for line in self._process.stdout:
            self._lines.append(json.loads(line))

    @property
    def log(self) -> list[dict]:
        """The last thousand requests, as ``bie serve --json`` tells them."""
        return list(self._lines)

    def is_running(self) -> bool:
        return self._process.poll() is None

    def stop(self) -> None:
        """Lets answers end for the seconds of ``grace``, then ends the server. It may be called again."""
        if self.is_running():
            self._process.send_signal(signal.SIGTERM)
        self._process.wait()
        self._reader.join()
        self._process.stdout.close()

    def __enter__(self) -> Server:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()


def _words(options: dict) -> Iterable[str]:
    for name, value in options.items():
        option = "--" + name.replace("_", "-")
        if value is True:
            yield option
        elif value is not None and value is not False:
            yield from (option, str(value))


def serve(
    model: str | os.PathLike | Mapping[str, str | os.PathLike],
    *,
    host: str = "127.0.0.1",
    port: int = 0,
    threads: int | None = None,
    program: str | os.PathLike | None = None,
    **options,
) -> Server:
    """Starts ``bie serve`` on a GGUF file or a folder, or on several, and returns when it listens.

    Args:
        model: the file or folder; or several by the names that clients call them.
        host: the address to listen at.
        port: 0: one that is free, which ``url`` names.
        threads: of the computation; None: the CPUs that the process may use.
        program: the command ``bie``; None: the one that the shell would find.
        options: those of the command with underlines, as ``cache_size="2GB"``, ``api_key_file="keys.txt"`` and
            ``exact=True``.

    Raises:
        SettingError: there is no such program, or what it says where it does not start.
    """
    found = os.fspath(program) if program is not None else shutil.which("bie")
    if found is None:
        raise SettingError("expected the program bie on the PATH, got none; docs/install.md tells how to build it")
    all_threads = () if threads is None else ("--threads", str(threads))
    words = [found, *all_threads, "--json", "serve", "--host", host, "--port", str(port), *_words(options)]
    if isinstance(model, Mapping):
        words += [word for name, path in model.items() for word in ("--model", f"{name}={os.fspath(path)}")]
    else:
        words.append(os.fspath(model))
    try:
        process = subprocess.Popen(
            words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )
    except OSError as error:
        raise SettingError(f"{found} cannot be started: {error.strerror}") from None
    first = process.stdout.readline()
    listening = json.loads(first) if first.startswith("{") else {}
    if "port" in listening:
        return Server(process, listening)
    if first:  # another program, which may go on
        process.kill()
    process.wait()
    process.stdout.close()
    raise SettingError(listening.get("error", f"{found} does not serve: its exit code is {process.returncode}"))
