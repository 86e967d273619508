"""``AveragedModel``: running averages (EMA, SWA) of models that hold integer weights."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import swa_utils

from bitorch_engine.layers.quant_layer import QuantLayer, quant_layers


class AveragedModel(swa_utils.AveragedModel):
    """``torch.optim.swa_utils.AveragedModel`` for every model: same arguments, same functions, ``update_bn`` included.

    Integer weights are averaged as float32 beside the module, 1-bit ones as their signs, 8- and 4-bit ones as
    ``code * scale_w``; the module holds the averages quantised again: ``sgn(average)`` with 0 as +1, or
    ``clamp(rint(average / scale_w))`` with the module's ``scale_w`` (a buffer: averaged with ``use_buffers``, else
    copied). Packed weights, which nothing trains, are copied. The float averages are saved with the state.

    A layer whose weight changes its form, as in its first training batch, starts anew from the model's.

    Raises:
        TypeError (``update_parameters``): an integer parameter that is no quantised layer's weight.
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
                self._averages[name] = (_values(twin) if average is None else average).to(twin.device)
                averages[id(twin.weight)] = self._averages[name]
        with _instead(twins, averages), _instead(layers, values):
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
        self._averages = {name: average.clone() for name, average in state.items()}


def _values(layer: QuantLayer) -> Tensor:
    """What a layer's integers mean, as float32."""
    weight = layer.weight.detach()
    return weight.sign().float() if layer._bits == 1 else weight * layer.scale_w.detach()


def _integers(layer: QuantLayer, average: Tensor) -> Tensor:
    if layer._bits == 1:
        return torch.where(average >= 0, 1, -1)
    bound = 2 ** (layer._bits - 1)
    return torch.where(layer.scale_w == 0, 0, average / layer.scale_w).round_().clamp_(-bound, bound - 1)


@contextlib.contextmanager
def _instead(layers: Iterable[QuantLayer], weights: dict[int, Tensor]) -> Iterator[None]:
    """``parameters()`` of the layers give these floats for the weights of these identities, and no packed weight."""
    kept = [(layer, layer._parameters["weight"], layer._parameters["qweight"]) for layer in layers]
    floats = {key: nn.Parameter(value, requires_grad=False) for key, value in weights.items()}
    try:
        for layer, weight, _ in kept:
            layer._parameters.update(weight=floats.get(id(weight), weight), qweight=None)
        yield
    finally:
        for layer, weight, qweight in kept:
            layer._parameters.update(weight=weight, qweight=qweight)
