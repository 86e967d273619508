"""The weight-only linear in GPTQ layout under BITorch Engine's names."""

from __future__ import annotations

from bie import nn
from bie.bitorch import functions
from bitorch_engine.layers.qlinear.nbit.mpq import MPQLinearBase


class MPQLinearCudaFunction(functions.OperatorFunction):
    """:class:`MPQLinearCuda` as a function of its tensors, without the bias.

    ``apply(x, qweight, a_bit, w_bit, scales, zeros, g_idx, asym, is_training, privileged_grad=None)``; in training the
    gradient of the weight as floats becomes ``qweight.privileged_grad``. With ``is_training=False`` nothing is saved.
    """

    call = staticmethod(functions.mpq_linear)


class MPQLinearCuda(nn.MPQLinear, MPQLinearBase):
    """:class:`bie.nn.MPQLinear`."""
