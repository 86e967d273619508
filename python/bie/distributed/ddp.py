"""What makes ``DistributedDataParallel(model)`` reduce integer gradients: a reducer for each module that is wrapped."""

from __future__ import annotations

import weakref
from collections.abc import Iterator
from typing import Any

import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.algorithms.join import JoinHook
from torch.nn.modules.module import register_module_module_registration_hook
from torch.nn.parallel import DistributedDataParallel

from bie.distributed.hooks import Weakly
from bie.distributed.reducer import IntegerReducer
from bie.nn.state.step_size import StepSizeOptions
from bie.weights.parameters import QuantParameter


class WrappedReducer(IntegerReducer):
    """The reducer of a module inside DistributedDataParallel, whose options ``no_sync`` and ``join`` it follows."""

    def __init__(self, ddp: DistributedDataParallel, model: nn.Module) -> None:
        self._attach(model, ddp.process_group, 1 << 22, 100, [])
        self._syncs = lambda: getattr(ddp, "require_backward_grad_sync", True)
        self._handles.append(ddp.register_forward_pre_hook(Weakly(self._begin)))
        ddp.__dict__["_integer_reducer"] = self
        buffers = dict(self._own_buffers(model))
        self._broadcast(buffers.values())
        # Equal from here on, which the wrapper need not see to before each forward pass.
        ddp.parameters_to_ignore |= buffers.keys()

    @staticmethod
    def _own_buffers(model: nn.Module) -> Iterator[tuple[str, Tensor]]:
        """What our layers hold beside parameters: scales, zeros, orders."""
        for name, module in model.named_modules():
            if _is_ours(module):
                for key, buffer in module.named_buffers(recurse=False):
                    yield (f"{name}.{key}" if name else key), buffer


class _JoinHook(JoinHook):
    """Shadows the collectives of a pass for a rank that has run out of batches, beside those of the wrapper."""

    def __init__(self, wrappers: JoinHook, ddp: DistributedDataParallel, reducer: IntegerReducer) -> None:
        self.wrappers, self.ddp, self.reducer = wrappers, ddp, reducer

    def main_hook(self) -> None:
        self.wrappers.main_hook()
        if self.ddp.require_forward_param_sync:  # what the others said of this pass
            self.reducer.shadow()

    def post_hook(self, is_last_joiner: bool) -> None:
        self.wrappers.post_hook(is_last_joiner)
        self.reducer.take_state(is_last_joiner)


class _Joins:
    """``join_hook`` of a wrapper, with ours. That of a copy is in no group."""

    def __init__(self, ddp: DistributedDataParallel | None) -> None:
        self._ddp = None if ddp is None else weakref.ref(ddp)

    def __call__(self, **options: Any) -> JoinHook:
        ddp = None if self._ddp is None else self._ddp()
        if ddp is None:
            raise RuntimeError("bie.distributed: join() of a copied DistributedDataParallel; wrap the module anew")
        return _JoinHook(DistributedDataParallel.join_hook(ddp, **options), ddp, ddp.__dict__["_integer_reducer"])

    def __deepcopy__(self, memo: dict) -> _Joins:
        return _Joins(None)

    def __reduce__(self) -> tuple:
        return _Joins, (None,)


def _is_ours(module: nn.Module) -> bool:
    weights = module.parameters(recurse=False)
    return isinstance(module, StepSizeOptions) or any(isinstance(weight, QuantParameter) for weight in weights)


def _put(parent: nn.Module, name: str, child: nn.Module) -> None:
    """DistributedDataParallel is given its module: before it looks which parameters require grad."""
    if not isinstance(parent, DistributedDataParallel) or name != "module" or not any(map(_is_ours, child.modules())):
        return
    # The float weight of a layer that trains as integers must not be among the wrapper's parameters.
    for module in child.modules():
        if isinstance(module, StepSizeOptions):
            module._prepare_for_group()
    if dist.get_world_size(parent.process_group) == 1:
        return
    WrappedReducer(parent, child)
    parent.__dict__["join_hook"] = _Joins(parent)


if dist.is_available():
    register_module_module_registration_hook(_put)
