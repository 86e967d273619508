"""Embeddings with one bit a weight."""

from bitorch_engine.layers.qembedding.binary.layer import (
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
