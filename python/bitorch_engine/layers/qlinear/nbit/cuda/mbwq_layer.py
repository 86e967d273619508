"""The weight-only linear with permuted rows under BITorch Engine's names."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from bie import nn
from bie.bitorch import functions
from bitorch_engine.layers.qlinear.nbit.mpq import MPQLinearBase


class MBWQLinearCudaFunction(functions.OperatorFunction):
    """:class:`MBWQLinearCuda` as a function of its tensors, without ``channel_scale`` and bias.

    ``apply(x, qweight, use_mbw, is_train, scales, zeros, group_size, q_perm=None, bits=4, privileged_grad=None,
    q_group_map=None, rows=None)``; in training the gradient of the weight as floats becomes
    ``qweight.privileged_grad``. With ``is_train=False`` nothing is saved.
    """

    call = staticmethod(functions.mbwq_linear)


class MBWQLinearCuda(nn.MBWQLinear, MPQLinearBase):
    """:class:`bie.nn.MBWQLinear` with the arguments of :class:`MPQLinearBase`, of which ``asym`` is refused."""

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        a_bit: int = 16,
        w_bit: int = 4,
        dtype: torch.dtype = torch.half,
        group_size: int = -1,
        use_gba_quant: bool = True,
        dq_group_size: int = -1,
        dq_mode: int = 2,
        disable_bias: bool = True,
        asym: bool = False,
        requires_grad: bool = True,
        *,
        use_mbw: bool = True,
        groups: int = 64,
        rows_packed: int = 64,
        train_bias: bool = False,
        master: bool = False,
        activation: str = "exact",
        device: torch.device | str | None = None,
    ) -> None:
        self._set_rows(use_mbw, groups, rows_packed)
        sizes = (in_channels, out_channels, a_bit, w_bit, dtype, group_size)
        files = (use_gba_quant, dq_group_size, dq_mode, disable_bias, asym, requires_grad)
        options = {"train_bias": train_bias, "master": master, "activation": activation, "device": device}
        MPQLinearBase.__init__(self, *sizes, *files, **options)

    def load_state_dict(self, state_dict: dict[str, Tensor], strict: bool = True) -> Any:
        return super().load_state_dict(state_dict, strict)
