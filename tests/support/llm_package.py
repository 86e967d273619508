"""The packages of bie-llm over the library of a build, though the package bie with torch lies beside it."""

import importlib
import os
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def imported(build: Path, name: str):
    os.environ["BIE_LLM_LIBRARY"] = str(build / "src/llm/libbie_llm.so")
    path = sys.path.copy()
    sys.path[:] = [str(ROOT / "python/bie-llm"), *(folder for folder in path if folder != str(ROOT / "python"))]
    try:
        return importlib.import_module(name)
    finally:
        sys.path[:] = path
