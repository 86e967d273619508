"""What 1-bit layers share: the signs of the weight, its scale, its int8 form for training."""

from __future__ import annotations

import torch
from torch import Tensor

from bie._operators import ops
from bie.nn.state.quant_layer import QuantLayer


class SignsLayer(QuantLayer):
    """Mixin, before the base of a kind: weights and activations are signs. Its base sets ``symmetric``."""

    symmetric: bool

    def _pack(self) -> tuple[Tensor, Tensor | None]:
        return ops.pack_weight(self.weight.detach(), 1, self.scale_w)

    def _training_scale(self) -> Tensor | None:
        return ops.weight_scale(self.weight.detach(), 1)

    def _first_batch_factor(self) -> float:
        return 2.0 if self.symmetric else 4.0


class TrainedSignsLayer(SignsLayer):
    """Mixin of those with ``bias_a`` and scales, trained as int8 by ``DiodeMix`` or as a latent float."""

    _scaled = True

    def prepare_params(self) -> None:
        """``scale_w = mean|w|`` and the weight as int8 that is never 0; acts on a float weight that is not latent."""
        weight = self.weight
        if weight is None:
            return
        if not weight.is_floating_point():
            self._adopt()
        elif not self._latent:
            with torch.no_grad():
                self._make_integer(*ops.prepare_weight(weight.detach(), 1))

    def set_weight_data(self, x: Tensor) -> None:
        """As the base's, then ``prepare_params``."""
        super().set_weight_data(x)
        self.prepare_params()
