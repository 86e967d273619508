"""Commands in an environment that holds nothing of the caller's settings, or neither torch nor Python."""

from __future__ import annotations

import atexit
import os
import shutil
import subprocess
import tempfile
import time
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
BIN = ROOT / ".venv/bin"
BUILD = ROOT / "build"
TIME_LIMIT_S = 1800


def run(*command: object, env: dict[str, str] | None = None, cwd: Path = ROOT) -> tuple[int, str, float]:
    """Exit status, stdout and stderr together, seconds. A command past its time limit is a failure that says so."""
    start = time.monotonic()
    arguments = [str(word) for word in command]
    try:
        done = subprocess.run(
            arguments,
            cwd=cwd,
            env=env or environment(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=TIME_LIMIT_S,
        )
        status, output = done.returncode, done.stdout
    except subprocess.TimeoutExpired as late:
        status, output = 124, (late.stdout or b"") + f"\nstopped after {TIME_LIMIT_S} s".encode()
    except OSError as error:
        status, output = 127, f"{arguments[0]} could not be started: {error}".encode()
    return status, output.decode(errors="replace"), time.monotonic() - start


def folder_of_this_run(prefix: str) -> Path:
    folder = Path(tempfile.mkdtemp(prefix=prefix))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


@cache
def empty_cache() -> str:
    return str(folder_of_this_run("bie-cache-"))


def environment(**more: str) -> dict[str, str]:
    """Ours, without settings and tuned choices of the caller that would change what is tested."""
    env = {key: value for key, value in os.environ.items() if not key.startswith(("BIE_", "GTEST_", "PYTEST_"))}
    env["PATH"] = f"{BIN}{os.pathsep}{env['PATH']}"
    return env | {"BIE_CACHE_DIR": empty_cache()} | more


@cache
def torch_free_environment() -> dict[str, str]:
    """PATH without .venv, and a python3 in front that finds nothing."""
    stub = folder_of_this_run("bie-no-torch-") / "python3"
    stub.write_text("#!/bin/sh\necho 'no Python and no torch here' >&2\nexit 1\n")
    stub.chmod(0o755)
    env = {key: value for key, value in environment().items() if not key.startswith(("PYTHON", "VIRTUAL_ENV"))}
    paths = [path for path in env["PATH"].split(os.pathsep) if ".venv" not in path]
    env["PATH"] = os.pathsep.join([str(stub.parent), *paths])
    return env


class Transcript:
    """Commands that count as one test together: what they were, what they said, how long they took."""

    def __init__(self, env: dict[str, str]) -> None:
        self.env = env
        self.text = ""
        self.seconds = 0.0

    def step(self, *command: object) -> bool:
        status, output, seconds = run(*command, env=self.env)
        self.text += f"$ {' '.join(map(str, command))}\n{output}"
        self.seconds += seconds
        return status == 0
