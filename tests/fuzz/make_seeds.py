"""Valid files to start fuzzing from: make_seeds.py FOLDER writes FOLDER/TARGET/NAME for each target."""

import gzip
import io
import json
import struct
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy
import torch
from PIL import Image
from safetensors.torch import save

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "support"))
from chat_cases import EXPRESSIONS, TEMPLATES
from net_writer import coded_net, float_net, plain_net
from onnx_models import seeds

FOLDER = Path(sys.argv[1])


def write(target: str, name: str, data: bytes) -> None:
    (FOLDER / target).mkdir(parents=True, exist_ok=True)
    (FOLDER / target / name).write_bytes(data)


def idx(*sizes: int) -> bytes:
    count = torch.Size(sizes).numel()
    return struct.pack(f">HBB{len(sizes)}I", 0, 8, len(sizes), *sizes) + bytes(i % 251 for i in range(count))


TENSORS = {
    "layer.weight": torch.arange(12.0).reshape(3, 4),
    "layer.qweight": torch.arange(6, dtype=torch.uint8).reshape(2, 3),
    "half": torch.ones(3, dtype=torch.float16),
    "mask": torch.tensor([True, False, True]),
    "step": torch.tensor(3),
    "none": torch.zeros(0, 2, dtype=torch.float64),
}

write("safetensors_fuzz", "every_kind", save(TENSORS, metadata={"bie": '{"format_version": 1}'}))
write("safetensors_fuzz", "one", save({"a": torch.ones(2, dtype=torch.bfloat16)}))
write("safetensors_fuzz", "metadata", save({}, metadata={"a": "b", "c": "\u00fc"}))
odd = b'{"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},"b":{"dtype":"I32","shape":[1],"data_offsets":[1,5]}}'
write("safetensors_fuzz", "misaligned", struct.pack("<Q", len(odd)) + odd + bytes(5))

for name, data in {"labels": idx(10), "images": idx(3, 4, 5), "empty": idx(0, 28, 28)}.items():
    write("idx_fuzz", name, data)
    write("idx_fuzz", name + ".gz", gzip.compress(data, mtime=0))

record = bytes([3]) + bytes(i % 251 for i in range(3072))
write("cifar10_fuzz", "one", record)
write("cifar10_fuzz", "cut", record[:-1])

write("csv_fuzz", "header", b"a,b,label\n1,2,cat\n-3.5e2,+4,dog\n")
write("csv_fuzz", "plain", b'\xef\xbb\xbf1;2\r\n3;"4"\r\n\r\n5;6')

for name, array in {
    "bytes": numpy.zeros((2, 3), numpy.uint8),
    "floats": numpy.ones(4, numpy.float32),
    "none": numpy.ones((0, 2), numpy.int64),
    "number": numpy.array(True),
    "fortran": numpy.asfortranarray(numpy.ones((2, 2))),
}.items():
    file = io.BytesIO()
    numpy.save(file, array)
    write("npy_fuzz", name, file.getvalue())


for mode in ("1", "L", "LA", "P", "RGB", "RGBA", "I;16"):
    file = io.BytesIO()
    Image.new(mode, (6, 5), 1).save(file, "PNG")
    write("picture_fuzz", f"{mode.replace(';', '_')}.png", file.getvalue())
exif = Image.Exif()
exif[0x0112] = 6
for kind, options in {
    "PNG": {},
    "JPEG": {},
    "JPEG2": {"progressive": True},
    "WEBP": {},
    "WEBP2": {"lossless": True},
}.items():
    file = io.BytesIO()
    Image.new("RGB", (6, 5), (1, 2, 3)).save(file, kind.rstrip("2"), exif=exif, **options)
    write("picture_fuzz", f"turned.{kind}", file.getvalue())


def text(value: str) -> bytes:
    return struct.pack("<Q", len(value.encode())) + value.encode()


