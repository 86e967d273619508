"""``BinaryLinearCutlass``, ``BinaryMatMul`` and their function forms."""

from __future__ import annotations

from torch import Tensor

from bie.bitorch import functions
from bie.nn import BinaryLinear, BinaryMatMul
from bitorch_engine.layers.qlinear.binary.layer import BinaryLinearBase

__all__ = ["BinaryLinearCutlass", "BinaryLinearForward", "BinaryMatMul", "BinaryMatMulFunction"]


class BinaryLinearForward(functions.OperatorFunction):
    """:class:`BinaryLinearCutlass` as a function of its tensors (bias already added); the weight is told by its dtype.

    ``apply(input, weight, scale_a, scale_w, gemm_kernel_id, is_train)`` with a float, int8 or packed uint8 weight;
    gradients ``(input, weight, scale_a, None, None, None)``. That of an int8 weight goes to ``weight.grad``.
    """

    call = staticmethod(functions.binary_linear)


class BinaryLinearCutlass(BinaryLinearBase, BinaryLinear):
    """:class:`bie.nn.BinaryLinear` with the arguments of :class:`BinaryLinearBase`; ``scale_w`` is a parameter."""

    #: 0 to 99: automatic; ids from 100 name kernels of this build (``select_gemm_kernel``).
    gemm_kernel_id = 3
    _scale_w_is_parameter = True

    def select_gemm_kernel(self, x: Tensor) -> None:
        """Times this machine's kernels on batches like x and keeps the fastest in ``gemm_kernel_id``.

        Call it before training or inference starts; x is ``[..., k]``. The choice is remembered for later processes, as
        by ``bie tune``.
        """
        self.gemm_kernel_id = self._fastest_kernel(x)
        self.repack()

    def _kernel_id(self) -> int:
        return self.gemm_kernel_id


class BinaryMatMulFunction(functions.OperatorFunction):
    """:class:`BinaryMatMul` as a function of its tensors: ``apply(x, y, x_clip, y_clip)``, a gradient for each."""

    call = staticmethod(functions.binary_matmul)
