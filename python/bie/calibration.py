"""Step sizes of a converted model from data; docs/calibrate.md."""

from __future__ import annotations

import contextlib
import itertools
import math
import warnings
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from bie import conversion
from bie._operators import ops
from bie._probe import in_evaluation, run_batch
from bie._tables import html_table, text_table
from bie.nn.conv1d import Conv1dLayer
from bie.nn.matmul import CodesMatMul
from bie.nn.state.codes_layer import CodesLayer
from bie.nn.state.conv_layer import ConvLayer
from bie.nn.state.quant_layer import quant_layers
from bie.nn.state.signs_layer import TrainedSignsLayer
from bie.nn.state.step_size import guarded

METHODS = ("mse", "percentile", "minmax")

#: Values of a layer's input that are kept; more do not move the result.
_MOST_VALUES = 1 << 20


@dataclass(frozen=True)
class CalibratedLayer:
    """What a layer's step sizes do on the inputs that were kept: of a product of activations those of its operands.

    ``clipped`` is the share of the activations beyond the codes, ``error`` the root mean square of what quantisation
    changes of the output over that of the output. ``scale_w`` is the geometric mean where channels have their own.
    """

    name: str
    kind: str
    scale_a: float
    scale_w: float
    clipped: float
    error: float


@dataclass
class CalibrationReport:
    """What ``calibrate`` or ``post_training`` did. ``print(report)`` is a table; a notebook shows it as one."""

    model: nn.Module
    layers: list[CalibratedLayer] = field(default_factory=list)
    skipped: list[conversion.Converted] = field(default_factory=list)

    def _rows(self) -> list[tuple[str, ...]]:
        rows = [("layer", "is", "scale_a", "scale_w", "clipped", "error")]
        for layer in self.layers:
            numbers = (f"{layer.scale_a:.3g}", f"{layer.scale_w:.3g}", f"{layer.clipped:.2%}", f"{layer.error:.2%}")
            rows.append((layer.name or "(the model)", layer.kind, *numbers))
        for entry in self.skipped:
            rows.append((entry.name or "(the model)", entry.source, "", "", "", f"unchanged: {entry.reason}"))
        return rows

    def _counts(self) -> str:
        return f"{len(self.layers)} calibrated" + (f", {len(self.skipped)} unchanged" if self.skipped else "")

    def __str__(self) -> str:
        return text_table(self._rows(), self._counts())

    def _repr_html_(self) -> str:
        return html_table(self._rows(), self._counts())


