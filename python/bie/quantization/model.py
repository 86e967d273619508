"""A whole model, layer by layer: each sees its inputs as the layers before it make them, quantised already."""

from __future__ import annotations

import contextlib
import copy
import inspect
import itertools
import warnings
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from bie._places import leave_fast_paths, reason_to_skip, shape_of, shared_parameters, walk
from bie._probe import READ_PAST_FORWARD, Probe
from bie.conversion import Filter, carry
from bie.nn.mpq_linear import MPQLinear
from bie.nn.tied_tables import TiedTable, forget_ties, tied_tables
from bie.nn.weight_only_embedding import WeightOnlyEmbedding
from bie.quantization.gptq import CodedWeight, gptq, output_error, round_to_nearest
from bie.quantization.hessian import Hessian

_METHODS = ("gptq", "nearest")


@dataclass(frozen=True)
class QuantizedLayer:
    """A layer of a report. Errors are shares of the output's size over the calibration inputs, see ``output_error``."""

    name: str
    shape: tuple[int, int]  #: [n, k]
    error: float = float("nan")
    nearest_error: float = float("nan")  #: what round to nearest would have
    reason: str = ""  #: why it was left as it is
    tied: str = ""  #: the layer that has the same table of codes


@dataclass
class QuantizationReport:
    """What ``quantize`` did. ``print(report)`` is a table; ``model`` is the quantised model."""

    model: nn.Module
    layers: list[QuantizedLayer] = field(default_factory=list)
    skipped: list[QuantizedLayer] = field(default_factory=list)

    def __str__(self) -> str:
        rows = [("layer", "weight", "error", "nearest")]
        for layer in self.layers:
            errors = f"{layer.error:.4f}", f"{layer.nearest_error:.4f}"
            if layer.tied:
                errors = errors[0], f"{errors[1]}  one table with {layer.tied}"
            rows.append((layer.name or "(the model)", "x".join(map(str, layer.shape)), *errors))
        for layer in self.skipped:
            rows.append(
                (layer.name or "(the model)", "x".join(map(str, layer.shape)), f"unchanged: {layer.reason}", "")
            )
        widths = [max(len(row[i]) for row in rows) for i in range(2)]
        lines = [
            "  ".join([row[0].ljust(widths[0]), row[1].ljust(widths[1]), row[2].ljust(7), row[3]]).rstrip()
            for row in rows
        ]
        return "\n".join([*lines, f"{len(self.layers)} quantised, {len(self.skipped)} unchanged"])


class _Enough(BaseException):
    """Ends a forward pass whose last input has been seen; a model that catches its own exceptions lets it through."""


@dataclass
class _Place:
    """A linear layer, where it is, and how forward passes call it."""

    name: str
    module: nn.Linear
    training: bool
    parents: list[tuple[nn.Module, str]] = field(default_factory=list)
    calls: int = 0  # in one pass, at most
    read_past: bool = False  # whether something else than its forward reads its weight
    shares_input: bool = False  # with the layer before it in the order of calls
    tie: TiedTable | None = None  # of the output layer of a table
    weight: Tensor | None = None  # of such a layer, once its table is of codes


