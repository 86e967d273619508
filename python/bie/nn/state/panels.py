"""The arrangement of a weight that a kernel wants: derived from tensors in evaluation, and stale once one changes."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from bie.nn.state.seen import Seen


def kernel_of(panels: Tensor | None) -> str:
    """The name of the kernel that panels are arranged for: panels of a CPU have a header that says it; else ""."""
    if panels is None or panels.is_meta or panels.device.type != "cpu" or panels.numel() < 64:
        return ""
    header = bytes(panels.flatten()[:64].tolist())
    return header[32:60].split(b"\0")[0].decode() if header.startswith(b"bie1") else ""


class _Made(NamedTuple):
    """Panels and the tensors that they come from, as these were before."""

    seen: tuple[Seen | None, ...]
    panels: Tensor

    def are_of(self, sources: tuple[Tensor | None, ...]) -> bool:
        pairs = zip(self.seen, sources, strict=True)
        return all(tensor is None if seen is None else seen.is_still(tensor) for seen, tensor in pairs)


class Panels:
    """Made anew where a tensor that they come from is another or was written into; never copied, pickled or saved.

    Threads may call at once: what they keep is one tuple, and panels of before ``forget`` do not come back.
    """

    def __init__(self) -> None:
        self._made: _Made | None = None
        self._generation = 0  # how many times they were forgotten

    def current(self, sources: tuple[Tensor | None, ...], make: Callable[[], Tensor]) -> Tensor | None:
        """The panels of ``sources`` as they are, which ``make`` derives; None for what has none.

        In a graph those of the last call outside of one: the operator looks whether they are current.
        """
        made = self._made
        if torch.compiler.is_compiling():
            return None if made is None else made.panels
        if sources[0].is_meta:
            return None
        if made is None or not made.are_of(sources):
            generation = self._generation
            # Another thread may write meanwhile: what was seen before is what the panels are of, at most.
            seen = tuple(None if tensor is None else Seen(tensor) for tensor in sources)
            with torch.inference_mode(False), torch.no_grad():
                self._made = made = _Made(seen, make())
            if self._generation != generation:
                self._made = None
        return made.panels

    @property
    def kernel(self) -> str:
        made = self._made
        return "" if made is None else kernel_of(made.panels)

    def forget(self) -> None:
        """Needed after a write that no version tells of, one through ``.data``."""
        self._generation += 1
        self._made = None

    def __deepcopy__(self, memo: dict) -> Panels:
        return Panels()

    def __reduce__(self) -> tuple:
        return Panels, ()
