"""Where pickles of the first versions look for hooks that were registered during a load."""

from bie.nn.state.whole_load import _itself

__all__ = ["_itself"]
