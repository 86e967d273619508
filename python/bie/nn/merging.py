"""Adapters that are merged: a matrix is added to a layer's weight, whose codes are rounded anew."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from bie._operators import ops
from bie.errors import ShapeError
from bie.nn.mpq_linear import MPQLinear
from bie.nn.nbit_linear import CodesLinear


@torch.no_grad()
def opened(layer: MPQLinear) -> Tensor:
    """The weight [n, k] in float32 that the codes stand for."""
    layer.prepare_params()
    coded = layer._coded()
    options = {"in_features": layer.in_channels, "dtype": torch.float32, **coded.options}
    return ops.weight_only_open(*coded.tensors, **options).t()


@torch.no_grad()
def add_to_weight(layer: nn.Module, change: Tensor) -> float:
    """Adds a matrix [n, k] to the weight of a linear; returns the share of its size that rounding loses.

    Codes of an :class:`MPQLinear` are the nearest on their own grid or, where that loses less, on one of new ranges in
    groups of consecutive inputs. A float weight takes all of it but for rounding; where codes are made of it in each
    pass, theirs is what is lost.

    Raises:
        ShapeError: another shape. ValueError: a layer that keeps no weight to add to.
    """
    shape = (layer.out_features, layer.in_features)
    if tuple(change.shape) != shape:
        raise ShapeError(f"merge: expected a change of {list(shape)}, got {list(change.shape)}")
    if (reason := why_not(layer)) is not None:
        raise ValueError(f"merge: {reason}")
    change = change.detach().float()
    if isinstance(layer, MPQLinear):
        return _add_to_codes(layer, change.to(layer.scales.device))
    weight = getattr(layer, "weight", None)
    if isinstance(layer, nn.Linear):
        wanted = weight.float() + change.to(weight.device)
        weight.copy_(wanted)
        return _lost(weight.float(), wanted, change)
    scales = 1 if layer.channel_scale is None else layer.channel_scale.float().reshape(-1, 1)
    wanted = weight.float() * scales + change.to(weight.device)
    layer.set_weight_data(wanted)
    codes, scale = ops.prepare_weight(layer.weight.detach(), layer._bits, layer._weight_scale(), layer._smallest_step)
    scales = 1 if layer.channel_scale is None else layer.channel_scale.float().reshape(-1, 1)
    return _lost(codes.float() * scale.float() * scales, wanted, change)


def why_not(layer: nn.Module) -> str | None:
    """Why a layer has no weight that a matrix can be added to, or None."""
    weight = getattr(layer, "weight", None)
    floats = weight is not None and weight.is_floating_point()
    if isinstance(layer, MPQLinear) or (isinstance(layer, nn.Linear | CodesLinear) and floats):
        return None
    form = f" with {layer.weight_form} weights" if hasattr(layer, "weight_form") else ""
    return (
        "expected an MPQLinear, a torch.nn.Linear or an 8- or 4-bit linear with float weights, got a "
        f"{type(layer).__name__}{form}, whose adapter has to stay beside it"
    )


def _add_to_codes(layer: MPQLinear, change: Tensor) -> float:
    wanted = opened(layer) + change
    coded = layer._coded()
    before = layer.qweight.detach().clone()
    own = ops.weight_only_pack(wanted.t().contiguous(), layer.scales, layer.zeros, **coded.options)
    layer.qweight.copy_(own)
    on_own_grid = _lost(opened(layer), wanted, change)
    kept = {name: getattr(layer, name).clone() for name in ("scales", "zeros", "g_idx")}
    try:
        layer.set_weight_data(wanted)
    except ValueError:  # a range that the scales' dtype does not hold
        layer.qweight.copy_(before)
        raise
    on_new_grid = _lost(opened(layer), wanted, change)
    if on_new_grid < on_own_grid:
        return on_new_grid
    for name, value in kept.items():
        getattr(layer, name).copy_(value)
    layer.qweight.copy_(own)
    layer._tell_weight()
    if layer.master:
        layer.rest.copy_(wanted.t() - opened(layer).t())
    layer.repack()
    return on_own_grid


def _lost(found: Tensor, wanted: Tensor, change: Tensor) -> float:
    """Size of what is missing over that of the change: 1 is what leaving the change out would have cost."""
    size = float(change.norm())
    return float((found - wanted).norm()) / size if size else 0.0
