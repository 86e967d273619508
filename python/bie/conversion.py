"""Swaps torch's layers in a model for layers of this package; docs/spec/helpers.md#conversion."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from bie import _taken_out
from bie._places import (
    children,
    join,
    leave_fast_paths,
    plain_class,
    reason_to_skip,
    shape_of,
    shared_parameters,
    walk,
)
from bie._probe import READ_PAST_FORWARD, Probe, in_evaluation
from bie.carrying import carry as carry
from bie.conversion_report import ConversionReport, Converted
from bie.nn import (
    BinaryConv1d,
    BinaryConv2d,
    BinaryLinear,
    MPQLinear,
    MultiheadAttention,
    Q4Conv1d,
    Q4Conv2d,
    Q4Linear,
    Q8Conv1d,
    Q8Conv2d,
    Q8Linear,
    WeightOnlyEmbedding,
    WeightOnlyLinear,
)
from bie.nn.conv1d import Conv1dLayer
from bie.nn.embedding import _Embedding
from bie.nn.state.conv_layer import ConvLayer
from bie.nn.state.linear_layer import LinearLayer
from bie.nn.state.quant_layer import QuantLayer
from bie.nn.state.registration import check_parent
from bie.nn.tied_tables import TiedTable, forget_ties, heads_of, tied_tables

_OURS = (QuantLayer, WeightOnlyLinear, WeightOnlyEmbedding, _Embedding)

Filter = Callable[[str, nn.Module], bool]

#: What the targets that have a name are.
NAMED: dict[str, dict[type, type]] = {
    "binary": {nn.Linear: BinaryLinear, nn.Conv2d: BinaryConv2d, nn.Conv1d: BinaryConv1d},
    "q4": {nn.Linear: Q4Linear, nn.Conv2d: Q4Conv2d, nn.Conv1d: Q4Conv1d},
    "q8": {nn.Linear: Q8Linear, nn.Conv2d: Q8Conv2d, nn.Conv1d: Q8Conv1d},
}
#: Weights alone, by round to nearest in groups of 32; activations stay floats.
WEIGHTS_ALONE = {f"w{bits}": {"bits": bits, "group_size": 32} for bits in (1, 2, 3, 4, 5, 6, 8)}
NAMED |= {name: {nn.Linear: MPQLinear, nn.Embedding: WeightOnlyEmbedding} for name in WEIGHTS_ALONE}
for _layers in NAMED.values():  # the class of its projections
    _layers[nn.MultiheadAttention] = _layers[nn.Linear]

#: Most grouped convolutions with fewer input channels a group are slower than in float16 on CUDA
#: (docs/measured/grouped-convs.md).
FEWEST_CHANNELS_OF_A_GROUP = 16


def collect_layers(
    module: nn.Module, layer_types: Iterable[type] | None = None, parent_name: str = ""
) -> dict[str, nn.Module]:
    """{name: module} of all layers whose type is exactly one of ``layer_types`` (nn.Linear by default)."""
    types = (nn.Linear,) if layer_types is None else tuple(layer_types)
    if type(module) in types:
        return {parent_name: module}
    found: dict[str, nn.Module] = {}
    for name, child in children(module):
        found.update(collect_layers(child, types, join(parent_name, name)))
    return found


def replace_layers(
    module: nn.Module,
    names_to_replace: Iterable[str],
    class_: type,
    replace_fn: Callable[[nn.Module], nn.Module],
    parent_name: str = "",
) -> list[nn.Module]:
    """Puts ``replace_fn(layer)`` in place of each named layer, in any container; returns the new layers.

    All new layers are made before the first is put in place. A module under several of the names is made once. A layer
    that is a ``class_`` already is left alone.

    Args:
        names_to_replace: full names, as ``collect_layers`` gives them.
        parent_name: the name of ``module`` in the names.

    Raises:
        ValueError: a name is the root's, or no layer has it. TypeError: ``replace_fn`` makes something else, or a
            parent would never call the new layer.
    """
    wanted = set(names_to_replace)
    under = join(parent_name, "") if parent_name else ""
    found: list[tuple[nn.Module, str, nn.Module]] = []
    seen: set[str] = set()

    def visit(parent: nn.Module, path: str) -> None:
        for name, child in children(parent):
            full = join(path, name)
            if full in wanted:
                seen.add(full)
                if not isinstance(child, class_):
                    found.append((parent, name, child))
            elif not isinstance(child, class_):
                visit(child, full)

    visit(module, parent_name)
    unknown = sorted(name for name in wanted - seen if name.startswith(under))
    if parent_name in unknown or "" in unknown:
        raise ValueError("replace_layers: a model that is itself the layer cannot be replaced in place, see convert()")
    if unknown:
        raise ValueError(f"replace_layers: the model has no layer {', '.join(map(repr, unknown))}")
    made: dict[int, nn.Module] = {}
    for _, name, child in found:
        if id(child) not in made:
            new = replace_fn(child)
            if not isinstance(new, class_):
                raise TypeError(
                    f"replace_layers: {name}: expected a {class_.__name__} in its place, got a {type(new).__name__}"
                )
            made[id(child)] = new
    for parent, name, child in found:
        check_parent(parent, name, made[id(child)])
    for parent, name, child in found:
        parent.add_module(name, made[id(child)])
    leave_fast_paths(module)
    _taken_out.remember((child for _, _, child in found), module)
    return [made[id(child)] for _, _, child in found]


def _targets(target: type | str | Mapping[type, type]) -> dict[type, type]:
    """{a layer of torch: the class that takes its place, of an nn.MultiheadAttention that of its projections}."""
    if isinstance(target, str):
        if target not in NAMED:
            raise ValueError(f"convert: target: expected {', '.join(NAMED)} or a class, got {target!r}")
        return NAMED[target]
    kinds = {
        nn.Linear: (LinearLayer, WeightOnlyLinear),
        nn.Conv1d: (Conv1dLayer,),
        nn.Conv2d: (ConvLayer,),
        nn.Embedding: (WeightOnlyEmbedding,),
    }
    pairs = target if isinstance(target, Mapping) else {}
    if not isinstance(target, Mapping):
        pairs = {source: target for source, base in kinds.items() if issubclass(target, base)}
        if nn.Conv1d in pairs:
            del pairs[nn.Conv2d]
    kinds[nn.MultiheadAttention] = kinds[nn.Linear]
    for source, cls in pairs.items():
        if source not in kinds or not issubclass(cls, kinds[source]):
            raise TypeError(f"convert: {source.__name__} cannot become a {cls.__name__}")
    if not pairs:
        raise TypeError(f"convert: target: expected a linear or convolution layer of this package, got {target}")
    return dict(pairs)


def convert(
    model: nn.Module,
    target: type | str | Mapping[type, type],
    *,
    filter: Filter | None = None,
    inplace: bool = True,
    batch: Any = None,
    small_groups: bool = False,
    tied: bool = True,
    **options: Any,
) -> ConversionReport:
    """Swaps nn.Linear, nn.Conv1d, nn.Conv2d, nn.MultiheadAttention and nn.Embedding for layers of this package.

    Weights, biases, device, dtype and train or eval mode go with them. A module under several names is swapped under
    all of them. All new layers are made before the first is put in place, so an error leaves the model as it was. A
    model that is itself the layer cannot change in place: take ``report.model``, which is always the converted model.

    Layers stay, with the reason in the report, where ``filter`` says so, where the class is not exactly one of those,
    where another module shares their parameter, where the model reads it past ``forward``, as a run of ``batch`` shows,
    where the new layer cannot hold them (a dtype, padding), where they have hooks, or where they would be slower.

    An embedding and the linears that share its weight, as the output layer of most small language models does, become
    one table of codes where weights alone are converted: a WeightOnlyEmbedding and its ``head()``. All of them stay
    where one has to.

    Args:
        target: "binary", "q4" or "q8"; "w1" to "w6" or "w8", weights alone in groups of 32, which takes nn.Linear,
            nn.MultiheadAttention and nn.Embedding; a class of a layer; or ``{nn.Linear: class, nn.Conv2d: class}``,
            where that of nn.MultiheadAttention is the class of its projections.
        filter: ``(name, module) -> bool``, whether to swap; the root's name is "". All by default.
        inplace: change ``model``, or a deep copy of it.
        batch: what the model is called with once, a tensor or a tuple of arguments: the new layers alone are in
            training then, and take the step sizes of their activations from it. Without it the first batch that they
            meet does that.
        small_groups: on CUDA, swap convolutions of fewer than 16 channels a group too, depthwise ones among them,
            most of which are slower there than in float16. On the CPU they are swapped in any case.
        tied: whether an embedding and its output layer become one table of codes; they stay floats if not.
        options: further arguments of the new layers' constructors; with "w1" to "w8" ``activation="int8"`` is one.

    Raises:
        TypeError, ValueError: an unknown target, an option that suits no layer.

    Example::

        >>> model = torch.nn.Sequential(torch.nn.Linear(6, 4), torch.nn.ReLU(), torch.nn.Linear(4, 2))
        >>> print(bie.convert(model, "q8", filter=lambda name, module: name != "2"))
        layer  was     weight  is
        0      Linear  4x6     Q8Linear
        2      Linear  2x4     unchanged: the filter says so
        1 swapped, 1 unchanged
    """
    if not inplace:
        model = copy.deepcopy(model)

    def call(model: nn.Module) -> Any:
        return model(*batch) if isinstance(batch, tuple) else model(batch)

    before, with_batch = set(model.modules()), None if batch is None else call
    others = {"small_groups": small_groups, "tied": tied}
    report = swap_layers(model, target, filter=filter, call=with_batch, **others, **options)
    if batch is not None:
        _take_step_sizes(report.model, [module for module in report.model.modules() if module not in before], call)
    return report


def swap_layers(
    model: nn.Module,
    target: type | str | Mapping[type, type],
    *,
    filter: Filter | None = None,
    call: Callable[[nn.Module], Any] | None = None,
    small_groups: bool = False,
    tied: bool = True,
    **options: Any,
) -> ConversionReport:
    """``convert`` in place; ``call(model)``, which runs it once, shows whose weight the model reads past forward."""
    targets = _targets(target)
    if isinstance(target, str):
        options = WEIGHTS_ALONE.get(target, {}) | options
    report = ConversionReport(model)
    read_past = set() if call is None else _read_past_forward(model, targets, call)
    checked: set[type] = set()
    shared = shared_parameters(model)
    made: dict[int, nn.Module] = {}
    places: list[tuple[nn.Module, str, nn.Module]] = []
    asked: set[int] = set()
    gone: set[int] = set()  # what a new layer took over
    codes = issubclass(targets.get(nn.Embedding, object), WeightOnlyEmbedding)
    codes = codes and issubclass(targets.get(nn.Linear, object), WeightOnlyLinear)
    ties = {id(m): tie for tie in tied_tables(model) for m in tie.members.values()} if tied and codes else {}
    for name, parent, leaf, module in walk(model):
        if id(module) in gone:
            continue
        if not isinstance(module, tuple(targets)):
            if id(module) not in asked and (weight := _own_weight(module)) is not None:
                asked.add(id(module))
                reason = f"there is no such layer for {type(module).__name__}"
                report.skipped.append(Converted(name, type(module).__name__, shape_of(weight), reason=reason))
            continue
        if id(module) in ties and id(module) not in asked:
            asked.update(map(id, ties[id(module)].members.values()))
            made |= _swap_table(ties[id(module)], targets[nn.Embedding], filter, read_past, options, report)
        if id(module) not in asked:
            asked.add(id(module))
            entry = Converted(name, type(module).__name__, shape_of(_weight(module)))
            reason = reason_to_skip(module, parent, targets, shared)
            if not reason and module in read_past:
                reason = READ_PAST_FORWARD
            if not reason and filter is not None and not filter(name, module):
                reason = "the filter says so"
            if not reason and not small_groups:
                reason = _slower(module)
            new = None
            if not reason:
                kind = plain_class(module)
                if kind not in checked:
                    checked.add(kind)
                    _check_options(kind, targets[kind], options)
                try:
                    new = carry(module, targets[kind], **options)
                except (ValueError, AssertionError) as error:
                    reason = str(error)
            if new is None:
                report.skipped.append(Converted(entry.name, entry.source, entry.shape, reason=reason))
            else:
                made[id(module)] = new
                gone.update(id(child) for child in module.children())
                report.swapped.append(Converted(entry.name, entry.source, entry.shape, target=_class_of(new)))
        if id(module) in made and parent is not None:
            places.append((parent, leaf, module))
    for parent, leaf, module in places:
        parent.add_module(leaf, made[id(module)])
    leave_fast_paths(model)
    forget_ties(model)
    _taken_out.remember((module for _, _, module in places), model)
    report.model = made.get(id(model), model)
    if not made and (ours := sum(isinstance(module, _OURS) for module in model.modules())):
        warnings.warn(
            f"convert: nothing is left to swap, {ours} layers are of this package already; for another target convert "
            "the float model",
            stacklevel=3,
        )
    return report


def _swap_table(
    tie: TiedTable,
    target: type,
    filter: Filter | None,
    read_past: set[nn.Module],
    options: Mapping[str, Any],
    report: ConversionReport,
) -> dict[int, nn.Module]:
    """The new layers of an embedding and of the linears that share its weight, by the identity of the old ones."""
    reason = tie.reason_to_skip(filter, options, read_past)
    made: dict[int, nn.Module] = {}
    if not reason:
        try:
            table = carry(tie.embedding, target, **options)
            made = {id(tie.embedding): table, **heads_of(tie, table)}
        except (ValueError, AssertionError) as error:
            reason = str(error)
    for name, module in tie.members.items():
        target_name = "" if reason else _class_of(made[id(module)])
        if target_name and module is not tie.embedding:
            target_name += f" of {tie.name}"
        entry = Converted(name, type(module).__name__, shape_of(module.weight), target_name, reason)
        (report.skipped if reason else report.swapped).append(entry)
    return made


def _read_past_forward(
    model: nn.Module, targets: Mapping[type, type], call: Callable[[nn.Module], Any]
) -> set[nn.Module]:
    """The layers whose weight the model reads itself, as a call in evaluation shows."""
    if any(is_lazy(parameter) for parameter in model.parameters()):  # which the call would give their sizes
        return set()
    probe = Probe(module for module in model.modules() if plain_class(module) in targets)
    with in_evaluation(model):
        probe.run(lambda: call(model))
    return {module for module, seen in probe.seen.items() if seen.read_past}


def _check_options(source: type, target: type, options: Mapping[str, Any]) -> None:
    """An option that no layer takes is an error of the call; a small layer of plain sizes has no other reason."""
    sizes = {nn.MultiheadAttention: (64, 1), nn.Conv1d: (64, 64, 1), nn.Conv2d: (64, 64, 1)}
    try:
        with torch.random.fork_rng(devices=[]):
            carry(source(*sizes.get(source, (64, 64))), target, **options)
    except (ValueError, AssertionError) as error:
        raise ValueError(f"convert: {error}") from error


def _weight(module: nn.Module) -> Tensor:
    """The largest of a layer of torch."""
    if isinstance(module, nn.MultiheadAttention):
        return module.q_proj_weight if module.in_proj_weight is None else module.in_proj_weight
    return module.weight


def _own_weight(module: nn.Module) -> Tensor | None:
    """The weight of a layer that nothing takes the place of, if it has one of two axes or more."""
    if isinstance(module, _OURS):
        return None
    weights = [value for name, value in module._parameters.items() if name.startswith(("weight", "in_proj_weight"))]
    there = (weight for weight in weights if weight is not None)
    return next((weight for weight in there if is_lazy(weight) or weight.dim() > 1), None)


def _slower(module: nn.Module) -> str:
    """Why a layer is better left in floats, or ""."""
    if not isinstance(module, (nn.Conv1d, nn.Conv2d)) or module.groups == 1 or not module.weight.is_cuda:
        return ""
    channels = module.in_channels // module.groups
    if channels >= FEWEST_CHANNELS_OF_A_GROUP:
        return ""
    return (
        f"{channels} channels a group are mostly slower in codes than in float16 on CUDA (small_groups=True swaps it)"
    )


def _class_of(layer: nn.Module) -> str:
    name = type(layer).__name__
    return f"{name} of {type(layer.out_proj).__name__}" if isinstance(layer, MultiheadAttention) else name


def _take_step_sizes(model: nn.Module, layers: list[nn.Module], call: Callable[[nn.Module], Any]) -> None:
    modes = [layer.training for layer in layers]
    try:
        for layer in layers:  # whose children have no other modes
            layer.train()
        with torch.no_grad():
            call(model)
    finally:
        for layer, mode in zip(layers, modes, strict=True):
            layer.train(mode)
