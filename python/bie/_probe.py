"""A run of a model that observes what becomes of its layers' outputs, and who reads their tensors past ``forward``."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_leaves
from torch.utils.weak import WeakTensorKeyDictionary

#: What a layer that a probe found is left for.
READ_PAST_FORWARD = "the model reads its weight past its forward, as functional.linear(x, layer.weight) does"

#: Functions that tell nothing of an output's values.
_OF_THE_FORM = {
    *(getattr(torch.Tensor, name).__get__ for name in ("shape", "ndim", "dtype", "device", "is_cuda", "requires_grad")),
    *(torch.Tensor.dim, torch.Tensor.size, torch.Tensor.numel, torch.Tensor.is_floating_point),
}


@dataclass
class Observed:
    """What a run did with a layer.

    Attributes:
        calls: how often its forward ran.
        inputs: the watched layer whose output each call took first, or None.
        dims: the numbers of axes of these inputs.
        takers: the watched layers whose forward used an output of it; None for anything else, which outlived the run
            or used it elsewhere.
        read_past: whether its parameters or buffers were used while its forward did not run.
    """

    calls: int = 0
    inputs: list[nn.Module | None] = field(default_factory=list)
    dims: set[int] = field(default_factory=set)
    takers: set[nn.Module | None] = field(default_factory=set)
    read_past: bool = False


class Probe(TorchFunctionMode):
    """Watches layers while a model runs: ``probe.run(lambda: model(x))``; ``probe.seen[layer]`` says what was seen."""

    def __init__(self, layers: Iterable[nn.Module]) -> None:
        super().__init__()
        self.seen: dict[nn.Module, Observed] = {layer: Observed() for layer in layers}
        self._owners: dict[int, list[nn.Module]] = {}
        for layer in self.seen:
            for tensor in (*layer.parameters(), *layer.buffers()):
                self._owners.setdefault(id(tensor), []).append(layer)
        self._inside: list[nn.Module] = []
        self._outputs = WeakTensorKeyDictionary()

    @torch.no_grad()
    def run(self, call: Callable[[], Any]) -> Any:
        """What the call returns; an output of a watched layer that lives on has been taken by something else."""
        with self._wrapped():
            with self:
                returned = call()
            for layer in self._outputs.values():
                self.seen[layer].takers.add(None)
        return returned

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        for value in tree_leaves((args, kwargs)):
            if not isinstance(value, Tensor):
                continue
            owners = self._owners.get(id(value), ())
            if owners and not any(layer in self._inside for layer in owners):
                for layer in owners:
                    self.seen[layer].read_past = True
            if func not in _OF_THE_FORM and (source := self._outputs.get(value)) is not None:
                self.seen[source].takers.add(self._inside[-1] if self._inside else None)
        return func(*args, **kwargs)

    def _watch(self, layer: nn.Module, forward: Callable[..., Any]) -> Callable[..., Any]:
        def run(*args: Any, **kwargs: Any) -> Any:
            seen, first = self.seen[layer], args[0] if args else next(iter(kwargs.values()), None)
            seen.calls += 1
            if isinstance(first, Tensor):
                seen.inputs.append(self._outputs.get(first))
                seen.dims.add(first.dim())
            self._inside.append(layer)
            try:
                y = forward(*args, **kwargs)
            finally:
                self._inside.pop()
            if isinstance(y, Tensor):
                self._outputs[y] = layer
            return y

        return run

    @contextlib.contextmanager
    def _wrapped(self) -> Iterator[None]:
        own = {layer: vars(layer)["forward"] for layer in self.seen if "forward" in vars(layer)}
        try:
            for layer in self.seen:
                layer.forward = self._watch(layer, layer.forward)
            yield
        finally:
            for layer in self.seen:
                vars(layer).pop("forward", None)
                if layer in own:
                    layer.forward = own[layer]


@contextlib.contextmanager
def in_evaluation(model: nn.Module) -> Iterator[None]:
    """The model in evaluation, and each module in the mode it had afterwards."""
    modes = [(module, module.training) for module in model.modules()]
    model.eval()
    try:
        yield
    finally:
        for module, mode in modes:
            module.training = mode


def run_batch(model: nn.Module, batch: Any) -> Any:
    """The model on a batch of a loader: a tensor, a tuple or list whose first item is the input, or keywords."""
    if isinstance(batch, dict):
        return model(**batch)
    return model(batch[0] if isinstance(batch, list | tuple) else batch)
