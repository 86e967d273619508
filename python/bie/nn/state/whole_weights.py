"""Integer weights and step sizes under fully_shard, which shards neither: a sentence in place of torch's."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from types import FrameType
from typing import Any

from torch import nn


class WholeWeights:
    """Mixin of layers, before nn.Module, some of whose parameters are integers or have no axes."""

    def named_parameters(
        self, prefix: str = "", recurse: bool = True, *args: Any, **kwargs: Any
    ) -> Iterator[tuple[str, nn.Parameter]]:
        """As every module's; ``ValueError`` where ``fully_shard`` asks for what it cannot shard."""
        if not recurse:
            self._refuse_sharding(sys._getframe(1))
        return super().named_parameters(prefix, recurse, *args, **kwargs)

    def _refuse_sharding(self, caller: FrameType) -> None:
        theirs = caller.f_globals.get("__name__", "").startswith("torch.distributed.fsdp._fully_shard")
        if not theirs or caller.f_code.co_name != "_get_managed_states":
            return
        left = {id(parameter) for parameter in caller.f_locals.get("ignored_params") or ()}
        for name, parameter in self._parameters.items():
            if parameter is None or id(parameter) in left or (parameter.dim() and parameter.is_floating_point()):
                continue
            form = f"{list(parameter.shape)} of {str(parameter.dtype).removeprefix('torch.')}"
            raise ValueError(
                f"fully_shard: expected parameters of floats with axes, got {type(self).__name__}.{name}, {form}: give "
                "ignored_params={p for p in model.parameters() if p.dim() == 0 or not p.is_floating_point()}, and to "
                "train them bie.distributed.IntegerReducer(model), docs/distributed.md#sharded-floats"
            )
