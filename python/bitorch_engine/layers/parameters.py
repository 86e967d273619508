"""Where pickles of the first versions look for parameters."""

from bie.weights.parameters import QuantParameter, _rebuild

__all__ = ["QuantParameter", "_rebuild"]