def gguf(metadata: list[bytes], tensors: list[tuple[str, int, list[int], int]], alignment: int = 32) -> bytes:
    """Tensors are name, number of the type, sizes (contiguous axis first) and bytes."""
    head = b"GGUF" + struct.pack("<IQQ", 3, len(tensors), len(metadata)) + b"".join(metadata)
    offset, data = 0, b""
    for name, kind, sizes, count in tensors:
        head += text(name) + struct.pack(f"<I{len(sizes)}QIQ", len(sizes), *sizes, kind, offset)
        data += bytes(i % 61 for i in range(count)) + bytes(-count % alignment)
        offset = len(data)
    return head + bytes(-len(head) % alignment) + data


PAIRS = [
    *(text(f"u{kind}") + struct.pack(f"<I{code}", kind, 1) for kind, code in enumerate("BbHhIif?")),
    *(text(f"u{kind}") + struct.pack(f"<I{code}", kind, 1) for kind, code in zip((10, 11, 12), "Qqd", strict=True)),
    text("s") + struct.pack("<I", 8) + text("llama"),
    text("names") + struct.pack("<IIQ", 9, 8, 2) + text("a") + text("b\u00fc"),
    text("numbers") + struct.pack("<IIQ3i", 9, 5, 3, 1, -2, 3),
    text("lists") + struct.pack("<IIQ", 9, 9, 2) + 2 * struct.pack("<IQ2B", 0, 2, 1, 2),
]
BLOCKS = {
    **{0: (1, 4), 1: (1, 2), 30: (1, 2), 24: (1, 1), 28: (1, 8), 2: (32, 18), 3: (32, 20), 6: (32, 22), 7: (32, 24)},
    **{8: (32, 34), 10: (256, 84), 11: (256, 110), 12: (256, 144), 13: (256, 176), 14: (256, 210), 34: (256, 54)},
    **{35: (256, 66), 41: (128, 18), 42: (64, 18), 20: (32, 18), 23: (256, 136), 39: (32, 17), 16: (256, 66)},
}
SUMS = {"in_sum2": 5, "counts": 1}
write("gguf_fuzz", "metadata", gguf(PAIRS, []))
for kind, (weights, size) in BLOCKS.items():
    write("gguf_fuzz", f"type_{kind}", gguf(PAIRS[:1], [("a", kind, [weights, 3], 3 * size), ("b", 0, [2], 8)]))
write("gguf_fuzz", "older_q2_0", gguf([], [("a", 42, [1024, 2], 544), ("b", 42, [1024], 272)]))
parts = [text(f"split.{key}") + struct.pack("<IH", 2, value) for key, value in {"no": 0, "count": 2}.items()]
write("gguf_fuzz", "part", gguf(parts, [("a", 8, [64], 68)]))
aligned = text("general.alignment") + struct.pack("<II", 4, 64)
write("gguf_fuzz", "alignment", gguf([aligned], [("a", 8, [64], 68), ("b", 3, [32, 2, 2], 80)], 64))


write("importance_fuzz", "two", gguf([], [(f"{n}.{end}", 0, [k], 4 * k) for n in "ab" for end, k in SUMS.items()]))
write("importance_fuzz", "rows", gguf([], [("a.in_sum2", 0, [3, 2], 24), ("a.counts", 0, [1, 2], 8)]))
for name, choices in (("two", ["one", " two"]), ("three", ["a", "b", "\u00e9\U0001f600"])):
    line = {"context": "How many?", "choices": choices, "answer": 1, "more": [1, None]}
    write("asked_choices_fuzz", name, json.dumps(line).encode())
chat = {"messages": [{"role": "user", "content": [{"type": "text", "text": "a"}]}], "logprobs": True, "top_logprobs": 2}
for name, body in {
    "chat": chat | {"stream": True, "stream_options": {"include_usage": True}, "max_completion_tokens": 3},
    "completion": {"prompt": ["a", [1, 2]], "n": 2, "echo": True, "logprobs": 1, "stop": ["b"], "best_of": 2},
    "choice": {"prompt": "a", "temperature": 0.5, "top_p": 0.9, "top_k": 3, "min_p": 0.1, "logit_bias": {"5": -100}},
    "penalties": {"prompt": [1], "seed": 7, "presence_penalty": 1, "frequency_penalty": -1, "repeat_penalty": 2},
}.items():
    write("asked_fuzz", name, json.dumps(body).encode())
