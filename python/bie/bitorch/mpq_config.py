"""The settings of BITorch Engine's weight-only layers by name."""

from __future__ import annotations

from typing import Any

from bie.errors import ShapeError

_MPQ = {
    "2-8-32": (2, 8, 32),
    "2-32-32": (2, 32, 32),
    "2-128-32": (2, 128, 32),
    "4-128-256": (4, 128, 256),
    "8-128-256": (8, 128, 256),
}


def get_mpq_config(mpq_strategy: str | None = None) -> dict[str, Any]:
    """Arguments of an MPQ layer for "w_bit-group_size-dq_group_size"; None is "2-32-32". ``ShapeError`` if unknown."""
    name = "2-32-32" if mpq_strategy is None else mpq_strategy
    if name not in _MPQ:
        raise ShapeError(f"get_mpq_config: expected one of {', '.join(_MPQ)}, got {name!r}")
    w_bit, group_size, dq_group_size = _MPQ[name]
    return {
        "dq_mode": 2,
        "use_gba_quant": True,
        "asym": False,
        "w_bit": w_bit,
        "group_size": group_size,
        "dq_group_size": dq_group_size,
    }