def quantize(
    model: nn.Module,
    batches: Iterable[Any],
    *,
    bits: int = 4,
    group_size: int = 128,
    method: str = "gptq",
    shrinkage: float = 1.0,
    damping: float = 0.05,
    whole_zeros: bool = False,
    filter: Filter | None = None,
    inplace: bool = True,
    call: Callable[[nn.Module, Any], Any] | None = None,
    tied: bool = True,
    **options: Any,
) -> QuantizationReport:
    """Puts a :class:`bie.nn.MPQLinear` in place of every ``nn.Linear`` of a model, in the order of their calls.

    For each layer the batches run through the model as far as that layer, the layers before it being quantised; of what
    comes in one [k, k] matrix is kept. Layers that get the very same tensor, as a transformer's q, k and v, share a
    run. The model is in evaluation meanwhile. Layers stay as they are, with a reason in the report, where ``convert``
    leaves them or no batch reaches them.

    An embedding and the output layer that shares its weight become one table of codes, by round to nearest: a
    :class:`bie.nn.WeightOnlyEmbedding` and its ``head()``, whose error the report has. GPTQ's files hold no such
    table, so with ``whole_zeros`` both stay.

    Args:
        batches: what the model is called with: a tensor, a tuple of arguments or a dict of keywords each. Some hundred
            examples do; they are gone through once a layer. Of the inputs and labels of a loader the inputs are taken,
            with a warning, where ``forward`` takes one argument.
        bits, group_size, shrinkage, damping, whole_zeros: those of :func:`gptq`.
        method: ``"gptq"``, or ``"nearest"``, whose codes need no data; the errors of the report do.
        filter: ``(name, module) -> bool``, whether to quantise.
        inplace: change ``model``, or a deep copy of it.
        call: ``call(model, batch)`` in place of the call above.
        tied: whether an embedding and its output layer become one table of codes; they stay floats if not.
        options: further arguments of ``MPQLinear``.

    Raises:
        ValueError: an unknown method; no batch; a number or option that suits no layer; inputs of NaN or infinity.

    Example::

        >>> model = torch.nn.Sequential(torch.nn.Linear(16, 8), torch.nn.ReLU(), torch.nn.Linear(8, 4))
        >>> report = bie.quantization.quantize(model, [torch.randn(32, 16) for _ in range(4)], bits=4, group_size=8)
        >>> [layer.name for layer in report.layers], type(model[0]).__name__
        (['0', '2'], 'MPQLinear')
    """
    if method not in _METHODS:
        raise ValueError(f"quantize: method: expected 'gptq' or 'nearest', got {method!r}")
    batches = list(batches)
    if not batches:
        raise ValueError("quantize: there is no batch")
    numbers = {"bits": bits, "group_size": group_size, "whole_zeros": whole_zeros}
    added = {"shrinkage": shrinkage, "damping": damping}
    _check_options(numbers, added, options)
    if call is None:
        batches = _without_labels(model, batches)
    model = model if inplace else copy.deepcopy(model)
    report, run = QuantizationReport(model), call or _call
    ties = _ties(model, filter, numbers, options) if tied else []
    places = _places(model, filter, report, ties)
    made: list[tuple[nn.Module, bool]] = []
    modes = {module: module.training for module in model.modules()}
    model.eval()
    try:
        order = _order(model, places, batches, run)
        for place in places:
            if place.read_past or place.calls == 0:
                report.skipped.append(_left(place, READ_PAST_FORWARD if place.read_past else "no batch reaches it"))
        order = _without(order, [place for place in order if place.read_past])
        for place in [place for place in order if place.tie is not None]:
            new = _replace_table(report, place, numbers, options)
            order = order if new else _without(order, [place])
            made += zip(new, (modes[place.tie.embedding], place.training), strict=False)
        while order:
            count = 1 + next((i for i, place in enumerate(order[1:]) if not place.shares_input), len(order) - 1)
            together, order = order[:count], order[count:]
            hessian = _inputs_of(model, together[0], batches, run)
            for place in together:
                if place.tie is not None:
                    _report_head(report, place, hessian, numbers)
                    continue
                layer = _replace(report, place, hessian, method, numbers, added, options)
                if layer is not None:
                    made.append((layer, place.training))
    finally:
        for module, mode in modes.items():
            module.training = mode
    for layer, training in made:
        layer.train(training)
    leave_fast_paths(model)
    forget_ties(model)
    return report


def _check_options(numbers: dict[str, Any], added: dict[str, float], options: dict[str, Any]) -> None:
    """A number that suits no layer is an error of the call, before anything is changed."""
    size, plain = 8, nn.Linear(1, 1, bias=False, device="meta")
    plain.in_features = plain.out_features = size
    plain.weight = nn.Parameter(torch.zeros(size, size), requires_grad=False)
    try:
        layer = _layer_for(plain, numbers, options)
        gptq(plain.weight, torch.eye(size), **numbers, **added, dtype=layer.dtype)
    except ValueError as error:
        raise ValueError(f"quantize: {str(error).removeprefix('gptq: ')}") from error


def _call(model: nn.Module, batch: Any) -> Any:
    if isinstance(batch, Mapping):
        return model(**batch)
    return model(*batch) if isinstance(batch, tuple | list) else model(batch)


def _takes(model: nn.Module, count: int) -> bool:
    try:
        inspect.signature(model.forward).bind(*range(count))
    except TypeError:
        return False
    except ValueError:  # a forward that has no signature
        return True
    return True


