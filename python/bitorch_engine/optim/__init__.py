"""``DiodeMix``, the optimizer of integer and float weights, and what it needs to know of a model."""

from bie.optim import AveragedModel, DiodeMix, GaLoreProjector, integer_parameters, wide_gradients

__all__ = ["AveragedModel", "DiodeMix", "GaLoreProjector", "integer_parameters", "wide_gradients"]
