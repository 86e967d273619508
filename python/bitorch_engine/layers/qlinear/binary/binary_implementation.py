"""Binary linear layers of the package ``bitorch`` that ours can stand in for."""

from __future__ import annotations

from abc import ABC
from typing import Any

from bitorch_engine.layers.qlinear.qlinear_implementation import LayerRecipe, QLinearImplementationMixin

try:
    from bitorch.quantizations import Sign, SwishSign
except ImportError as error:
    raise ImportError(f"{__name__} needs the package bitorch (0.4.1): {error}") from error


def _why_not(name: str, quantization: Any) -> str:
    if isinstance(quantization, Sign | SwishSign):
        return ""
    return f"the {name} quantization {quantization.name} is not one bit (Sign or SwishSign)"


class BinaryLinearImplementationMixin(QLinearImplementationMixin, ABC):
    """Both the input and the weight are quantised by ``Sign`` or ``SwishSign``."""

    @classmethod
    def can_clone(cls, recipe: LayerRecipe) -> tuple[bool, str]:
        """(whether, why not)."""
        layer = recipe.layer
        reason = _why_not("input", layer.input_quantization) or _why_not("weight", layer.weight_quantization)
        return (False, reason) if reason else super().can_clone(recipe)