def _without_labels(model: nn.Module, batches: list[Any]) -> list[Any]:
    """The batches of a loader that gives inputs and labels, as the inputs alone, where forward takes no more."""
    most = max((len(batch) for batch in batches if isinstance(batch, tuple | list)), default=1)
    if most < 2 or _takes(model, most):
        return batches
    name = type(model).__name__
    if not _takes(model, 1):
        raise ValueError(f"quantize: a batch has {most} parts, {name}.forward takes another number; call= says how")
    warnings.warn(
        f"quantize: batches have {most} parts and {name}.forward takes one: the first is given, the others are taken "
        "for labels; call= says otherwise",
        stacklevel=3,
    )
    return [batch[0] if isinstance(batch, tuple | list) else batch for batch in batches]


def _left(place: _Place, reason: str) -> QuantizedLayer:
    return QuantizedLayer(place.name, shape_of(place.module.weight), reason=reason)


def _ties(model: nn.Module, filter: Filter | None, numbers: dict[str, Any], options: dict[str, Any]) -> list[TiedTable]:
    """The tables of one output layer that may be of codes."""
    if numbers["whole_zeros"]:
        return []
    ties = [tie for tie in tied_tables(model) if len(tie.heads) == 1]
    return [tie for tie in ties if not tie.reason_to_skip(filter, options, ())]


def _places(model: nn.Module, filter: Filter | None, report: QuantizationReport, ties: list[TiedTable]) -> list[_Place]:
    """Every linear layer that may be quantised; the others go to the report."""
    shared, found = shared_parameters(model), {}
    for tie in ties:
        shared.pop(id(tie.embedding.weight))
    tie_of = {id(head): tie for tie in ties for head in tie.heads.values()}
    for name, parent, leaf, module in walk(model):
        if not isinstance(module, nn.Linear):
            continue
        if id(module) not in found:
            place = found[id(module)] = _Place(name, module, module.training, tie=tie_of.get(id(module)))
            reason = reason_to_skip(module, parent, (nn.Linear,), shared)
            if not reason and filter is not None and not filter(name, module):
                reason = "the filter says so"
            if reason:
                report.skipped.append(_left(place, reason))
                found[id(module)] = None
        if found[id(module)] is not None and parent is not None:
            found[id(module)].parents.append((parent, leaf))
    return [place for place in found.values() if place is not None]


def _order(model: nn.Module, places: list[_Place], batches: list[Any], run: Callable[..., Any]) -> list[_Place]:
    """The layers that a batch reaches, in the order of their first calls."""
    order: list[_Place] = []
    in_pass: dict[int, int] = {}
    last: list[Any] = [None, None]  # the input before, held so that no other gets its identity, and whose it was
    sharers: dict[int, list[_Place | None]] = {}

    def hook(place: _Place) -> Callable[..., None]:
        def seen(module: nn.Module, args: tuple[Any, ...]) -> None:
            x = args[0] if args else None
            if id(place) not in sharers:
                order.append(place)
            sharers.setdefault(id(place), []).append(last[1] if x is not None and x is last[0] else None)
            in_pass[id(place)] = in_pass.get(id(place), 0) + 1
            place.calls = max(place.calls, in_pass[id(place)])
            last[:] = x, place

        return seen

    handles = [place.module.register_forward_pre_hook(hook(place)) for place in places]
    tables = [place.tie.embedding for place in places if place.tie is not None]
    probe = Probe([*(place.module for place in places), *tables])
    try:
        for batch in batches:
            probe.run(lambda batch=batch: run(model, batch))
            in_pass.clear()
            last[:] = None, None
    finally:
        for handle in handles:
            handle.remove()
    for place in places:
        place.read_past = probe.seen[place.module].read_past
        if place.tie is not None:
            place.read_past |= probe.seen[place.tie.embedding].read_past
    for before, place in itertools.pairwise(order):
        own, others = sharers[id(place)], sharers[id(before)]
        once = before.calls == place.calls == 1
        place.shares_input = once and len(own) == len(others) and all(other is before for other in own)
    return order


def _without(order: list[_Place], gone: list[_Place]) -> list[_Place]:
    """The places that are left; one behind a gone place shares its input with what comes before if that one did."""
    for before, place in itertools.pairwise(order):
        if before in gone:
            place.shares_input = place.shares_input and before.shares_input
    return [place for place in order if place not in gone]


