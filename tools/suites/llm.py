"""Language models at length, on a real one."""

from __future__ import annotations

import shutil

from suites.builds import build
from suites.commands import environment
from suites.junit import run_pytest


def suite_llm() -> None:
    """What takes minutes: tests/llm_long, with a second library by clang where that is installed."""
    if not build("runtime", torch_free=True):
        return
    if shutil.which("clang++"):
        build("runtime-clang", torch_free=True)
    run_pytest("pytest long tests of language models", "tests/llm_long", env=environment(BIE_BUILD_DIR="build/runtime"))
