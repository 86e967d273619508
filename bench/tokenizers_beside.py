"""Times the tokenizer of a GGUF file beside PyPI's tokenizers or sentencepiece, on one text, in one run.

Usage: tokenizers_beside.py [MODEL.gguf] [--text FILE] [--megabytes N] [--rounds N] [--markdown] [--lines PROGRAM]

Without a model the rivals train vocabularies of 6,000 tokens on the text: BPE of bytes and of characters, Unigram and
WordPiece as tokenizer.json, BPE and Unigram as .model. bie_tokenize_lines, which a build has in tests/text, reads them
and tells the seconds of encoding alone.

The rivals are made of the file's own vocabulary: tokenizers of one with merges, sentencepiece of one with
scores. Each round runs every one once, in turn, on one thread; the table has medians. Without --text the text is this
tree's own pages and sources, repeated up to the size. BIE_LLM_LIBRARY names the library where bie-llm is not installed.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

os.environ["TOKENIZERS_PARALLELISM"] = "false"
ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "python/bie-llm"))

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


def trained_by_tokenizers(text: str, folder: Path) -> dict[str, tuple[Path, Callable[[str], list[int]]]]:
    """A tokenizer.json of each kind, and its tokenizer."""
    from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, trainers

    def made(name, model, trainer, pre, normalizer=None):
        tokenizer = Tokenizer(model)
        tokenizer.pre_tokenizer = pre
        if normalizer:
            tokenizer.normalizer = normalizer
        tokenizer.train_from_iterator(text.splitlines(keepends=True), trainer)
        path = folder / f"{name.replace(' ', '-')}.json"
        tokenizer.save(str(path))
        return path, lambda t: tokenizer.encode(t, add_special_tokens=False).ids

    options = {"vocab_size": 6000, "show_progress": False, "special_tokens": ["<unk>"]}
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    bpe, of_bytes = trainers.BpeTrainer(**options), trainers.BpeTrainer(**options, initial_alphabet=alphabet)
    unigram = trainers.UnigramTrainer(**options, unk_token="<unk>")
    words, mark = trainers.WordPieceTrainer(**options), pre_tokenizers.Metaspace()
    bert = (pre_tokenizers.BertPreTokenizer(), normalizers.BertNormalizer())
    return {
        "BPE ByteLevel": made(
            "BPE ByteLevel", models.BPE(), of_bytes, pre_tokenizers.ByteLevel(add_prefix_space=False)
        ),
        "BPE Metaspace": made("BPE Metaspace", models.BPE(unk_token="<unk>"), bpe, mark),
        "Unigram Metaspace": made("Unigram Metaspace", models.Unigram(), unigram, mark),
        "WordPiece BERT": made("WordPiece BERT", models.WordPiece(unk_token="<unk>"), words, *bert),
    }


def trained_by_sentencepiece(text: str, folder: Path) -> dict[str, tuple[Path, Callable[[str], list[int]]]]:
    import sentencepiece

    found = {}
    for kind in ("bpe", "unigram"):
        path = folder / f"{kind}.model"
        with path.open("wb") as file:
            sentencepiece.SentencePieceTrainer.train(
                sentence_iterator=iter(text.splitlines()),
                model_writer=file,
                model_type=kind,
                vocab_size=6000,
                minloglevel=2,
            )
        theirs = sentencepiece.SentencePieceProcessor(model_file=str(path))
        found[f".model {kind}"] = path, theirs.encode
    return found


def seconds_of_lines(program: Path, path: Path, text: str) -> tuple[float, list[int]]:
    # sentencepiece finds no control tokens in texts.
    words = [program, path, *(["plain"] if path.suffix == ".model" else [])]
    run = subprocess.run(words, input=json.dumps(text).encode() + b"\n", capture_output=True, check=True)
    found = json.loads(run.stdout.split(b"\n")[1])
    return found["seconds"], found["tokens"]


def run_families(text: str, options: argparse.Namespace) -> None:
    size = len(text.encode()) / 1e6
    with tempfile.TemporaryDirectory() as name:
        start = text[:1_000_000]
        kinds = trained_by_tokenizers(start, Path(name)) | trained_by_sentencepiece(start, Path(name))
        seconds = {(kind, who): [] for kind in kinds for who in ("bie", "rival")}
        equal, counts = {}, {}
        for _ in range(options.rounds):
            for kind, (path, theirs) in kinds.items():
                ours, tokens = seconds_of_lines(options.lines, path, text)
                begin = time.perf_counter()
                wanted = theirs(text)
                seconds[kind, "rival"].append(time.perf_counter() - begin)
                seconds[kind, "bie"].append(ours)
                equal[kind], counts[kind] = tokens == wanted, len(wanted)
    if options.markdown:
        print("| vocabulary | rival | bie, MB a second | rival, MB a second | ratio | tokens | equal |")
        print("| --- | --- | --- | --- | --- | --- | --- |")
    for kind in kinds:
        ours, theirs = (statistics.median(seconds[kind, who]) for who in ("bie", "rival"))
        row = [
            kind,
            "sentencepiece" if kind.startswith(".") else "tokenizers",
            f"{size / ours:.1f}",
            f"{size / theirs:.1f}",
        ]
        row += [f"{theirs / ours:.1f}", str(counts[kind]), "yes" if equal[kind] else "no"]
        print("| " + " | ".join(row) + " |" if options.markdown else "  ".join(row))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model", nargs="?")
    parser.add_argument("--lines", type=Path, default=ROOT / "build/release/tests/text/bie_tokenize_lines")
    parser.add_argument("--text", type=Path)
    parser.add_argument("--megabytes", type=float, default=10)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--markdown", action="store_true")
    options = parser.parse_args()
    text = options.text.read_text(encoding="utf-8") if options.text else own_text(int(options.megabytes * 1e6))
    if options.model is None:
        run_families(text, options)
        return
    import bie.llm
    import gguf

    fields = gguf.GGUFReader(options.model).fields
    prefix = "tokenizer.ggml."
    facts = {k.removeprefix(prefix): f.contents() for k, f in fields.items() if k.startswith(prefix)}
    model = bie.llm.load(options.model, threads=1)
    programs = {"bie": lambda text: model.tokenize(text, special=False, begin=False)}
    programs |= of_merges(facts) if facts["model"] == "gpt2" else of_scores(facts)
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
