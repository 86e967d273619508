"""Embeddings with one bit a weight."""

from bitorch_engine.layers.qembedding.binary import (
    BinaryEmbeddingBag,
    BinaryEmbeddingBagForward,
    BinaryEmbeddingCuda,
    BinaryEmbeddingForward,
    BinaryEmbeddingParameter,
)

__all__ = [
    "BinaryEmbeddingBag",
    "BinaryEmbeddingBagForward",
    "BinaryEmbeddingCuda",
    "BinaryEmbeddingForward",
    "BinaryEmbeddingParameter",
]
