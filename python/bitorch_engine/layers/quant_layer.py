"""What all quantised layers share, and options of all layers of a model."""

from bie.nn import QuantLayer, quant_layers, set_compat, set_grad_mode

__all__ = ["QuantLayer", "quant_layers", "set_compat", "set_grad_mode"]
