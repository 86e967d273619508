"""Texts that every Debian and Python has, and what a model of them is judged by."""

import hashlib
import inspect
import json
import subprocess
from pathlib import Path

import numpy as np
import torch

LICENSES = Path("/usr/share/common-licenses")


def texts() -> list[str]:
    """English, code, tables and chats."""
    found = [
        "<|im_start|>system\nYou are a helpful assistant.<|im_end|>\n<|im_start|>user\nWhy is the sky blue?<|im_end|>\n"
        "<|im_start|>assistant\nThe sky is blue because air scatters short waves of light more than long ones. " * 6,
        json.dumps({f"key {i}": [i, i * i, str(i) * 3] for i in range(60)}),
        "\n".join(f"{i};{i * 37 % 101};{chr(97 + i % 26) * 4}" for i in range(120)),
        "Überall dieselbe alte Leier. Das Wasser kocht bei hundert Grad. " * 20,
    ]
    found += [inspect.getsource(module) for module in (inspect, json, subprocess, hashlib)]
    for name in ("GPL-3", "MPL-2.0", "Apache-2.0", "LGPL-2.1"):
        text = (LICENSES / name).read_text()
        found += [text[at:] for at in (0, 3000, 6000)]
    return found


def float_logits(model, tokens) -> np.ndarray:
    with torch.no_grad():
        return model(torch.tensor([tokens])).logits[0].numpy()


def perplexity(logits_of, tokens: list[int], window: int) -> float:
    """A token is predicted by those before it in its window, the first of a window by the one before."""
    nats = 0.0
    for at in range(0, len(tokens) - 1, window):
        logits = logits_of(tokens[at : at + window]).astype(np.float64)
        following = tokens[at + 1 : at + window + 1]
        logits = logits[: len(following)] - logits[: len(following)].max(axis=1, keepdims=True)
        shares = logits - np.log(np.exp(logits).sum(axis=1, keepdims=True))
        nats -= shares[np.arange(len(following)), following].sum()
    return float(np.exp(nats / (len(tokens) - 1)))
