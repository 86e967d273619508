"""What linear layers of the package ``bitorch`` must be so that one of ours can stand in for them."""

from __future__ import annotations

from abc import ABC

try:
    from bitorch.layers import CustomImplementationMixin
    from bitorch.layers.extensions import LayerRecipe
except ImportError as error:
    raise ImportError(f"{__name__} needs the package bitorch (0.4.1): {error}") from error


class QLinearImplementationMixin(CustomImplementationMixin, ABC):
    """Layers that ``bitorch`` can put in place of a ``QLinear``."""

    @classmethod
    def can_clone(cls, recipe: LayerRecipe) -> tuple[bool, str]:
        """(whether, why not): the sizes must be positive; any number of features and a bias are taken."""
        inputs, outputs = recipe.layer.in_features, recipe.layer.out_features
        if inputs < 1 or outputs < 1:
            return False, f"the layer: expected positive sizes, got {inputs} x {outputs}"
        return True, ""
