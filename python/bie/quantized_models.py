"""A trained float model in 8 or 4 bits without training, and one that trains quantised; docs/calibrate.md."""

from __future__ import annotations

import copy
import itertools
from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils.fusion import fuse_conv_bn_eval, fuse_linear_bn_eval
from torch.utils._pytree import tree_leaves

from bie._places import has_hooks, shared_parameters, walk
from bie._probe import Probe, in_evaluation, run_batch
from bie.calibration import CalibrationReport, calibrate, check_method
from bie.conversion import Filter, swap_layers


@torch.no_grad()
def fold_batch_norms(model: nn.Module, batch: Any) -> list[str]:
    """Folds each BatchNorm that follows a convolution or linear of torch, alone, into its weight and bias, in place.

    An nn.Identity takes the BatchNorm's place. The model runs the batch once, observed: a pair is folded where every
    output of the layer went into the BatchNorm and nowhere else, and nothing but their own forward reads their
    parameters. The answers are compared afterwards; what changes them is put back. Layers and BatchNorms with hooks,
    or whose parameter another module shares, stay.

    Args:
        model: in evaluation.
        batch: a tensor, a tuple or list whose first item is the model's input, or a dictionary of its arguments.

    Returns: the names of the layers that took one in.

    Raises:
        ValueError: the model is in training.

    Example::

        >>> model = torch.nn.Sequential(torch.nn.Conv2d(3, 4, 3), torch.nn.BatchNorm2d(4)).eval()
        >>> bie.fold_batch_norms(model, torch.randn(1, 3, 8, 8)), type(model[1]).__name__
        (['0'], 'Identity')
    """
    if model.training:
        raise ValueError("fold_batch_norms: the model is in training, call eval() first")
    with in_evaluation(model):  # of layers in it that are in training
        folds, wanted = _proved(model, batch)
        try:
            for fold in folds:
                fold.apply()
            if _answers_stay(model, batch, wanted):
                return [fold.name for fold in folds]
            _put_back(folds)
            kept = []
            for fold in folds:
                fold.apply()
                if _answers_stay(model, batch, wanted):
                    kept.append(fold)
                else:
                    fold.put_back()
        except BaseException:
            _put_back(folds)
            raise
    return [fold.name for fold in kept]


_FUSERS = {(conv, norm): fuse_conv_bn_eval for conv, norm in ((nn.Conv1d, nn.BatchNorm1d), (nn.Conv2d, nn.BatchNorm2d))}
_FUSERS[nn.Linear, nn.BatchNorm1d] = fuse_linear_bn_eval

#: Axes of a batch: over others a BatchNorm's channels are not the layer's outputs.
_AXES = {nn.Conv1d: 3, nn.Conv2d: 4, nn.Linear: 2}


class _Fold:
    """A layer and the BatchNorm that it takes in."""

    def __init__(self, name: str, layer: nn.Module, norm: nn.Module, places: list[tuple[nn.Module, str]]) -> None:
        self.name, self.layer, self.norm, self.places = name, layer, norm, places
        self.before = layer.weight, layer.bias
        new = _FUSERS[type(layer), type(norm)](layer, norm)
        self.after = new.weight, new.bias

    def apply(self) -> None:
        self._set(self.after, nn.Identity().eval())

    def put_back(self) -> None:
        self._set(self.before, self.norm)

    def _set(self, parameters: tuple[nn.Parameter, nn.Parameter | None], norm: nn.Module) -> None:
        self.layer.weight, self.layer.bias = parameters
        for parent, leaf in self.places:
            setattr(parent, leaf, norm)


def _put_back(folds: Iterable[_Fold]) -> None:
    for fold in folds:
        fold.put_back()


def _proved(model: nn.Module, batch: Any) -> tuple[list[_Fold], Any]:
    """The pairs that a run of the batch proves, not yet applied, and what the model answers."""
    shared = shared_parameters(model)
    names: dict[nn.Module, str] = {}
    places: dict[nn.Module, list[tuple[nn.Module, str]]] = {}
    for name, parent, leaf, module in walk(model):
        names.setdefault(module, name)
        if parent is not None:
            places.setdefault(module, []).append((parent, leaf))
    kinds = {kind for pair in _FUSERS for kind in pair}
    probe = Probe(module for module in names if type(module) in kinds)
    wanted = probe.run(lambda: run_batch(model, batch))
    folds = []
    for norm, seen in probe.seen.items():
        layer = seen.inputs[0] if seen.inputs else None
        if layer is None or (type(layer), type(norm)) not in _FUSERS:
            continue
        of_layer = probe.seen[layer]
        alone = of_layer.takers == {norm} and of_layer.calls == seen.calls == len(seen.inputs)
        alone = alone and all(source is layer for source in seen.inputs)
        read_past = seen.read_past or of_layer.read_past
        fits = seen.dims == {_AXES[type(layer)]} and norm.running_mean is not None
        if alone and fits and not read_past and not any(_is_more(module, shared) for module in (layer, norm)):
            folds.append(_Fold(names[layer], layer, norm, places[norm]))
    return folds, wanted


