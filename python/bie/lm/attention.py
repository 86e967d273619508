"""Which tokens of packed rows see each other, and an attention that computes no others."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn

_NAME = "bie_documents"
_LEAST_ENDS = 64
_PLAIN = {"llama", "mistral", "qwen2", "qwen3", "gemma3_text"}  # softmax(scaling * q k^T) v is all their attention is


def _begins(position_ids: Tensor) -> Tensor:
    """Whether a document begins at a token: in each row at the first, and where a position is not the one before it
    plus 1.
    """
    begins = torch.ones_like(position_ids, dtype=torch.bool)
    begins[:, 1:] = position_ids.diff(dim=1) != 1
    return begins


def document_mask(position_ids: Tensor, window: int | None = None) -> Tensor:
    """[rows, 1, context, context] bool: whether token i sees token j of its document: ``0 <= i - j < window``.

    Nothing waits for the device.

    Args:
        position_ids: [rows, context] int64.
        window: None for as far as the document goes.
    """
    document = _begins(position_ids).cumsum(1)
    places = torch.arange(position_ids.size(1), device=position_ids.device)
    distance = places[:, None] - places
    near = distance >= 0 if window is None else (distance >= 0) & (distance < window)
    return ((document[:, :, None] == document[:, None, :]) & near).unsqueeze(1)


def masks_of(config: Any, position_ids: Tensor) -> Tensor | dict[str, Tensor]:
    """What a model of transformers with this config takes as ``attention_mask``: a mask, or one for each kind of layer.

    Args:
        config: of transformers: the window of all layers is ``sliding_window``, or of those that ``layer_types`` names
            ``sliding_attention``; other layers are of ``full_attention``.
        position_ids: [rows, context] int64.
    """
    kinds = set(getattr(config, "layer_types", None) or ())
    window = getattr(config, "sliding_window", None)
    if not kinds:
        return document_mask(position_ids, window)
    windows = {"full_attention": None, "sliding_attention": window}
    return {kind: document_mask(position_ids, windows[kind]) for kind in sorted(kinds)}


def document_ends(position_ids: Tensor) -> Tensor:
    """[count + 1] int32: where the documents of rows that stand one behind the other begin, and the end.

    The end is repeated to the next power of two of places, so that few shapes are met.

    Args:
        position_ids: [rows, context] int64.
    """
    starts = _begins(position_ids).flatten().nonzero().squeeze(1).to(torch.int32)
    places = max(_LEAST_ENDS, 1 << (len(starts) - 1).bit_length()) + 1
    ends = torch.full((places,), position_ids.numel(), dtype=torch.int32, device=position_ids.device)
    ends[: len(starts)] = starts
    return ends


def has_document_attention(model: nn.Module, device: torch.device, dtype: torch.dtype) -> bool:
    """Whether ``document_attention`` is there: of 16 bits, on compute capability 8.0 and later, for plain families."""
    if device.type != "cuda" or dtype not in (torch.bfloat16, torch.float16):
        return False
    if model.config.model_type not in _PLAIN or getattr(model.config, "attention_dropout", 0):
        return False
    try:
        from torch.nn.attention import varlen  # noqa: F401  of torch 2.10 and later
    except ImportError:
        return False
    return torch.cuda.get_device_capability(device) >= (8, 0)


def _attend(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    *,
    scaling: float | None = None,
    sliding_window: int | None = None,
    ends: Tensor,
    **_: Any,
) -> tuple[Tensor, None]:
    """softmax(scaling * q k^T) v inside of documents, as transformers calls it: [rows, heads, context, width] each."""
    from torch.nn.attention.varlen import varlen_attn

    rows, heads, context, width = query.shape
    autocast = torch.is_autocast_enabled(query.device.type)
    dtype = torch.get_autocast_dtype(query.device.type) if autocast else value.dtype
    flat = [tensor.transpose(1, 2).flatten(0, 1).to(dtype) for tensor in (query, key, value)]
    left = -1 if sliding_window is None else sliding_window - 1
    attended = varlen_attn(*flat, ends, ends, context, context, scale=scaling, window_size=(left, 0))
    return attended.view(rows, context, heads, width), None


@contextlib.contextmanager
def document_attention(model: nn.Module) -> Iterator[None]:
    """Calls of a model of transformers with ``ends`` of ``document_ends`` attend inside of documents, without masks."""
    from transformers import AttentionInterface

    AttentionInterface.register(_NAME, _attend)
    before = model.config._attn_implementation
    model.config._attn_implementation = _NAME
    try:
        yield
    finally:
        model.config._attn_implementation = before
