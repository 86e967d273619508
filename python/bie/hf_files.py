"""Language models of transformers from the files people have, and back: GGUF, and folders of GPTQ and GreenBit."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from bie import hf_rotary
from bie._places import factor_of
from bie.formats.computed import make_computed
from bie.formats.folder import load_weights_folder
from bie.formats.gguf import GgufFile, GgufTensor, load_gguf
from bie.formats.gguf_writer import encoded
from bie.formats.gguf_writer import save_gguf as write_gguf
from bie.formats.rows import CodedRows, rows_of
from bie.hf_checkpoints import tell
from bie.hf_families import ARCHITECTURES, FAMILIES, LINEARS, facts_of_gemma, gemma_from_gguf
from bie.nn.weight_only import WeightOnlyLinear
from bie.nn.weight_only_embedding import TiedHead, WeightOnlyEmbedding


def load(path: str | os.PathLike, *, activation: str = "exact") -> nn.Module:
    """A language model of transformers whose weights are the codes of a file, in evaluation.

    A GGUF file of the llama family (llama, mistral, smollm), qwen2, qwen3 or gemma 3 (text): its configuration, scaled
    rotary positions (linear, yarn, Llama 3's), names, the order of the rows of q and k, a table that is the output
    layer too, token numbers of beginning and end. A folder of GPTQ or
    GreenBit, or of ``bie.formats.save_weights``, with the config.json of its model. Floats are float32.

    Args:
        path: a GGUF file, or a folder.
        activation: of the weight-only layers: ``"int8"`` for products of 8-bit activations.

    Raises:
        ValueError: another architecture, another scaling of rotary positions, a tensor that is missing, of another
            shape or left over; one sentence that names the file.

    Source: docs/load-models.md.

    Example::

        model, tokenizer = bie.hf.load("SmolLM2-135M.Q4_1.gguf"), bie.hf.load_tokenizer("SmolLM2-135M.Q4_1.gguf")
        ids = tokenizer("Water boils at", return_tensors="pt")
        print(tokenizer.decode(model.generate(**ids, max_new_tokens=16)[0]))
    """
    path = Path(path)
    model = _of_folder(path, activation) if path.is_dir() else _Loading(load_gguf(path), activation).model()
    if empty := make_computed(model):
        raise ValueError(f"{path}: the model has {len(empty)} tensors that are in no file, such as {empty[0]!r}")
    model.requires_grad_(False).eval()
    tell(model)  # for save_pretrained
    model.is_quantized = False  # where it is True transformers refuses half() and float(), which these layers follow
    return model


def load_tokenizer(path: str | os.PathLike) -> Any:
    """The tokenizer that a GGUF file or a folder holds, as transformers reads it; of GGUF it wants the package gguf.

    Raises:
        ValueError: a GGUF file without a tokenizer. FileNotFoundError: neither a file nor a folder.
    """
    from transformers import AutoTokenizer

    path = Path(path)
    if path.is_dir():
        return AutoTokenizer.from_pretrained(path)
    if not path.exists():
        raise FileNotFoundError(f"{path}: there is no such file or folder")
    if "tokenizer.ggml.tokens" not in load_gguf(path).metadata:
        raise ValueError(f"{path}: the file holds no tokenizer")
    return AutoTokenizer.from_pretrained(path.parent, gguf_file=path.name)


def _of_folder(path: Path, activation: str) -> nn.Module:
    from transformers import AutoConfig, AutoModelForCausalLM

    config = AutoConfig.from_pretrained(path)
    if (said := getattr(config, "quantization_config", None)) is not None:
        if isinstance(said, dict) and said.get("quant_method") == "bie":
            return _of_own_folder(path, activation)
        del config.quantization_config  # which would ask for another package
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(config, dtype=torch.float32)
    load_weights_folder(path).load_into(model, activation=activation)
    model.float()  # files mix numbers of 16 and 32 bits
    if config.tie_word_embeddings:
        model.tie_weights()
    return model


def _of_own_folder(path: Path, activation: str) -> nn.Module:
    """The model that ``save_pretrained`` wrote into a folder."""
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32)
    if activation != "exact":
        for layer in model.modules():
            if isinstance(layer, WeightOnlyLinear | WeightOnlyEmbedding):
                layer.activation = activation
    return model


#: Types of GGUF for codes of a width, the smallest first.
_TYPES = {1: ("Q1_0",), 2: ("TQ2_0", "Q2_0"), 4: ("Q4_0", "Q4_1"), 8: ("Q8_0",)}


def save_gguf(model: nn.Module, path: str | os.PathLike) -> None:
    """Writes a language model of transformers as a GGUF file that ``load`` and llama.cpp read.

    Weight-only layers are written as they are, to the bit, float layers as F16, norms and biases as F32. A model that
    ``load`` made of a GGUF file keeps that file's metadata, its tokenizer among them; of another model the metadata say
    the configuration alone, and llama.cpp wants a tokenizer beside it.

    Args:
        model: of llama, mistral, qwen2, qwen3 or gemma 3 (its text model).

    Raises:
        ValueError: another architecture, a layer whose codes no type of GGUF holds; one sentence that names the layer.
    """
    arch = ARCHITECTURES.get(model.config.model_type)
    if arch is None:
        raise ValueError(
            f"save_gguf: the model is a {model.config.model_type}, expected one of {', '.join(ARCHITECTURES)}"
        )
    family = FAMILIES[arch]
    in_pairs = family.in_pairs
    metadata, factors = _metadata(arch, model.config)
    tensors: dict[str, Any] = {"token_embd.weight": _as_tensor("token_embd", model.model.embed_tokens)}
    config = model.config
    heads = {"attn_q": config.num_attention_heads, "attn_k": config.num_key_value_heads}
    for i, block in enumerate(model.model.layers):
        for name, place in LINEARS.items():
            layer, turned = block.get_submodule(place), heads.get(name) if in_pairs else None
            tensors[f"blk.{i}.{name}.weight"] = _as_tensor(f"blk.{i}.{name}", layer, turned)
            if (bias := getattr(layer, "bias", None)) is not None:
                if in_pairs:
                    raise ValueError(f"save_gguf: blk.{i}.{name} has a bias, which {arch} has none of in GGUF")
                tensors[f"blk.{i}.{name}.bias"] = bias.detach().float()
        for name, place in family.norms.items():
            if "self_attn" not in place or hasattr(block.self_attn, place.rpartition(".")[2]):
                tensors[f"blk.{i}.{name}.weight"] = block.get_submodule(place).weight.detach().float() + family.plus_one
    tensors["output_norm.weight"] = model.model.norm.weight.detach().float() + family.plus_one
    if not (config.tie_word_embeddings or isinstance(model.lm_head, TiedHead)):
        tensors["output.weight"] = _as_tensor("output", model.lm_head)
    if factors is not None:
        tensors["rope_freqs.weight"] = factors
    metadata = getattr(model, "gguf_metadata", None) or metadata | getattr(model, "gguf_tokenizer", {})
    metadata = {key: value for key, value in metadata.items() if not key.startswith("split.")}  # of a file in parts
    write_gguf(path, tensors, metadata, getattr(model, "gguf_types", None))


def _metadata(arch: str, config: Any) -> tuple[dict[str, Any], Tensor | None]:
    """The metadata that say a configuration, and the tensor ``rope_freqs.weight`` or None."""
    head = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    facts = {
        "embedding_length": config.hidden_size,
        "feed_forward_length": config.intermediate_size,
        "block_count": config.num_hidden_layers,
        "attention.head_count": config.num_attention_heads,
        "attention.head_count_kv": config.num_key_value_heads,
        "attention.key_length": head,
        "attention.layer_norm_rms_epsilon": config.rms_norm_eps,
        "context_length": config.max_position_embeddings,
        "vocab_size": config.vocab_size,
    }
    rope = config.rope_parameters
    if arch == "gemma3":
        facts |= facts_of_gemma(config, head)
        rope = rope["full_attention"]
    try:
        entries, factors = hf_rotary.to_gguf(rope, head, config.max_position_embeddings)
    except ValueError as error:
        raise ValueError(f"save_gguf: the model {error}") from None
    facts |= {f"rope.{key}": value for key, value in entries.items()}
    facts["attention.value_length"] = facts["rope.dimension_count"] = head
    tokens = {"bos": config.bos_token_id, "eos": config.eos_token_id, "padding": config.pad_token_id}
    metadata = {
        "general.architecture": arch,
        **{f"{arch}.{key}": value for key, value in facts.items()},
        **{f"tokenizer.ggml.{name}_token_id": id for name, id in tokens.items() if isinstance(id, int)},
    }
    return metadata, factors


def _as_tensor(name: str, layer: nn.Module, heads: int | None = None) -> Any:
    """What ``formats.save_gguf`` writes for a layer; ``heads``: of rows that GGUF has in pairs."""
    if isinstance(layer, nn.Linear | nn.Embedding):
        weight = layer.weight.detach()
        return (weight if heads is None else weight[_order_of_pairs(weight.size(0), heads).argsort()]), "F16"
    rows = rows_of(f"save_gguf: {name}", layer)
    if heads is not None:
        rows = _in_order(rows, _order_of_pairs(rows.rows, heads).argsort())
    said = f"GGUF has no type for {rows.bits} bits"
    for kind in _TYPES.get(rows.bits, ()):
        try:
            found, shape, blocks = encoded(name, (rows, kind))
            return GgufTensor(name, shape, found, blocks, {})
        except ValueError as error:
            said = str(error)
    raise ValueError(f"save_gguf: {name}: {said}")


class _Loading:
    """Puts the tensors of one GGUF file into the places of an empty model."""

    def __init__(self, file: GgufFile, activation: str) -> None:
        self.file, self.activation = file, activation
        self.arch = file.metadata.get("general.architecture")
        self.left = set(file.tensors)
        if self.arch not in FAMILIES:
            self._fail(f"its architecture is {self.arch!r}, expected one of {', '.join(FAMILIES)}")
        self.family = FAMILIES[self.arch]

    def model(self) -> nn.Module:
        from transformers import AutoModelForCausalLM

        config = self._config()
        with torch.device("meta"):
            model = AutoModelForCausalLM.from_config(config, dtype=torch.float32)
        heads = {"attn_q": config.num_attention_heads, "attn_k": config.num_key_value_heads}
        for i, block in enumerate(model.model.layers):
            for name, place in LINEARS.items():
                turned = heads.get(name) if self.family.in_pairs else None
                self._put_linear(f"blk.{i}.{name}", block, place, turned)
            for name, place in self.family.norms.items():
                if f"blk.{i}.{name}.weight" in self.left:
                    self._put_norm(f"blk.{i}.{name}.weight", block, f"{place}.weight")
        self._put_norm("output_norm.weight", model.model, "norm.weight")
        self._put_table(model, config.tie_word_embeddings)
        model.gguf_metadata, model.gguf_types = self.file.metadata, self.file.types  # which save_gguf writes again
        if self.left:
            self._fail(f"it has {len(self.left)} tensors that {self.arch} has no place for, such as {min(self.left)!r}")
        return model

    def _fail(self, what: str) -> None:
        raise ValueError(f"GGUF file {self.file.path}: {what}")

    def _entry(self, key: str, default: Any = None) -> Any:
        value = self.file.metadata.get(f"{self.arch}.{key}", default)
        if value is None:
            self._fail(f"it has no entry {self.arch}.{key}")
        return value

    def _config(self) -> Any:
        from transformers import AutoConfig

        heads, width = self._entry("attention.head_count"), self._entry("embedding_length")
        head = self._entry("attention.key_length", width // heads)
        said = self.file.metadata.get
        tokens = {f"{name}_token_id": said(f"tokenizer.ggml.{name}_token_id") for name in ("bos", "eos")}
        return AutoConfig.for_model(
            self.family.model_type,
            vocab_size=self._shape("token_embd.weight")[0],
            hidden_size=width,
            intermediate_size=self._entry("feed_forward_length"),
            num_hidden_layers=self._entry("block_count"),
            num_attention_heads=heads,
            num_key_value_heads=self._entry("attention.head_count_kv", heads),
            head_dim=head,
            rms_norm_eps=self._entry("attention.layer_norm_rms_epsilon"),
            max_position_embeddings=self._entry("context_length"),
            **self._positions(head),
            tie_word_embeddings="output.weight" not in self.file,
            pad_token_id=said("tokenizer.ggml.padding_token_id"),
            **tokens,
        )

    def _positions(self, head: int) -> dict[str, Any]:
        """The part of the configuration that tells positions and, for Gemma 3, the layers that see some of them."""
        if self._entry("rope.dimension_count", head) != head:
            self._fail(f"rotary positions turn {self._entry('rope.dimension_count')} of {head} elements, expected all")
        factors = None
        if "rope_freqs.weight" in self.file:
            factors = self._floats("rope_freqs.weight", torch.Size([head // 2]))
        try:
            rope = hf_rotary.from_gguf(
                lambda key, default: self._entry(f"rope.{key}", default), factors, self._entry("context_length")
            )
        except ValueError as error:
            self._fail(str(error))
        if self.arch != "gemma3":
            return {"rope_parameters": rope}
        return gemma_from_gguf(self._entry, rope, head)

    def _shape(self, name: str) -> tuple[int, ...]:
        if name not in self.file:
            self._fail(f"it has no tensor {name!r}")
        return self.file[name].shape

    def _take(self, name: str, shape: torch.Size) -> GgufTensor:
        if self._shape(name) != tuple(shape):
            self._fail(f"tensor {name!r} is {list(self._shape(name))}, expected {list(shape)}")
        self.left.discard(name)
        return self.file[name]

    def _floats(self, name: str, shape: torch.Size) -> Tensor:
        return self._take(name, shape).open().float()

    def _put_floats(self, name: str, parent: nn.Module, place: str) -> None:
        module, _, leaf = place.rpartition(".")
        owner = parent.get_submodule(module)
        setattr(owner, leaf, nn.Parameter(self._floats(name, getattr(owner, leaf).shape), requires_grad=False))

    def _put_norm(self, name: str, parent: nn.Module, place: str) -> None:
        self._put_floats(name, parent, place)
        if self.family.plus_one:
            parent.get_parameter(place).sub_(1)

    def _put_linear(self, name: str, parent: nn.Module, place: str, heads: int | None) -> None:
        module, _, leaf = place.rpartition(".")
        owner = parent.get_submodule(module)
        empty = getattr(owner, leaf)
        order = None if heads is None else _order_of_pairs(empty.out_features, heads)
        setattr(owner, leaf, self._linear(name, empty, order))

    def _linear(self, name: str, empty: nn.Linear, order: Tensor | None = None) -> nn.Module:
        tensor = self._take(f"{name}.weight", empty.weight.shape)
        bias = None if empty.bias is None else self._floats(f"{name}.bias", empty.bias.shape)
        if tensor.is_coded:
            rows = tensor.codes() if order is None else _in_order(tensor.codes(), order)
            return rows.linear(bias, activation=self.activation)
        weight = tensor.open().float()
        empty.weight = nn.Parameter(weight if order is None else weight[order], requires_grad=False)
        empty.bias = None if bias is None else nn.Parameter(bias, requires_grad=False)
        return empty

    def _put_table(self, model: nn.Module, tied: bool) -> None:
        empty = model.model.embed_tokens
        tensor = self._take("token_embd.weight", empty.weight.shape)
        if tensor.is_coded:
            model.model.embed_tokens = tensor.embedding(activation=self.activation)
            model.model.embed_tokens.factor = factor_of(empty)
        else:
            empty.weight = nn.Parameter(tensor.open().float(), requires_grad=False)
        if not tied:
            model.lm_head = self._linear("output", model.lm_head)
        elif tensor.is_coded:
            model.lm_head = model.model.embed_tokens.head()
        else:
            model.lm_head.weight = empty.weight


def _order_of_pairs(rows: int, heads: int) -> Tensor:
    """The row of a GGUF file, where the two that a rotary position turns are neighbours, for each row of transformers,
    where they are half a head apart."""
    return torch.arange(rows).view(heads, rows // heads // 2, 2).transpose(1, 2).reshape(-1)


def _in_order(rows: CodedRows, order: Tensor) -> CodedRows:
    zeros = None if rows.zeros is None else rows.zeros[order]
    facts = rows.columns, rows.bits, rows.group_size
    return CodedRows(*facts, rows.words[order], rows.scales[order], zeros, rows.zero)
