"""Nets that a user describes in JSON: docs/cli.md#a-net-of-your-own."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

_Layer = dict[str, Any]
_MOST_LAYERS, _WIDEST, _SIDES = 1000, 1 << 20, 64


def _number(least: int, most: int, otherwise: int | None = None) -> tuple[Any, Callable[[Any], bool], str]:
    def fits(value: Any) -> bool:
        return isinstance(value, int) and not isinstance(value, bool) and least <= value <= most

    return otherwise, fits, f"{least} to {most}"


def _word(*words: Any, otherwise: Any = None) -> tuple[Any, Callable[[Any], bool], str]:
    return (
        otherwise,
        lambda value: value in words and not isinstance(value, bool),
        f"one of {', '.join(map(str, words))}",
    )


_PRODUCT = {
    "out": _number(1, _WIDEST),
    "bits": _word(0, 32, 8, 4, 1, otherwise=0),
    "activation": _word("none", "relu", "prelu", otherwise="prelu"),
}
_CONV = {"kernel": _number(1, _SIDES), "stride": _number(1, _SIDES, 1), "padding": _number(0, _SIDES, 0)}
_ENTRIES = {"pool": {"size": _number(2, _SIDES)}, "linear": _PRODUCT, "conv": _PRODUCT | _CONV}


def _layer(given: Any, place: str) -> _Layer:
    """A layer with all its entries; ``ValueError`` with the place of what is wrong."""
    if not isinstance(given, dict):
        raise ValueError(f"{place}: expected an object, got {json.dumps(given)[:40]}")
    kind = given.get("type")
    if kind not in _ENTRIES:
        raise ValueError(f"{place}.type: expected one of conv, linear, pool, got {json.dumps(kind)[:40]}")
    layer: _Layer = {"type": kind}
    for name, (otherwise, fits, wanted) in _ENTRIES[kind].items():
        value = given.get(name, otherwise)
        if name not in given and otherwise is None:
            raise ValueError(f"{place} has no {name}")
        if not fits(value):
            raise ValueError(f"{place}.{name}: expected {wanted}, got {json.dumps(value)[:40]}")
        layer[name] = value
    for name in given:
        if name not in layer:
            raise ValueError(f"{place}.{name} is no entry of this")
    return layer


def load_description(path: Path) -> list[_Layer]:
    """The layers of a file, each with all its entries; ``ValueError``, a sentence that names file and entry."""
    try:
        whole = json.loads(path.read_text())
    except ValueError:
        raise ValueError(f"net description {path}: this is no JSON") from None
    try:
        if not isinstance(whole, dict) or whole.get("format_version") != 1:
            raise ValueError("expected an object whose format_version is 1, got another")
        if extra := whole.keys() - {"format_version", "layers"}:
            raise ValueError(f"{min(extra)} is no entry of this")
        layers = whole.get("layers")
        if not isinstance(layers, list) or not 1 <= len(layers) <= _MOST_LAYERS:
            raise ValueError(f"layers is no array of 1 to {_MOST_LAYERS} layers")
        return [_layer(layer, f"layers[{i}]") for i, layer in enumerate(layers)]
    except ValueError as error:
        raise ValueError(f"net description {path}: {error}") from None
