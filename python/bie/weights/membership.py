"""Which group a weight's gradient is of: what layers, weights and optimizers ask."""

from __future__ import annotations

import weakref
from typing import Any


class Membership:
    """A weight's or a layer's way to its reducer. Copies and pickles of a model belong to no group."""

    def __init__(self, reducer: Any = None, alone: bool = False) -> None:
        self._reducer = None if reducer is None else weakref.ref(reducer)
        self.alone = alone  # trained by this process alone, beside others

    def reducer(self) -> Any:
        """The ``bie.distributed.IntegerReducer``, while it lives."""
        return None if self._reducer is None else self._reducer()

    @property
    def settled(self) -> bool:
        """Whether it is known what becomes of the gradient among several processes."""
        return self.alone or self.reducer() is not None

    def __deepcopy__(self, memo: dict) -> Membership:
        return Membership(alone=self.alone)

    def __reduce__(self) -> tuple:
        return Membership, ()


NOBODY = Membership()
