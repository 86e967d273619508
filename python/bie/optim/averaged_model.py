"""``AveragedModel``: running averages (EMA, SWA) of models that hold integer weights."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import swa_utils

from bie.nn.state.quant_layer import QuantLayer, quant_layers
from bie.nn.state.whole_load import unless_refused

_EXTRA_STATE = "_extra_state"


class AveragedModel(swa_utils.AveragedModel):
    """``torch.optim.swa_utils.AveragedModel`` for every model: same arguments, same functions, ``update_bn`` included.

    Integer weights are averaged as float32 beside the module, 1-bit ones as their signs, 8- and 4-bit ones as
    ``code * scale_w``; the module holds the averages quantised again: ``sgn(average)`` with 0 as +1, or
    ``clamp(rint(average / scale_w))`` with the module's ``scale_w`` (a buffer: averaged with ``use_buffers``, else
    copied). Packed weights, which nothing trains, are copied. The float averages are saved with the state, as its
    ``_extra_state``; a model without integers has none, and its states are torch's.

    A layer whose weight changes its form, as in its first training batch, starts anew from the model's; one whose
    integers are not those of its average, as after a load into ``module``, from its integers.

    Raises:
        TypeError (``update_parameters``): an integer parameter that is no quantised layer's weight.

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
        found = zip(quant_layers(self.module), quant_layers(model), strict=True)
        pairs = {name: (twin, layer) for (name, twin), (_, layer) in found}
        twins, layers = zip(*pairs.values(), strict=True) if pairs else ((), ())
        shared = _shared(pairs.values())
        averages: dict[int, Tensor] = {}  # by the identity of the twin's weight, and of the layer's
        values: dict[int, Tensor] = {}
        for name, (twin, layer) in pairs.items():
            if twin.weight_form != layer.weight_form:
                twin.load_state_dict(layer.state_dict())
                self._averages.pop(name, None)
            packed = layer.qweight if layer.weight is None else None
            twin.qweight = None if packed is None else packed.detach().to(twin.device, copy=True)
            if layer.weight_form == "int8" and id(layer.weight) not in values:  # a shared one once
                values[id(layer.weight)] = _values(layer)
                average = self._averages.get(name)
                average = None if average is None else average.to(twin.device)
                if average is None or not torch.equal(_integers(twin, average).to(torch.int8), twin.weight):
                    average = _values(twin)
                averages[id(twin.weight)] = self._averages[name] = average
        with _instead(twins, averages, shared), _instead(layers, values, shared):
            for param in model.parameters():
                if not param.is_floating_point() and not param.is_complex():
                    raise TypeError(f"AveragedModel: a parameter is {param.dtype} and no quantised layer's weight")
            super().update_parameters(model)
        for twin in twins:
            if id(twin.weight) in averages:
                twin.weight.copy_(_integers(twin, averages.pop(id(twin.weight))))

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


def _values(layer: QuantLayer) -> Tensor:
    """What a layer's integers mean, as float32."""
    weight = layer.weight.detach()
    return weight.sign().float() if layer._bits == 1 else weight * layer.scale_w.detach()


def _integers(layer: QuantLayer, average: Tensor) -> Tensor:
    if layer._bits == 1:
        return torch.where(average >= 0, 1, -1)
    bound = 2 ** (layer._bits - 1)
    return torch.where(layer.scale_w == 0, 0, average / layer.scale_w).round_().clamp_(-bound, bound - 1)


def _shared(pairs: Iterable[tuple[QuantLayer, QuantLayer]]) -> list[bool]:
    """Whether both layers of a pair have the integers, and with them the memory of the scale, of an earlier pair."""
    seen: set[tuple[int, ...]] = set()
    found = []
    for pair in pairs:
        both = all(layer.weight_form == "int8" for layer in pair)
        weights = tuple(id(layer.weight) for layer in pair)
        found.append(both and weights in seen)
        seen.add(weights)
    return found


@contextlib.contextmanager
def _instead(layers: Iterable[QuantLayer], weights: dict[int, Tensor], shared: Iterable[bool]) -> Iterator[None]:
    """``parameters()`` and ``buffers()`` of the layers give these floats for the weights of these identities, no packed
    weight, and of those that share an integer one, one scale.
    """
    kept = [(layer, dict(layer._parameters), dict(layer._buffers)) for layer in layers]
    floats = {key: nn.Parameter(value, requires_grad=False) for key, value in weights.items()}
    try:
        for (layer, parameters, _), again in zip(kept, shared, strict=True):
            weight = parameters["weight"]
            layer._parameters.update(weight=floats.get(id(weight), weight), qweight=None)
            for tensors in (layer._parameters, layer._buffers):
                if again and "scale_w" in tensors:
                    tensors["scale_w"] = None
        yield
    finally:
        for layer, parameters, buffers in kept:
            layer._parameters.update(parameters)
            layer._buffers.update(buffers)
