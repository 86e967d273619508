"""``DiodeMix``, and the check of torch's version that BITorch Engine makes before it."""

import torch

from bie.optim import DiodeMix

__all__ = ["DiodeMix", "check_pytorch_version"]


def check_pytorch_version(required_version: str) -> None:
    """``RuntimeError`` where torch is older than ``required_version``, such as ``"1.5.0"``."""
    if torch.__version__ < required_version:  # which compares as versions do
        raise RuntimeError(
            f"check_pytorch_version: torch: expected {required_version} or later, got {torch.__version__}"
        )
