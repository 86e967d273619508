"""Weights of a few bits without training: GPTQ and round to nearest, of one weight and of a whole model."""

from bie.quantization.gptq import CodedWeight, gptq, output_error, round_to_nearest
from bie.quantization.hessian import Hessian
from bie.quantization.model import QuantizationReport, QuantizedLayer, quantize
from bie.quantization.tuning import TuningReport, tune

__all__ = [
    "CodedWeight",
    "Hessian",
    "QuantizationReport",
    "QuantizedLayer",
    "TuningReport",
    "gptq",
    "output_error",
    "quantize",
    "round_to_nearest",
    "tune",
]
