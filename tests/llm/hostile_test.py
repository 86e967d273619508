"""Files that are no language model, or a damaged one, and calls that fit no model: one sentence each, at once."""

import json
import os
import resource
import subprocess
import time

import gguf
import numpy as np
import pytest

pytest.importorskip("transformers", reason="transformers is not installed")

from interrupts import interrupt
from llm_library import F32 as FLOATS
from llm_library import INT8, Error
from small_models import letters, write_changed, write_model

U32, F32, TEXT = gguf.GGUFValueType.UINT32, gguf.GGUFValueType.FLOAT32, gguf.GGUFValueType.STRING
METADATA = {
    "no heads": ({"{arch}.attention.head_count": (U32, 0)}, "head_count.*expected 1 to 4096, got 0"),
    "KV heads that do not divide": (
        {"{arch}.attention.head_count_kv": (U32, 3)},
        "heads that 3 KV heads divide, got 4",
    ),
    "2^60 layers": (
        {"{arch}.block_count": (gguf.GGUFValueType.UINT64, 1 << 60)},
        "block_count.*expected 1 to 4096, got 1152921504606846976",
    ),
    "no layers": ({"{arch}.block_count": (None, 0)}, 'block_count" is missing'),
    "more layers than tensors": ({"{arch}.block_count": (U32, 3)}, 'blk.2.attn_norm.weight" is missing'),
    "fewer layers than tensors": ({"{arch}.block_count": (U32, 1)}, 'expected the tensors of llama, got "blk.1'),
    "a width of text": (
        {"{arch}.embedding_length": (TEXT, "64")},
        'embedding_length" is expected to be a whole number',
    ),
    "another width": (
        {"{arch}.embedding_length": (U32, 32)},
        r"token_embd.weight.*expected \[tokens, 32\], got \[96, 64\]",
    ),
    "a wide head": ({"{arch}.attention.key_length": (U32, 64)}, "values as long as keys, 64, got 16"),
    "an odd rotation": ({"{arch}.rope.dimension_count": (U32, 7)}, "even number of rotated elements, got 7"),
    "a base of NaN": ({"{arch}.rope.freq_base": (F32, float("nan"))}, "freq_base.*expected 1"),
    "a base of 1": ({"{arch}.rope.freq_base": (F32, 1.0)}, "freq_base.*expected"),
    "an eps below 0": ({"{arch}.attention.layer_norm_rms_epsilon": (F32, -1.0)}, "epsilon.*expected 0 to 1, got -1"),
    "an unread scaling": ({"{arch}.rope.scaling.type": (TEXT, "longrope")}, 'none, linear or yarn, got "longrope"'),
    "experts": ({"{arch}.expert_count": (U32, 8)}, "a model without experts"),
    "a cap of a family without": (
        {"{arch}.attn_logit_softcapping": (F32, 50.0)},
        "expected no soft caps, got llama.attn_logit_softcapping of 50",
    ),
    "an unread activation": (
        {"{arch}.hidden_activation": (TEXT, "relu")},
        'an activation of silu, relu2 or gelu_pytorch_tanh, got "relu"',
    ),
    "an activation of numbers": ({"{arch}.hidden_activation": (U32, 1)}, 'hidden_activation" is expected to be a text'),
    "no context": ({"{arch}.context_length": (U32, 0)}, "context_length.*expected 1 to"),
}


@pytest.mark.parametrize("kind", METADATA)
def test_metadata_out_of_range(library, tmp_path, kind):
    overrides, sentence = METADATA[kind]
    path = write_changed(tmp_path / "a.gguf", overrides=overrides)
    with pytest.raises(Error, match=sentence) as error:
        library.model(path)
    assert error.value.status == 1
    assert str(path) in str(error.value)
    assert "\n" not in str(error.value)


def without(name):
    return lambda tensors: tensors.pop(name)


def replaced(name, value):
    return lambda tensors: tensors.__setitem__(name, np.asarray(value, np.float32))


