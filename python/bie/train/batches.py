"""What a rank sees in a step: a function of the seed and the step's number, and of the number of ranks."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from bie.train.data import Split

_BORDER = 4


class Batches:
    """The group's batches in a new order each epoch, of which a rank takes its share.

    With ``crop_flip`` an image gets a border of 4 zeros, is cropped back at a random place, and half of the images are
    mirrored. Both are drawn for the whole group's batch, so they do not depend on how it is split.
    """

    def __init__(self, data: Split, batch: int, crop_flip: bool, seed: int) -> None:
        self._images, self._labels, self._batch, self._seed = data.images, data.labels, batch, seed
        self.per_epoch = len(data.labels) // batch
        self._crop_flip, self._epoch = crop_flip, -1
        if crop_flip:
            self._images = nn.functional.pad(data.images, (_BORDER,) * 4)

    def _start(self, epoch: int) -> None:
        self._epoch = epoch
        # The command's order of the images.
        drawn = torch.Generator().manual_seed((self._seed * 0x9E3779B97F4A7C15 + epoch) % 2**64)
        count, device = len(self._labels), self._labels.device
        self._order = torch.randperm(count, generator=drawn).to(device)
        if self._crop_flip:
            self._corners = torch.randint(0, 2 * _BORDER + 1, (2, count), generator=drawn).to(device)
            self._mirrored = (torch.rand(count, generator=drawn) < 0.5).to(device)

    def of_step(self, step: int, rank: int, world: int) -> tuple[Tensor, Tensor]:
        """(images, labels) of a rank."""
        if step // self.per_epoch != self._epoch:
            self._start(step // self.per_epoch)
        first = step % self.per_epoch * self._batch
        places = torch.arange(first, first + self._batch, device=self._labels.device).tensor_split(world)[rank]
        chosen = self._order[places]
        images = self._cropped(chosen, places) if self._crop_flip else self._images[chosen]
        return images, self._labels[chosen]

    def _cropped(self, chosen: Tensor, places: Tensor) -> Tensor:
        channels, (height, width) = self._images.size(1), (side - 2 * _BORDER for side in self._images.shape[2:])
        top, left = self._corners[:, places]
        rows = top[:, None] + torch.arange(height, device=top.device)
        columns = torch.arange(width, device=top.device).expand(len(places), width)
        columns = left[:, None] + torch.where(self._mirrored[places, None], width - 1 - columns, columns)
        plane = torch.arange(channels, device=top.device)[:, None, None]
        return self._images[chosen[:, None, None, None], plane, rows[:, None, :, None], columns[:, None, None, :]]