def _inputs_of(model: nn.Module, place: _Place, batches: list[Any], run: Callable[..., Any]) -> Tensor:
    """The Hessian of what comes into a layer."""
    weight = place.module.weight if place.weight is None else place.weight
    hessian = Hessian(place.module.in_features, device=weight.device)

    def seen(module: nn.Module, args: tuple[Any, ...]) -> None:
        hessian.add(args[0])
        if place.calls == 1:
            raise _Enough

    handle = place.module.register_forward_pre_hook(seen)
    try:
        with torch.no_grad():
            for batch in batches:
                with contextlib.suppress(_Enough):
                    run(model, batch)
    except ValueError as error:
        raise ValueError(f"quantize: the layer '{place.name}': {error}") from None
    finally:
        handle.remove()
    return hessian.matrix()


def _replace(
    report: QuantizationReport,
    place: _Place,
    hessian: Tensor,
    method: str,
    numbers: dict[str, Any],
    added: dict[str, float],
    options: dict[str, Any],
) -> MPQLinear | None:
    """The new layer, in its place; None where it cannot hold the weight, which the report says."""
    linear = place.module
    weight, bias = linear.weight.detach(), linear.bias
    try:
        layer = _layer_for(linear, numbers, options)
        nearest = coded = round_to_nearest(weight, **numbers, dtype=layer.dtype)
        if method == "gptq":
            coded = gptq(weight, hessian, **numbers, **added, dtype=layer.dtype)
    except ValueError as error:
        report.skipped.append(_left(place, str(error)))
        return None
    _fill(layer, coded, bias)
    layer.eval()  # as the rest of the model is
    for parent, leaf in place.parents:
        parent.add_module(leaf, layer)
    if not place.parents:
        report.model = layer
    errors = (output_error(weight, one, hessian) for one in (coded, nearest))
    report.layers.append(QuantizedLayer(place.name, tuple(weight.shape), *errors))
    return layer


def _replace_table(
    report: QuantizationReport, place: _Place, numbers: dict[str, Any], options: dict[str, Any]
) -> list[nn.Module]:
    """Puts a table of codes and its head in place of an embedding and a linear; none where the table cannot hold it."""
    sizes = {"bits": numbers["bits"], "group_size": numbers["group_size"]}
    try:
        table = carry(place.tie.embedding, WeightOnlyEmbedding, **sizes, **options)
    except ValueError as error:
        report.skipped.append(_left(place, str(error)))
        return []
    head = table.head().eval()
    for old, new in ((place.tie.embedding, table), (place.module, head)):
        for parent, leaf in place.tie.places[id(old)]:
            parent.add_module(leaf, new)
    place.weight, place.module = place.module.weight.detach(), head
    return [table, head]


def _report_head(report: QuantizationReport, place: _Place, hessian: Tensor, numbers: dict[str, Any]) -> None:
    coded = round_to_nearest(place.weight, **numbers, dtype=place.module.table.scales.dtype)
    error, shape = output_error(place.weight, coded, hessian), tuple(place.weight.shape)
    report.layers.insert(0, QuantizedLayer(place.tie.name, shape, error, error, tied=place.name))
    report.layers.append(QuantizedLayer(place.name, shape, error, error, tied=place.tie.name))
    place.weight = None


def _layer_for(linear: nn.Linear, numbers: dict[str, Any], options: dict[str, Any]) -> MPQLinear:
    bias = linear.bias
    usual = {
        "w_bit": numbers["bits"],
        "group_size": numbers["group_size"],
        "use_gba_quant": not numbers["whole_zeros"],
        "dtype": linear.weight.dtype,
        "device": linear.weight.device,
        "disable_bias": bias is None,
        "train_bias": bias is not None and bias.requires_grad,
        "requires_grad": linear.weight.requires_grad,
    }
    return MPQLinear(linear.in_features, linear.out_features, **usual | options)


def _fill(layer: MPQLinear, coded: CodedWeight, bias: Tensor | None) -> None:
    layer.set_codes(coded.codes, coded.scales, coded.zeros, coded.g_idx)
    if bias is not None:
        with torch.no_grad():
            layer.bias.copy_(bias)
