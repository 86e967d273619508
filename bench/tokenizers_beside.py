"""Times the tokenizer of a GGUF file beside PyPI's tokenizers or sentencepiece, on one text, in one run.

Usage: tokenizers_beside.py MODEL.gguf [--text FILE] [--megabytes N] [--rounds N] [--markdown]

The rivals are made of the file's own vocabulary: tokenizers of one with merges, sentencepiece of one with
scores. Each round runs every one once, in turn, on one thread; the table has medians. Without --text the text is this
tree's own pages and sources, repeated up to the size. BIE_LLM_LIBRARY names the library where bie-llm is not installed.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path

os.environ["TOKENIZERS_PARALLELISM"] = "false"
ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "python/bie-llm"))

import bie.llm  # noqa: E402  its folder is put on the path above
import gguf  # noqa: E402

GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
WORDS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|"
REST = r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
PATTERNS = {
    "gpt-2": [GPT2],
    "smollm": [r"\p{N}", GPT2],
    "llama-bpe": [WORDS + r"\p{N}{1,3}" + REST],
    "qwen2": [WORDS + r"\p{N}" + REST],
}


def own_text(size: int) -> str:
    files = sorted([*ROOT.glob("docs/**/*.md"), *ROOT.glob("src/**/*.cpp")])
    text = "".join(file.read_text(encoding="utf-8") for file in files)
    return (text * (size // len(text) + 1))[:size]


def of_merges(facts: dict) -> dict[str, Callable[[str], list[int]]]:
    """tokenizers, of the same rule of pieces."""
    from tokenizers import Regex, Tokenizer, models, pre_tokenizers

    rule = facts["pre"]
    if rule not in PATTERNS:
        sys.exit(f"expected a rule among {', '.join(PATTERNS)}, got {rule}")
    ids = {token: i for i, token in enumerate(facts["tokens"])}
    merges = [tuple(merge.split(" ", 1)) for merge in facts["merges"]]
    theirs = Tokenizer(models.BPE(vocab=ids, merges=merges, ignore_merges=rule == "llama-bpe"))
    splits = [pre_tokenizers.Split(Regex(pattern), "isolated") for pattern in PATTERNS[rule]]
    theirs.pre_tokenizer = pre_tokenizers.Sequence([*splits, pre_tokenizers.ByteLevel(False, use_regex=False)])
    return {"tokenizers": lambda text: theirs.encode(text, add_special_tokens=False).ids}


def of_scores(facts: dict) -> dict[str, Callable[[str], list[int]]]:
    import sentencepiece
    from sentencepiece import sentencepiece_model_pb2 as pb

    proto = pb.ModelProto()
    for token, score, kind in zip(facts["tokens"], facts["scores"], facts["token_type"], strict=True):
        proto.pieces.add(piece=token.replace(" ", "\u2581"), score=score, type=kind)
    proto.trainer_spec.model_type = pb.TrainerSpec.BPE
    proto.trainer_spec.byte_fallback = True
    proto.normalizer_spec.name = "identity"
    proto.normalizer_spec.add_dummy_prefix = facts.get("add_space_prefix", True)
    proto.normalizer_spec.remove_extra_whitespaces = False
    theirs = sentencepiece.SentencePieceProcessor(model_proto=proto.SerializeToString())
    return {"sentencepiece": theirs.encode}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model")
    parser.add_argument("--text", type=Path)
    parser.add_argument("--megabytes", type=float, default=10)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--markdown", action="store_true")
    options = parser.parse_args()
    fields = gguf.GGUFReader(options.model).fields
    prefix = "tokenizer.ggml."
    facts = {k.removeprefix(prefix): f.contents() for k, f in fields.items() if k.startswith(prefix)}
    model = bie.llm.load(options.model, threads=1)
    programs = {"bie": lambda text: model.tokenize(text, special=False, begin=False)}
    programs |= of_merges(facts) if facts["model"] == "gpt2" else of_scores(facts)
    text = options.text.read_text(encoding="utf-8") if options.text else own_text(int(options.megabytes * 1e6))
    size = len(text.encode()) / 1e6

    seconds: dict[str, list[float]] = {name: [] for name in programs}
    tokens = {}
    for _ in range(options.rounds):
        for name, run in programs.items():
            start = time.perf_counter()
            tokens[name] = run(text)
            seconds[name].append(time.perf_counter() - start)
    ours = statistics.median(seconds["bie"])
    if options.markdown:
        print("| program | MB a second | times bie's seconds | tokens | equal |\n| --- | --- | --- | --- | --- |")
    for name, all_of_it in seconds.items():
        median = statistics.median(all_of_it)
        row = [name, f"{size / median:.1f}", f"{median / ours:.2f}", f"{len(tokens[name])}"]
        row.append("yes" if tokens[name] == tokens["bie"] else "no")
        print("| " + " | ".join(row) + " |" if options.markdown else "  ".join(row))


if __name__ == "__main__":
    main()
