"""Folders of language models as transformers and quantisers write them."""

from __future__ import annotations

import json

import torch
from small_models import float_model


def write_folder(path, kind: str, dtype=torch.float32, shard_size: str = "5GB"):
    """The float model of a kind in this type, as `save_pretrained` writes it; returns that model."""
    model = float_model(kind).to(dtype)
    model.save_pretrained(path, max_shard_size=shard_size)
    return model


def change_config(path, **changes) -> None:
    """Sets entries of config.json; None removes them."""
    file = path / "config.json"
    config = json.loads(file.read_text()) | changes
    file.write_text(json.dumps({key: value for key, value in config.items() if value is not None}))
