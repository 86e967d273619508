"""Binary linear layers of the package ``bitorch`` that ours can stand in for."""

from __future__ import annotations

from abc import ABC

from bitorch_engine.layers.qlinear.qlinear_implementation import LayerRecipe, QLinearImplementationMixin

try:
    from bitorch.quantizations import Sign, SwishSign
except ImportError as error:
    raise ImportError(f"{__name__} needs the package bitorch (0.4.1): {error}") from error


class BinaryLinearImplementationMixin(QLinearImplementationMixin, ABC):
    """Both the input and the weight are quantised by ``Sign`` or ``SwishSign``."""

    @classmethod
    def can_clone(cls, recipe: LayerRecipe) -> tuple[bool, str]:
        """(whether, why not)."""
        for name in ("input", "weight"):
            quantization = getattr(recipe.layer, f"{name}_quantization")
            if not isinstance(quantization, Sign | SwishSign):
                return False, f"the {name} quantization {quantization.name} is not one bit (Sign or SwishSign)"
        return super().can_clone(recipe)