def _is_more(module: nn.Module, shared: dict[int, list[str]]) -> bool:
    """Whether it does more than its class: by hooks, a forward of its own, parameters that are made or shared."""
    own = module._parameters
    made = "weight" not in own or "bias" not in own or "forward" in vars(module)
    return made or has_hooks(module) or any(id(parameter) in shared for parameter in own.values())


def _answers_stay(model: nn.Module, batch: Any, wanted: Any) -> bool:
    try:
        found = run_batch(model, batch)
    except Exception:  # of a model that asks something of its BatchNorm
        return False
    pairs = [[leaf for leaf in tree_leaves(answer) if isinstance(leaf, Tensor)] for answer in (found, wanted)]
    return len(pairs[0]) == len(pairs[1]) and all(map(_close, *pairs))


def _close(found: Tensor, wanted: Tensor) -> bool:
    """But for the rounding of its dtype; choices, as integers are, may turn on that."""
    if found.shape != wanted.shape or found.dtype != wanted.dtype:
        return False
    if not wanted.is_floating_point():
        return True
    share = torch.finfo(wanted.dtype).eps ** 0.5
    found, wanted = found.double(), wanted.double()
    return bool((found - wanted).norm() <= share * wanted.norm()) or torch.equal(found, wanted)


def post_training(
    model: nn.Module,
    loader: Iterable[Any],
    target: Any = "q8",
    *,
    method: str = "mse",
    percentile: float = 99.9,
    batches: int = 16,
    per_channel: bool = True,
    fold: bool = True,
    filter: Filter | None = None,
    inplace: bool = False,
    **options: Any,
) -> CalibrationReport:
    """A trained float model in 8 or 4 bits without training: folds BatchNorms, converts, calibrates weights too.

    Args:
        model: in evaluation or not; the quantised one is in evaluation.
        target, filter: of ``convert``.
        method, percentile, batches: of ``calibrate``.
        per_channel: a step for each output channel.
        fold: fold BatchNorms into the layers in front of them first.
        inplace: change ``model``, or a copy of it; ``report.model`` is the quantised one.
        options: further arguments of the layers' constructors.

    Raises:
        ValueError: as ``calibrate``. TypeError: as ``convert``.

    Example::

        >>> model = torch.nn.Sequential(torch.nn.Linear(6, 4), torch.nn.BatchNorm1d(4), torch.nn.ReLU()).eval()
        >>> report = bie.post_training(model, [torch.randn(32, 6)], "q4")
        >>> report.model
        Sequential(
          (0): Q4Linear(6, 4, int8 weight, bias, scales of channels)
          (1): Identity()
          (2): ReLU()
        )
    """
    check_method(method, percentile)
    first, loader = _first(loader)
    model = (model if inplace else copy.deepcopy(model)).eval()
    if fold:
        fold_batch_norms(model, first)
    if per_channel:
        options = {"channel_scale": True} | options
    converted = swap_layers(model, target, filter=filter, call=lambda model: run_batch(model, first), **options)
    report = calibrate(converted.model, loader, method=method, percentile=percentile, batches=batches, codes=True)
    report.skipped += converted.skipped
    return report


def prepare_qat(
    model: nn.Module,
    target: Any = "q8",
    *,
    loader: Iterable[Any] | None = None,
    method: str = "mse",
    filter: Filter | None = None,
    inplace: bool = True,
    **options: Any,
) -> nn.Module:
    """The model with layers that train quantised, for any optimizer: ``convert`` with ``latent=True``, calibrated.

    Train it as the float model. ``model.eval()`` and ``bie.pack(model)`` make what is deployed.

    Args:
        target, filter, inplace, options: of ``convert``.
        loader, method: of ``calibrate``; without a loader the first training batch sets the step sizes.

    Example::

        >>> model = bie.prepare_qat(torch.nn.Sequential(torch.nn.Linear(6, 4)), "q4", loader=[torch.randn(8, 6)])
        >>> torch.optim.SGD(model.parameters(), lr=0.1).zero_grad()
        >>> model[0].weight.dtype
        torch.float32
    """
    check_method(method, 100)
    if not inplace:
        model = copy.deepcopy(model)
    options = {"latent": True} | options
    if loader is None:
        return swap_layers(model, target, filter=filter, **options).model
    first, loader = _first(loader)
    model = swap_layers(model, target, filter=filter, call=lambda model: run_batch(model, first), **options).model
    calibrate(model, loader, method=method)
    return model


def _first(loader: Iterable[Any]) -> tuple[Any, Iterable[Any]]:
    """The first batch, and all of them, of an iterable that may be gone through once alone."""
    batches = iter(loader)
    for first in batches:
        return first, itertools.chain([first], batches)
    raise ValueError("the loader has no batch")
