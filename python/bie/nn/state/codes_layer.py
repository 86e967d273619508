"""What 8- and 4-bit layers share: the quantiser of the weight, its scale and the smallest step size."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from bie._operators import ops
from bie.nn.state.quant_layer import QuantLayer
from bie.nn.state.seen import Seen
from bie.nn.state.step_size import EPS, code_factor, smallest_step
from bie.weights.parameters import CodesParameter


class CodesLayer(QuantLayer):
    """Mixin, before the base of a kind: weights and activations are 8- or 4-bit codes times one scale."""

    _integer_parameter = CodesParameter
    _scaled = True
    _scale_read: tuple[Seen, bool] | None = None  # scale_w when it was last read, and whether it was set

    @property
    def _prepared(self) -> bool:
        """Whether scale_w belongs to the weight. The tensor itself says so, as its copies do: 1 is nobody's scale."""
        read = self._scale_read
        if read is None or not read[0].is_still(self.scale_w):
            seen = Seen(self.scale_w)
            self._scale_read = read = seen, self.scale_w.is_meta or float(self.scale_w.detach()) != 1
        return read[1]

    def _unprepare(self) -> None:
        super()._unprepare()
        if self._bits == 4 and self.scale_w is not None:
            with torch.inference_mode(self.scale_w.is_inference()), torch.no_grad():
                self.scale_w.fill_(1)

    def __getstate__(self) -> dict[str, Any]:
        return super().__getstate__() | {"_scale_read": None}

    def _forget(self) -> None:
        super()._forget()
        self._smallest_step = smallest_step(self.__dict__.get("_buffers", {}).get("eps"))

    def _options(self, panels: Tensor | None = None, anchor: Tensor | None = None) -> dict[str, Any]:
        options = super()._options(panels, anchor)
        if (eps := self._smallest_step) != EPS:
            options["eps"] = eps
        if self.grad_mode == "reference":
            options["reference_grad"] = True
        return options

    def _weight_scale(self) -> Tensor:
        """What a float weight is coded by: at 4 bits once, at 8 anew each time."""
        tracing = torch.compiler.is_compiling()
        if self._bits == 4 and not tracing and self._prepared:
            return self.scale_w
        scale = ops.weight_scale(self.weight.detach(), self._bits, self._smallest_step)
        return torch.where(self.scale_w == 1, scale, self.scale_w) if tracing and self._bits == 4 else scale

    def _prepare_codes(self) -> None:
        """Sets the scale of a latent 4-bit weight; makes codes of the weight of a layer that is not latent. Once."""
        weight = self.weight
        if weight is None:
            return
        if not weight.is_floating_point():
            self._adopt()
            return
        if self._latent and (self._prepared or self._bits == 8):
            return
        with torch.no_grad():
            scale = self._weight_scale()
            if self._latent:
                self.scale_w.copy_(scale)
            else:
                self._make_integer(*ops.prepare_weight(weight.detach(), self._bits, scale, self._smallest_step))

    def prepare_params(self) -> None:
        """``scale_w`` of a latent 4-bit weight, once; int8 codes of the weight of a layer that is not ``latent``."""
        self._prepare_codes()

    def renew_weight_scale(self) -> None:
        """Gives the float weight of a prepared 4-bit layer the scale it would be prepared with as it is."""
        if self._bits == 4 and self._prepared and self.weight is not None and self.weight.is_floating_point():
            self._unprepare()
            with torch.no_grad():
                self.scale_w.copy_(self._weight_scale())
            self.repack()

    def _training_scale(self) -> Tensor | None:
        return None if self._bits == 8 else self._weight_scale()

    def _first_batch_factor(self) -> float:
        return code_factor(self._bits, self._compat)

    def _packs_by_scale(self) -> bool:
        return self._bits == 4 and self.weight.is_floating_point()

    def _pack(self) -> tuple[Tensor, Tensor | None]:
        weight = self.weight.detach()
        scale = self._weight_scale() if weight.is_floating_point() else self.scale_w
        return ops.pack_weight(weight, self._bits, scale, self._smallest_step)

    def _check_dtype(self, x: Tensor) -> None:
        if x.dtype not in (torch.float32, torch.float16, torch.bfloat16, torch.int8):
            raise self._shape_error(x, "float32, float16, bfloat16 or int8 codes")
