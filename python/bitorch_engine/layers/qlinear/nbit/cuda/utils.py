"""Float weights from packed ones and back, and the group map of mixed rows; docs/spec/weight-only.md#packing-floats."""

from __future__ import annotations

from torch import Tensor

from bie.bitorch.layouts import make_group_map
from bie.weights.gptq import gptq_style_unpacking, layer_type, pack_fp_weight

__all__ = ["make_group_map", "pack_fp_weight", "unpack_qweight"]


def unpack_qweight(qweight: Tensor) -> Tensor:
    """The float weight [k, n] of an ``MPQWeightParameter``, see ``gptq_style_unpacking``.

    Raises:
        ValueError: an attribute is missing. NotImplementedError: mixed rows, or an unknown ``layer_type``.
    """
    if layer_type("unpack_qweight", qweight) == 2 and qweight.q_group_map is not None:
        from bitorch_engine.layers.qlinear.nbit.cuda.mbwq_layer import MBWQLinearCuda

        return MBWQLinearCuda.exl2fp_weight(
            qweight.data, qweight.scales, qweight.zeros, qweight.q_perm, qweight.q_group_map, qweight.rows
        )
    return gptq_style_unpacking(qweight)[0]
