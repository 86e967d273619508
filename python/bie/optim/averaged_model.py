"""``AveragedModel``: running averages (EMA, SWA) of models that hold integer weights."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import swa_utils

from bie._operators import ops
from bie.nn.state.quant_layer import QuantLayer
from bie.nn.state.whole_load import unless_refused
from bie.weights.parameters import AnchoredParameter, CodeRowsParameter, EmbeddingParameter

_EXTRA_STATE = "_extra_state"


class AveragedModel(swa_utils.AveragedModel):
    """``torch.optim.swa_utils.AveragedModel`` for every model: same arguments, same functions, ``update_bn`` included.

    Integer weights are averaged as float32 beside the module, 1-bit ones as their signs, 8- and 4-bit ones as
    ``code * scale_w``; the module holds the averages quantised again: ``sgn(average)`` with 0 as +1, or
    ``clamp(rint(average / scale_w))`` with the module's ``scale_w`` (a buffer: averaged with ``use_buffers``, else
    copied). Weight-only linears and embeddings are averaged as the floats that they stand for, and packed again with
    the module's scales and zeros, which are such buffers too; with ``master`` the module's ``rest`` holds what the
    codes cannot. Packed weights of quantised layers, which nothing trains, are copied, as are integer buffers and the
    words of weight-only layers that are not prepared. The float averages are saved with the state, as its
    ``_extra_state``; a model without integers has none, and its states are torch's.

    A layer whose weight changes its form, as in its first training batch, starts anew from the model's; one whose
    integers are not those of its average, as after a load into ``module``, from its integers.

    Raises:
        TypeError (``update_parameters``): an integer parameter that is no bie layer's weight.

    Example::

        >>> model = torch.nn.Sequential(bie.nn.BinaryLinear(8, 4))
        >>> averaged = bie.optim.AveragedModel(model)
        >>> averaged.update_parameters(model)
        >>> averaged(torch.randn(3, 8)).shape
        torch.Size([3, 4])
    """

    averages_integers = True

    def __init__(self, model: nn.Module, *args: Any, **kwargs: Any) -> None:
        super().__init__(model, *args, **kwargs)
        self._averages: dict[str, Tensor] = {}

    @torch.no_grad()
    def update_parameters(self, model: nn.Module) -> None:
        found = zip(_integer_layers(self.module), _integer_layers(model), strict=True)
        pairs = {name: (twin, layer) for (name, twin), (_, layer) in found}
        twins, layers = zip(*pairs.values(), strict=True) if pairs else ((), ())
        shared = _shared(pairs.values())
        averages: dict[int, Tensor] = {}  # by the identity of the twin's weight, and of the layer's
        values: dict[int, Tensor] = {}
        for name, (twin, layer) in pairs.items():
            if _form(twin) != _form(layer):
                twin.load_state_dict(layer.state_dict())
                self._averages.pop(name, None)
            _copy_integers(layer, twin)
            weight = _averaged(layer)
            if weight is not None and id(weight) not in values:  # a shared one once
                values[id(weight)] = _values(layer)
                average = self._averages.get(name)
                average = None if average is None else average.to(_averaged(twin).device)
                if average is None or not torch.equal(_integers(twin, average), _averaged(twin)):
                    average = _values(twin)
                averages[id(_averaged(twin))] = self._averages[name] = average
        with _instead(twins, averages, shared), _instead(layers, values, shared):
            for param in model.parameters():
                if not param.is_floating_point() and not param.is_complex():
                    raise TypeError(f"AveragedModel: a parameter is {param.dtype} and no bie layer's weight")
            super().update_parameters(model)
        for twin in twins:
            weight = _averaged(twin)
            if id(weight) in averages:
                average = averages.pop(id(weight))
                weight.copy_(_integers(twin, average))
                if (rest := twin._buffers.get("rest")) is not None:
                    rest.copy_(average - _opened(twin))

    def get_extra_state(self) -> dict[str, Tensor]:
        return self._averages

    def set_extra_state(self, state: dict[str, Tensor]) -> None:
        def take() -> None:
            self._averages = {name: average.clone() for name, average in state.items()}

        unless_refused(take)

    def _save_to_state_dict(self, destination: dict[str, Any], prefix: str, keep_vars: bool) -> None:
        super()._save_to_state_dict(destination, prefix, keep_vars)
        if not self._averages:
            del destination[prefix + _EXTRA_STATE]

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *rest: Any) -> None:
        super()._load_from_state_dict(state_dict, prefix, *rest)
        missing_keys: list[str] = rest[2]
        if prefix + _EXTRA_STATE in missing_keys:
            missing_keys.remove(prefix + _EXTRA_STATE)


def _integer_layers(module: nn.Module) -> Iterator[tuple[str, nn.Module]]:
    """The layers whose weight is integer or may become so, with their names."""
    for name, layer in module.named_modules():
        if isinstance(layer, QuantLayer) or _packed(layer) is not None:
            yield name, layer


def _packed(layer: nn.Module) -> AnchoredParameter | None:
    """The packed weight of a weight-only layer or an embedding."""
    return next((param for param in layer._parameters.values() if isinstance(param, AnchoredParameter)), None)


def _form(layer: nn.Module) -> Any:
    """What two layers have alike whose weights can be averaged."""
    if isinstance(layer, QuantLayer):
        return layer.weight_form
    return {name: tensor.shape for name, tensor in layer.state_dict().items()}


def _averaged(layer: nn.Module) -> Tensor | None:
    """The layer's integer weight, if it is averaged as floats."""
    if isinstance(layer, QuantLayer):
        return layer.weight if layer.weight_form == "int8" else None
    packed, prepared = _packed(layer), getattr(layer, "_prepared", True)
    weight = layer._parameters.get("weight")  # of a new table of signs: the floats that they are made of
    return packed if prepared and (weight is None or weight is packed) else None


