"""Whole models: prepare, pack, save and load; and the small shape helpers of BITorch Engine. numerics.md section 11."""

from __future__ import annotations

import itertools
import math
import os
import secrets
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from bitorch_engine._operators import ops
from bitorch_engine.errors import ShapeError
from bitorch_engine.layers.gptq import update_zeros
from bitorch_engine.layers.update_rules import update

__all__ = [
    "binary_matmul_forward_post_processing",
    "flatten_x",
    "init_weight",
    "load_checkpoint",
    "pack_bie_layers",
    "packed_state_dict",
    "pad_embedding_dim",
    "pad_last_2_dims_to_multiple_of_128",
    "prepare_bie_layers",
    "qweight_update_fn",
    "save_checkpoint",
    "unflatten_x",
    "update_zeros",
]


def flatten_x(x: Tensor) -> tuple[Tensor, list[int]]:
    """[..., k] to ([rows, k], the leading sizes). ``ShapeError`` for a 0-dim tensor."""
    if x.dim() == 0:
        raise ShapeError("flatten_x: x is [], at least one axis is wanted")
    shape = list(x.shape[:-1])
    return x.reshape(math.prod(shape), x.size(-1)), shape


def unflatten_x(x: Tensor, shape: Sequence[int]) -> Tensor:
    """``[rows, n]`` to ``[*shape, n]``, the reverse of :func:`flatten_x`; ``ShapeError`` for another number of rows."""
    if x.dim() != 2 or x.size(0) != math.prod(shape):
        raise ShapeError(f"unflatten_x: x is {list(x.shape)}, [{math.prod(shape)}, n] is wanted for {list(shape)}")
    return x.reshape(*shape, x.size(-1))


def pad_embedding_dim(weight: Tensor) -> Tensor:
    """[N, D] with columns of -1 up to a multiple of 8, in ``weight``'s dtype. ``ShapeError`` unless it is a matrix."""
    if weight.dim() != 2:
        raise ShapeError(f"pad_embedding_dim: weight is {list(weight.shape)}, [embeddings, features] is wanted")
    return nn.functional.pad(weight, (0, -weight.size(1) % 8), value=-1)


def pad_last_2_dims_to_multiple_of_128(tensor: Tensor) -> tuple[Tensor, int]:
    """([..., m', k'] with zeros up to multiples of 128, rows added). ``ShapeError`` below two axes."""
    if tensor.dim() < 2:
        raise ShapeError(f"pad_last_2_dims_to_multiple_of_128: tensor is {list(tensor.shape)}, two axes are wanted")
    rows, columns = (-tensor.size(-2)) % 128, (-tensor.size(-1)) % 128
    padded = nn.functional.pad(tensor, (0, columns, 0, rows)) if rows or columns else tensor
    return padded, rows


def binary_matmul_forward_post_processing(
    tensor: Tensor, shape_pre: Sequence[int], x_pad_sec_last: int, y_pad_sec_last: int, k: int
) -> Tensor:
    """``k - 2 * tensor`` without the padding, in its leading shape.

    Args:
        tensor: [batch, m + x_pad_sec_last, n + y_pad_sec_last] counts of differing bits.
        shape_pre: leading sizes, batch in all.

    Returns:
        ``[*shape_pre, m, n]``

    Raises:
        ShapeError: not three axes, more padding than rows or columns, or another batch.
    """
    m, n = (tensor.size(1) - x_pad_sec_last, tensor.size(2) - y_pad_sec_last) if tensor.dim() == 3 else (-1, -1)
    if m < 0 or n < 0 or x_pad_sec_last < 0 or y_pad_sec_last < 0 or math.prod(shape_pre) != tensor.size(0):
        raise ShapeError(
            f"binary_matmul_forward_post_processing: tensor is {list(tensor.shape)}, [{math.prod(shape_pre)}, rows + "
            f"{x_pad_sec_last}, columns + {y_pad_sec_last}] is wanted"
        )
    return k - 2 * tensor[:, :m, :n].reshape(*shape_pre, m, n)


