"""A state dict into a layer, whichever form its weight has: check everything, then take it."""

from __future__ import annotations

import contextlib
import itertools
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from bie._operators import ops

if TYPE_CHECKING:
    from bie.nn.state.layer_state import LayerState

_VECTORS = ("bias_a", "bias", "channel_scale")
_SCALES = ("scale_a", "scale_w", "eps")
STATE_KEYS = ("weight", "qweight", *_VECTORS, *_SCALES)


@dataclass
class StagedState:
    """Entries that fit the layer, in its own layouts."""

    values: dict[str, Tensor] = field(default_factory=dict)
    missing: list[str] = field(default_factory=list)
    unexpected: list[str] = field(default_factory=list)
    prepared: bool = False  # the form of a weight-only layer that takes them


def check_scale(entry: str, name: str, tensor: Tensor) -> Tensor:
    """The 0-dim float32 of an entry for the scale ``name``; ``ValueError`` for what cannot be one."""
    if not isinstance(tensor, Tensor):
        raise ValueError(f"the entry '{entry}': expected a tensor, got a {type(tensor).__name__}")
    least = {"scale_w": 0.0, "eps": 1e-30}.get(name)  # a learned one may have crossed zero
    return ops.check_scale_entry(tensor, least, f"the entry '{entry}'")


def check_state(layer: LayerState, own: dict[str, Tensor], prefix: str) -> StagedState:
    """The layer's own entries of a state dict, if it can take them: float, int8, or packed in any known layout.

    Raises:
        ValueError: a sentence that names the entry whose shape, dtype, layout or value the layer cannot take.
    """
    staged = StagedState()
    # Two flat layouts have one size: the scales beside a weight tell them apart, or else the layer's own layout.
    flat = layer.scale_a is not None and len(layer._packed_shape()) == 1
    has_scales = flat or "scale_a" in own or "scale_w" in own
    for name, tensor in own.items():
        entry = prefix + name
        place = getattr(layer, name, None)
        if place is None and name not in ("weight", "qweight"):
            staged.unexpected.append(name)
        elif not isinstance(tensor, Tensor):
            raise ValueError(f"the entry '{entry}': expected a tensor, got a {type(tensor).__name__}")
        elif name in _VECTORS:
            ops.check_entry(tensor, place.shape, place.dtype, f"the entry '{entry}'")
            staged.values[name] = tensor.detach()
        elif name in _SCALES:
            staged.values[name] = check_scale(entry, name, tensor.detach())
        elif name == "weight":
            shape, dtype, tensor = layer._weight_shape, layer._float_dtype(), layer._weight_entry(tensor)
            ops.check_weight_entry(tensor, shape, layer._bits, dtype, f"the entry '{entry}'")
            staged.values[name] = tensor.detach()
        else:
            staged.values[name] = layer._read_packed(tensor.detach(), has_scales, f"the entry '{entry}'")
    wanted = [name for name in (*_VECTORS, "scale_a", "scale_w") if getattr(layer, name, None) is not None]
    staged.missing = [name for name in wanted if name not in staged.values]
    if "weight" not in staged.values and "qweight" not in staged.values:
        staged.missing.append("weight")
    return staged


def ordinary(tensor: Tensor) -> Tensor:
    """The tensor, or a copy of one that inference mode made, which could never be trained."""
    if not tensor.is_inference():
        return tensor
    with torch.inference_mode(False), torch.no_grad():
        return tensor.clone()


def moving(layer: nn.Module) -> contextlib.AbstractContextManager:
    """Around ``nn.Module._apply``: inference mode makes no tensors of a layer that has none of them."""
    stays = any(tensor.is_inference() for tensor in itertools.chain(layer.parameters(), layer.buffers()))
    return torch.inference_mode(stays and torch.is_inference_mode_enabled())


def can_hold(place: Tensor, value: Tensor) -> bool:
    """Whether ``place.data = value`` makes an ordinary tensor of ``place``."""
    return not place.is_inference() and torch._has_compatible_shallow_copy_type(place, value)


def _owned(value: Tensor, dtype: torch.dtype, device: torch.device | None, assign: bool) -> Tensor:
    """An entry as a tensor that a layer may keep; with ``assign`` the entry itself where its dtype is wanted."""
    value = value.to(device=value.device if assign or device is None else device, dtype=dtype)
    return ordinary(value if assign else value.clone(memory_format=torch.contiguous_format))


def take_entry(layer: nn.Module, name: str, value: Tensor, assign: bool) -> None:
    """Gives a layer's tensor ``name`` a checked entry, in the dtype that it has."""
    place = getattr(layer, name)
    if not assign and place.shape == value.shape and not place.is_inference():
        with torch.no_grad():
            place.copy_(value)
        return
    value = _owned(value, place.dtype, place.device, assign)
    if can_hold(place, value):
        place.data = value
    else:  # from the meta device, or made in inference mode
        is_parameter = isinstance(place, nn.Parameter)
        setattr(layer, name, nn.Parameter(value, requires_grad=place.requires_grad) if is_parameter else value)


def take_state(layer: LayerState, staged: StagedState, assign: bool) -> None:
    """Gives a layer the checked entries and the form of weight they have. A loaded scale has no guard.

    With ``assign`` the entries themselves become the layer's, where their dtype is the layer's.
    """
    device, values = layer._device(), staged.values
    if "weight" in values:
        weight = values["weight"]
        dtype = layer._float_dtype() if weight.is_floating_point() else weight.dtype
        if layer.weight is not None and layer.weight.dtype == dtype and not assign:
            take_entry(layer, "weight", weight, assign)
        else:
            layer._set_weight(_owned(weight, dtype, device, assign))
    elif "qweight" in values:
        layer._set_weight(None)
    if "weight" in values or "qweight" in values:
        packed = values.get("qweight")
        layer.qweight = None if packed is None else _owned(packed, packed.dtype, device, assign)
        layer._packed_from = None  # it may be of an earlier weight: BITorch Engine saves such files
    layer._adopt()
    for name in (*_VECTORS, *_SCALES):
        if name in values:
            take_entry(layer, name, values[name], assign)
    if "scale_a" in values:
        layer._scale_ready, layer._guarded_scale, layer._trained = False, 0.0, False
    layer.repack()
    layer._prepare_evaluation()