def _copy_integers(layer: nn.Module, twin: nn.Module) -> None:
    """Gives the twin the layer's integers that are not averaged."""
    if isinstance(layer, QuantLayer):
        packed = layer.qweight if layer.weight is None else None
        twin.qweight = None if packed is None else packed.detach().to(twin.device, copy=True)
        return
    if _averaged(layer) is None:
        _packed(twin).copy_(_packed(layer))
    for name, buffer in layer._buffers.items():
        if buffer is not None and not buffer.is_floating_point():
            twin._buffers[name].copy_(buffer)


def _opened(layer: Any) -> Tensor:
    """The floats that packed codes stand for."""
    if isinstance(_packed(layer), CodeRowsParameter):
        tensors = (tensor.detach().t() for tensor in (layer.qweight, layer.scales, layer.zeros))
        options = {"bits": layer.bits, "group_size": layer.group_size, "in_features": layer.embedding_dim}
        return ops.weight_only_open(*tensors, dtype=torch.float32, **options).t()
    now = layer._coded()
    return ops.weight_only_open(*now.tensors, in_features=layer.in_channels, dtype=torch.float32, **now.options)


def _values(layer: nn.Module) -> Tensor:
    """What a layer's integers mean, as float32."""
    weight = _averaged(layer).detach()
    if isinstance(layer, QuantLayer):
        return weight.sign().float() if layer._bits == 1 else weight * layer.scale_w.detach()
    if isinstance(_packed(layer), EmbeddingParameter):
        is_bag = weight.dtype == torch.bool
        return torch.where(weight, 1.0, -1.0) if is_bag else ops.unpack_signs(weight, layer.embedding_dim).float()
    rest = layer._buffers.get("rest")
    return _opened(layer).contiguous() if rest is None else _opened(layer) + rest


def _integers(layer: nn.Module, average: Tensor) -> Tensor:
    """The integers of the layer that are nearest to an average, in its weight's dtype and shape."""
    if isinstance(layer, QuantLayer):
        if layer._bits == 1:
            return torch.where(average >= 0, 1, -1).to(torch.int8)
        bound = 2 ** (layer._bits - 1)
        codes = torch.where(layer.scale_w == 0, 0, average / layer.scale_w)
        return codes.round_().clamp_(-bound, bound - 1).to(torch.int8)
    packed = _packed(layer)
    if packed.dtype == torch.bool:
        return average >= 0
    if isinstance(packed, EmbeddingParameter):
        signs = torch.where(average >= 0, 1.0, -1.0)
        return ops.pack_signs(nn.functional.pad(signs, (0, -layer.embedding_dim % 8), value=-1.0))
    if isinstance(packed, CodeRowsParameter):
        scales, zeros = layer.scales.t(), layer.zeros.t()
        options = {"bits": layer.bits, "group_size": layer.group_size}
        return ops.weight_only_pack(average.t().contiguous(), scales, zeros, **options).t()
    now = layer._coded()
    return ops.weight_only_pack(average, now.scales, now.zeros, **now.options)


def _shared(pairs: Iterable[tuple[nn.Module, nn.Module]]) -> list[bool]:
    """Whether both layers of a pair have the integers, and with them the memory of the scale, of an earlier pair."""
    seen: set[tuple[int, ...]] = set()
    found = []
    for pair in pairs:
        both = all(isinstance(layer, QuantLayer) and layer.weight_form == "int8" for layer in pair)
        weights = tuple(id(_averaged(layer)) for layer in pair)
        found.append(both and weights in seen)
        seen.add(weights)
    return found


@contextlib.contextmanager
def _instead(layers: Iterable[nn.Module], weights: dict[int, Tensor], shared: Iterable[bool]) -> Iterator[None]:
    """``parameters()`` and ``buffers()`` of the layers give these floats for the weights of these identities, no packed
    weight, no integer buffer, and of those that share an integer weight, one scale.
    """
    kept = [(layer, dict(layer._parameters), dict(layer._buffers)) for layer in layers]
    floats = {key: nn.Parameter(value, requires_grad=False) for key, value in weights.items()}
    try:
        for (layer, parameters, buffers), again in zip(kept, shared, strict=True):
            for name, param in parameters.items():
                if isinstance(param, AnchoredParameter) or name == "qweight":
                    layer._parameters[name] = floats.get(id(param))
                elif id(param) in floats:
                    layer._parameters[name] = floats[id(param)]
            for name, buffer in buffers.items():
                if name == "rest" or (buffer is not None and not buffer.is_floating_point()):
                    layer._buffers[name] = None
            for tensors in (layer._parameters, layer._buffers):
                if again and "scale_w" in tensors:
                    tensors["scale_w"] = None
        yield
    finally:
        for layer, parameters, buffers in kept:
            layer._parameters.update(parameters)
            layer._buffers.update(buffers)