for kinds in (["Q4_0", "f16"], ["W3G64", "w8g1024", "tq2_0"]):
    entries = [{"name": f"blk.{i}.attn_q.weight", "type": kind} for i, kind in enumerate(kinds)]
    write("planned_types_fuzz", str(len(kinds)), json.dumps({"plan": entries, "bytes": 7}).encode())


def reference(vocabulary: int, kept: int, tokens: int) -> bytes:
    """A text that a model finds all tokens of as likely; the target sets the checksums."""
    head = b"\x93BIELP\r\n" + struct.pack("<IIqqqq", 1, 0, vocabulary, 8, kept, tokens)
    others = numpy.log(1 - kept / vocabulary) if kept < vocabulary else -numpy.inf
    share = numpy.log(1 / vocabulary)
    row = struct.pack(f"<dd{kept}i{kept}eI", -share, others, *range(kept), *[share] * kept, 0)
    return head + struct.pack(f"<{tokens}i", *range(tokens)) + row * (tokens - 1)


write("reference_fuzz", "some", reference(20, 4, 5))
write("reference_fuzz", "all", reference(6, 6, 3))
write("reference_fuzz", "one", reference(300, 1, 2))


def key(name: str, value: str | int | float | list) -> bytes:
    """An entry of metadata: a text, a uint32, a float32, texts, int32s or float32s."""
    if isinstance(value, str):
        return text(name) + struct.pack("<I", 8) + text(value)
    if isinstance(value, list):
        of_type = {str: (8, text), float: (6, lambda x: struct.pack("<f", x)), int: (5, lambda x: struct.pack("<i", x))}
        number, packed = of_type[type(value[0])]
        return text(name) + struct.pack("<IIQ", 9, number, len(value)) + b"".join(map(packed, value))
    return text(name) + (struct.pack("<If", 6, value) if isinstance(value, float) else struct.pack("<II", 4, value))


def vocabulary(rule: str, tokens: list[str], kinds: list[int], merges: list[str]) -> list[bytes]:
    facts = {"model": "gpt2", "pre": rule, "tokens": tokens, "token_type": kinds, "merges": merges, "eos_token_id": 0}
    return [key("tokenizer.ggml." + name, value) for name, value in facts.items()]


PRINTABLE = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
BYTES = [*map(chr, PRINTABLE), *(chr(0x100 + i) for i in range(256 - len(PRINTABLE)))]
WORDS = ["th", "he", "the", "\u0120t", "\u0120the", "12", "\u00c3\u00a9"]
MERGES = ["t h", "h e", "th e", "\u0120 t", "\u0120t he", "1 2", "\u00c3 \u00a9"]
SAID = "the <end> th\u00e912 34's\r\n  \u4f60\U0001f600".encode() + b"\xff\xc3\xf0\x9f"
for rule in ("gpt-2", "smollm", "llama-bpe", "qwen2"):
    names = ["<end>", "<e", *BYTES, *WORDS]
    file = gguf(vocabulary(rule, names, [3, 4] + [1] * (len(names) - 2), MERGES), [])
    write("tokenizer_fuzz", rule, struct.pack("<H", len(SAID)) + SAID + file)
few = gguf(vocabulary("gpt-2", ["a", "b", "ab", "<x>"], [1, 1, 1, 3], ["a b"]), [])
write("tokenizer_fuzz", "few", struct.pack("<H", 9) + b"ab<x>aabc" + few)


def pieces(names: list[str], kinds: list[int]) -> bytes:
    facts = {"model": "llama", "tokens": names, "token_type": kinds, "scores": [-float(i) for i in range(len(names))]}
    return gguf([key("tokenizer.ggml." + name, value) for name, value in facts.items()], [])


