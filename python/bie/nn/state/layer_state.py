"""The tensors of a quantised layer: the forms of its weight, its scales, and what torch does to modules."""

from __future__ import annotations

import math
import weakref
from collections.abc import Callable
from functools import partial
from typing import Any, ClassVar, NamedTuple

import torch
from torch import Tensor, nn

from bie._operators import ops
from bie.errors import ShapeError
from bie.nn.state.arguments import NamesItself
from bie.nn.state.integer_weight import IntegerWeight, alive, owners
from bie.nn.state.seen import Seen
from bie.nn.state.step_size import kept_dtypes
from bie.nn.state.weight_state import (
    STATE_KEYS,
    StagedState,
    can_hold,
    check_state,
    moving,
    ordinary,
    take_state,
)
from bie.nn.state.whole_load import load_layer
from bie.nn.state.whole_weights import WholeWeights
from bie.weights.parameters import QuantParameter


class _Sources(NamedTuple):
    """What ``qweight`` is the packed form of."""

    weight: Seen
    scale_w: Seen | None  # of a float weight that we packed: who assigns a qweight writes its scale before or after


class LayerState(NamesItself, WholeWeights, IntegerWeight, nn.Module):
    """Holds the tensors of a quantised layer, whose documentation is :class:`QuantLayer`'s, and keeps their rules."""

    _scaled: ClassVar[bool] = False  # whether the kind has bias_a and scales; else it computes with 0 and 1
    _scale_w_is_parameter: ClassVar[bool] = False  # as in some of BITorch Engine's classes
    _groups = 1  # of a convolution: x has that many times the channels of the weight
    _version = 2  # BITorch Engine's layers say 1 in a state dict's metadata

    weight: Tensor | None
    qweight: Tensor | None
    bias_a: Tensor | None
    scale_a: Tensor | None
    scale_w: Tensor | None
    bias: Tensor | None
    channel_scale: Tensor | None

    @torch.inference_mode(False)
    def __init__(
        self,
        weight_shape: tuple[int, ...],
        *,
        device: torch.device | str | None,
        dtype: torch.dtype,
        weight_dtype: torch.dtype,
        bias: bool = False,
        channel_scale: bool = False,
    ) -> None:
        super().__init__()
        if not isinstance(bias, bool):
            raise TypeError(f"{type(self).__name__}: bias: expected True or False, got {bias!r}")
        if any(size <= 0 for size in weight_shape):
            raise ValueError(f"{type(self).__name__}: the weight would be {list(weight_shape)}, sizes are positive")
        for wanted in (dtype, weight_dtype):
            if wanted not in (torch.float32, torch.float16, torch.bfloat16):
                raise ValueError(f"{type(self).__name__}: dtype: expected float32, float16 or bfloat16, got {wanted}")
        self._dtype, self._weight_dtype, self._weight_shape = dtype, weight_dtype, torch.Size(weight_shape)
        self._packed_from: _Sources | None = None  # what qweight is the packed form of
        self._scale_ready, self._guarded_scale, self._trained = False, 0.0, False
        self.register_parameter("weight", nn.Parameter(torch.empty(weight_shape, device=device, dtype=weight_dtype)))
        self.scale_w = None  # a parameter or a buffer of the kinds that have one
        for name in ("qweight", "bias_a", "scale_a", "bias"):
            self.register_parameter(name, None)
        if bias:
            self.bias = nn.Parameter(torch.empty(weight_shape[0], device=device, dtype=dtype))
        scales = torch.ones(weight_shape[0], device=device, dtype=torch.float32) if channel_scale else None
        self.register_buffer("channel_scale", scales)
        self._know_own()
        self.reset_parameters()
        alive.add(self)

    @torch.inference_mode(False)
    def _register_activation(self) -> None:
        """bias_a and the scales."""
        place = {"device": self.weight.device}
        self.bias_a = nn.Parameter(torch.zeros(self._weight_shape[1] * self._groups, dtype=self._dtype, **place))
        self.scale_a = nn.Parameter(torch.zeros((), dtype=torch.float32, **place))
        scale_w = torch.ones((), dtype=torch.float32, **place)
        del self.__dict__["scale_w"]
        if self._scale_w_is_parameter:
            self.register_parameter("scale_w", nn.Parameter(scale_w, requires_grad=False))
        else:
            self.register_buffer("scale_w", scale_w)
        self._know_own()
        if self._bits > 1:
            self.register_buffer("eps", torch.full((), 1e-5, dtype=torch.float32, **place))

    # Methods that each kind of layer overrides.

    def _pack(self) -> tuple[Tensor, Tensor | None]:
        """(weight as kernels read it, its scale) from ``weight``; the tensors may be the layer's own."""
        raise NotImplementedError(f"{type(self).__name__} is a base class: packing belongs to its subclasses")

    def _packed_shape(self) -> tuple[int, ...]:
        """Shape of ``qweight``."""
        return tuple(ops.packed_weight_shape(self._weight_shape, self._bits))

    def _to_file(self, packed: Tensor) -> Tensor:
        """``qweight`` as it is stored, from the form that kernels read."""
        return packed

    def _from_file(self, qweight: Tensor) -> Tensor:
        return qweight

    def _read_packed(self, packed: Tensor, has_scales: bool, name: str) -> Tensor:
        """``qweight`` in this layer's layout from that of a file; a ``ValueError`` that begins with ``name``."""
        return self._to_file(ops.read_packed_weight(packed, self._weight_shape, self._bits, has_scales, name))

    def _weight_entry(self, weight: Tensor) -> Tensor:
        """A weight in the layer's axes, from those of the float layer that it stands for."""
        return weight

    def _forget(self) -> None:
        """Forgets what was derived from the weight."""

    def _prepare_evaluation(self) -> None:
        """Derives what evaluation needs of a weight that cannot change any more."""

    # The weight.

    def reset_parameters(self) -> None:
        """Everything as in a new layer; the float weight is Kaiming uniform with a = sqrt(5)."""
        weight = torch.empty(self._weight_shape, device=self._device(), dtype=self._float_dtype())
        nn.init.kaiming_uniform_(weight, a=math.sqrt(5))
        self.qweight = None
        self._set_weight(weight)
        self._unprepare()
        with torch.no_grad():
            if self.bias is not None:
                bound = 1 / math.sqrt(math.prod(self._weight_shape[1:]))
                self.bias.uniform_(-bound, bound)
            if self.bias_a is not None:
                self.bias_a.zero_()
            for name, value in (("scale_a", 0.0), ("scale_w", 1.0), ("eps", 1e-5), ("channel_scale", 1.0)):
                if getattr(self, name, None) is not None:
                    getattr(self, name).fill_(value)
        self._scale_ready, self._guarded_scale, self._trained = False, 0.0, False
        self._forget()

    def set_weight_data(self, x: Tensor) -> None:
        """Replaces the weight by a float one of the layer's shape; ``ShapeError`` for another shape or an integer.

        With ``channel_scale`` it is split: ``channel_scale[o] = mean|x[o]| / mean|x|`` (1 for a row of zeros), and the
        weight is ``x[o] / channel_scale[o]``.
        """
        if not isinstance(x, Tensor):
            raise TypeError(f"{type(self).__name__}: the weight: expected a tensor, got a {type(x).__name__}")
        x = self._weight_entry(x)
        if x.shape != self._weight_shape or not x.is_floating_point():
            wanted, got = f"{list(self._weight_shape)} of a floating-point dtype", f"{list(x.shape)} of {x.dtype}"
            raise ShapeError(f"{type(self).__name__}: the weight: expected {wanted}, got {got}")
        self.qweight = None
        weight = x.detach().to(device=self._device(), dtype=self._float_dtype(), copy=True).contiguous()
        if self.channel_scale is not None:
            weight, scales = ops.split_channels(weight)
            self.channel_scale.copy_(scales)
        self._set_weight(weight)
        self._unprepare()

    def set_quantized_weight_data(self, x: Tensor) -> None:
        """Takes a packed weight in place of any other form; ``ShapeError`` unless it has the layer's packed shape."""
        if not hasattr(type(self), "_bits"):  # a base class knows no layout
            self.qweight = x.detach()
            return
        try:
            known = self._read_packed(x.detach(), self.scale_a is not None, f"{type(self).__name__}: qweight")
        except ValueError as error:
            raise ShapeError(str(error)) from None
        self._set_weight(None)
        self.qweight = known.to(self._device(), copy=True)
        self._prepare_evaluation()

    def generate_quantized_weight(self, qweight_only: bool = False) -> None:
        """Packs the weight into ``qweight`` and sets ``scale_w``; with ``qweight_only`` the weight is dropped."""
        if self.weight is not None:
            seen, form = self._sources(True), self._packed_form()
            self._keep_packed(form["qweight"].clone(), form.get("scale_w"), seen)
        if qweight_only:
            self._set_weight(None)
            self._prepare_evaluation()

    def _sources(self, with_scale: bool) -> _Sources:
        with_scale = with_scale and self.scale_w is not None and self.weight.is_floating_point()
        return _Sources(Seen(self.weight), Seen(self.scale_w) if with_scale else None)

    def _keep_packed(self, qweight: Tensor, scale: Tensor | None, seen: _Sources) -> None:
        """Keeps the packed form of what was seen, and not of what another thread wrote meanwhile."""
        self.qweight = qweight
        # A write of the same number would cost a graph that saved it its backward pass.
        if self.scale_w is not None and not torch.equal(scale, self.scale_w):
            with torch.no_grad():
                self.scale_w.copy_(scale)
            if seen.scale_w is not None:
                seen = seen._replace(scale_w=Seen(self.scale_w))
        self._packed_from = seen

    @property
    def weight_form(self) -> str:
        """``"float"``, ``"int8"`` or ``"packed"``."""
        if self.weight is None:
            return "packed"
        return "float" if self.weight.is_floating_point() else "int8"

    def packed_state(self) -> dict[str, Tensor]:
        """The layer's tensors by their keys, the weight packed; the layer is not changed. Copies only what it packs."""
        state = {name: tensor for name, tensor in self.state_dict().items() if name != "weight"}
        return state if self.weight is None else state | self._packed_form()

    def _packed_form(self) -> dict[str, Tensor]:
        """qweight, and scale_w where the layer has one, of the weight as it is."""
        with torch.no_grad():
            packed, scale = self._pack()
            form = {"qweight": self._to_file(packed).detach()}
            return form if self.scale_w is None else form | {"scale_w": scale.detach()}

    def _unprepare(self) -> None:
        """Takes note that scale_w does not belong to the float weight that was put in place."""
        self._trained = False

    @property
    def weight_trainable(self) -> bool:
        """Whether training makes a gradient for the weight, float or integer."""
        weight = self.weight
        if weight is None:
            return True
        return weight.requires_grad if weight.is_floating_point() else getattr(weight, "trainable", True)

    @weight_trainable.setter
    def weight_trainable(self, trainable: bool) -> None:
        if self.weight is not None:
            self.weight.requires_grad_(trainable)

    def _set_weight(self, value: Tensor | None) -> None:
        """Keeps the Parameter where there is one, so that an optimizer goes on holding the layer's weight."""
        old, trainable = self.weight, self.weight_trainable
        value = None if value is None else ordinary(value)
        if value is None or old is None or not can_hold(old, value):
            self.weight = None if value is None else nn.Parameter(value, requires_grad=value.is_floating_point())
        else:
            old.grad = None
            if old.is_floating_point():
                old.requires_grad_(False)
            elif value.is_floating_point():
                self._part(old)
            self._packed_from = None
            old.data = value
            old.__class__ = nn.Parameter if value.is_floating_point() else self._integer_parameter
            self._forget()
            self._adopt()
            if not value.is_floating_point():
                for layer in owners(old):
                    layer._adopt()
        self.weight_trainable = trainable

    def _know_own(self) -> None:
        tensors = self._parameters.get("weight"), getattr(self, "scale_w", None)
        self._own = tuple(None if tensor is None else weakref.ref(tensor) for tensor in tensors)

    def _has_its_own(self) -> bool:
        """Whether weight and scale are the layer's, and none that ``functional_call`` put in their place."""
        places = zip(self._own, (self._parameters.get("weight"), self.scale_w), strict=True)
        return all(own is None or own() is None or own() is place for own, place in places)

    # Where the tensors are.

    @property
    def dtype(self) -> torch.dtype:
        """Of the float tensors as they are; the constructor's where there is none."""
        for tensor in (self.bias_a, self.weight):
            if tensor is not None and tensor.is_floating_point():
                return tensor.dtype
        return self._dtype

    @property
    def device(self) -> torch.device:
        return self._device() or torch.device("cpu")

    def _float_dtype(self) -> torch.dtype:
        """Of the weight while it is a float."""
        if self.weight is not None and self.weight.is_floating_point():
            return self.weight.dtype
        return self._weight_dtype

    def _device(self) -> torch.device | None:
        for name in ("bias_a", "weight", "qweight"):
            if self._parameters.get(name) is not None:
                return self._parameters[name].device
        return None

    def _scales(self) -> list[str]:
        names = ("scale_a", "scale_w", "eps", "channel_scale")
        return [name for name in names if getattr(self, name, None) is not None]

    # Hooks that torch calls on modules.

    def __setattr__(self, name: str, value: Any) -> None:
        if name not in ("weight", "qweight", "scale_a", "scale_w", "bias_a", "bias", "eps"):
            super().__setattr__(name, value)
            if name == "training":  # by train(), eval() or hand
                self._forget()
                self._prepare_evaluation()
            return
        plain = isinstance(value, Tensor) and not isinstance(value, nn.Parameter)
        if plain and name in self.__dict__.get("_parameters", {}):
            value = ordinary(value)
            learns = value.is_floating_point() and name in ("weight", "scale_a", "bias_a", "bias")
            value = nn.Parameter(value, requires_grad=learns) if name != "qweight" else QuantParameter(value, False)
        if name == "weight" and self._parameters.get("weight") is not value:
            self._leave()
        super().__setattr__(name, value)
        if name in ("weight", "qweight", "scale_w", "eps"):
            self._forget()
        if name == "weight":
            self._packed_from = None
            self._adopt()
            if isinstance(value, Tensor) and value.is_floating_point():
                self._unprepare()
        elif name == "qweight":
            weight = self._parameters.get("weight")
            self._packed_from = None if weight is None or value is None else self._sources(False)
        elif name == "scale_w":
            weight = self._integer_weight()
            if weight is not None:
                weight.scale_w = self.scale_w
        elif name == "scale_a":
            self._scale_ready, self._guarded_scale, self._trained = False, 0.0, False
        if name in ("weight", "scale_w"):
            self._know_own()

    def __delattr__(self, name: str) -> None:
        super().__delattr__(name)
        if name in ("weight", "qweight"):
            self._packed_from = None
            self._forget()

    @property
    def _qweight_is_current(self) -> bool:
        """Whether ``qweight`` is the packed form of the weight as it is, by the scale as it is."""
        return self._sources_seen() > 0

    def _sources_seen(self) -> int:
        """0 where ``qweight`` is stale, 2 where a write into scale_w makes it so, 1 where one into the weight alone."""
        seen = self._packed_from
        if seen is None or not seen.weight.is_still(self._parameters.get("weight")):
            return 0
        if seen.scale_w is None:
            return 1
        return 2 if seen.scale_w.is_still(self.scale_w) else 0

    def _replicate_for_data_parallel(self) -> LayerState:
        raise RuntimeError(
            f"{type(self).__name__}: DataParallel is refused, because the replicas' integer gradients would be lost"
        )

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> LayerState:
        sources, weight = self._sources_seen(), self._integer_weight()
        # The first of several layers with one weight takes its scale along, the others come after.
        theirs = getattr(weight, "scale_w", None)
        first = theirs is None or self.scale_w is None or theirs.data_ptr() == self.scale_w.data_ptr()
        with moving(self), kept_dtypes(self, self._scales()):
            super()._apply(fn, recurse)
        self._weight_dtype = self._float_dtype()
        self._forget()
        weight = self._integer_weight()
        if first and weight is not None:
            weight.scale_w = self.scale_w
        self._adopt()
        self._know_own()
        self._packed_from = self._sources(sources == 2) if sources else None
        self._prepare_evaluation()
        return self

    def __getstate__(self) -> dict[str, Any]:
        derived = ("_ready", "_packed_panels", "_packed_plain", "_versions", "_own")
        return self.__dict__ | dict.fromkeys(derived) | {"_packed_from": self._sources_seen()}

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        self._packed_from = self._sources(self._packed_from == 2) if self._packed_from else None
        self._adopt()
        self._know_own()
        alive.add(self)

    def _load_from_state_dict(
        self, state_dict: dict[str, Any], prefix: str, local_metadata: dict[str, Any], *lists: Any
    ) -> None:
        def take(staged: StagedState) -> None:
            self._warn_of_old_files(local_metadata.get("version"))
            take_state(self, staged, assign=local_metadata.get("assign_to_params_buffers", False))

        load_layer(self, STATE_KEYS, partial(check_state, self), take, state_dict, prefix, local_metadata, *lists)

    def _save_to_state_dict(self, destination: dict[str, Any], prefix: str, keep_vars: bool) -> None:
        super()._save_to_state_dict(destination, prefix, keep_vars)
        if self.weight is not None and not self._qweight_is_current:
            destination.pop(prefix + "qweight", None)  # of an earlier weight

    def _warn_of_old_files(self, version: int | None) -> None:
        """For layers whose trained weights mean something else in BITorch Engine's files."""
