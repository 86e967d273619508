"""Files that are written: in one step, and none that is read."""

from __future__ import annotations

import contextlib
import os
import secrets
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import BinaryIO


def check_folder_of(path: Path) -> None:
    """The folder of a file that is to be written must be there."""
    if not path.parent.is_dir():
        raise FileNotFoundError(f"{path}: there is no folder {path.parent}")


@contextlib.contextmanager
def replacing(path: str | os.PathLike) -> Iterator[BinaryIO]:
    """A file to write into that takes the place of ``path`` when the block ends.

    A write that fails, or a process that is killed, leaves the old file. Through a link its target is replaced; what is
    no file, such as ``/dev/stdout``, is written into.
    """
    target = Path(path)
    if target.is_dir():
        raise IsADirectoryError(f"{target}: expected a file, got a folder")
    if target.exists() and not target.is_file():
        with target.open("wb") as stream:
            yield stream
        return
    target = target.resolve()
    check_folder_of(target)
    scratch = target.with_name(f".{target.name}.{secrets.token_hex(4)}.part")
    try:
        with scratch.open("xb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        if target.exists():
            scratch.chmod(target.stat().st_mode & 0o7777)
        scratch.replace(target)
    finally:
        scratch.unlink(missing_ok=True)


def write_text(path: str | os.PathLike, text: str) -> None:
    """Replaces a file by a text in one step."""
    with replacing(path) as file:
        file.write(text.encode())


def _is_in(facts: os.stat_result, folder: Path) -> bool:
    """Whether a file is one of a folder's, under whichever name."""
    for parent, _, names in os.walk(folder, followlinks=True):
        for name in names:
            with contextlib.suppress(OSError):
                if os.path.samestat(facts, os.stat(os.path.join(parent, name))):
                    return True
    return False


def check_outputs(outputs: Mapping[str, Path], inputs: Mapping[str, Path]) -> None:
    """Refuses to write what is read: the same file under any name, or one of a folder's files.

    Args:
        outputs, inputs: {what a sentence calls it: path}.

    Raises:
        ValueError: an output is an input; it names both.
    """
    for output, written in outputs.items():
        try:
            facts = written.stat()
        except OSError:  # a file that is not there yet is nobody's input
            continue
        for given, read in inputs.items():
            with contextlib.suppress(OSError):
                if os.path.samestat(facts, read.stat()) or (read.is_dir() and _is_in(facts, read)):
                    raise ValueError(f"{output} {written} is read as {given} {read}: expected another file to write")