def init_weight(weight: Tensor, cls: type[nn.Parameter] = nn.Parameter) -> tuple[nn.Parameter, Tensor]:
    """(int8 ``cls``, scale_w) of a binary weight for training.

    ``scale_w = mean|w|`` 0-dim float32; ``c = w - mean(w)``, ``q = amax_quantize(c)``, where that is 0 ``sgn(c)``,
    where that is 0 too +1. ValueError: empty, NaN or infinity. TypeError: not a float tensor.
    """
    q, scale_w = ops.binary_init(weight.detach())
    return cls(q, requires_grad=False), scale_w


def _layer_classes(layers: Iterable[type] | None, *, packable: bool) -> tuple[type, ...]:
    if layers:
        return tuple(layers)
    from bitorch_engine.layers.qembedding.binary import BinaryEmbeddingCuda
    from bitorch_engine.layers.qlinear.nbit import MPQLinearBase
    from bitorch_engine.layers.quant_layer import QuantLayer

    # A weight-only layer is packed from the start, an embedding packs itself when it is prepared.
    return (QuantLayer,) if packable else (QuantLayer, MPQLinearBase, BinaryEmbeddingCuda)


def prepare_bie_layers(model: nn.Module, layers: Iterable[type] | None = None) -> None:
    """Calls ``prepare_params`` of every layer of the classes ``layers`` (all of ours by default), the root included."""
    classes = _layer_classes(layers, packable=False)
    for module in model.modules():
        if isinstance(module, classes):
            module.prepare_params()


def pack_bie_layers(model: nn.Module, qweight_only: bool = True, layers: Iterable[type] | None = None) -> None:
    """Packs the weight of every layer of the classes ``layers``, the root included; ``qweight_only`` drops it then.

    The model cannot be trained after ``qweight_only=True``; ``save_checkpoint`` packs what it writes and leaves the
    model alone.
    """
    classes = _layer_classes(layers, packable=True)
    for module in model.modules():
        if isinstance(module, classes):
            module.generate_quantized_weight(qweight_only=qweight_only)


def packed_state_dict(model: nn.Module, qweight_only: bool = True) -> dict[str, Any]:
    """``model.state_dict()`` with the weight of every quantised layer packed; the model is not changed.

    With ``qweight_only=False`` the training weight stays beside ``qweight``. A layer under two names is packed once.
    """
    from bitorch_engine.layers.quant_layer import QuantLayer

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
    """
    target = Path(name)
    if target.is_dir():
        raise IsADirectoryError(f"save_checkpoint: {target} is a folder, a file is wanted")
    target = target.resolve()  # through a link: its target is replaced
    scratch = target.with_name(f".{target.name}.{secrets.token_hex(4)}.part")
    try:
        with scratch.open("xb") as file:
            torch.save({"state_dict": packed_state_dict(model, qweight_only)}, file)
            file.flush()
            os.fsync(file.fileno())
        if target.exists():
            scratch.chmod(target.stat().st_mode & 0o7777)
        scratch.replace(target)
    finally:
        scratch.unlink(missing_ok=True)


def load_checkpoint(model: nn.Module, checkpoint_path: str | os.PathLike, qweight_only: bool = True) -> None:
    """Loads what ``save_checkpoint`` wrote, here or in BITorch Engine; each layer takes the form of the file.

    Where the file holds a training weight beside a packed one, ``qweight_only`` keeps its packed form alone (packed
    anew: the packed one of the file may be of an earlier weight). The file is read with ``weights_only=True``.

    Raises:
        ValueError: the file has no ``state_dict``.
        RuntimeError: an entry is missing, too many, or of another shape or dtype; every one is named, and the model is
            as it was.
    """
    from bitorch_engine.layers.matmul_layer import MatMulLayer
    from bitorch_engine.layers.quant_layer import QuantLayer

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


#: One optimizer step in place, by the rule of the parameter's class.
qweight_update_fn = update
