"""The quantization method "bie" of transformers: what its checkpoints say of layers, and how they are read again."""

from __future__ import annotations

import inspect
from typing import Any

import torch
from torch import nn

from bie import nn as layers
from bie._places import walk
from bie.nn import MBWQLinear, MultiheadAttention, QuantLayer, WeightOnlyEmbedding, WeightOnlyLinear
from bie.nn.tied_tables import forget_ties, put_heads, table_names
from bie.nn.weight_only_embedding import TiedHead
from bie.weights.parameters import QuantParameter

try:
    from transformers.quantizers.auto import register_quantization_config, register_quantizer
    from transformers.quantizers.base import HfQuantizer
    from transformers.utils.quantization_config import QuantizationConfigMixin
except ImportError as error:
    raise ImportError("bie.hf needs the package transformers, version 5 or later") from error


@register_quantization_config("bie")
class BieConfig(QuantizationConfigMixin):
    """The entry of a checkpoint that tells its layers: for each one its class and the constructor's arguments.

    Example (of ``config.json``)::

        {"quant_method": "bie", "format_version": 1,
         "layers": {"encoder.0.linear": {"class": "Q8Linear", "in_features": 64, "out_features": 64, "bias": true}}}

    A layer with ``"g_idx": false`` has none among the checkpoint's tensors: its groups are consecutive inputs.
    """

    def __init__(self, layers: dict[str, dict[str, Any]] | None = None, format_version: int = 1, **kwargs: Any) -> None:
        if format_version != 1:
            raise ValueError(f"the checkpoint's bie format is version {format_version}, this package reads 1")
        self.quant_method, self.format_version = "bie", format_version
        self.layers = layers or {}


def _description(layer: nn.Module) -> dict[str, Any]:
    """The class and the arguments that make an empty layer of the same form."""
    found: dict[str, Any] = {"class": type(layer).__name__}
    if isinstance(layer, WeightOnlyEmbedding):
        names = ("num_embeddings", "embedding_dim", "bits", "group_size", "padding_idx", "activation", "factor")
    elif isinstance(layer, WeightOnlyLinear):
        names = ("in_channels", "out_channels", "w_bit", "group_size", "disable_bias", "train_bias", "activation")
        names += ("master",)
        mixed = isinstance(layer, MBWQLinear)
        names += ("use_mbw", "groups", "rows_packed") if mixed else ("use_gba_quant", "asym", "levels")
    else:
        names = tuple(name for name in inspect.signature(type(layer)).parameters if name not in ("device", "dtype"))
    for name in names:
        value = getattr(layer, name, None)
        if name == "bias":
            value = layer.bias is not None
        elif name == "channel_scale":
            value = layer.channel_scale is not None
        elif name == "latent":
            value = layer._latent
        elif isinstance(value, torch.dtype):
            value = str(value).removeprefix("torch.")
        found[name] = list(value) if isinstance(value, tuple) else value
    found["dtype"] = str(layer.scales.dtype if hasattr(layer, "scales") else layer.dtype).removeprefix("torch.")
    return found


def _empty(description: dict[str, Any]) -> nn.Module:
    """The layer of a description, packed, without values."""
    arguments = dict(description)
    cls = getattr(layers, arguments.pop("class", ""), None)
    known = (QuantLayer, WeightOnlyLinear, WeightOnlyEmbedding)
    if not (inspect.isclass(cls) and issubclass(cls, known)):
        raise ValueError(f"the checkpoint has a layer of class {description.get('class')!r}, which is none of bie.nn")
    arguments.pop("g_idx", None)
    dtype = getattr(torch, str(arguments.pop("dtype", "float32")), None)
    arguments = {name: tuple(value) if isinstance(value, list) else value for name, value in arguments.items()}
    if isinstance(arguments.get("master"), str):
        arguments["master"] = getattr(torch, arguments["master"], arguments["master"])
    layer = cls(**arguments, dtype=dtype, device="meta")
    if isinstance(layer, QuantLayer):
        packed = torch.uint8 if layer._bits == 1 else torch.int8
        shape = layer._packed_shape()
        layer._set_weight(None)
        layer.qweight = QuantParameter(torch.empty(shape, dtype=packed, device="meta"), False)
    elif isinstance(layer, WeightOnlyLinear):
        shape = (layer._groups, layer.out_channels)
        scales = torch.empty(shape, dtype=dtype, device="meta")
        layer._become_prepared(scales, layer.qzeros if layer.asym else torch.empty_like(scales))
    return layer.eval()