HEXES = [f"<0x{i:02X}>" for i in range(256)]
JOINED = ["\u2581", "t", "h", "e", "th", "the", "\u2581the", "\u2581\u2581", "\n"]
WITH_BYTES = pieces(["<unk>", "<s>", "<end>", *HEXES, *JOINED], [2, 3, 3, *[6] * 256, *[1] * 8, 4])
write("tokenizer_fuzz", "pieces", struct.pack("<H", len(SAID)) + SAID + WITH_BYTES)
write("tokenizer_fuzz", "unknown", struct.pack("<H", 6) + b"ab the" + pieces(["<unk>", *JOINED], [2, *[1] * 9]))


def other_scheme(model: str, **facts) -> bytes:
    facts = {"model": model, "tokens": ["<unk>", "<end>", *JOINED], "token_type": [2, 3, *[1] * 8, 4]} | facts
    return gguf([key("tokenizer.ggml." + name, value) for name, value in facts.items()], [])


LINES = {"merges": ["t h", "th e", "\u2581 the"], "unknown_token_id": 0}
for name, file in [
    ("t5", other_scheme("t5", scores=[-float(i) for i in range(11)], add_eos_token=1, eos_token_id=1)),
    ("bert", other_scheme("bert", unknown_token_id=0, cls_token_id=1, seperator_token_id=1)),
    ("gemma4", other_scheme("gemma4", **LINES)),
]:
    write("tokenizer_fuzz", name, struct.pack("<H", len(SAID)) + SAID + file)

TOKEN_PARTS = {
    "bytes": {
        "model": {"type": "BPE", "vocab": dict(zip([*BYTES, *WORDS], range(999), strict=False)), "merges": MERGES},
        "normalizer": {"type": "NFC"},
        "pre_tokenizer": {
            "type": "Sequence",
            "pretokenizers": [
                {
                    "type": "Split",
                    "pattern": {"Regex": r"\p{N}{1,3}|[^\s\p{L}]+"},
                    "behavior": "Isolated",
                    "invert": False,
                },
                {"type": "ByteLevel", "add_prefix_space": False, "use_regex": False},
            ],
        },
        "decoder": {"type": "ByteLevel"},
        "added_tokens": [{"id": 300, "content": "<end>", "special": True, "lstrip": True}],
        "post_processor": {"type": "RobertaProcessing", "sep": ["x", 1], "cls": ["y", 2]},
    },
    "characters": {
        "model": {
            "type": "BPE",
            "vocab": dict(zip(["<unk>", "\u2581", "t", "h", "e", "th", "the", *HEXES], range(999), strict=False)),
            "merges": [["t", "h"], ["th", "e"]],
            "byte_fallback": True,
            "unk_token": "<unk>",
        },
        "normalizer": {"type": "Replace", "pattern": {"String": " "}, "content": "\u2581"},
        "decoder": {
            "type": "Sequence",
            "decoders": [
                {"type": "Replace", "pattern": {"String": "\u2581"}, "content": " "},
                {"type": "ByteFallback"},
                {"type": "Fuse"},
                {"type": "Strip", "content": " ", "start": 1, "stop": 0},
            ],
        },
    },
    "unigram": {
        "model": {"type": "Unigram", "vocab": [["<unk>", 0], ["\u2581", -2], ["the", -3.5], ["t", -5]], "unk_id": 0},
        "normalizer": {"type": "Sequence", "normalizers": [{"type": "NFKC"}, {"type": "Strip"}, {"type": "Lowercase"}]},
        "pre_tokenizer": {"type": "Metaspace", "replacement": "\u2581", "prepend_scheme": "first", "split": True},
        "decoder": {"type": "Metaspace", "replacement": "\u2581"},
    },
    "words": {
        "model": {
            "type": "WordPiece",
            "vocab": {"[UNK]": 0, "the": 1, "##e": 2, "t": 3, "##h": 4},
            "unk_token": "[UNK]",
        },
        "normalizer": {"type": "BertNormalizer"},
        "pre_tokenizer": {"type": "BertPreTokenizer"},
        "decoder": {"type": "WordPiece", "prefix": "##"},
        "added_tokens": [{"id": 0, "content": "[UNK]", "special": True}],
        "post_processor": {
            "type": "TemplateProcessing",
            "single": [{"SpecialToken": {"id": "a"}}, {"Sequence": {"id": "A"}}],
            "special_tokens": {"a": {"ids": [0]}},
        },
    },
}
for name, parts in TOKEN_PARTS.items():
    write("tokenizer_folder_fuzz", name, struct.pack("<H", len(SAID)) + SAID + json.dumps(parts).encode())


