"""Weights of a few bits without training: GPTQ and round to nearest, of one weight and of a whole model."""

from bie.quantization.gptq import CodedWeight, gptq, output_error, round_to_nearest
from bie.quantization.hessian import Hessian
from bie.quantization.model import QuantizationReport, QuantizedLayer, quantize

__all__ = [
    "CodedWeight",
    "Hessian",
    "QuantizationReport",
    "QuantizedLayer",
    "gptq",
    "output_error",
    "quantize",
    "round_to_nearest",
]
