"""``DiodeMix``, the optimizer of integer and float weights, and what it needs to know of a model."""

from bie.optim.averaged_model import AveragedModel
from bie.optim.diode_mix import DiodeMix
from bie.optim.galore import GaLoreProjector
from bie.optim.integer_parameters import integer_parameters, wide_gradients

__all__ = ["AveragedModel", "DiodeMix", "GaLoreProjector", "integer_parameters", "wide_gradients"]
