"""The console script `bie`: hands this process over to the packaged command, with its half for this torch in reach.

It imports nothing of torch, which takes longer than `bie --version`.
"""

from __future__ import annotations

import importlib.util
import os
import re
import sys
from pathlib import Path
from typing import NoReturn


def _locate(package: str, *parts: str) -> Path | None:
    """A file of a package that is not imported; an editable install keeps sources and binaries in two folders."""
    spec = importlib.util.find_spec(package)
    folders = (spec.submodule_search_locations if spec else None) or []
    return next((path for folder in folders if (path := Path(folder, *parts)).exists()), None)


def _version(package: str) -> str | None:
    said = _locate(package, "lib", "version.txt")
    return said.read_text().strip() if said else None


def _torch_half() -> tuple[Path, list[Path]]:
    """The program for the torch of this environment, and the folders of the libraries it needs.

    Raises LookupError, whose sentence says what is missing.
    """
    torch = _locate("torch", "version.py")
    if torch is None:
        raise LookupError("torch is not installed")
    version = re.search(r"^__version__ = '((\d+\.\d+)[^']*)'", torch.read_text(), re.MULTILINE)
    if version is None:
        raise LookupError(f"{torch} names no version of torch")
    folder = f"torch-{version[2]}"
    program = _locate("bie_cli", "lib", folder, "bie-torch")
    if program is None:
        lib = _locate("bie_cli", "lib")
        names = [path.name.removeprefix("torch-") for path in lib.glob("torch-[0-9]*.[0-9]*")] if lib else []
        fitting = ", ".join(sorted(names, key=lambda name: [*map(int, name.split("."))])) or "of no version"
        raise LookupError(f"expected torch {fitting}, got torch {version[1]}")
    operators, expected, got = _locate("bie", "lib", folder), _version("bie_cli"), _version("bie")
    if operators is None or expected != got:
        raise LookupError(f"expected the package bitorch_engine {expected} for torch {version[2]}, got {got or 'none'}")
    return program, [operators, operators.parent, torch.parent / "lib"]


def run(arguments: list[str]) -> NoReturn:
    binary = _locate("bie_cli", "bin", "bie")
    if binary is None:
        sys.exit("bie: the package bie-cli is installed without its program; install it again with pip")
    environment = {key: value for key, value in os.environ.items() if not key.startswith("BIE_TORCH_")}
    try:
        program, libraries = _torch_half()
        inherited = environment.get("LD_LIBRARY_PATH")
        environment["LD_LIBRARY_PATH"] = os.pathsep.join([*map(str, libraries), *([inherited] if inherited else [])])
        environment["BIE_TORCH_PROGRAM"] = str(program)
    except LookupError as error:
        environment["BIE_TORCH_MISSING"] = str(error)
    os.execve(binary, ["bie", *arguments], environment)


def main() -> NoReturn:
    run(sys.argv[1:])
