"""``DiodeMix``, the optimizer of integer and float weights, and what it needs to know of a model."""

from bitorch_engine.optim.averaged_model import AveragedModel
from bitorch_engine.optim.diode_beta import DiodeMix
from bitorch_engine.optim.galore_projector import GaLoreProjector
from bitorch_engine.optim.integer_parameters import integer_parameters, wide_gradients

__all__ = ["AveragedModel", "DiodeMix", "GaLoreProjector", "integer_parameters", "wide_gradients"]
