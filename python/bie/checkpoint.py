"""Whole models: prepare, pack, save and load. docs/spec/helpers.md#whole-models."""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor, nn

from bie._output_files import replacing
from bie.nn.embedding import BinaryEmbedding
from bie.nn.matmul import MatMulLayer
from bie.nn.state.quant_layer import QuantLayer
from bie.nn.weight_only import WeightOnlyLinear


def _layer_classes(layers: Iterable[type] | None, *, packable: bool) -> tuple[type, ...]:
    if layers:
        return tuple(layers)
    # A weight-only layer is packed from the start, an embedding packs itself when it is prepared.
    return (QuantLayer,) if packable else (QuantLayer, WeightOnlyLinear, BinaryEmbedding)


def prepare(model: nn.Module, layers: Iterable[type] | None = None) -> None:
    """Calls ``prepare_params`` of every layer of the classes ``layers`` (by default all), the root included.

    Example::

        >>> model = torch.nn.Sequential(bie.nn.BinaryLinear(8, 4))
        >>> bie.prepare(model)
        >>> model[0].weight.dtype
        torch.int8
    """
    classes = _layer_classes(layers, packable=False)
    for module in model.modules():
        if isinstance(module, classes):
            module.prepare_params()


def pack(model: nn.Module, qweight_only: bool = True, layers: Iterable[type] | None = None) -> None:
    """Packs the weight of every layer of the classes ``layers``, the root included; ``qweight_only`` drops it then.

    The model cannot be trained after ``qweight_only=True``; ``save_checkpoint`` packs what it writes and leaves the
    model alone.

    Example::

        >>> model = torch.nn.Sequential(bie.nn.BinaryLinear(8, 4))
        >>> bie.pack(model)
        >>> model[0].qweight.shape, model[0].weight
        (torch.Size([4, 1]), None)
    """
    classes = _layer_classes(layers, packable=True)
    for module in model.modules():
        if isinstance(module, classes):
            module.generate_quantized_weight(qweight_only=qweight_only)


def packed_state_dict(model: nn.Module, qweight_only: bool = True) -> dict[str, Any]:
    """``model.state_dict()`` with the weight of every quantised layer packed; the model is not changed.

    With ``qweight_only=False`` the training weight stays beside ``qweight``. A layer under two names is packed once.

    Example::

        >>> layer = bie.nn.Q4Linear(8, 4)
        >>> sorted(bie.packed_state_dict(layer)), layer.weight_form
        (['bias_a', 'eps', 'qweight', 'scale_a', 'scale_w'], 'float')
    """
    state = model.state_dict()
    packed: dict[int, dict[str, Tensor]] = {}
    for name, module in model.named_modules(remove_duplicate=False):
        if not isinstance(module, QuantLayer):
            continue
        prefix = f"{name}." if name else ""
        own = packed.setdefault(id(module), module.packed_state())
        if qweight_only:
            for key in [prefix + leaf for leaf in module.state_dict() if leaf not in own]:
                state.pop(key, None)
        state.update({prefix + leaf: tensor.detach() for leaf, tensor in own.items()})
    return state


def save_checkpoint(model: nn.Module, name: str | os.PathLike, qweight_only: bool = True) -> None:
    """Writes ``torch.save({'state_dict': ...})`` with packed weights; the model is not changed.

    The file takes the name's place in one step: an interrupted save leaves the old one. ``qweight_only=False`` keeps
    the training weights beside the packed ones.

    Example::

        >>> model = torch.nn.Sequential(bie.nn.Q8Linear(8, 4))
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     bie.save_checkpoint(model, f"{folder}/model.pt")
        ...     bie.load_checkpoint(model, f"{folder}/model.pt")
        >>> model[0].weight_form
        'packed'
    """
    with replacing(name) as file:
        torch.save({"state_dict": packed_state_dict(model, qweight_only)}, file)


def load_checkpoint(model: nn.Module, checkpoint_path: str | os.PathLike, qweight_only: bool = True) -> None:
    """Loads what ``save_checkpoint`` wrote, here or in BITorch Engine; each layer takes the form of the file.

    Where the file holds a training weight beside a packed one, ``qweight_only`` keeps its packed form alone (packed
    anew: the packed one of the file may be of an earlier weight). The file is read with ``weights_only=True``.

    Raises:
        ValueError: the file has no ``state_dict``.
        RuntimeError: an entry is missing, too many, or of another shape or dtype; every one is named, and the model is
            as it was.

    Example::

        >>> one, other = bie.nn.BinaryLinear(8, 4), bie.nn.BinaryLinear(8, 4)
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     bie.save_checkpoint(one, f"{folder}/layer.pt")
        ...     bie.load_checkpoint(other, f"{folder}/layer.pt")
        >>> torch.equal(other.qweight, bie.packed_state_dict(one)["qweight"])
        True
    """
    checkpoint = torch.load(checkpoint_path, map_location="cpu", weights_only=True)
    state = checkpoint.get("state_dict") if isinstance(checkpoint, dict) else None
    if not isinstance(state, dict):
        raise ValueError(f"load_checkpoint: {checkpoint_path} holds no 'state_dict'")
    # Ours take their entries together; other modules copy theirs one by one, whatever the next one finds.
    others = [module for module in model.modules() if not isinstance(module, (QuantLayer, MatMulLayer))]
    tensors = [t.detach() for m in others for t in itertools.chain(m.parameters(False), m.buffers(recurse=False))]
    before = [tensor.to("cpu", copy=True) for tensor in tensors]
    try:
        model.load_state_dict(state, strict=True)
    except Exception:
        for tensor, value in zip(tensors, before, strict=True):
            tensor.copy_(value)
        raise
    for name, module in model.named_modules():
        prefix = f"{name}." if name else ""
        if qweight_only and isinstance(module, QuantLayer) and prefix + "qweight" in state:
            module.generate_quantized_weight(qweight_only=True)
