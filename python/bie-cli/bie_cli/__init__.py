"""The console script `bie`: hands this process over to the packaged command, with torch's libraries in reach.

It imports nothing of torch, which takes longer than `bie --version`.
"""

from __future__ import annotations

import importlib.util
import os
import sys
from typing import NoReturn


def _locate(package: str, *parts: str) -> str | None:
    """A file of a package that is not imported; an editable install keeps sources and binaries in two folders."""
    spec = importlib.util.find_spec(package)
    folders = (spec.submodule_search_locations if spec else None) or []
    return next((path for folder in folders if os.path.exists(path := os.path.join(folder, *parts))), None)


def run(arguments: list[str]) -> NoReturn:
    binary = _locate("bie_cli", "bin", "bie")
    if binary is None:
        sys.exit("bie: the package bie-cli is installed without its program; install it again with pip")
    libraries = _locate("torch", "lib")
    if libraries is None:
        sys.exit(f"bie: torch is not installed for {sys.executable}")
    inherited = os.environ.get("LD_LIBRARY_PATH")
    path = f"{libraries}{os.pathsep}{inherited}" if inherited else libraries
    os.execve(binary, ["bie", *arguments], os.environ | {"LD_LIBRARY_PATH": path})


def main() -> NoReturn:
    run(sys.argv[1:])
