"""What ranks agree on beside gradients: random streams, the step sizes of first batches, an optimizer's state."""

from __future__ import annotations

import weakref
from collections.abc import Iterable
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from bie._weak_sets import members
from bie.distributed import exchange
from bie.weights.parameters import integer_optimizers

NO_SEED = -(2**62)


class Agreement:
    """Of the ranks that train one model; ``layers`` are those of it that have step sizes."""

    def __init__(self, model: nn.Module, layers: Iterable[Any]) -> None:
        self._model, self._layers = weakref.ref(model), list(layers)
        self._fresh: dict[int, tuple[float, int]] = {}
        self._seeded = False

    @property
    def has_first_batch(self) -> bool:
        """Whether a step size was set in this pass on this rank."""
        return bool(self._fresh)

    def note_first_batch(self, scale: Tensor, x: Tensor) -> None:
        """A layer has set a step size from this rank's first batch."""
        self._fresh[id(scale)] = (float(x.detach().abs().sum(dtype=torch.float64)), x.numel())

    def settle_step_sizes(self, group: exchange.Group, device: torch.device) -> None:
        """Gives the layers the step sizes of the group's first batch."""
        places = [(layer, name) for layer in self._layers for name in layer._step_sizes()]
        sums = torch.zeros(len(places), 2, dtype=torch.float64)
        for i, (layer, name) in enumerate(places):
            sums[i, 0], sums[i, 1] = self._fresh.get(id(getattr(layer, name)), (0.0, 0))
        means = exchange.means_of_first_batches(sums.to(device), group).tolist()
        for (layer, name), mean in zip(places, means, strict=True):
            if mean > 0:
                layer._take_first_batch(name, mean)
        self._fresh.clear()

    def _optimizers(self) -> list[torch.optim.Optimizer]:
        mine = {id(weight) for weight in self._model().parameters()}
        found = [o for o in members(integer_optimizers) if hasattr(o, "seed")]
        return [o for o in found if any(id(p) in mine for group in o.param_groups for p in group["params"])]

    def own_seed(self, group: exchange.Group) -> int:
        """The seed that rank 0 gives the others, once; ``NO_SEED`` of the others."""
        if dist.get_rank(group) != 0 or self._seeded:
            return NO_SEED
        optimizers = self._optimizers()
        self._seeded = bool(optimizers)
        return int(optimizers[0].seed) if optimizers else NO_SEED

    def take_seed(self, seed: int) -> None:
        if seed != NO_SEED:
            for optimizer in self._optimizers():
                optimizer.seed = seed

    def share_state(self, has_it: bool, group: exchange.Group, device: torch.device) -> None:
        """Gives every rank the integer optimizers' state of a rank that has it, the last of them."""
        last = torch.tensor([dist.get_rank() if has_it else -1], device=device)
        dist.all_reduce(last, dist.ReduceOp.MAX, group=group)
        source = int(last)
        for optimizer in self._optimizers():
            box = [optimizer.state_dict() if dist.get_rank() == source else None]
            dist.broadcast_object_list(box, source, group=group, device=device)
            if dist.get_rank() != source:
                optimizer.load_state_dict(box[0])
