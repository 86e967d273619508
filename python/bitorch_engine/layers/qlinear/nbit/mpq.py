"""The weight-only classes."""

from bie.nn.weight_only import WeightOnlyLinear
from bie.weights.parameters import WeightOnlyParameter

__all__ = ["MPQLinearBase", "MPQWeightParameter"]


class MPQWeightParameter(WeightOnlyParameter):
    """The packed weight of a weight-only linear: :class:`bie.weights.parameters.WeightOnlyParameter`."""


class MPQLinearBase(WeightOnlyLinear):
    """The state of a weight-only linear: :class:`bie.nn.weight_only.WeightOnlyLinear`."""

    _parameter = MPQWeightParameter
