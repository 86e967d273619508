"""A trained float model in 8 or 4 bits without training, and one that trains quantised; docs/calibrate.md."""

from __future__ import annotations

import copy
import itertools
from collections.abc import Iterable
from typing import Any

from torch import fx, nn
from torch.nn.utils.fusion import fuse_conv_bn_eval, fuse_linear_bn_eval

from bie.calibration import CalibrationReport, calibrate, check_method
from bie.conversion import Filter, convert


def fold_batch_norms(model: nn.Module) -> list[str]:
    """Folds each BatchNorm that follows a convolution or linear of torch, alone, into its weight and bias, in place.

    An nn.Identity takes the BatchNorm's place. The model must be in evaluation. What follows what is read off a trace
    of torch.fx, or off the order of nn.Sequential where a model cannot be traced.

    Returns: the names of the layers that took one in.

    Raises:
        ValueError: the model is in training.

    Example::

        >>> model = torch.nn.Sequential(torch.nn.Conv2d(3, 4, 3), torch.nn.BatchNorm2d(4)).eval()
        >>> bie.fold_batch_norms(model), type(model[1]).__name__
        (['0'], 'Identity')
    """
    if model.training:
        raise ValueError("fold_batch_norms: the model is in training, call eval() first")
    modules, folded = dict(model.named_modules()), []
    for before, after in _pairs(model):
        layer, norm = modules[before], modules[after]
        fuse = _FUSERS.get((type(layer), type(norm)))
        if fuse is None or norm.running_mean is None or getattr(layer, "transposed", False):
            continue
        new = fuse(layer, norm)
        layer.weight, layer.bias = new.weight, new.bias
        parent, _, leaf = after.rpartition(".")
        setattr(modules[parent], leaf, nn.Identity())
        folded.append(before)
    return folded


_FUSERS = {(conv, norm): fuse_conv_bn_eval for conv, norm in ((nn.Conv1d, nn.BatchNorm1d), (nn.Conv2d, nn.BatchNorm2d))}
_FUSERS[nn.Linear, nn.BatchNorm1d] = fuse_linear_bn_eval


def _pairs(model: nn.Module) -> list[tuple[str, str]]:
    """(layer, what alone takes its output), by name, of modules that are called once."""
    try:
        graph = fx.Tracer().trace(model)
    except Exception:  # a model whose Python looks at values
        pairs = []
        for name, module in model.named_modules():
            if isinstance(module, nn.Sequential):
                below = [f"{name}.{leaf}" if name else leaf for leaf, _ in module.named_children()]
                pairs += list(itertools.pairwise(below))
        return pairs
    calls = [node for node in graph.nodes if node.op == "call_module"]
    targets = [node.target for node in calls]
    pairs = []
    for node in calls:
        source = node.args[0] if node.args else None
        if isinstance(source, fx.Node) and source.op == "call_module" and len(source.users) == 1:
            pairs.append((source.target, node.target))
    return [pair for pair in pairs if all(targets.count(name) == 1 for name in pair)]


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
    model = (model if inplace else copy.deepcopy(model)).eval()
    if fold:
        fold_batch_norms(model)
    if per_channel:
        options = {"channel_scale": True} | options
    converted = convert(model, target, filter=filter, **options)
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
    model = convert(model, target, filter=filter, inplace=inplace, **{"latent": True} | options).model
    if loader is not None:
        calibrate(model, loader, method=method)
    return model
