"""``MPQLinearMlx``, which can be imported and not made."""

from __future__ import annotations

from typing import Any

from bitorch_engine.layers.qlinear.nbit.mpq import MPQLinearBase


class MPQLinearMlx(MPQLinearBase):
    """Needs Apple's MLX: making one is an ``ImportError``."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        raise ImportError(
            "MPQLinearMlx needs Apple's MLX and is not part of this package: use MPQLinearCuda, which runs on every CPU"
        )
