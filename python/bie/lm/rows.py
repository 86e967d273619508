"""Rows of tokens for the training of language models, in an order that a seed and the number of an epoch decide."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from bie.lm.token_files import TokenizedTexts, TokenSet

_IGNORED = -100


class Rows:
    """The rows of the epochs of a training, and those of the validation.

    With ``pack`` the documents of an epoch stand one behind the other as ``stream``, and row r is ``stream[r * context
    : (r + 1) * context + 1]``. Without it each document is cut in the same way into rows of its own. In either case row
    r has ``context + 1`` tokens, of which the last is the first of the row that follows it: the first ``context`` are
    its input, the last ``context`` its labels, and every token but the first is a label once in an epoch. A row that is
    shorter is filled with token 0.

    ============  ===================================================================================================
    input_ids     [rows, context] int64
    labels        [rows, context] int64, the token behind each; -100 where that does not count in the loss, begins
                  another document or fills the row
    position_ids  [rows, context] int64: 0, 1, 2... from the beginning of the row or of the document, whichever is
                  later, so attention can be kept inside of documents; what fills a row goes on counting
    ============  ===================================================================================================

    Documents, and then rows, are put in the order of raw numbers of ``numpy.random.PCG64(SeedSequence((seed,
    epoch)))``: the places that a stable argsort of as many 64-bit numbers gives, the numbers for rows behind those for
    documents. So a batch is a function of the texts, ``context``, ``pack``, the seed, the epoch and its number alone.
    Without ``pack`` only rows are put in order, and numbers are drawn for them alone.

    Args:
        texts: of ``bie.lm.texts.tokenize``.
        context: tokens of a row, 1 or more.
        seed: 0 or more.
        pack: whether a row may hold several documents.

    Raises:
        ValueError: ``context`` or ``seed`` out of range.

    Example::

        rows = Rows(texts, context=1024, seed=0)
        for index in range(rows.batches(size=8)):
            batch = rows.batch(epoch, index, size=8)
    """

    def __init__(self, texts: TokenizedTexts, context: int, seed: int = 0, pack: bool = True) -> None:
        if context < 1:
            raise ValueError(f"Rows: context: expected 1 or more, got {context}")
        if seed < 0:
            raise ValueError(f"Rows: seed: expected 0 or more, got {seed}")
        self.context, self._seed, self._epoch = context, seed, -1
        self._training = _Cut(texts.training, context, pack)
        self._validation = None if texts.validation is None else _Cut(texts.validation, context, pack)
        if self._validation is not None:
            self._fixed = self._validation.order()

    def __len__(self) -> int:
        """How many rows an epoch has; every epoch has as many."""
        return self._training.rows

    @property
    def validation_rows(self) -> int:
        """How many rows the validation has; 0 where there is none."""
        return 0 if self._validation is None else self._validation.rows

    def batches(self, size: int) -> int:
        """How many batches of ``size`` rows an epoch has, of which the last one may have fewer rows."""
        return -(-len(self) // size)

    def batch(self, epoch: int, index: int, size: int) -> dict[str, Tensor]:
        """Rows ``[index * size, (index + 1) * size)`` of an epoch, as far as there are rows.

        Raises:
            IndexError: no row has that place.
        """
        if epoch != self._epoch:
            raw = np.random.PCG64(np.random.SeedSequence((self._seed, epoch)))
            self._order, self._epoch = self._training.order(raw), epoch
        return self._training.batch(self._order, index, size)

    def validation_batch(self, index: int, size: int) -> dict[str, Tensor]:
        """Rows ``[index * size, (index + 1) * size)`` of the validation, whose order is that of the documents.

        Raises:
            IndexError: no row has that place.
        """
        if self._validation is None:
            raise IndexError("Rows: expected texts with a validation, got none")
        return self._validation.batch(self._fixed, index, size)


class _Order(NamedTuple):
    """The documents of a stream, where each of them ends in it, and the place of each row."""

    documents: np.ndarray
    ends: np.ndarray
    rows: np.ndarray


class _Cut:
    """The rows of one set."""

    def __init__(self, texts: TokenSet, context: int, pack: bool) -> None:
        self._texts, self._context, self._pack = texts, context, pack
        self._lengths = np.diff(texts.starts)
        # A stream of n tokens has n - 1 labels.
        streams = self._lengths.sum(keepdims=True) if pack else self._lengths
        self._row_ends = np.cumsum(-(-(streams - 1) // context))
        self.rows = int(self._row_ends[-1])

    def order(self, raw: np.random.PCG64 | None = None) -> _Order:
        """The order that raw numbers give, or that of the documents and rows as they are."""

        def places(count: int, shuffled: bool = True) -> np.ndarray:
            if raw is None or not shuffled:
                return np.arange(count)
            return np.argsort(raw.random_raw(count), kind="stable")

        documents = places(len(self._lengths), self._pack)
        return _Order(documents, np.cumsum(self._lengths[documents]), places(self.rows))

    def batch(self, order: _Order, index: int, size: int) -> dict[str, Tensor]:
        places = order.rows[index * size : (index + 1) * size] if index >= 0 and size > 0 else order.rows[:0]
        if not len(places):
            raise IndexError(f"Rows: expected a place below {self.rows}, got batch {index} of {size} rows")
        shape = (len(places), self._context + 1)
        tokens, counts, positions = (np.zeros(shape, kind) for kind in (np.int64, np.uint8, np.int64))
        for i, place in enumerate(places):
            self._fill(order, int(place), tokens[i], counts[i], positions[i])
        labels = np.where(counts[:, 1:] != 0, tokens[:, 1:], _IGNORED)
        found = {"input_ids": tokens[:, :-1], "labels": labels, "position_ids": positions[:, :-1]}
        return {name: torch.from_numpy(np.ascontiguousarray(values)) for name, values in found.items()}

    def _fill(self, order: _Order, place: int, tokens: np.ndarray, counts: np.ndarray, positions: np.ndarray) -> None:
        """Writes one row [context + 1] of each."""
        start, end = self._range(order, place)
        document, filled = int(np.searchsorted(order.ends, start, side="right")), 0
        while filled < end - start:
            stored = int(order.documents[document])
            inside = start + filled - (int(order.ends[document]) - int(self._lengths[stored]))
            taken = min(int(self._lengths[stored]) - inside, end - start - filled)
            first = int(self._texts.starts[stored]) + inside
            tokens[filled : filled + taken] = self._texts.tokens[first : first + taken]
            counts[filled : filled + taken] = self._texts.counts[first : first + taken]
            positions[filled:] = np.arange(len(positions) - filled)
            filled, document = filled + taken, document + 1

    def _range(self, order: _Order, place: int) -> tuple[int, int]:
        """Where a row starts and ends in the stream."""
        if self._pack:
            start, last = place * self._context, int(order.ends[-1])
        else:
            document = int(np.searchsorted(self._row_ends, place, side="right"))
            before = int(self._row_ends[document - 1]) if document else 0
            last = int(order.ends[document])
            start = last - int(self._lengths[document]) + (place - before) * self._context
        return start, min(start + self._context + 1, last)
