"""Writes a language model of a size that people run, with random weights: its speed is that of a trained one.

Usage: synthetic_model.py SHAPE TYPE TOKENIZER.gguf OUT.gguf

SHAPE is a row of SHAPES, TYPE one of TYPES, in which all matrices are. The tokenizer is another file's; tokens that it
lacks have names of no use.
"""

from __future__ import annotations

import argparse
import sys

import gguf
import numpy as np

#: layers, width, inner, heads, heads of keys and values, head size, vocabulary
SHAPES = {
    "135m": (30, 576, 1536, 9, 3, 64, 49152),
    "1.7b": (28, 2048, 6144, 16, 8, 128, 151669),
    "8b": (36, 4096, 12288, 32, 8, 128, 151669),
}
#: ggml's number, weights and bytes of a block, the root of the mean square of a weight in scales, and where the float16
#: scales are, as multiples of the first
TYPES = {
    "Q1_0": (41, 128, 18, 1.0, {0: 1}),
    "Q4_0": (2, 32, 18, 4.6, {0: 1}),
    "Q8_0": (8, 32, 34, 73.9, {0: 1}),
    "Q2_K": (10, 256, 84, 13.9, {80: 1, 82: 1.5}),
    "Q4_K": (12, 256, 144, 255.0, {0: 1, 2: 7.5}),
    "Q6_K": (14, 256, 210, 1366.0, {208: 1}),
}
LISTS = ("tokens", "token_type", "merges")


def blocks(rng: np.random.Generator, rows: int, columns: int, kind: str) -> np.ndarray:
    _, weights, size, root, scales = TYPES[kind]
    made = rng.integers(0, 256, (rows, columns // weights, size), np.uint8)
    for at, factor in scales.items():
        made[..., at : at + 2] = np.array([factor / (root * np.sqrt(columns))], np.float16).view(np.uint8)
    return made.reshape(rows, -1)


def copy_tokenizer(reader: gguf.GGUFReader, writer: gguf.GGUFWriter, vocabulary: int) -> None:
    lists = {name: reader.fields[f"tokenizer.ggml.{name}"].contents() for name in LISTS}
    missing = vocabulary - len(lists["tokens"])
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre(reader.fields["tokenizer.ggml.pre"].contents())
    writer.add_token_list(lists["tokens"] + [f"<unused {i}>" for i in range(missing)])
    writer.add_token_types(lists["token_type"] + [gguf.TokenType.UNUSED] * missing)
    writer.add_token_merges(lists["merges"])


def write(shape: str, kind: str, tokenizer: str, out: str) -> None:
    layers, width, inner, heads, kv_heads, head, vocabulary = SHAPES[shape]
    rng = np.random.default_rng(1)
    writer = gguf.GGUFWriter(out, "llama")
    writer.add_block_count(layers)
    writer.add_context_length(8192)
    writer.add_embedding_length(width)
    writer.add_feed_forward_length(inner)
    writer.add_head_count(heads)
    writer.add_head_count_kv(kv_heads)
    writer.add_key_length(head)
    writer.add_value_length(head)
    writer.add_rope_dimension_count(head)
    writer.add_layer_norm_rms_eps(1e-6)
    copy_tokenizer(gguf.GGUFReader(tokenizer), writer, vocabulary)
    matrices = {"token_embd": (vocabulary, width)}
    for i in range(layers):
        sizes = {"attn_q": heads * head, "attn_k": kv_heads * head, "attn_v": kv_heads * head}
        matrices |= {f"blk.{i}.{name}": (rows, width) for name, rows in sizes.items()}
        matrices[f"blk.{i}.attn_output"] = (width, heads * head)
        matrices |= {f"blk.{i}.ffn_gate": (inner, width), f"blk.{i}.ffn_up": (inner, width)}
        matrices[f"blk.{i}.ffn_down"] = (width, inner)
    for name, (rows, columns) in matrices.items():
        data = blocks(rng, rows, columns, kind)
        writer.add_tensor(f"{name}.weight", data, raw_dtype=gguf.GGMLQuantizationType(TYPES[kind][0]))
    for name in ["output_norm", *(f"blk.{i}.{norm}" for i in range(layers) for norm in ("attn_norm", "ffn_norm"))]:
        writer.add_tensor(f"{name}.weight", np.ones(width, np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("shape", choices=SHAPES)
    parser.add_argument("type", choices=TYPES)
    parser.add_argument("tokenizer")
    parser.add_argument("out")
    options = parser.parse_args()
    write(options.shape, options.type, options.tokenizer, options.out)
    return 0


if __name__ == "__main__":
    sys.exit(main())
