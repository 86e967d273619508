"""Builds of the presets, and the test programs in them."""

from __future__ import annotations

import os
from functools import cache
from pathlib import Path

from suites.commands import BIN, BUILD, environment, run, torch_free_environment
from suites.tally import TALLY


@cache
def torch_free_options() -> tuple[str, ...]:
    python = Path(torch_free_environment()["PATH"].split(os.pathsep)[0]) / "python3"
    return (f"-DBIE_PYTHON={python}", f"-DCMAKE_MAKE_PROGRAM={BIN / 'ninja'}")


@cache
def build(preset: str, torch_free: bool = False, targets: tuple[str, ...] = ()) -> bool:
    """Configures and builds a preset, or these targets of it, once; counts as one test."""
    env = torch_free_environment() if torch_free else environment()
    options = torch_free_options() if torch_free else ()
    status, output, seconds = run(BIN / "cmake", "--preset", preset, *options, env=env)
    if status == 0:
        status, build_output, build_seconds = run(
            *(BIN / "cmake", "--build", "--preset", preset, *(f"--target={target}" for target in targets)), env=env
        )
        output, seconds = output + build_output, seconds + build_seconds
    return TALLY.check(f"build {preset}", seconds, status == 0, output)


def test_executables(preset: str) -> list[Path]:
    found = sorted((BUILD / preset / "tests").rglob("bie_*_test"))
    return [path for path in found if path.is_file() and os.access(path, os.X_OK)]
