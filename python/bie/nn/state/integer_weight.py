"""An integer weight and its layers: which it has, what its codes mean, whose scale they share."""

from __future__ import annotations

import weakref
from typing import ClassVar

from torch import Tensor, nn

from bie._weak_sets import members
from bie.nn.state.weight_state import can_hold, ordinary
from bie.weights.parameters import QuantParameter

# Every layer alive: how DiodeMix finds integer weights that it was not given.
alive: weakref.WeakSet[IntegerWeight] = weakref.WeakSet()


def owners(weight: Tensor) -> list[IntegerWeight]:
    """The layers that have this weight."""
    return [layer for layer in members(alive) if layer._parameters.get("weight") is weight]


class IntegerWeight:
    """Mixin of :class:`LayerState`, before nn.Module: the rules of a weight that is int8."""

    _bits: ClassVar[int]
    _integer_parameter: ClassVar[type[QuantParameter]] = QuantParameter

    def _part(self, weight: Tensor) -> None:
        """Gives every layer that shares an integer weight a scale of its own, as float weights have."""
        for layer in owners(weight):
            if layer.scale_w is not None:
                if can_hold(layer.scale_w, own := ordinary(layer.scale_w.detach().clone())):
                    layer.scale_w.data = own
                layer._unprepare()
        weight.scale_w = None

    def _make_integer(self, codes: Tensor, scale: Tensor) -> None:
        self._set_weight(codes)
        self.scale_w.copy_(scale)

    def _adopt(self) -> None:
        """Tells an integer weight what its codes mean, as DiodeMix must know; layers with one weight share a scale."""
        weight = self._integer_weight()
        if weight is None:
            return
        if type(weight) is nn.Parameter:
            weight.__class__ = self._integer_parameter
        weight.bits = self._bits
        theirs, own = getattr(weight, "scale_w", None), self.scale_w
        if theirs is not None and own is not None and theirs.data_ptr() != own.data_ptr() and can_hold(own, theirs):
            own.data = theirs.data
        weight.scale_w = own

    def _leave(self) -> None:
        """Leaves an integer weight to the layers that share it, and its scale's memory with it."""
        weight = self._integer_weight()
        if weight is not None and self.scale_w is not None:
            if getattr(weight, "scale_w", None) is self.scale_w:
                weight.scale_w = self.scale_w.detach()
            if can_hold(self.scale_w, own := ordinary(self.scale_w.detach().clone())):
                self.scale_w.data = own

    def _integer_weight(self) -> Tensor | None:
        weight = self._parameters.get("weight")
        return None if weight is None or weight.is_floating_point() else weight
