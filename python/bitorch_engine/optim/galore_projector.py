"""``GaLoreProjector``."""

from bie.optim import GaLoreProjector

__all__ = ["GaLoreProjector"]
