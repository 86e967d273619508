"""``DiodeMix``."""

from bie.optim import DiodeMix

__all__ = ["DiodeMix"]
