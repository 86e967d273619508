"""Models of weight-only layers as safetensors, ours and GPTQ's: docs/spec/files.md#writing."""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from bie._operators import ops
from bie._output_files import write_text
from bie.nn import MBWQLinear, MPQLinear, WeightOnlyEmbedding, WeightOnlyLinear
from bie.nn.tied_tables import table_names

_GPTQ_WIDTHS = (2, 3, 4, 8)


def save_weights(path: str | os.PathLike, model: nn.Module) -> None:
    """Writes the state dict of a model as a safetensors file that says which of its layers are of codes.

    ``load_weights_folder`` reads it back, and ``load_into`` puts it into a float model: what was converted, loaded or
    fine-tuned here comes back to the bit, the ``head()`` of a table of codes too. The file takes its name in one step.

    Example::

        >>> model = torch.nn.Sequential(torch.nn.Embedding(10, 64), torch.nn.Linear(64, 10))
        >>> model = bie.convert(model, "w4", inplace=False).model.eval()
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     bie.formats.save_weights(f"{folder}/model.safetensors", model)
        ...     again = torch.nn.Sequential(torch.nn.Embedding(10, 64), torch.nn.Linear(64, 10))
        ...     bie.formats.load_weights_folder(f"{folder}/model.safetensors").load_into(again)
        >>> torch.equal(again.eval()(torch.arange(3)), model(torch.arange(3)))
        True
    """
    layers: dict[str, dict[str, Any]] = {}
    for name, module in model.named_modules():
        if isinstance(module, MBWQLinear):
            continue  # its tensors tell all of it
        if isinstance(module, WeightOnlyLinear):
            module.prepare_params()
            layers[name] = {"bits": module.w_bit, "group_size": module.group_size}
        elif isinstance(module, WeightOnlyEmbedding):
            layers[name] = {"bits": module.bits, "group_size": module.group_size}
            layers[name]["embedding_dim"] = module.embedding_dim
    own: dict[str, Any] = {"format_version": 1, "kind": "weights", "layers": layers}
    if heads := table_names(model):  # which have no tensors of their own
        own["heads"] = heads
    _write(path, model.state_dict(), json.dumps(own))


def _write(path: str | os.PathLike, state: Mapping[str, Tensor], own: str) -> None:
    ops.safetensors_write(os.fspath(path), list(state), [tensor.detach() for tensor in state.values()], own)


def save_gptq(folder: str | os.PathLike, model: nn.Module) -> None:
    """Writes a model's ``MPQLinear`` layers in GPTQ's layout, version 1, all other tensors beside them.

    ``model.safetensors`` and ``quantize_config.json``; ``config.json`` and the tokenizer are the caller's. The weights
    are those of the layers, to the bit.

    Raises:
        ValueError: one sentence that names the layer: a width other than 2, 3, 4 and 8 bits, a float zero that is no
            whole multiple (1 ... 2^bits) of its scale, a scale that is no 16-bit float, another kind of layer of codes.

    Example::

        >>> model = torch.nn.Sequential(bie.nn.MPQLinear(64, 32, w_bit=4, group_size=32, use_gba_quant=False))
        >>> model[0].set_weight_data(torch.randn(32, 64))
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     bie.formats.save_gptq(folder, model)
        ...     print(bie.formats.load_weights_folder(folder)["0"])
        CodedLayer('0', gptq, 64, 32, bits=4, group_size=32)
    """
    state, sizes = dict(model.state_dict()), {}
    ordered = False
    for name, module in model.named_modules():
        if isinstance(module, (MBWQLinear, WeightOnlyEmbedding)):
            raise ValueError(f"save_gptq: layer {name!r} is a {type(module).__name__}, which GPTQ's files do not have")
        if not isinstance(module, MPQLinear):
            continue
        parts = _gptq_parts(f"save_gptq: layer {name!r}", module)
        prefix = f"{name}." if name else ""
        for key in [key for key in state if key.rpartition(".")[0] == name]:
            del state[key]
        state |= {prefix + key: tensor for key, tensor in parts.items()}
        sizes[name] = (module.w_bit, module.group_size)
        rows = torch.arange(module.in_channels, dtype=torch.int32) // module.group_size
        ordered = ordered or not torch.equal(parts["g_idx"], rows)
    if not sizes:
        raise ValueError("save_gptq: the model has no MPQLinear")
    (bits, group), _ = Counter(sizes.values()).most_common(1)[0]
    others = {name: size for name, size in sizes.items() if size != (bits, group)}
    config: dict[str, Any] = {"bits": bits, "group_size": group, "desc_act": ordered, "sym": False}
    config |= {"quant_method": "gptq", "checkpoint_format": "gptq", "lm_head": "lm_head" in sizes}
    if others:
        escaped = {name: "".join(c if c.isalnum() or c == "_" else f"\\{c}" for c in name) for name in others}
        config["dynamic"] = {f"+:{escaped[name]}$": {"bits": b, "group_size": g} for name, (b, g) in others.items()}
    target = Path(folder)
    target.mkdir(parents=True, exist_ok=True)
    _write(target / "model.safetensors", state, "")
    write_text(target / "quantize_config.json", json.dumps(config, indent=2) + "\n")


def _gptq_parts(what: str, layer: MPQLinear) -> dict[str, Tensor]:
    layer.prepare_params()
    bits = layer.w_bit
    if bits not in _GPTQ_WIDTHS:
        raise ValueError(f"{what} has {bits} bits, GPTQ's files have 2, 3, 4 or 8")
    scales = layer.scales.detach()
    if not torch.equal(scales.half().float(), scales.float()):
        raise ValueError(
            f"{what} has scales that are no 16-bit floats, which GPTQ's files hold: they would be rounded; "
            "bie.convert(model, target, dtype=torch.float16, use_gba_quant=False) makes linears that can be written"
        )
    parts = {"qweight": layer.qweight.detach(), "scales": scales.half(), "g_idx": layer.g_idx}
    if layer.asym:
        parts["qzeros"] = layer.qzeros
    else:
        zeros = layer.zeros.float()
        whole = torch.where(scales == 0, 1.0, zeros / scales.float()).round()
        if not bool(((whole >= 1) & (whole <= 2**bits) & (whole * scales.float() == zeros)).all()):
            raise ValueError(f"{what} has zeros that are no whole multiples of its scales, from 1 to {2**bits}")
        parts["qzeros"] = ops.pack_words((whole - 1).int(), bits, 1)
    if (bias := getattr(layer, "bias", None)) is not None:
        parts["bias"] = bias
    return {key: tensor.detach().cpu().contiguous() for key, tensor in parts.items()}
