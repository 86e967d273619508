"""Models to train: new ones from a line of sizes, and those of files."""

from __future__ import annotations

import copy
import os
import shutil
from pathlib import Path
from typing import Any

import torch
from torch import nn

#: Sizes of a new model and their defaults; 0: from the others.
_SIZES = {"hidden": 384, "layers": 6, "heads": 6, "kv_heads": 0, "intermediate": 0, "context": 2048, "vocab": 0}
_TOKENIZER_FILES = (
    *("tokenizer.json", "tokenizer.model", "vocab.json", "vocab.txt", "merges.txt", "added_tokens.json"),
    *("tokenizer_config.json", "special_tokens_map.json", "chat_template.jinja", "chat_template.json"),
)


def is_sizes(source: str) -> bool:
    """Whether a model is named by its sizes, such as ``llama:hidden=384,layers=6``."""
    return source.partition(":")[0] == "llama" and not Path(source).exists()


def new_model(source: str, tokenizer: Any, seed: int = 0) -> nn.Module:
    """A model of the llama family with random weights.

    Args:
        source: ``llama:hidden=384,layers=6,heads=6,kv_heads=2,intermediate=1024,context=2048,vocab=0``; what is not
            said has these values but for kv_heads (as heads), intermediate (8/3 of hidden, in whole 64) and vocab (the
            tokenizer's).
        tokenizer: of transformers.
        seed: of the weights.

    Raises:
        ValueError: an unknown size, a value that is no positive number, sizes that do not fit each other.
    """
    from transformers import AutoModelForCausalLM, LlamaConfig

    sizes = dict(_SIZES)
    for part in filter(None, source.partition(":")[2].split(",")):
        name, _, value = part.partition("=")
        if name not in sizes:
            raise ValueError(f"model {source!r}: expected sizes {', '.join(sizes)}, got {name!r}")
        if not value.isdigit() or int(value) < 1:
            raise ValueError(f"model {source!r}: {name}: expected a positive number, got {value!r}")
        sizes[name] = int(value)
    hidden, heads = sizes["hidden"], sizes["heads"]
    kv_heads = sizes["kv_heads"] or heads
    if hidden % (2 * heads) or heads % kv_heads:
        raise ValueError(
            f"model {source!r}: expected heads of an even width that kv_heads divide, got hidden {hidden}, heads "
            f"{heads} and kv_heads {kv_heads}"
        )
    least = len(tokenizer)
    if 0 < sizes["vocab"] < least:
        raise ValueError(f"model {source!r}: vocab: expected the tokenizer's {least} or more, got {sizes['vocab']}")
    config = LlamaConfig(
        vocab_size=sizes["vocab"] or least,
        hidden_size=hidden,
        intermediate_size=sizes["intermediate"] or -(-hidden * 8 // 3 // 64) * 64,
        num_hidden_layers=sizes["layers"],
        num_attention_heads=heads,
        num_key_value_heads=kv_heads,
        max_position_embeddings=sizes["context"],
        tie_word_embeddings=True,
        bos_token_id=tokenizer.bos_token_id,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
    )
    state = torch.random.get_rng_state()
    try:
        torch.manual_seed(seed)
        return AutoModelForCausalLM.from_config(config, dtype=torch.float32)
    finally:
        torch.random.set_rng_state(state)


def load_model(source: str, tokenizer_path: str | os.PathLike | None = None, seed: int = 0) -> tuple[nn.Module, Any]:
    """A model to train and its tokenizer.

    Args:
        source: a GGUF file, a folder, or sizes as ``new_model`` takes them.
        tokenizer_path: a GGUF file or a folder; that of the model where it is None.

    Raises:
        ValueError: sizes without a tokenizer, a model that is no causal one of blocks.
    """
    from bie import hf

    if not is_sizes(source):
        model = hf.load(source)
        tokenizer = hf.load_tokenizer(source if tokenizer_path is None else tokenizer_path)
    else:
        if tokenizer_path is None:
            raise ValueError(f"model {source!r}: a new model wants a tokenizer: a GGUF file or a folder that holds one")
        tokenizer = hf.load_tokenizer(tokenizer_path)
        model = new_model(source, tokenizer, seed)
        if Path(tokenizer_path).is_file():
            from bie.formats.gguf import load_gguf

            file = load_gguf(tokenizer_path)
            model.gguf_tokenizer = {key: v for key, v in file.metadata.items() if key.startswith("tokenizer.")}
            model.gguf_types = {key: kind for key, kind in file.types.items() if key.startswith("tokenizer.")}
    if not hasattr(getattr(model, "model", None), "layers") or not hasattr(model, "lm_head"):
        raise ValueError(f"model {source!r}: expected blocks and an output layer, got a {type(model).__name__}")
    return model, tokenizer


def write_folder(
    model: nn.Module, tokenizer: Any, folder: str | os.PathLike, source: str | os.PathLike | None = None
) -> None:
    """Writes a model and its tokenizer as a folder that ``load_model`` reads; codes of any width stay as they are.

    Args:
        source: the folder that both came from, whose tokenizer is copied as it is; transformers writes it where this is
            None or a file.
    """
    from bie.formats import save_weights

    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    config = copy.copy(model.config)
    if hasattr(config, "quantization_config"):
        del config.quantization_config  # of save_pretrained, whose tensors are others
    config.save_pretrained(folder)
    if source is not None and Path(source).is_dir():
        for path in (Path(source) / name for name in _TOKENIZER_FILES):
            if path.is_file():
                shutil.copyfile(path, folder / path.name)
    else:
        tokenizer.save_pretrained(folder)
    save_weights(folder / "model.safetensors", model)
