"""Ctrl-C for a process that is ready for it."""

from __future__ import annotations

import re
import signal
import subprocess
import time
from pathlib import Path


def _watches_interrupts(pid: int) -> bool:
    (caught,) = re.findall(r"^SigCgt:\s*(\w+)", Path(f"/proc/{pid}/status").read_text(), re.MULTILINE)
    return bool(int(caught, 16) >> (signal.SIGINT - 1) & 1)


def interrupt(process: subprocess.Popen) -> None:
    """Sends SIGINT once the process has a handler of its own."""
    while process.poll() is None and not _watches_interrupts(process.pid):
        time.sleep(0.01)
    process.send_signal(signal.SIGINT)
