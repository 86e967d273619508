"""LoRA of Hugging Face's peft beside layers of ours: importing this module makes peft know them.

``get_peft_model`` and ``PeftModel.from_pretrained`` put adapters beside weight-only linears and linears of 8, 4 and 1
bits then, as beside torch's; docs/calibrate.md#adapters.
"""

from __future__ import annotations

import functools
import itertools
import warnings
from collections.abc import Sequence
from typing import Any

import torch
from torch import nn

from bie.nn.merging import add_to_weight, why_not
from bie.nn.state.linear_layer import LinearLayer
from bie.nn.weight_only import WeightOnlyLinear

try:
    from peft.tuners import lora
    from peft.tuners.tuners_utils import check_adapters_to_merge
except ImportError as error:
    raise ImportError("bie.peft needs the package peft") from error

__all__ = ["LoraLinear"]

#: Starts of A and B that read no weight of the layer.
_STARTS = (True, False, "gaussian")


class LoraLinear(lora.Linear):
    """peft's adapter beside a frozen linear of ours: ``y = layer(x) + B . A . dropout(x) * scaling``.

    ``merge`` rounds the sum to the layer's codes anew and warns of what is lost; ``unmerge`` puts the codes back.
    ``lost`` is the share of the adapters that the last merge lost.

    Raises:
        ValueError: an option of the config that reads float weights, such as ``use_dora``.
    """

    def __init__(self, base_layer: nn.Module, adapter_name: str, *args: Any, **kwargs: Any) -> None:
        _layer_of(base_layer).requires_grad_(False)
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="Unsupported layer type")  # of every class but torch's
            super().__init__(base_layer, adapter_name, *args, **kwargs)
        self.lost = 0.0
        self._before: dict[str, Any] | None = None

    def update_layer(self, adapter_name: str, *args: Any, **kwargs: Any) -> None:
        """Makes the matrices of one adapter."""
        config = kwargs.get("config")
        start = getattr(config, "init_lora_weights", kwargs.get("init_lora_weights", True))
        if start not in _STARTS:
            raise ValueError(f"bie.peft: init_lora_weights is {start!r}, expected True, False or 'gaussian'")
        super().update_layer(adapter_name, *args, **kwargs)

    def resolve_lora_variant(self, *args: Any, **kwargs: Any) -> None:
        """None: variants such as DoRA read the layer's floats."""
        if (variant := super().resolve_lora_variant(*args, **kwargs)) is not None:
            raise ValueError(f"bie.peft: expected plain LoRA, got {type(variant).__name__}")

    @torch.no_grad()
    def merge(self, safe_merge: bool = False, adapter_names: Sequence[str] | None = None) -> None:
        """Adds adapters to the layer's weight, whose codes are rounded anew.

        Raises:
            ValueError: a layer that keeps no weight to add to; NaN or infinity.
        """
        names = [name for name in check_adapters_to_merge(self, adapter_names) if name in self.lora_A]
        if not names:
            return
        layer = self.get_base_layer()
        if (reason := why_not(layer)) is not None:
            raise ValueError(f"bie.peft: merge: {reason}")
        before = {name: tensor.detach().clone() for name, tensor in layer.state_dict().items()}
        self.lost = add_to_weight(layer, sum(self.get_delta_weight(name) for name in names))
        if self._before is None:
            self._before = before
        self.merged_adapters.extend(names)
        if self.lost > 0.5:
            warnings.warn(
                f"bie.peft: rounding lost {self.lost:.0%} of the adapters {', '.join(names)}: codes of more bits hold "
                "more of them, and adapters that stay beside their layers lose nothing",
                stacklevel=2,
            )

    def unmerge(self) -> None:
        """Puts the codes back that the layer had before the first merge."""
        if self._before is None:
            warnings.warn("bie.peft: already unmerged, nothing is done", stacklevel=2)
            return
        self.get_base_layer().load_state_dict(self._before)
        self._before = None
        self.merged_adapters.clear()

    def __repr__(self) -> str:
        return super().__repr__().replace("lora.LoraLinear", "bie.peft.LoraLinear", 1)


def _layer_of(base_layer: nn.Module) -> nn.Module:
    return base_layer.get_base_layer() if hasattr(base_layer, "get_base_layer") else base_layer


def _register() -> None:
    """Lets every LoRA config of peft know our layers, by the mapping that peft has for layers of others."""
    plain = lora.LoraModel._create_new_module
    if getattr(plain, "knows_bie", False):
        return

    @functools.wraps(plain)
    def create(lora_config: Any, *args: Any, **kwargs: Any) -> nn.Module:
        lora_config._register_custom_module({WeightOnlyLinear: LoraLinear, LinearLayer: LoraLinear})
        return plain(lora_config, *args, **kwargs)

    replace = lora.LoraModel._replace_module

    @functools.wraps(replace)
    def put(self: Any, parent: nn.Module, name: str, new: nn.Module, child: nn.Module) -> None:
        if not isinstance(new, LoraLinear):
            replace(self, parent, name, new, child)
            return
        setattr(parent, name, new)
        device = next(itertools.chain(new.get_base_layer().parameters(), new.get_base_layer().buffers())).device
        for path, module in new.named_modules():
            if self.prefix in path and device.type != "meta":
                module.to(device)

    create.knows_bie = True
    lora.LoraModel._create_new_module = staticmethod(create)
    lora.LoraModel._replace_module = put


_register()
