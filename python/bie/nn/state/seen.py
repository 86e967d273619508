"""What was derived from a tensor is stale once the tensor was written into: how that is told."""

from __future__ import annotations

from torch import Tensor


class Seen:
    """A tensor as it was when something was derived from it. Holds its memory, so that no other gets its address."""

    def __init__(self, tensor: Tensor) -> None:
        self._memory, self._version = tensor.detach(), version_of(tensor)

    def is_still(self, tensor: Tensor | None) -> bool:
        """Whether the tensor has that memory and was not written into since; never, where that cannot be told."""
        memory = self._memory
        return (
            tensor is not None
            and self._version is not None
            and self._version == version_of(tensor)
            and memory.device == tensor.device
            and memory.data_ptr() == tensor.data_ptr()
            and memory.stride() == tensor.stride()
        )


def version_of(tensor: Tensor) -> int | None:
    """The number of writes into a tensor; None for one of inference mode, which counts none."""
    return None if tensor.is_inference() else tensor._version
