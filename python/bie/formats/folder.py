"""Folders of safetensors with weight-only layers, GPTQ's and GreenBit's: docs/spec/files.md."""

from __future__ import annotations

import json
import os
import warnings
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from functools import reduce
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from bie._operators import ops
from bie._places import factor_of, leave_fast_paths
from bie.errors import ShapeError
from bie.formats.computed import make_computed
from bie.nn import MBWQLinear, MPQLinear, WeightOnlyEmbedding, WeightOnlyLinear
from bie.nn.tied_tables import put_heads, tied_tables


@dataclass(frozen=True, repr=False)
class CodedLayer:
    """A weight-only linear of a folder.

    Attributes:
        name: the tensors' names up to the last dot.
        kind: ``"gptq"`` (``z`` is stored minus one), ``"gptq2"`` (as it is), ``"gba"`` and ``"mbwq"`` (GreenBit's
            legacy and layer-mix), ``"mixed"`` (rows of several widths: channel-mix, EXL2's way), ``"embedding"``
            (of files by ``save_weights``).
        bits: of a code; 0 of mixed rows.
        in_features, out_features, group_size: k, n and the rows that share a scale.
        tensors: as the file has them, by the rest of their names.
    """

    name: str
    kind: str
    bits: int
    in_features: int
    out_features: int
    group_size: int
    tensors: dict[str, Tensor]
    _facts: dict[str, Any]

    def __repr__(self) -> str:
        sizes = f"{self.in_features}, {self.out_features}, bits={self.bits}, group_size={self.group_size}"
        return f"CodedLayer({self.name!r}, {self.kind}, {sizes})"

    def linear(
        self, dtype: torch.dtype | None = None, *, requires_grad: bool = False, activation: str = "exact"
    ) -> WeightOnlyLinear:
        """The layer, prepared and in evaluation mode: ``MPQLinear``, or ``MBWQLinear`` where rows are permuted.

        Args:
            dtype: of scales, zeros and bias; by default one that holds those of the file.
            requires_grad: whether training gives the codes a gradient, as ``bie.optim.DiodeMix`` wants it.
            activation: of the layer: ``"int8"`` for products of 8-bit activations.

        Raises:
            ValueError: a sentence that names the file and the layer, for an order of rows that is none and for scales
                that are not finite once they are opened.
        """
        if self.kind == "embedding":
            raise ValueError(f"layer {self.name!r} is an embedding: embedding() makes it")
        make = {"gptq": self._gptq, "gptq2": self._gptq, "gba": self._gba}.get(self.kind, self._permuted)
        try:
            layer = make(dtype or self._dtype(), requires_grad)
            layer.activation = activation
            layer.prepare_params()
        except (ValueError, RuntimeError) as error:
            said = "; ".join(str(error).partition(":\n\t")[2].split("\n\t")) or error  # torch lists them in lines
            raise ValueError(f"{self._facts['path']}: layer {self.name!r}: {said}") from error
        return layer.eval()

    def _dtype(self) -> torch.dtype:
        """That of the scales of scales, whose arithmetic it is; else one that holds every float of the file."""
        tables = [t.dtype for key, t in self.tensors.items() if key.startswith(("qscales_", "qzeros_"))]
        floats = [t.dtype for t in self.tensors.values() if t.is_floating_point()]
        return reduce(torch.promote_types, tables or floats)

    def embedding(
        self, padding_idx: int | None = None, *, activation: str = "exact", factor: float = 1.0
    ) -> WeightOnlyEmbedding:
        """The table, in evaluation mode, of a layer of kind ``"embedding"``; ``activation`` is that of its head."""
        if self.kind != "embedding":
            raise ValueError(f"layer {self.name!r} is of kind {self.kind}, no embedding")
        sizes = self.out_features, self.in_features, self.bits, self.group_size
        options: dict[str, Any] = {"activation": activation, "factor": factor}
        table = WeightOnlyEmbedding(*sizes, padding_idx, dtype=self.tensors["scales"].dtype, **options)
        table.load_state_dict(self.tensors)
        return table.eval()

    def _wrong_bias(self, found: nn.Module) -> str:
        """A bias that one of the model and the file has alone. One of zeros in the file stands for none as well."""
        wanted, there = getattr(found, "bias", None) is not None, "bias" in self.tensors
        if wanted and not there and not self._facts["zero_bias"]:
            return f"missing {self.name}.bias"
        return f"unexpected {self.name}.bias" if there and not wanted else ""

    def _common(self, dtype: torch.dtype, requires_grad: bool) -> dict[str, Any]:
        return {
            **{"in_channels": self.in_features, "out_channels": self.out_features, "dtype": dtype},
            **{"group_size": self.group_size, "disable_bias": "bias" not in self.tensors},
            "requires_grad": requires_grad,
        }

    def _index(self) -> Tensor:
        rows = torch.arange(self.in_features, dtype=torch.int32)
        return self.tensors.get("g_idx", rows // self.group_size)

    def _gptq(self, dtype: torch.dtype, requires_grad: bool) -> MPQLinear:
        state = {**self.tensors, "g_idx": self._index()}
        symmetric = False
        if self.kind == "gptq2":
            zeros = ops.unpack_words(state.pop("qzeros"), self.bits, self.out_features, 1)
            if symmetric := bool((zeros == 0).any()):  # whole zeros of a layer begin at 1
                dtype = torch.float32
                state["zeros"] = zeros * state["scales"].float()
            else:
                state["qzeros"] = ops.pack_words(zeros - 1, self.bits, 1)
        layer = MPQLinear(w_bit=self.bits, use_gba_quant=symmetric, **self._common(dtype, requires_grad))
        layer.load_state_dict(state)
        return layer

    def _gba(self, dtype: torch.dtype, requires_grad: bool) -> MPQLinear:
        facts = self._facts
        layer = MPQLinear(
            w_bit=self.bits,
            dq_group_size=facts["scale_group"] or -1,
            dq_mode=1 if facts["by_column"] else 2,
            asym=facts["whole_zeros"],
            **self._common(dtype, requires_grad),
        )
        layer.load_state_dict({**self.tensors, "g_idx": self._index()})
        return layer

    def _permuted(self, dtype: torch.dtype, requires_grad: bool) -> MBWQLinear:
        mixed = self.kind == "mixed"
        tensors = {"channel_scale": torch.ones(1, 1, self.in_features), **self.tensors}
        sizes = {"groups": tensors["scales"].size(0), "rows_packed": tensors["qweight"].size(0)} if mixed else {}
        common = self._common(dtype, requires_grad)
        layer = MBWQLinear(w_bit=4 if mixed else self.bits, use_mbw=mixed, **sizes, **common)
        layer.load_state_dict(tensors)
        return layer


@dataclass(frozen=True, repr=False)
class WeightsFolder:
    """The layers and the other tensors of a folder.

    Attributes:
        path: of the folder or the file.
        layers: the weight-only linears by name.
        tensors: all other tensors by name.
        configs: ``config.json``, ``quantize_config.json`` and ``quant_strategy.json``, where they are there.
        heads: of files by ``save_weights``: the name of the table of codes for that of each ``head()`` over it.
    """

    path: str
    layers: dict[str, CodedLayer]
    tensors: dict[str, Tensor]
    configs: dict[str, Any]
    heads: dict[str, str] = field(default_factory=dict)

    def __getitem__(self, name: str) -> CodedLayer:
        try:
            return self.layers[name]
        except KeyError:
            raise KeyError(f"{self.path} has no weight-only layer {name!r}") from None

    def __repr__(self) -> str:
        return f"WeightsFolder({self.path!r}, {len(self.layers)} layers, {len(self.tensors)} other tensors)"

    def load_into(self, model: nn.Module, *, requires_grad: bool = False, activation: str = "exact") -> None:
        """Puts the weight-only layers where ``model`` has ``nn.Linear`` (``nn.Embedding``) of their names.

        All other tensors are loaded. A linear that shares the weight of an embedding whose table is of codes, or that
        was the table's ``head()`` when the file was written, becomes its ``head()``.

        The model, as its own library makes it for floats, may be on the meta device; its parameters become the file's
        tensors, and angles of rotary positions, which no file holds, are made anew in models of transformers. Nothing
        is changed where a name or a size does not fit. ``requires_grad`` and ``activation`` are those of
        :meth:`CodedLayer.linear`.

        Raises:
            ValueError: a layer of the file that the model lacks or that is of another class there.
            RuntimeError: other tensors that are missing, unexpected or of another size, as ``load_state_dict`` says.
        """
        modules = dict(model.named_modules())
        new: dict[str, nn.Module] = {}
        for name, coded in self.layers.items():
            found, table = modules.get(name), coded.kind == "embedding"
            if not isinstance(found, nn.Embedding if table else nn.Linear):
                what = "none" if found is None else f"a {type(found).__name__}"
                kind = "embedding" if table else "linear"
                raise ValueError(f"load_into: {self.path} has the {kind} {name!r}, the model has {what}")
            sizes = (found.embedding_dim, found.num_embeddings) if table else (found.in_features, found.out_features)
            if sizes != (coded.in_features, coded.out_features):
                raise ShapeError(f"load_into: {coded!r} does not fit {found!r}")
            if table:
                factor = factor_of(found)
                if factor is None:
                    raise ValueError(
                        f"load_into: {self.path} has the table {name!r}: expected a torch.nn.Embedding in the model, "
                        f"got a {type(found).__name__}, which may compute something else"
                    )
                new[name] = coded.embedding(found.padding_idx, activation=activation, factor=factor)
            else:
                new[name] = coded.linear(requires_grad=requires_grad, activation=activation)
        wrong = [problem for name, coded in self.layers.items() if (problem := coded._wrong_bias(modules[name]))]
        heads = self._heads_in(model, modules)
        ties = _check_rest(model, {*self.layers, *heads}, self.tensors, wrong)
        model.load_state_dict(self.tensors, strict=False, assign=True)
        for key, source in ties.items():
            parent, _, leaf = key.rpartition(".")
            setattr(model.get_submodule(parent), leaf, model.get_parameter(source))
        for name, layer in new.items():
            parent, _, leaf = name.rpartition(".")
            setattr(model.get_submodule(parent), leaf, layer)
        put_heads(model, heads)
        leave_fast_paths(model)
        if empty := make_computed(model):
            more = f" and {len(empty) - 1} more" if len(empty) > 1 else ""
            warnings.warn(
                f"load_into: {empty[0]!r}{more} is on the meta device still: expected a tensor that the model computes "
                "itself, since no file holds it; make it before the first call",
                stacklevel=2,
            )

    def _heads_in(self, model: nn.Module, modules: Mapping[str, nn.Module]) -> dict[str, str]:
        """The name of the table for that of each linear of the model that is to be its head."""
        tables = {name for name, coded in self.layers.items() if coded.kind == "embedding"}
        found = {}
        for name, table in self.heads.items():
            linear = modules.get(name)
            if not isinstance(linear, nn.Linear) or linear.bias is not None or table not in tables:
                what = "none" if linear is None else f"{linear!r}"
                raise ValueError(f"load_into: {self.path} has the head {name!r} of {table!r}, the model has {what}")
            coded = self.layers[table]
            if (linear.in_features, linear.out_features) != (coded.in_features, coded.out_features):
                raise ShapeError(f"load_into: the head of {coded!r} does not fit {linear!r}")
            found[name] = table
        for tie in tied_tables(model):
            bare = {name for name, head in tie.heads.items() if head.bias is None}
            if tie.name in tables:
                found |= {name: tie.name for name in bare if f"{name}.weight" not in self.tensors}
        return found


def _check_rest(
    model: nn.Module, layers: Collection[str], tensors: Mapping[str, Tensor], wrong: list[str]
) -> dict[str, str]:
    """Of a parameter that has two names and is in the file under one of them: the name that is missing to the other."""
    state = model.state_dict(keep_vars=True)
    own = {key: value for key, value in state.items() if key.rpartition(".")[0] not in layers}
    there = {id(own[key]): key for key in own if key in tensors}
    ties = {key: there[id(value)] for key, value in own.items() if key not in tensors and id(value) in there}
    wrong += [f"missing {key}" for key in own if key not in tensors and key not in ties]
    wrong += [f"unexpected {key}" for key in tensors if key not in own]
    for key in tensors:
        if key in own and own[key].shape != tensors[key].shape:
            wrong.append(f"{key}: expected {list(own[key].shape)}, got {list(tensors[key].shape)}")
    if wrong:
        more = f" and {len(wrong) - 8} more" if len(wrong) > 8 else ""
        raise RuntimeError(f"load_into: the tensors do not fit the model: {'; '.join(wrong[:8])}{more}")
    return ties


def load_weights_folder(path: str | os.PathLike) -> WeightsFolder:
    """Maps the safetensors files of a folder (or one file) and tells its weight-only layers by what they hold.

    GPTQ (v1 and v2, act-order, 2, 3, 4 and 8 bits) and GreenBit's legacy, layer-mix and channel-mix files. Models are
    not fetched: give the path of a folder.

    Raises:
        ValueError: one sentence that names the file and the tensor; a format that is not read, by its name.
    """
    path = os.fspath(path)
    head, parts = ops.weights_folder_read(path)
    facts = json.loads(head)

    def arrays(described: dict[str, Any]) -> dict[str, Tensor]:
        return {
            name: parts[a["bytes"]].view(getattr(torch, a["element"])).view(a["shape"]) for name, a in described.items()
        }

    layers = {
        name: CodedLayer(
            name,
            *(f[key] for key in ("kind", "bits", "in_features", "out_features", "group_size")),
            arrays(f["tensors"]),
            f | {"path": path},
        )
        for name, f in facts["layers"].items()
    }
    configs = {name: json.loads(text) for name, text in facts["configs"].items()}
    return WeightsFolder(path, layers, arrays(facts["tensors"]), configs, _heads_of(path, layers))


def _heads_of(path: str, layers: Mapping[str, CodedLayer]) -> dict[str, str]:
    """The heads that ``save_weights`` noted in the metadata of the safetensors files, which were checked before."""
    if not any(coded.kind == "embedding" for coded in layers.values()):
        return {}
    heads: dict[str, str] = {}
    for file in sorted(Path(path).glob("*.safetensors")) if os.path.isdir(path) else [Path(path)]:
        with open(file, "rb") as opened:
            header = json.loads(opened.read(int.from_bytes(opened.read(8), "little")))
        own = json.loads(header.get("__metadata__", {}).get("bie", "{}"))
        heads |= own.get("heads", {}) if own.get("kind") == "weights" else {}
    if not all(isinstance(table, str) for table in heads.values()):
        raise ValueError(f"{path}: the metadata entry 'bie' has heads of {heads}, expected a name of a table for each")
    return heads
