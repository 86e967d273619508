"""Rows of tokens against a plain second computation from the documents, and batches that come again."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from bie.lm.encoding import Encoded
from bie.lm.rows import Rows
from bie.lm.token_files import SetWriter, TokenizedTexts, TokenSet, open_texts, write_facts


def token_set(documents, dtype=np.uint16):
    """Of [(tokens, counts)]."""
    starts = np.cumsum([0, *(len(tokens) for tokens, _ in documents)], dtype=np.int64)
    tokens = np.array([token for tokens, _ in documents for token in tokens], dtype)
    return TokenSet(tokens, np.array([count for _, counts in documents for count in counts], np.uint8), starts)


def texts_of(documents, validation=None):
    sets = [None if found is None else token_set(found) for found in (documents, validation)]
    return TokenizedTexts(*sets, vocabulary=1000, duplicates=0, empty=0)


def plain(lengths, seed=0):
    """Documents of random tokens from 1 on, of which about a third do not count."""
    drawn = np.random.default_rng(seed)
    found = []
    for length in lengths:
        tokens, counts = drawn.integers(1, 1000, length).tolist(), (drawn.random(length) < 0.7).astype(int).tolist()
        found.append((tokens, [0, *counts[1:]]))
    return found


def row_of(pieces, context):
    """(input_ids, labels, position_ids) of a row that is [(tokens, counts)], each from a document of its own."""
    tokens = [token for tokens, _ in pieces for token in tokens]
    counts = [count for _, counts in pieces for count in counts]
    positions = [place for tokens, _ in pieces for place in range(len(tokens))]
    while len(tokens) < context + 1:
        tokens, counts, positions = [*tokens, 0], [*counts, 0], [*positions, positions[-1] + 1]
    labels = [token if count else -100 for token, count in zip(tokens, counts, strict=True)]
    return tokens[:-1], labels[1:], positions[:-1]


def plain_rows(documents, context, seed, epoch, pack):
    """All rows of an epoch, or of a validation if ``seed`` is None."""
    raw = None if seed is None else np.random.PCG64(np.random.SeedSequence((seed, epoch)))

    def shuffled(items):
        numbers = range(len(items)) if raw is None else [int(raw.random_raw()) for _ in items]
        return [item for _, _, item in sorted(zip(numbers, range(len(items)), items, strict=True), key=lambda x: x[:2])]

    rows = []
    for stream in [shuffled(documents)] if pack else [[document] for document in documents]:
        whole = [(i, *pair) for i, document in enumerate(stream) for pair in zip(*document, strict=True)]
        for start in range(0, len(whole) - 1, context):
            part = whole[start : start + context + 1]
            pieces = []
            for i in dict.fromkeys(i for i, _, _ in part):
                pieces.append(([t for j, t, _ in part if i == j], [c for j, _, c in part if i == j]))
            rows.append(row_of(pieces, context))
    return shuffled(rows)


def as_rows(batches):
    """[(input_ids, labels, position_ids)] of batches."""
    names = ("input_ids", "labels", "position_ids")
    return [tuple(batch[name][i].tolist() for name in names) for batch in batches for i in range(len(batch["labels"]))]


@settings(max_examples=60, deadline=None)
@given(
    lengths=st.lists(st.integers(2, 30), min_size=1, max_size=12),
    context=st.integers(1, 17),
    seed=st.integers(0, 2**40),
    epoch=st.integers(0, 5),
    size=st.integers(1, 5),
    pack=st.booleans(),
)
def test_rows_are_those_of_the_documents(lengths, context, seed, epoch, size, pack):
    documents, other = plain(lengths), plain([5, 9], seed=1)
    rows = Rows(texts_of(documents, other), context, seed, pack)
    batches = [rows.batch(epoch, i, size) for i in range(rows.batches(size))]
    assert all(len(batch["labels"]) == size for batch in batches[:-1])
    for name in ("input_ids", "labels", "position_ids"):
        assert all(batch[name].dtype == torch.int64 and batch[name].shape[1] == context for batch in batches)
        assert all(batch[name].is_contiguous() for batch in batches)
    found = as_rows(batches)
    assert found == plain_rows(documents, context, seed, epoch, pack) and len(found) == len(rows)
    labels = sorted(label for row in found for label in row[1] if label != -100)
    assert labels == sorted(token for document in documents for token, count in zip(*document, strict=True) if count), (
        "each token that counts is a label once"
    )
    fixed = [rows.validation_batch(i, size) for i in range(-(-rows.validation_rows // size))]
    assert as_rows(fixed) == plain_rows(other, context, None, None, pack)


def test_positions_and_labels_of_a_packed_row():
    documents = [([1, 2, 3], [0, 1, 1]), ([4, 5], [0, 1]), ([6, 7, 8, 9], [0, 1, 0, 1])]
    rows = Rows(texts_of([([1, 2], [0, 1])], documents), 6)
    batch = rows.validation_batch(0, 2)
    assert batch["input_ids"].tolist() == [[1, 2, 3, 4, 5, 6], [7, 8, 9, 0, 0, 0]]
    assert batch["labels"].tolist() == [[2, 3, -100, 5, -100, 7], [-100, 9, -100, -100, -100, -100]]
    assert batch["position_ids"].tolist() == [[0, 1, 2, 0, 1, 0], [0, 1, 2, 3, 4, 5]]


def test_rows_of_documents_of_their_own():
    documents = [([1, 2, 3], [0, 1, 1]), ([6, 7, 8, 9], [0, 1, 0, 1])]
    batch = Rows(texts_of([([1, 2], [0, 1])], documents), 2, pack=False).validation_batch(0, 9)
    assert batch["input_ids"].tolist() == [[1, 2], [6, 7], [8, 9]]
    assert batch["labels"].tolist() == [[2, 3], [7, -100], [9, -100]]
    assert batch["position_ids"].tolist() == [[0, 1], [0, 1], [0, 1]]


@pytest.mark.parametrize("pack", [True, False])
def test_a_batch_comes_again(pack):
    texts = texts_of(plain(range(2, 60)))
    first = Rows(texts, 16, seed=7, pack=pack)
    kept = {(epoch, index): first.batch(epoch, index, 4) for epoch in range(3) for index in range(first.batches(4))}
    for (epoch, index), batch in reversed(kept.items()):
        again = Rows(texts, 16, seed=7, pack=pack).batch(epoch, index, 4)
        assert all(torch.equal(again[name], batch[name]) for name in batch)
        again = first.batch(epoch, index, 4)
        assert all(torch.equal(again[name], batch[name]) for name in batch)
    assert not torch.equal(kept[0, 0]["input_ids"], kept[1, 0]["input_ids"])
    assert not torch.equal(kept[0, 0]["input_ids"], Rows(texts, 16, seed=8, pack=pack).batch(0, 0, 4)["input_ids"])


def test_the_order_is_written_down():
    """These numbers hold for every version of NumPy: a training that was stopped goes on with them."""
    documents = [([10 * i + 1, 10 * i + 2, 10 * i + 3], [0, 1, 1]) for i in range(6)]
    batch = Rows(texts_of(documents), 3, seed=5).batch(2, 0, 6)
    assert batch["input_ids"].tolist() == [[10 * i + 1, 10 * i + 2, 10 * i + 3] for i in (0, 5, 4, 1, 3, 2)]


def test_large_tokens_and_files(tmp_path):
    document = Encoded(np.array([1, 70_000, 65_535]), np.array([0, 1, 1], np.uint8))
    writers = [SetWriter(tmp_path, name, np.dtype(np.uint32)) for name in ("training", "validation")]
    writers[0].add(document)
    for writer in writers:
        writer.close()
    write_facts(tmp_path, np.dtype(np.uint32), {"vocabulary": 70_001, "duplicates": 1, "empty": 2})
    texts = open_texts(tmp_path)
    assert texts[1:] == (None, 70_001, 1, 2)
    rows = Rows(texts, 4)
    assert rows.batch(0, 0, 1)["labels"].tolist() == [[70_000, 65_535, -100, -100]]
    assert rows.validation_rows == 0


def test_places_and_arguments_that_are_refused():
    texts = texts_of(plain([9, 9]))
    with pytest.raises(ValueError, match="Rows: context: expected 1 or more, got 0"):
        Rows(texts, 0)
    with pytest.raises(ValueError, match="Rows: seed: expected 0 or more, got -1"):
        Rows(texts, 4, -1)
    rows = Rows(texts, 4)
    for index, size in ((len(rows), 1), (-1, 1), (0, 0)):
        with pytest.raises(IndexError, match=f"Rows: expected a place below 5, got batch {index} of {size} rows"):
            rows.batch(0, index, size)
    with pytest.raises(IndexError, match="Rows: expected texts with a validation, got none"):
        rows.validation_batch(0, 1)
