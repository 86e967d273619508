"""The exception of shape, dtype and rank checks."""


class ShapeError(ValueError, AssertionError):
    """A tensor's shape, dtype or rank is not what a layer wants.

    Both a ``ValueError``, as torch raises them, and an ``AssertionError``, as BITorch Engine 0.2.6 did.
    """
