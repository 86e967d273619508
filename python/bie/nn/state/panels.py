"""The arrangement of a weight that a kernel wants: derived from tensors in evaluation, and stale once one changes."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from bie.nn.state.seen import Seen


def kernel_of(panels: Tensor | None) -> str:
    """The name of the kernel that panels are arranged for: panels of a CPU have a header that says it; else ""."""
    if panels is None or panels.is_meta or panels.device.type != "cpu" or panels.numel() < 64:
        return ""
    header = bytes(panels.flatten()[:64].tolist())
    return header[32:60].split(b"\0")[0].decode() if header.startswith(b"bie1") else ""


class Panels:
    """Made anew where a tensor that they come from is another or was written into; never copied, pickled or saved."""

    def __init__(self) -> None:
        self._seen: tuple[Seen | None, ...] = ()
        self._panels: Tensor | None = None

    def current(self, sources: tuple[Tensor | None, ...], make: Callable[[], Tensor]) -> Tensor | None:
        """The panels of ``sources`` as they are, which ``make`` derives; None for what has none.

        In a graph those of the last call outside of one: the operator looks whether they are current.
        """
        if torch.compiler.is_compiling():
            return self._panels
        if sources[0].is_meta:
            return None
        if self._panels is None or not self._are_of(sources):
            with torch.inference_mode(False), torch.no_grad():
                self._panels = make()
            self._seen = tuple(None if tensor is None else Seen(tensor) for tensor in sources)
        return self._panels

    def _are_of(self, sources: tuple[Tensor | None, ...]) -> bool:
        pairs = zip(self._seen, sources, strict=True)
        return all(tensor is None if seen is None else seen.is_still(tensor) for seen, tensor in pairs)

    @property
    def kernel(self) -> str:
        return kernel_of(self._panels)

    def forget(self) -> None:
        """Needed after a write that no version tells of, one through ``.data``."""
        self._seen, self._panels = (), None

    def __deepcopy__(self, memo: dict) -> Panels:
        return Panels()

    def __reduce__(self) -> tuple:
        return Panels, ()