TENSORS = {
    "a missing matrix": (without("blk.1.ffn_up.weight"), 'blk.1.ffn_up.weight" is missing'),
    "a missing norm": (without("output_norm.weight"), 'output_norm.weight" is missing'),
    "a missing embedding": (without("token_embd.weight"), 'token_embd.weight" is missing'),
    "a misshapen matrix": (
        replaced("blk.0.attn_k.weight", np.zeros((64, 64))),
        r"blk.0.attn_k.weight\": expected \[32, 64\], got \[64, 64\]",
    ),
    "a misshapen norm": (replaced("blk.0.ffn_norm.weight", np.ones(63)), r"expected \[64\], got \[63\]"),
    "a misshapen bias": (replaced("blk.0.attn_q.bias", np.ones(3)), r"attn_q.bias\": expected \[64\], got \[3\]"),
    "a tensor of another family": (
        replaced("blk.0.attn_q_norm.weight", np.ones(16)),
        'expected the tensors of llama, got "blk.0.attn_q_norm.weight" beside them',
    ),
    "divisors of another size": (replaced("rope_freqs.weight", np.ones(5)), "expected 8 numbers of F32"),
    "a divisor of 0": (replaced("rope_freqs.weight", np.zeros(8)), "holds a number that is not positive"),
    "a divisor near 0": (
        replaced("rope_freqs.weight", np.full(8, 1e-30)),
        r"rope_freqs.weight\": expected rotations of at most 1e\+06 a position, got 1e\+30",
    ),
}


@pytest.mark.parametrize("kind", TENSORS)
def test_tensors_that_do_not_fit(library, tmp_path, kind):
    change, sentence = TENSORS[kind]
    path = write_changed(tmp_path / "a.gguf", change)
    with pytest.raises(Error, match=sentence) as error:
        library.model(path)
    assert error.value.status == 1


@pytest.mark.parametrize("cap", [-1.0, float("nan"), float("inf")])
@pytest.mark.parametrize("key", ["attn_logit_softcapping", "final_logit_softcapping"])
def test_caps_that_are_none(library, tmp_path, key, cap):
    path = write_changed(tmp_path / "a.gguf", architecture="gemma2", overrides={f"{{arch}}.{key}": (F32, cap)})
    with pytest.raises(Error, match=rf'gemma2.{key}": expected 0 to 1e\+30, got '):
        library.model(path)


def test_norms_of_a_family_are_missed(library, tmp_path):
    for architecture, name in (("bitnet", "attn_sub_norm"), ("gemma2", "post_attention_norm")):
        path = write_changed(tmp_path / "a.gguf", architecture=architecture)
        with pytest.raises(Error, match=f'blk.0.{name}.weight" is missing'):
            library.model(path)


def test_another_architecture_is_named(library, tmp_path):
    path = write_changed(tmp_path / "a.gguf", architecture="mamba")
    with pytest.raises(Error, match=r'an architecture among llama, .*, gemma3, bitnet, bitnet-b1\.58, got "mamba"'):
        library.model(path)


def test_a_file_of_no_language_model(library, tmp_path):
    path = tmp_path / "a.gguf"
    path.write_bytes(b"GGUF" + (3).to_bytes(4, "little") + bytes(16))
    with pytest.raises(Error, match=r'general.architecture" is missing: expected the file of a language model'):
        library.model(path)
    for content in (b"", b"GGUF", b"PK\3\4" + bytes(60)):
        path.write_bytes(content)
        with pytest.raises(Error, match=r"a\.gguf"):
            library.model(path)


@pytest.mark.parametrize("size", [0, 3, 4, 24, 100, 2000, 20000])
def test_a_file_that_was_cut(library, models, tmp_path, size):
    path = tmp_path / "cut.gguf"
    path.write_bytes(models("llama").read_bytes()[:size])
    with pytest.raises(Error, match=r"cut\.gguf"):
        library.model(path)


def test_nan_in_a_scale(library, models, tmp_path):
    reader = gguf.GGUFReader(models("llama", "Q8_0"))
    tensor = next(t for t in reader.tensors if t.name == "blk.1.ffn_down.weight")
    data = bytearray(models("llama", "Q8_0").read_bytes())
    data[tensor.data_offset : tensor.data_offset + 2] = b"\xff\x7f"
    path = tmp_path / "nan.gguf"
    path.write_bytes(data)
    with pytest.raises(Error, match=r'blk.1.ffn_down.weight" holds NaN or infinity in a scale of row 0'):
        library.model(path)


