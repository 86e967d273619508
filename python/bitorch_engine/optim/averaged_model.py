"""``AveragedModel``."""

from bie.optim import AveragedModel

__all__ = ["AveragedModel"]
