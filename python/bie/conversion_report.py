"""The report of a conversion: which layers were swapped, which were left, and why."""

from __future__ import annotations

from dataclasses import dataclass, field

from torch import nn

from bie._tables import html_table, text_table


@dataclass(frozen=True)
class Converted:
    """A layer that was swapped or left: ``target`` is a class name, or empty with the ``reason``."""

    name: str
    source: str
    shape: tuple[int, ...]
    target: str = ""
    reason: str = ""


@dataclass
class ConversionReport:
    """The layers that ``convert`` swapped and left. ``print(report)`` is a table; ``model`` is the converted model."""

    model: nn.Module
    swapped: list[Converted] = field(default_factory=list)
    skipped: list[Converted] = field(default_factory=list)

    def _rows(self) -> list[tuple[str, ...]]:
        rows = [("layer", "was", "weight", "is")]
        for entry in self.swapped + self.skipped:
            outcome = entry.target or f"unchanged: {entry.reason}"
            rows.append((entry.name or "(the model)", entry.source, "x".join(map(str, entry.shape)), outcome))
        return rows

    def _counts(self) -> str:
        return f"{len(self.swapped)} swapped, {len(self.skipped)} unchanged"

    def __str__(self) -> str:
        return text_table(self._rows(), self._counts())

    def _repr_html_(self) -> str:
        return html_table(self._rows(), self._counts())