def tokenizer_of(tokens=None, merges=(), rule="gpt-2", model="gpt2", kinds=None, **ids):
    def write_it(writer):
        names = tokens or letters()
        writer.add_tokenizer_model(model)
        if rule:
            writer.add_tokenizer_pre(rule)
        writer.add_token_list(names)
        writer.add_token_types(kinds or [1] * len(names))
        writer.add_token_merges(list(merges))
        for key, value in ids.items():
            getattr(writer, f"add_{key}")(value)

    return write_it


TOKENIZERS = {
    "another model": (tokenizer_of(model="rwkv"), 'or of WordPiece, "bert", got "rwkv"'),
    "an unread splitter": (
        tokenizer_of(rule="unheard-of"),
        'seed-coder, got "unheard-of"',
    ),
    "no splitter": (tokenizer_of(rule=None), "tokenizer.ggml.pre"),
    "a merge of no token": (
        tokenizer_of(merges=["a b"]),
        'merge 0, "a b": expected tokens of the vocabulary, got "ab"',
    ),
    "half a merge": (tokenizer_of(merges=["ab"]), 'merge 0: expected two tokens, got "ab"'),
    "a merge of other bytes": (
        tokenizer_of(tokens=[*letters()[:94], "\1", "\u0120\1"], merges=["\u0120 \1"]),
        "expected a token of the bytes of both, got ",
    ),
    "a token twice": (tokenizer_of(tokens=["a"] * 96), 'expected every token once, got "a" twice'),
    "a kind of 9": (tokenizer_of(kinds=[9] * 96), "token 0: expected a type from 1 to 6, got 9"),
    "too few kinds": (tokenizer_of(kinds=[1] * 95), "expected 96 types of tokens, got 95"),
    "an end out of range": (tokenizer_of(eos_token_id=96), "expected a token from 0 to 95, got 96"),
    "too few tokens": (tokenizer_of(tokens=letters()[:90]), "as many tokens as rows of the embedding, 96, got 90"),
}


@pytest.mark.parametrize("kind", TOKENIZERS)
def test_tokenizers_that_are_not_read(bie, library, tmp_path, kind):
    write_it, sentence = TOKENIZERS[kind]
    path = write_changed(tmp_path / "a.gguf", tokenizer=write_it)
    process = subprocess.run([bie, "generate", path, "--prompt", "a"], capture_output=True, text=True, timeout=60)
    assert process.returncode == 3
    assert f"GGUF file {path}: " in process.stderr
    assert sentence in process.stderr
    assert process.stdout == ""
    model = library.model(path)
    assert model.logits([1, 2, 3]).shape == (3, 96), "tokens can be read all the same"


def refused(bie, status: int, *words, **options) -> str:
    process = subprocess.run([bie, *map(str, words)], capture_output=True, text=True, timeout=60, **options)
    assert (process.returncode, process.stdout) == (status, ""), process.stderr
    return process.stderr


WORDS = {
    "an empty name": (["tokenize", "", "--text", "a"], "model: the name is empty"),
    "an empty name of a prompt": (["generate", "MODEL", "--prompt-file", ""], "--prompt-file: the name is empty"),
    "an empty token": (["tokenize", "MODEL", "--decode", ""], 'expected the number of a token, got ""'),
    "a token beyond 2^31": (["tokenize", "MODEL", "--decode", "99999999999"], 'token, got "99999999999"'),
    "a seed below 0": (
        ["generate", "MODEL", "--prompt", "a", "--temperature", "1", "--seed", "-1"],
        'expected a whole number from 0 to 2^64 - 1, got "-1"',
    ),
    "a seed of 2^64": (
        ["generate", "MODEL", "--prompt", "a", "--temperature", "1", "--seed", "18446744073709551616"],
        'expected a whole number from 0 to 2^64 - 1, got "18446744073709551616"',
    ),
}


@pytest.mark.parametrize("kind", WORDS)
def test_words_that_are_no_option(bie, models, kind):
    words, sentence = WORDS[kind]
    assert sentence in refused(bie, 2, *(models("llama") if word == "MODEL" else word for word in words))


def test_a_prompt_of_a_batch_that_does_not_fit_is_named(bie, models, tmp_path):
    file = tmp_path / "prompts"
    file.write_text("a\n\nb\n")
    assert f"file {file}: line 2: expected a prompt of one" in refused(
        bie, 3, "generate", models("llama"), "--batch", file
    )
    file.write_text("a\nabcdef\n")
    words = ["generate", models("llama"), "--batch", file, "--context", 3]
    assert "prompt 2: expected a prompt of at most 3 tokens, the context, got 6" in refused(bie, 3, *words)