def message(number: int, content: bytes) -> bytes:
    return bytes([number << 3 | 2, len(content)]) + content


def sentencepiece_model(trainer: bytes, normalizer: bytes) -> bytes:
    told = [
        ("<unk>", 2, 0),
        ("<s>", 3, 0),
        ("\u2581the", 1, -2),
        ("\u2581", 1, -3),
        ("t", 1, -4),
        ("h", 1, -4),
        ("th", 4, -1),
    ]
    told = [*told, *((name, 6, 0) for name in HEXES[:100])]
    listed = [
        message(1, message(1, name.encode()) + b"\x15" + struct.pack("<f", score) + b"\x18" + bytes([kind]))
        for name, kind, score in told
    ]
    return b"".join(listed) + message(2, trainer) + message(3, normalizer)


UNIGRAM, PAIRS, FALLBACK, KEEP_SPACES = b"\x18\x01", b"\x18\x02", b"\x98\x02\x01", b"\x18\x00\x20\x00"
# "t" becomes "h": a double array of the root, the node of the byte and its leaf.
CHARSMAP = struct.pack("<I", 4 * 256) + b"".join(
    struct.pack("<I", {0: 1 << 10, 117: 116 | 0x100 | 1 << 10, 116: 0x80000000}.get(i, 0)) for i in range(256)
)
CHARSMAP += b"h\0"
RULES = b"\x12" + bytes([len(CHARSMAP) & 127 | 128, len(CHARSMAP) >> 7]) + CHARSMAP
for name, trainer, normalizer in [
    ("model", PAIRS + FALLBACK, KEEP_SPACES),
    ("unigram_model", UNIGRAM, b""),
    ("unigram_bytes", UNIGRAM + FALLBACK, KEEP_SPACES),
]:
    file = sentencepiece_model(trainer, normalizer)
    write("tokenizer_folder_fuzz", name, struct.pack("<H", len(SAID)) + SAID + file)
rules = sentencepiece_model(UNIGRAM, b"") + b"\x1a" + bytes([len(RULES) & 127 | 128, len(RULES) >> 7]) + RULES
write("tokenizer_folder_fuzz", "rules", struct.pack("<H", len(SAID)) + SAID + rules)


for i, template in enumerate([*(f"{{{{ {expression} }}}}" for expression in EXPRESSIONS), *TEMPLATES]):
    write("chat_template_fuzz", f"case_{i}", bytes(2) + template.encode())
said = b'[{"role": "user", "content": "a<|im_end|>"}, {"role": "assistant", "content": null}]'
chatml = (
    b"{% for m in messages %}{{ '<|im_start|>' + m.role + '\\n' + (m.content or '') + '<|im_end|>\\n' }}{% endfor %}"
)
write("chat_template_fuzz", "messages", struct.pack("<H", len(said)) + said + chatml)


