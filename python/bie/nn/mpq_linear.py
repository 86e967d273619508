"""The weight-only linear of GPTQ's and GBA's files."""

from __future__ import annotations

from bie.nn.weight_only import WeightOnlyLinear


class MPQLinear(WeightOnlyLinear):
    """Linear layer with weights of 1 to 6 or 8 bits in groups, float activations: ``y = x . W (+ bias)``.

    ``W[r, c] = q[r, c] * scales[g, c] - zeros[g, c]`` (GBA) or ``scales[g, c] * (q[r, c] - z[g, c])`` (``asym``: GPTQ),
    ``g = g_idx[r]`` in any order. Arguments, keys, gradients and errors are those of :class:`WeightOnlyLinear`.
    Source: docs/spec/weight-only.md; BITorch Engine 0.2.6 ``MPQLinearCuda``; Frantar et al. 2022 (GPTQ).

    Example::

        >>> layer = bie.nn.MPQLinear(20, 3, w_bit=2, group_size=8, dtype=torch.float32)
        >>> layer(torch.randn(5, 20)).shape
        torch.Size([5, 3])
        >>> layer.qweight.shape, layer.scales.shape
        (torch.Size([2, 3]), torch.Size([3, 3]))
    """

    _checks_parameters = True