def test_threads_that_the_system_has_not(bie, models):
    """Stacks of 64 threads are more than this address space."""

    def limit():
        resource.setrlimit(resource.RLIMIT_AS, (200 << 20, 200 << 20))

    words = ["--threads", 64, "generate", models("llama"), "--prompt", "a"]
    assert "expected 64 threads, the system has fewer" in refused(bie, 1, *words, preexec_fn=limit)


def test_a_batch_of_long_prompts_is_interrupted(bie, smollm, tmp_path):
    file = tmp_path / "prompts"
    file.write_text(("word " * 1000 + "\n") * 100)
    process = subprocess.Popen(
        [bie, "--threads", "1", "generate", smollm, "--batch", file, "--tokens", "1", "--json"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    interrupt(process)
    output, _ = process.communicate(timeout=30)  # all prompts take minutes
    assert process.returncode == 130
    assert all(answer["finish"] == "interrupted" for answer in json.loads(output.splitlines()[0]))


def test_sequences_of_another_model(library, tmp_path):
    """Fewer layers have smaller pages: a pass would write behind them."""
    model = library.model(write_changed(tmp_path / "a.gguf"), INT8)

    def first_layer(tensors):
        for name in [name for name in tensors if name.startswith("blk.1")]:
            del tensors[name]

    for name, change, overrides in [("one", first_layer, {"{arch}.block_count": (U32, 1)}), ("same", None, None)]:
        other = library.model(write_changed(tmp_path / f"{name}.gguf", change, overrides=overrides), INT8)
        sequence = other.sequence()
        with pytest.raises(Error, match="a sequence of this session, got one of another model or cache") as error:
            model.read([(sequence, [1, 2, 3])])
        assert error.value.status == 2
        assert other.read([(sequence, [1, 2, 3])]).shape == (3, 96)
    floats = library.model(tmp_path / "a.gguf", INT8, cache=FLOATS)
    with pytest.raises(Error, match="another model or cache"):
        model.read([(floats.sequence(), [1])])


def test_choices_of_infinite_numbers(library, models):
    sequence = library.model(models("llama")).sequence()
    for options in ({"temperature": float("inf")}, {"temperature": 1, "repeat_penalty": float("inf")}):
        with pytest.raises(Error, match="expected a finite temperature"):
            sequence.choose(np.zeros(96), **options)


def test_thousands_of_layers_load_at_once(library, tmp_path):
    """The time is that of the number of tensors, not of its square."""
    layers, path = 4096, tmp_path / "deep.gguf"
    writer = gguf.GGUFWriter(str(path), "llama")
    for name in ("embedding_length", "feed_forward_length", "head_count", "context_length"):
        getattr(writer, f"add_{name}")(1)
    writer.add_block_count(layers)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_dimension_count(0)
    shapes = {"attn_norm": 1, "ffn_norm": 1}
    shapes |= {name: (1, 1) for name in ("attn_q", "attn_k", "attn_v", "attn_output", "ffn_gate", "ffn_up", "ffn_down")}
    writer.add_tensor("token_embd.weight", np.ones((2, 1), np.float32))
    writer.add_tensor("output_norm.weight", np.ones(1, np.float32))
    for layer in range(layers):
        for name, shape in shapes.items():
            writer.add_tensor(f"blk.{layer}.{name}.weight", np.ones(shape, np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    begin = time.perf_counter()
    model = library.model(path, INT8)
    assert time.perf_counter() - begin < 5
    assert model.logits([0]).shape == (1, 2)


def test_a_file_that_is_cut_short_while_it_is_read(bie, tmp_path):
    """The rows of the embedding are read from the file when they are wanted; so does a disk fail."""
    path = tmp_path / "model.gguf"
    write_model(path, "llama", "Q8_0", end=0)
    process = subprocess.Popen(
        [bie, "chat", path, "--tokens", "4"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    process.stdin.write("Hello\n")
    process.stdin.flush()
    assert process.stdout.readline()  # the model is loaded
    os.truncate(path, 100)
    _, said = process.communicate("Again\n", timeout=60)
    assert process.returncode == 3 and "a file could not be read to its end" in said