def language_model(architecture: str, kind: int, facts: dict, tensors: dict[str, list[int]], width: int = 32) -> bytes:
    """One layer: matrices whose rows are as long as it is wide of this type, others float16, vectors float32."""
    sizes = {"embedding_length": width, "feed_forward_length": 2, "context_length": 8, "block_count": 1}
    sizes |= {"attention.head_count": 2, "attention.head_count_kv": 1, "attention.key_length": 4}
    sizes |= {"attention.value_length": 4, "attention.layer_norm_rms_epsilon": 1e-5, "rope.freq_base": 1e4} | facts
    shapes = {"token_embd": [width, 3], "output_norm": [width], "blk.0.attn_norm": [width], "blk.0.ffn_norm": [width]}
    shapes |= {"blk.0.attn_q": [width, 8], "blk.0.attn_k": [width, 4], "blk.0.attn_v": [width, 4]}
    shapes |= {"blk.0.ffn_gate": [width, 2], "blk.0.ffn_up": [width, 2], "blk.0.ffn_down": [2, width]}
    entries = []
    for name, shape in (shapes | {"blk.0.attn_output": [8, width]} | tensors).items():
        own = 0 if len(shape) == 1 else kind if shape[0] == width else 1
        weights, size = BLOCKS[own]
        entries.append((name + ".weight", own, shape, torch.Size(shape).numel() // weights * size))
    metadata = [key("general.architecture", architecture)]
    return gguf([*metadata, *(key(f"{architecture}.{name}", value) for name, value in sizes.items())], entries)


YARN = {"rope.scaling.type": "yarn", "rope.scaling.factor": 4.0, "rope.scaling.original_context_length": 4}
HEADS = {"blk.0.attn_q_norm": [4], "blk.0.attn_k_norm": [4]}
WIDE = {"attention.key_length": 16, "attention.value_length": 16, "attention.head_count": 1}
WIDER = {"blk.0.attn_q": [32, 16], "blk.0.attn_k": [32, 16], "blk.0.attn_v": [32, 16], "blk.0.attn_output": [16, 32]}
for kind in (2, 3, 8, 1, 20, 39):
    write("language_config_fuzz", f"type_{kind}", language_model("llama", kind, {}, {}))
write("language_config_fuzz", "yarn", language_model("qwen2", 2, YARN, {}))
linear = {"rope.scaling.type": "linear", "rope.scaling.factor": 2.0, "attention.sliding_window": 2}
write("language_config_fuzz", "linear", language_model("llama", 2, linear, {"rope_freqs": [2]}))
write("language_config_fuzz", "qwen3", language_model("qwen3", 2, {}, HEADS))
caps = {"attn_logit_softcapping": 2.0, "final_logit_softcapping": 3.0, "attention.sliding_window": 1}
ENDS = {"blk.0.post_attention_norm": [32], "blk.0.post_ffw_norm": [32]}
write("language_config_fuzz", "gemma2", language_model("gemma2", 2, caps, ENDS))
write("language_config_fuzz", "gemma3", language_model("gemma3", 30, {}, HEADS | ENDS))
SUBS = {"blk.0.attn_sub_norm": [8], "blk.0.ffn_sub_norm": [2]}
write("language_config_fuzz", "bitnet", language_model("bitnet", 42, {}, SUBS, 64))
write("language_config_fuzz", "relu2", language_model("bitnet-b1.58", 1, {"hidden_activation": "relu2"}, SUBS))
write("language_config_fuzz", "codes", language_model("llama", 2, WIDE, WIDER | {"output": [32, 3]}))

write("net_file_fuzz", "plain", plain_net().bytes())
for name, model in seeds().items():
    write("onnx_fuzz", name, model.SerializeToString())
write("net_file_fuzz", "floats", float_net([[1, 2], [3, 4], [5, 6]], [0, 0, 1], image="1,1,2").bytes())
for width in (1, 4, 8):
    write("net_file_fuzz", f"codes_{width}", coded_net(width).bytes())


def folder(name: str, layers: dict[str, dict[str, torch.Tensor]], *texts: str) -> None:
    """Up to four texts behind their lengths, then a safetensors file."""
    texts = (*texts, *("" for _ in range(4 - len(texts))))
    head = b"".join(struct.pack("<H", len(part)) + part.encode() for part in texts)
    tensors = {f"{layer}.{key}": tensor.clone() for layer, parts in layers.items() for key, tensor in parts.items()}
    write("coded_layers_fuzz", name, head + save(tensors))


def ints(*sizes: int, dtype: torch.dtype = torch.int32) -> torch.Tensor:
    return torch.zeros(sizes, dtype=dtype)


def halves(*sizes: int) -> torch.Tensor:
    return torch.ones(sizes, dtype=torch.float16)


GPTQ = {"qweight": ints(4, 8), "qzeros": ints(2, 1), "scales": halves(2, 8), "g_idx": torch.arange(32).int() // 16}
STATISTIC = {"qstatistic": ints(2, 1, 8, dtype=torch.uint8)}
STATISTIC |= {key: halves(2, 1, 1) for key in ("qscales_zeros", "qscales_scales", "qzeros_zeros", "qzeros_scales")}
ORDER = {"q_perm": ints(32, dtype=torch.int16), "channel_scale": halves(1, 1, 32)}
TABLES = {"scales": halves(2, 8), "zeros": halves(2, 8)}
CONFIG = '{"bits": 4, "group_size": 16, "dynamic": {"+:a.*[bc]": {"bits": 8}, "-:x": {}}}'
STRATEGY = '{"measurement": {"a": {"b": {"bits": [4, 2], "bits_prop": [0.5, 0.5], "group_size": {"4": 16, "2": 16}}}}}'
HUGGING_FACE = {
    **{"num_hidden_layers": 1, "hidden_size": 32, "intermediate_size": 4, "num_attention_heads": 2, "head_dim": 4},
    **{"num_key_value_heads": 1, "max_position_embeddings": 8, "rms_norm_eps": 1e-5},
}
PLACES = {
    **{"self_attn.q_proj": [8, 32], "self_attn.k_proj": [4, 32], "self_attn.v_proj": [4, 32]},
    **{"self_attn.o_proj": [32, 8], "mlp.gate_proj": [4, 32], "mlp.up_proj": [4, 32], "mlp.down_proj": [32, 4]},
    **{"input_layernorm": [32], "post_attention_layernorm": [32]},
}
ROPE = {"rope_type": "llama3", "factor": 8.0, "rope_theta": 1e4, "low_freq_factor": 1.0, "high_freq_factor": 4.0}


def model_folder(name: str, model_type: str, layers: dict, dtype: torch.dtype = torch.float32, **changes) -> None:
    """One layer as Hugging Face has it; `layers` are in place of floats or beside them."""
    config = json.dumps(HUGGING_FACE | {"model_type": model_type} | changes).encode()
    tensors = {f"model.layers.0.{place}.weight": torch.ones(sizes, dtype=dtype) for place, sizes in PLACES.items()}
    tensors |= {"model.embed_tokens.weight": torch.ones(3, 32, dtype=dtype), "model.norm.weight": torch.ones(32)}
    for place, parts in layers.items():
        tensors.pop(f"model.layers.0.{place}.weight", None)
        tensors |= {f"model.layers.0.{place}.{key}": tensor.clone() for key, tensor in parts.items()}
    write("language_folder_fuzz", name, struct.pack("<H", len(config)) + config + save(tensors))


TIED = {"tie_word_embeddings": True}
CAPS = {"attn_logit_softcapping": 2.0, "final_logit_softcapping": 3.0, "sliding_window": 2}
END_NORMS = {f"{part}_feedforward_layernorm": {"weight": torch.zeros(32)} for part in ("pre", "post")}
SMALL_NORMS = {"self_attn.q_norm": {"weight": torch.ones(4)}, "self_attn.k_norm": {"weight": torch.ones(4)}}
SUB_NORMS = {"self_attn.attn_sub_norm": {"weight": torch.ones(8)}, "mlp.ffn_sub_norm": {"weight": torch.ones(4)}}
TERNARY = {"weight": ints(2, 32, dtype=torch.uint8), "weight_scale": torch.ones(1)}
BITNET = {"quantization_config": {"quant_method": "bitnet", "linear_class": "autobitlinear"}}
model_folder("llama", "llama", {}, **TIED, rope_parameters=ROPE)
model_folder(
    "mistral", "mistral", {}, torch.bfloat16, **TIED, sliding_window=2, rope_scaling={"type": "linear", "factor": 2}
)
model_folder("qwen3", "qwen3", SMALL_NORMS, torch.float16, **TIED)
model_folder("gemma2", "gemma2", END_NORMS, torch.float16, **CAPS)
model_folder("gemma3", "gemma3_text", END_NORMS | SMALL_NORMS, sliding_window=2)
model_folder("bitnet", "bitnet", SUB_NORMS | {"self_attn.q_proj": TERNARY}, **TIED, **BITNET)
model_folder("gptq_in_llama", "llama", {"self_attn.q_proj": GPTQ}, **TIED)
model_folder("mixed_in_llama", "llama", {"self_attn.q_proj": {"qweight": GPTQ["qweight"], **ORDER, **TABLES}}, **TIED)
folder("gptq", {"a": GPTQ, "b": {**GPTQ, "bias": halves(8)}}, "", CONFIG)
folder("gptq_2", {"a": GPTQ}, '{"quantization_config": {"bits": 4, "checkpoint_format": "gptq_v2"}}')
SYMMETRIC = {key: GPTQ[key] for key in ("qweight", "scales")} | {"g_idx": GPTQ["g_idx"].long()}
folder(
    "symmetric", {"a": SYMMETRIC, "b": {**GPTQ, "qzeros": ints(2, 1) + 0x77777777}}, "", CONFIG[:-1] + ', "sym": true}'
)
folder("gba", {"a": {"qweight": GPTQ["qweight"], "g_idx": GPTQ["g_idx"], **STATISTIC}})
folder("layer_mix", {"a.b": {"qweight": GPTQ["qweight"], **ORDER, **TABLES}}, "", "", STRATEGY)
groups = torch.tensor([4, 0, 2, 2]).short()
folder("channel_mix", {"a.b": {"qweight": ints(3, 8), "q_groups": groups, **ORDER, **TABLES}}, "", "", STRATEGY)
own = '{"kind": "weights", "format_version": 1, "layers": {"a": {"bits": 5, "group_size": 16}, "e": {"bits": 4, '
own += '"group_size": 8, "embedding_dim": 16}}}'
five = {"qweight": ints(5, 8), "g_idx": GPTQ["g_idx"], **TABLES}
table = {"qweight": ints(4, 2), "scales": halves(4, 2), "zeros": halves(4, 2)}
folder("own", {"a": five, "e": table}, "", "", "", own)
folder("index", {}, '{"metadata": {}, "weight_map": {"a": "b.safetensors"}}')


def saved(name: str, value: object, change: Callable[[bytes], bytes] = bytes, **options: object) -> None:
    """The whole archive, and its pickle alone, which the target wraps itself."""
    file = io.BytesIO()
    torch.save(value, file, **options)
    write("torch_file_fuzz", name, change(file.getvalue()))
    write("torch_file_fuzz", name + "_pickle", zipfile.ZipFile(file).read("archive/data.pkl"))


for protocol in (2, 3, 4, 5):
    saved(f"protocol_{protocol}", {"state_dict": TENSORS, "epoch": 3, "lr": 0.1}, pickle_protocol=protocol)
saved("module", torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.BatchNorm1d(2)).state_dict())
base = torch.arange(16.0)
saved("views", {"a": base, "b": base[1:9:2], "c": base.reshape(4, 4).t()})
parameter = torch.nn.Parameter(torch.ones(2))
parameter.note = "x"
saved("parameters", {"a": torch.nn.Parameter(torch.ones(3)), "b": parameter, "l": [1, (2, 3), None, 1 << 70]})