class _Record:
    """The first values of what a layer is called with, whole samples, evenly from every batch."""

    def __init__(self, batches: int) -> None:
        self.share = max(1, _MOST_VALUES // max(batches, 1))
        self.kept: list[tuple[Tensor, ...]] = []
        self.values = 0

    def take(self, *operands: Tensor) -> None:
        if self.values >= _MOST_VALUES:
            return
        samples = max(1, self.share * operands[0].shape[0] // max(operands[0].numel(), 1))
        part = tuple(x.detach()[:samples].clone() for x in operands)
        self.kept.append(part)
        self.values += part[0].numel()


def _steps(values: Tensor, bits: int, method: str, percentile: float) -> Tensor:
    rule, share = ("percentile", 100.0) if method == "minmax" else (method, percentile)
    return ops.step_sizes(values, bits, rule, share)


def _step(parts: Iterable[Tensor], bits: int, method: str, percentile: float) -> float:
    values = torch.cat([part.float().flatten() for part in parts]).unsqueeze(0)
    if not bool(torch.isfinite(values).all()):
        raise ValueError("calibrate: an activation is NaN or infinite")
    return float(_steps(values, bits, method, percentile))


def _float_weight(layer: CodesLayer | TrainedSignsLayer) -> Tensor:
    """The weight that the layer's codes or signs stand for, or that it makes them of."""
    weight = layer.weight
    if weight is None and layer._bits == 1:
        rows = layer._from_file(layer.qweight).reshape(layer._weight_shape[0], -1)
        signs = ops.unpack_signs(rows, layer._weight_shape[1:].numel())
        weight = signs.reshape(layer._weight_shape) * layer.scale_w
    elif weight is None:
        codes = layer._from_file(layer.qweight)
        inputs = layer._weight_shape[1:].numel()
        codes = codes if layer._bits == 8 else ops.unpack_int4(codes.reshape(codes.shape[0], -1), inputs)
        weight = codes.reshape(layer._weight_shape) * layer.scale_w
    elif not weight.is_floating_point():  # of signs the sizes are how far they are from flipping
        weight = (weight.sign() if layer._bits == 1 else weight) * layer.scale_w
    weight = weight.detach().float()
    if layer.channel_scale is not None:
        weight = weight * layer.channel_scale.view(-1, *[1] * (weight.dim() - 1))
    return weight


def _in_floats(layer: CodesLayer, weight: Tensor, x: Tensor) -> Tensor:
    """What the layer computes of floats without quantising anything."""
    if isinstance(layer, Conv1dLayer):
        return _plane_in_floats(layer, weight, x.unsqueeze(2)).squeeze(2)
    if isinstance(layer, ConvLayer):
        return _plane_in_floats(layer, weight, x)
    y = nn.functional.linear(_biased(layer, x).float(), weight)
    return (y if layer.bias is None else y + layer.bias.float()).to(x.dtype)


def _plane_in_floats(layer: ConvLayer, weight: Tensor, x: Tensor) -> Tensor:
    window = {name: layer._geometry[name] for name in ("stride", "padding", "dilation")}
    bias = None if layer.bias is None else layer.bias.float()
    xs = x if layer.bias_a is None else x + layer.bias_a.view(-1, 1, 1)
    return nn.functional.conv2d(xs.float(), weight, bias, **window, groups=layer.groups).to(x.dtype)


def _channels(vector: Tensor, layer: CodesLayer, tensor: Tensor) -> Tensor:
    """A vector of features or channels as it meets a tensor."""
    return vector if layer._feature_axis == -1 else vector.view(-1, *[1] * (tensor.dim() - 2))


def _biased(layer: CodesLayer, x: Tensor) -> Tensor:
    return x if layer.bias_a is None else x + _channels(layer.bias_a, layer, x)


@contextlib.contextmanager
def _recorded(records: dict[nn.Module, _Record], weights: dict[nn.Module, Tensor]) -> Iterator[None]:
    """Layers compute in floats and take note of what they are called with."""

    def forward(layer: nn.Module) -> Callable[..., Tensor]:
        def run(*operands: Tensor) -> Tensor:
            records[layer].take(*operands)
            if isinstance(layer, CodesMatMul):
                return operands[0] @ operands[1].mT
            return _in_floats(layer, weights[layer], *operands)

        return run

    try:
        for layer in records:
            layer.forward = forward(layer)
        yield
    finally:
        for layer in records:
            layer.__dict__.pop("forward", None)


def check_method(method: str, percentile: float) -> None:
    if method not in METHODS:
        raise ValueError(f"calibrate: method: expected 'mse', 'percentile' or 'minmax', got {method!r}")
    if not 0 < percentile <= 100:
        raise ValueError(f"calibrate: percentile: expected a number above 0 and up to 100, got {percentile}")


def _take_codes(layer: CodesLayer, weight: Tensor, method: str, percentile: float) -> None:
    """Codes of the weight by the same rule: of one step, or of one a channel where the layer has scales of channels."""
    low, high = (-128, 127) if layer._bits == 8 else (-8, 7)
    channels = layer.channel_scale is not None
    steps = _steps(weight if channels else weight.reshape(1, -1), layer._bits, method, percentile)
    along = steps.view(-1, *[1] * (weight.dim() - 1))
    codes = (weight / along).round().clamp(low, high).to(torch.int8)
    scale = steps.log().mean().exp()
    layer._make_integer(codes, scale)
    if channels:
        layer.channel_scale.copy_(steps / scale)


@torch.no_grad()
def _finish_signs(layer: TrainedSignsLayer, name: str, record: _Record, weight: Tensor) -> CalibratedLayer:
    """The ``scale_a`` that brings the outputs nearest to those of floats: what comes of signs is proportional to it."""
    inputs = [part[0] for part in record.kept]
    layer.scale_a.fill_(1.0)
    layer._take_first_value("scale_a", 1.0)
    layer.repack()
    bias = 0 if layer.bias is None else layer.bias.float()
    wanted = [_in_floats(layer, weight, x).float() for x in inputs]
    found = [layer(x).float() for x in inputs]
    shift = bias if layer.bias is None else _channels(bias, layer, found[0])
    product = sum(float(((y - shift) * (w - shift)).sum()) for y, w in zip(found, wanted, strict=True))
    square = sum(float((y - shift).square().sum()) for y in found)
    scale = product / max(square, 1e-30)
    if not math.isfinite(scale):
        raise ValueError("calibrate: an activation is NaN or infinite")
    if scale <= 0:  # the signs have nothing of the floats
        scale = float(sum(_biased(layer, x).float().abs().mean() for x in inputs) / len(inputs))
    layer.scale_a.fill_(scale)
    layer._take_first_value("scale_a", scale)
    layer.repack()
    changed = sum(float(((y - shift) * scale + shift - w).square().sum()) for y, w in zip(found, wanted, strict=True))
    size = sum(float(w.square().sum()) for w in wanted)
    error = (changed / max(size, 1e-30)) ** 0.5
    return CalibratedLayer(name, type(layer).__name__, scale, _size_of_weight(layer), 0.0, error)


@torch.no_grad()
def _finish(
    layer: CodesLayer, name: str, record: _Record, weight: Tensor, method: str, percentile: float, codes: bool
) -> CalibratedLayer:
    inputs = [part[0] for part in record.kept]
    biased = [_biased(layer, x) for x in inputs]
    scale = _step(biased, layer._bits, method, percentile)
    layer.scale_a.fill_(scale)
    layer._take_first_value("scale_a", scale)
    guarded.add(layer)
    layer._trained = layer.weight is not None and layer.weight.is_floating_point()  # a graph may hold its training
    if codes:
        _take_codes(layer, weight, method, percentile)
    layer.repack()
    wanted = [_in_floats(layer, weight, x) for x in inputs]
    found = [layer(x) for x in inputs]
    if codes and layer.bias is not None:
        axes = [0, *range(2, wanted[0].dim())] if layer._feature_axis == 1 else list(range(wanted[0].dim() - 1))
        shift = sum((y - w).float().mean(axes) * len(y) for y, w in zip(found, wanted, strict=True))
        shift = shift / sum(len(y) for y in found)
        layer.bias.sub_(shift.to(layer.bias.dtype))
        found = [y - _channels(shift, layer, y).to(y.dtype) for y in found]
    changed = sum(float((y - w).float().square().sum()) for y, w in zip(found, wanted, strict=True))
    size = sum(float(w.float().square().sum()) for w in wanted)
    low, high = (-128.5, 127.5) if layer._bits == 8 else (-8.5, 7.5)
    beyond = sum(int(((x < low * scale) | (x > high * scale)).sum()) for x in biased) / sum(x.numel() for x in biased)
    return CalibratedLayer(
        name, type(layer).__name__, scale, _size_of_weight(layer), beyond, (changed / max(size, 1e-30)) ** 0.5
    )


def _size_of_weight(layer: CodesLayer | TrainedSignsLayer) -> float:
    if layer.weight is not None and layer.weight.is_floating_point():
        return float(layer._training_scale() if layer._bits == 1 else layer._weight_scale())
    return float(layer.scale_w)


@torch.no_grad()
def _finish_matmul(layer: CodesMatMul, name: str, record: _Record, method: str, percentile: float) -> CalibratedLayer:
    clips = []
    for i, clip in enumerate(("x_clip", "y_clip")):
        scale = _step([part[i] for part in record.kept], layer._bits, method, percentile)
        getattr(layer, clip).fill_(scale)
        layer._take_first_value(clip, scale)
        clips.append(scale)
    guarded.add(layer)
    changed = size = 0.0
    for x, y in record.kept:
        wanted = (x @ y.mT).float()
        changed += float((layer(x, y).float() - wanted).square().sum())
        size += float(wanted.square().sum())
    return CalibratedLayer(name, type(layer).__name__, *clips, 0.0, (changed / max(size, 1e-30)) ** 0.5)


@torch.no_grad()
def calibrate(
    model: nn.Module,
    loader: Iterable[Any],
    *,
    method: str = "mse",
    percentile: float = 99.9,
    batches: int = 16,
    codes: bool = False,
) -> CalibrationReport:
    """Step sizes of a converted model's layers from data, without training.

    The model runs in evaluation, its quantised layers in floats, so that each layer sees what the float model sees. No
    statistics of a BatchNorm move, no dropout drops, and modes are as before afterwards. 1-bit layers take the
    scale that brings their outputs nearest to those of floats, whatever the method.

    Args:
        loader: batches: tensors, tuples or lists whose first item is the model's input, or dictionaries of its
            arguments.
        method: "mse", the least mean square of what rounding and clipping change; "percentile", the largest code at a
            percentile of the magnitudes; "minmax", nothing is clipped.
        percentile: of "percentile".
        batches: how many batches are looked at.
        codes: choose the steps of weights in the same way and keep the weights as codes, one step a channel in layers
            with ``channel_scale``, and take the mean error of each channel off the bias where a layer has one (Nagel et
            al. 2019, "Data-Free Quantization", section 4.2). Floats to train on are gone then.

    Raises:
        ValueError: an unknown method or percentile, no batch, activations that are not finite.

    Source: docs/calibrate.md.

    Example::

        >>> model = bie.convert(torch.nn.Sequential(torch.nn.Linear(6, 4), torch.nn.ReLU()), "q8").model
        >>> report = bie.calibrate(model, [torch.randn(32, 6) for _ in range(4)])
        >>> [(layer.name, layer.kind, layer.clipped < 0.01) for layer in report.layers]
        [('0', 'Q8Linear', True)]
    """
    check_method(method, percentile)
    scaled = [layer for _, layer in quant_layers(model) if layer.scale_a is not None]
    layers = [layer for layer in scaled if isinstance(layer, CodesLayer | TrainedSignsLayer)]
    products = [module for module in model.modules() if isinstance(module, CodesMatMul)]
    names = {module: name for name, module in model.named_modules()}
    records: dict[nn.Module, _Record] = {module: _Record(batches) for module in (*layers, *products)}
    weights: dict[nn.Module, Tensor] = {layer: _float_weight(layer) for layer in layers}
    report, seen = CalibrationReport(model), 0
    if not records:
        warnings.warn(
            "calibrate: the model has no quantised layer, so nothing is calibrated: call bie.convert first, or "
            "bie.post_training, which does both",
            stacklevel=3,  # past no_grad
        )
    with in_evaluation(model):
        with _recorded(records, weights), warnings.catch_warnings():
            warnings.filterwarnings("ignore", message=".*takes its activation scale from a batch")
            for batch in itertools.islice(loader, batches):
                run_batch(model, batch)
                seen += 1
        if seen == 0:
            raise ValueError("calibrate: the loader has no batch")
        for module, record in records.items():
            name = names[module]
            if not record.kept:
                entry = conversion.Converted(name, type(module).__name__, (), reason="no batch reaches it")
                report.skipped.append(entry)
            elif isinstance(module, CodesMatMul):
                report.layers.append(_finish_matmul(module, name, record, method, percentile))
            elif isinstance(module, TrainedSignsLayer):
                report.layers.append(_finish_signs(module, name, record, weights[module]))
            else:
                weight = weights[module]
                report.layers.append(_finish(module, name, record, weight, method, percentile, codes))
    return report
