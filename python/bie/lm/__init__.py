"""Training of language models."""
