"""Float weights from packed ones and back, and the group map of mixed rows; docs/spec/weight-only.md#packing-floats."""

from __future__ import annotations

from torch import Tensor

from bie.weights.gptq import gptq_style_unpacking, layer_type, make_group_map, pack_fp_weight

__all__ = ["make_group_map", "pack_fp_weight", "unpack_qweight"]


def unpack_qweight(qweight: Tensor) -> Tensor:
    """The float weight [k, n] of an ``MPQWeightParameter``, see ``gptq_style_unpacking``.

    Raises:
        ValueError: an attribute is missing. NotImplementedError: an unknown ``layer_type``.
    """
    layer_type("unpack_qweight", qweight)
    return gptq_style_unpacking(qweight)[0]