def _layers_of(model: nn.Module) -> dict[str, dict[str, Any]]:
    """The description of each layer of ours in a checkpoint, heads over tables of codes last."""
    kinds = (QuantLayer, WeightOnlyLinear, WeightOnlyEmbedding)
    found = {name: _description(module) for name, _, _, module in walk(model) if isinstance(module, kinds)}
    return found | {name: {"class": "TiedHead", "table": table} for name, table in table_names(model).items()}


def tell(model: nn.Module) -> None:
    """Writes the packed layers of a model into its config; ``quantize_model`` does."""
    config = BieConfig(_layers_of(model))
    forget_ties(model)
    model.config.quantization_config = config
    model.hf_quantizer = BieQuantizer(config, pre_quantized=True)
    model.is_quantized, model.quantization_method = True, "bie"


@register_quantizer("bie")
class BieQuantizer(HfQuantizer):
    """Puts empty layers where the checkpoint has packed ones, and makes them ready once it is read."""

    requires_calibration = True  # from_pretrained of floats makes no step sizes: quantize_model does

    def validate_environment(self, *args: Any, **kwargs: Any) -> None:
        """Nothing is needed."""

    def _process_model_before_weight_loading(self, model: nn.Module, **kwargs: Any) -> nn.Module:
        heads = self._heads()
        for name, description in self.quantization_config.layers.items():
            if name in heads:
                continue
            parent, _, leaf = name.rpartition(".")
            place = model.get_submodule(parent)
            if isinstance(place, nn.MultiheadAttention | MultiheadAttention):
                raise ValueError(f"the checkpoint has a layer inside of {parent}, which is torch's attention")
            setattr(place, leaf, _empty(description))
        put_heads(model, heads)
        if any(self._has_usual_groups(name) for name in self.quantization_config.layers):
            model._keys_to_ignore_on_load_missing = [*(model._keys_to_ignore_on_load_missing or ()), r"\.g_idx$"]
        return model

    def _has_usual_groups(self, name: str) -> bool:
        return self.quantization_config.layers[name].get("g_idx") is False

    def _heads(self) -> dict[str, str]:
        """The name of the table for that of each head over a table of codes."""
        layers = self.quantization_config.layers.items()
        heads = {name: facts.get("table") for name, facts in layers if facts.get("class") == "TiedHead"}
        for name, table in heads.items():
            if self.quantization_config.layers.get(table, {}).get("class") != "WeightOnlyEmbedding":
                raise ValueError(f"the checkpoint has the head {name!r} of {table!r}, expected a WeightOnlyEmbedding")
        return heads

    def _process_model_after_weight_loading(self, model: nn.Module, **kwargs: Any) -> nn.Module:
        for name in self.quantization_config.layers:
            layer = model.get_submodule(name)
            if isinstance(layer, TiedHead):
                layer.eval()
                continue
            if isinstance(layer, QuantLayer):
                if not isinstance(layer.qweight, QuantParameter):
                    layer.qweight = QuantParameter(layer.qweight.detach(), False)
                layer._scale_ready = False
                layer.eval()
            else:
                if self._has_usual_groups(name):
                    inputs = torch.arange(layer.in_channels, dtype=torch.int32, device=layer.qweight.device)
                    layer.g_idx = inputs // layer.group_size
                kind = layer._parameter if isinstance(layer, WeightOnlyLinear) else type(_empty_rows())
                if not isinstance(layer.qweight, kind):
                    layer.qweight = kind(layer.qweight.detach(), requires_grad=False)
                if isinstance(layer, WeightOnlyLinear) and layer.asym:
                    layer.zeros = layer.qzeros  # the same buffer under the name that the product reads
                layer._tell_weight()
                layer.eval()
        return model

    def get_state_dict_and_metadata(self, model: nn.Module) -> tuple[None, dict[str, Any]]:
        """Called before a model is saved: what it says of its layers becomes what they are by then."""
        self.quantization_config.layers = _layers_of(model)
        return None, {}

    def is_serializable(self, *args: Any, **kwargs: Any) -> bool:
        return True

    @property
    def is_trainable(self) -> bool:
        """Whether adapters may be trained beside its layers, which transformers' Trainer asks."""
        return True


def _empty_rows() -> nn.Parameter:
    return WeightOnlyEmbedding(1, 1, device="meta").qweight
