"""The exception of shape, dtype and rank checks."""

from bie.errors import ShapeError

__all__ = ["ShapeError"]
