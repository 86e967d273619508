"""Folders of language models as transformers and quantisers write them."""

from __future__ import annotations

import json

import torch
from safetensors.numpy import load_file, save_file
from small_models import CHAT_TEMPLATE, VOCABULARY, float_model
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import Gemma3Config, Gemma3ForConditionalGeneration, PreTrainedTokenizerFast


def write_folder(
    path, kind: str, dtype=torch.float32, shard_size: str = "5GB", vocabulary: int = VOCABULARY, **changes
):
    """The float model of a kind in this type, as `save_pretrained` writes it; returns that model."""
    model = float_model(kind, vocabulary, **changes).to(dtype)
    model.save_pretrained(path, max_shard_size=shard_size)
    return model


def change_config(path, **changes) -> None:
    """Sets entries of config.json; None removes them."""
    file = path / "config.json"
    config = json.loads(file.read_text()) | changes
    file.write_text(json.dumps({key: value for key, value in config.items() if value is not None}))


def rename_tensors(path, name_of) -> None:
    """Writes `model.safetensors` anew with the names that `name_of` gives."""
    file = path / "model.safetensors"
    save_file({name_of(name): array for name, array in load_file(file).items()}, file)


PICTURES = {
    **{"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 1, "num_attention_heads": 2},
    **{"image_size": 28, "patch_size": 14, "vision_use_head": False},
}


def write_folder_with_pictures(path):
    """A gemma3 that sees pictures, as `save_pretrained` writes it; returns the part of it that reads text."""
    text = float_model("gemma3")
    config = Gemma3Config(text_config=text.config.to_dict(), vision_config=PICTURES, mm_tokens_per_image=4)
    model = Gemma3ForConditionalGeneration(config).eval()
    model.model.language_model.load_state_dict(text.model.state_dict())
    model.tie_weights()
    model.save_pretrained(path)
    return text


def write_tokenizer_files(path, vocabulary: int = 380) -> int:
    """A byte-level BPE as transformers saves it, with a chat template; returns its number of tokens."""
    made = Tokenizer(models.BPE())
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    marks = ["<|end|>", "<|start|>"]
    trainer = trainers.BpeTrainer(
        vocab_size=vocabulary, special_tokens=marks, initial_alphabet=alphabet, show_progress=False
    )
    made.train_from_iterator(["The water boils at 100 degrees, and the river runs to the sea."] * 3, trainer)
    wrapped = PreTrainedTokenizerFast(tokenizer_object=made, eos_token="<|end|>", bos_token="<|start|>")
    wrapped.chat_template = CHAT_TEMPLATE
    wrapped.save_pretrained(path)
    return made.get_vocab_size()


def write_whole_folder(path, kind: str, dtype=torch.float32, **changes):
    """Weights, configuration and tokenizer, with a few rows of the embedding that no token has; returns the model."""
    tokens = write_tokenizer_files(path)
    return write_folder(path, kind, dtype, vocabulary=tokens + 4, **changes)
