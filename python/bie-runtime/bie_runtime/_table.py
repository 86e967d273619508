"""The numbers of a table as a net takes them: docs/spec/nets.md#tables."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np


class TableForm:
    """What a net that was trained with a table keeps of it: its columns, their scales, and the unit of its label."""

    def __init__(self, text: str) -> None:
        form: dict[str, Any] = json.loads(text)
        self._scales = "inputs" in form  # older files have "columns", whose features go into the net as they are
        self._columns: list[dict[str, Any]] = form["inputs"] if self._scales else form["columns"]
        self._form = form

    @property
    def columns(self) -> list[str]:
        """Their names in the order of the net's inputs; ``""`` where the table had no header."""
        return [column["name"] for column in self._columns]

    @property
    def is_regression(self) -> bool:
        return self._form["regression"]

    def features(self, rows: Iterable[Mapping[str, Any] | Iterable[Any]]) -> np.ndarray:
        """float32 [rows, features], as :meth:`Net.run` takes them.

        Args:
            rows: of each the values by the names of the columns, or in their order. None, NaN and ``""`` are missing.

        Raises:
            ValueError: a column or a value is missing, or is no number, by row and column.
        """
        return np.array([self._row(i, row) for i, row in enumerate(rows)], np.float64).astype(np.float32)

    def _row(self, i: int, row: Mapping[str, Any] | Iterable[Any]) -> list[float]:
        if isinstance(row, Mapping):
            lacking = [name for name in self.columns if name not in row]
            if lacking:
                raise ValueError(f"row {i} has no column {lacking[0]!r}")
            values = [row[name] for name in self.columns]
        else:
            values = list(row)
            if len(values) != len(self._columns):
                raise ValueError(f"row {i}: expected {len(self._columns)} values, got {len(values)}")
        numbers: list[float] = []
        for column, value in zip(self._columns, values, strict=True):
            numbers += self._scaled(column, self._features(f"row {i}, column {column['name']!r}", column, value))
        return numbers

    def _features(self, place: str, column: dict[str, Any], value: Any) -> list[float]:
        texts = column.get("values")
        missing = value is None or (isinstance(value, (float, np.floating)) and math.isnan(value))
        missing = missing or (value == "" and not (texts and "" in texts))
        if missing and self._form["missing"] != "mean":
            raise ValueError(f"{place}: a value is missing, and the net was trained without missing values")
        if texts:
            features = [float(value == text) for text in texts]
            if column.get("others"):
                features.append(float(not missing and value not in texts))
        else:
            try:
                number = float(column["mean"] if missing else value)
            except (TypeError, ValueError):
                raise ValueError(f"{place}: expected a number, got {value!r}") from None
            if not math.isfinite(number):
                raise ValueError(f"{place}: expected a finite number, got {number}")
            center, width = column.get("curve", (0, 0))
            features = [math.asinh((number - center) / width) if width else number]
        return features + ([float(missing)] if column.get("marked") else [])

    def _scaled(self, column: dict[str, Any], features: list[float]) -> list[float]:
        if not self._scales or "centers" not in column:
            return features
        numbers = zip(features, column["centers"], column["scales"], strict=True)
        return [0.0 if scale == 0 else (feature - center) / scale for feature, center, scale in numbers]

    def labels(self, outputs: np.ndarray) -> np.ndarray:
        """float64 [rows], the answers of a regression in the unit of its label.

        Args:
            outputs: what :meth:`Net.run` returned, [rows, 1].

        Raises:
            ValueError: the net is no regression.
        """
        if not self.is_regression:
            raise ValueError("labels are of a regression, this net tells classes apart")
        y = np.asarray(outputs, np.float64).reshape(len(outputs))
        if not self._scales:
            return y
        mean, scale = self._form["mean"], self._form["scale"]
        if "curve" not in self._form:
            return y * scale + mean
        center, width = self._form["curve"]
        low, high = ((math.asinh((self._form[key] - center) / width) - mean) / scale for key in ("least", "most"))
        return center + width * np.sinh(np.clip(y, low - 0.5, high + 0.5) * scale + mean)
