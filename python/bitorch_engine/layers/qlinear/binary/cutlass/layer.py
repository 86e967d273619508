"""``BinaryLinearCutlass``, ``BinaryMatMul`` and their function forms."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from bitorch_engine._operators import ANCHOR, ops
from bitorch_engine.layers.function import OperatorFunction, in_training
from bitorch_engine.layers.matmul_layer import MatMulLayer
from bitorch_engine.layers.qlinear.binary.layer import TrainedSigns


class BinaryLinearForward(OperatorFunction):
    """:class:`BinaryLinearCutlass` as a function of its tensors (bias already added); the weight is told by its dtype.

    ``apply(input, weight, scale_a, scale_w, gemm_kernel_id, is_train)`` with a float, int8 or packed uint8 weight;
    gradients ``(input, weight, scale_a, None, None, None)``. That of an int8 weight goes to ``weight.grad``.
    With ``is_train=False`` nothing is saved.
    """

    @staticmethod
    def call(
        input: Tensor, weight: Tensor, scale_a: Tensor, scale_w: Tensor, gemm_kernel_id: int, is_train: bool
    ) -> Tensor:
        with in_training(is_train):
            return ops.binary_linear(
                input, weight, scale_a, scale_w, anchor=ANCHOR if is_train else None, kernel_id=gemm_kernel_id
            )


class BinaryLinearCutlass(TrainedSigns):
    __doc__ = TrainedSigns.__doc__

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._register_activation(scale_w_is_parameter=True, eps=False)
        #: 0 to 99: automatic; ids from 100 name kernels of this build (``select_gemm_kernel``).
        self.gemm_kernel_id = 3

    def select_gemm_kernel(self, x: Tensor) -> None:
        """Times this machine's kernels on batches like x and keeps the fastest in ``gemm_kernel_id``.

        Call it before training or inference starts; x is ``[..., k]``. The choice is remembered for later processes, as
        by ``bie tune``.
        """
        self._check_forward(x)
        rows = x.numel() // x.shape[-1]
        self.gemm_kernel_id = ops.select_binary_kernel(rows, self.output_features, self.input_features, x.device)
        self.repack()

    def _kernel_id(self) -> int:
        return self.gemm_kernel_id


class BinaryMatMulFunction(OperatorFunction):
    """:class:`BinaryMatMul` as a function of its tensors: ``apply(x, y, x_clip, y_clip)``, a gradient for each."""

    @staticmethod
    def call(x: Tensor, y: Tensor, x_clip: Tensor, y_clip: Tensor) -> Tensor:
        return ops.binary_matmul(x, y, x_clip, y_clip)


class BinaryMatMul(MatMulLayer):
    __doc__ = f"""``out = (k - 2*popcount(bit(x) XOR bit(y))) * x_clip * y_clip``: the product of two activations.

    The first batch sets ``x_clip = 2*mean|x|`` and ``y_clip = 2*mean|y|``. BITorch Engine counts the zeros that it pads
    with as bits and scales twice; this is exact.

    Backward, for each side v with the other side u: ``grad_v = (g . sgn(u)) * u_clip`` inside ``|v / v_clip| <= 1``,
    else 0; ``grad_v_clip = sum(grad_v * sgn(v)) / sqrt(numel(v))``. Source: numerics.md section 3.

    {MatMulLayer.__doc__}"""

    def __init__(self, dtype: torch.dtype = torch.float, *, device: torch.device | str | None = None) -> None:
        super().__init__(dtype, device)

    def _first_batch_factor(self) -> float:
        return 2.0

    def _operator(self, x: Tensor, y: Tensor) -> Tensor:
        return ops.binary_matmul.default(x, y, self.x_clip, self.y_clip)
