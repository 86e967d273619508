"""The backend of pip's builds is that of the package at the root; it has to lie in the folder of its package."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tools"))
from torch_build import *  # noqa: F403
