"""Which torch a wheel is built beside, and what its metadata say of it."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from importlib import metadata
from pathlib import Path

OLDEST = "2.11"
_CODE = "from importlib.metadata import version; print(version('torch'))"


def torch_at_hand() -> str | None:
    """The version of torch in this environment, or in the one that pip builds for: pip hides that from the
    environment of a build by PYTHON variables, which -E ignores."""
    try:
        return metadata.version("torch")
    except metadata.PackageNotFoundError:
        asked = subprocess.run([sys.executable, "-E", "-c", _CODE], capture_output=True, text=True)
        return asked.stdout.strip() or None


def minor(version: str) -> tuple[int, int]:
    first, second = version.split(".")[:2]
    return int(first), int(second)


def other_torches() -> list[tuple[int, int]]:
    """The minor versions whose libraries tools/make_wheels.sh laid into the folder BIE_OTHER_TORCHES."""
    folder = os.environ.get("BIE_OTHER_TORCHES")
    found = [re.fullmatch(r"torch-(\d+)\.(\d+)", path.name) for path in Path(folder).rglob("torch-*")] if folder else []
    return [(int(match[1]), int(match[2])) for match in found if match]


def check_age(version: str) -> None:
    if minor(version) < minor(OLDEST):
        raise SystemExit(f"bie: expected torch {OLDEST} or later, got torch {version}")


def torch_requirement() -> str:
    at_hand = torch_at_hand()
    if at_hand is None:  # a source distribution is made, whose wheel says more
        return f"torch>={OLDEST}"
    check_age(at_hand)
    fitting = sorted({minor(at_hand), *other_torches()})
    if len(fitting) == 1:
        return "torch=={}.{}.*".format(*fitting[0])
    (first, oldest), (last, newest) = fitting[0], fitting[-1]
    if first != last:
        raise RuntimeError(f"expected versions of torch {first}, got one of torch {last}")
    gaps = [f"!={first}.{second}.*" for second in range(oldest, newest) if (first, second) not in fitting]
    return ",".join([f"torch>={first}.{oldest}", f"<{first}.{newest + 1}", *gaps])


def dynamic_metadata(settings: dict[str, str], project: dict) -> dict:
    """`{"extra": NAME}` of pyproject.toml: an extra which brings the package of the operators in this version, and
    torch by it. Nothing: a requirement of torch."""
    if "extra" in settings:
        return {"optional-dependencies": {settings["extra"]: [f"bitorch_engine=={project['version']}"]}}
    # bie.lm takes it, and without it torch warns when it is imported.
    return {"dependencies": [torch_requirement(), "numpy"]}


def dynamic_wheel(settings: dict[str, str]) -> dict[str, bool]:
    """A wheel made from the source distribution may have been built beside another torch."""
    return {} if "extra" in settings else {"dependencies": True}
