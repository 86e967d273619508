"""Buffers that a model computes from its configuration and that no file holds, such as the angles of positions."""

from __future__ import annotations

import torch
from torch import nn

from bie._places import factor_of


def make_computed(model: nn.Module) -> list[str]:
    """Makes such buffers of a model of transformers that was built on the meta device; the tensors that stay there."""
    for name, module in list(model.named_modules()):
        if not any(buffer.is_meta for buffer in module.buffers(recurse=False)):
            continue
        config = getattr(module, "config", getattr(model, "config", None))
        if isinstance(module, nn.Embedding) and factor_of(module) is not None:
            module.embed_scale = torch.tensor(factor_of(module))
        elif config is not None and type(module).__name__.endswith("RotaryEmbedding"):
            parent, _, leaf = name.rpartition(".")
            setattr(model.get_submodule(parent), leaf, type(module)(config).train(module.training))
    return [name for name, tensor in (*model.named_parameters(), *model.named_buffers()) if tensor.is_meta]
