"""Tuning of folders of codes: gradients and codes against plain formulas, what is written, and what is refused."""

import json
import shutil

import pytest
import torch

transformers = pytest.importorskip("transformers", reason="transformers is not installed")

from safetensors import safe_open  # noqa: E402
from safetensors.torch import load_file, save_file  # noqa: E402
from weight_folders import packed  # noqa: E402

import bie.hf  # noqa: E402
from bie.formats import load_weights_folder, save_gptq, save_weights  # noqa: E402
from bie.quantization import tune, tuning  # noqa: E402

VOCABULARY, WINDOW = 61, 16
SIZES = {
    **{"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 2, "head_dim": 16},
    **{"num_key_value_heads": 1, "vocab_size": VOCABULARY, "max_position_embeddings": 24},
    **{"bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0},
}
FAST = {"window": WINDOW, "batch": 4, "rate": 0.02, "device": "cpu"}


def generator(seed):
    return torch.Generator().manual_seed(seed)


def float_model(kind, tied, **options):
    torch.manual_seed(0)
    config = transformers.AutoConfig.for_model(kind, **SIZES | options, tie_word_embeddings=tied)
    model = transformers.AutoModelForCausalLM.from_config(config, dtype=torch.float32).eval()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "norm" in name:
                parameter.uniform_(0.5, 1.5)
                parameter.sub_(float("gemma" in kind))  # whose norms multiply by 1 + the weight
            else:
                parameter.normal_(0, 0.5 if name.endswith("bias") else 0.3)
    return model


def text(windows=30, seed=3):
    return torch.randint(VOCABULARY, (windows * WINDOW,), generator=generator(seed))


def made(tmp_path, kind="llama", tied=True, target="w2", **options):
    """(folder of bie's codes, folder of the float model); scales are float16, Gemma's layers all bfloat16."""
    model = float_model(kind, tied)
    model.save_pretrained(tmp_path / "float")
    bie.convert(model, target, **{"group_size": 16, "dtype": torch.float16} | options)
    if kind == "gemma3_text":
        model.model.layers.to(torch.bfloat16)
    model.config.save_pretrained(tmp_path / "coded")
    save_weights(tmp_path / "coded/model.safetensors", model)
    (tmp_path / "coded/notes.txt").write_text("of mine")
    return tmp_path / "coded", tmp_path / "float"


def made_gptq(tmp_path):
    """GPTQ's codes, a 16-bit table and 32-bit norms, as `bie quantize --format gptq` writes them."""
    model = float_model("qwen2", tied=True)
    model.save_pretrained(tmp_path / "float")
    options = {"group_size": 16, "use_gba_quant": False, "train_bias": False, "dtype": torch.float16}
    bie.convert(model, "w3", filter=lambda name, module: "proj" in name, **options)
    model.model.embed_tokens.half()
    model.config.save_pretrained(tmp_path / "coded")
    save_gptq(tmp_path / "coded", model)
    return tmp_path / "coded", tmp_path / "float"


def divergence(path, teacher, windows):
    """The mean of KL(teacher || folder), in double."""
    logs = []
    for source in (teacher, path):
        with torch.no_grad():
            logs.append(bie.hf.load(source)(input_ids=windows).logits.double().log_softmax(-1))
    wanted, found = logs
    return float((wanted.exp() * (wanted - found)).sum(-1).mean())


def contents(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def tensors_of(folder):
    return {name: tensor for file in sorted(folder.glob("*.safetensors")) for name, tensor in load_file(file).items()}


def changed_keys(one, other):
    """The last part of the names of tensors that differ; names, shapes and types must not."""
    before, after = tensors_of(one), tensors_of(other)
    assert {k: (v.shape, v.dtype) for k, v in before.items()} == {k: (v.shape, v.dtype) for k, v in after.items()}
    return {name for name, tensor in before.items() if not torch.equal(tensor, after[name])}


def metadata_of(path):
    with safe_open(path, framework="pt") as file:
        return file.metadata()


def test_gradients_are_those_of_the_plain_formula():
    codes = torch.randint(16, (5, 3, 8), generator=generator(0)).to(torch.uint8)
    scales, zeros = (torch.randn(5, 3, 1, generator=generator(i), dtype=torch.float64) for i in range(2))
    weight = torch.randn(5, 24, generator=generator(4), dtype=torch.float64)
    scales.requires_grad_()
    zeros.requires_grad_()
    ((codes * scales - zeros).flatten(1) * weight).square().sum().backward()
    own = [tensor.detach()[..., 0].clone().requires_grad_() for tensor in (scales, zeros)]
    opened = tuning.OpenedCodes.apply(codes, *own)
    (opened * weight).square().sum().backward()
    assert torch.allclose(own[0].grad, scales.grad[..., 0]) and torch.allclose(own[1].grad, zeros.grad[..., 0])
    assert torch.autograd.gradcheck(lambda s, z: tuning.OpenedCodes.apply(codes, s, z), own)


@pytest.mark.parametrize("bits", [1, 2, 3, 4, 5, 6, 7, 8])
@pytest.mark.parametrize("count", [1, 32, 70])
def test_codes_are_opened_as_a_plain_loop_does(bits, count):
    codes = torch.randint(2**bits, (count, 3), generator=generator(bits))
    codes[:, 0] = 2**bits - 1
    words = packed(codes, bits)
    numbers = [sum((int(words[i, n]) & 0xFFFFFFFF) << (32 * i) for i in range(len(words))) for n in range(3)]
    wanted = [[number >> (bits * i) & (2**bits - 1) for number in numbers] for i in range(count)]
    assert tuning.codes_of(words, bits, count).tolist() == wanted == codes.tolist()


FOLDERS = {
    "tied llama": made,
    "gemma3": lambda path: made(path, "gemma3_text"),  # whose norms have 16 bits here
    "groups that do not fill a row": lambda path: made(path, "qwen2", group_size=24),
    "one group, untied": lambda path: made(path, tied=False, group_size=-1),
}


@pytest.mark.parametrize("kind", FOLDERS)
def test_a_folder_comes_closer_to_the_float_model(kind, tmp_path):
    coded, teacher = FOLDERS[kind](tmp_path)
    tokens = text()
    report = tune(coded, tokens, 12, teacher=teacher, out=tmp_path / "out", **FAST)
    held_out = tokens.view(-1, WINDOW)[-3:]
    assert report.windows == (27, 3) and report.step > 6
    assert report.before == pytest.approx(divergence(coded, teacher, held_out), rel=1e-4)
    assert report.after == pytest.approx(divergence(tmp_path / "out", teacher, held_out), rel=1e-4)
    assert report.after < 0.8 * report.before
    assert str(report).startswith(f"{report.before:.4f} nats before, {report.after:.4f} after step {report.step}, on 3")
    changed = changed_keys(coded, tmp_path / "out")
    assert {name.rpartition(".")[2] for name in changed} == {"scales", "zeros", "weight"} | (
        {"bias"} if "row" in kind else set()
    )
    assert all("norm" in name for name in changed if name.endswith(".weight"))
    assert metadata_of(tmp_path / "out/model.safetensors") == metadata_of(coded / "model.safetensors")
    other_files = [
        {n: c for n, c in contents(path).items() if "tensors" not in n} for path in (coded, tmp_path / "out")
    ]
    assert other_files[0] == other_files[1] and other_files[0].keys() == {"config.json", "notes.txt"}
    assert sorted(path.name for path in tmp_path.iterdir()) == ["coded", "float", "out"]
    for name, layer in load_weights_folder(tmp_path / "out").layers.items():
        assert bool((layer.tensors["scales"] > 0).all()), name


@pytest.mark.parametrize("kind", ["tied llama", "gemma3"])
def test_the_student_is_the_model_that_is_loaded(kind, tmp_path):
    coded, _ = FOLDERS[kind](tmp_path)
    student = tuning._Student(coded, load_weights_folder(coded))
    windows = text(2).view(2, -1)
    with torch.no_grad():
        wanted = bie.hf.load(coded)(input_ids=windows).logits
        assert torch.allclose(student.model(input_ids=windows).logits, wanted, atol=1e-4)
    stored, there = student.stored(), tensors_of(coded)
    assert all(torch.equal(tensor, there[name]) for name, tensor in stored.items())
    assert stored.keys() == {name for name in there if not name.endswith("qweight") and "g_idx" not in name}


def test_whole_zeros_of_gptq_stay(tmp_path):
    coded, teacher = made_gptq(tmp_path)
    report = tune(coded, text(), 20, teacher=teacher, out=tmp_path / "out", **FAST)
    held_out = text().view(-1, WINDOW)[-3:]
    assert report.after == pytest.approx(divergence(tmp_path / "out", teacher, held_out), rel=1e-4)
    assert report.after < 0.9 * report.before
    changed = changed_keys(coded, tmp_path / "out")
    assert {name.rpartition(".")[2] for name in changed} == {"scales", "weight", "bias"}
    assert all("norm" in name for name in changed if name.endswith(".weight"))
    assert {layer.kind for layer in load_weights_folder(tmp_path / "out").layers.values()} == {"gptq"}


def test_shards_stay_and_so_does_what_readers_add_or_leave_out(tmp_path):
    """Symmetric GPTQ without zeros, which its reader makes, and a bias of zeros, which it takes for none."""
    coded, teacher = made_gptq(tmp_path)
    tensors = load_file(coded / "model.safetensors")
    tensors = {name: tensor for name, tensor in tensors.items() if not name.endswith("qzeros")}
    tensors["model.layers.1.self_attn.q_proj.bias"].zero_()
    config = json.loads((coded / "quantize_config.json").read_text()) | {"sym": True}
    (coded / "quantize_config.json").write_text(json.dumps(config))
    shards = {name: f"model-0000{1 + i % 2}-of-00002.safetensors" for i, name in enumerate(sorted(tensors))}
    for shard in set(shards.values()):
        save_file({n: tensors[n] for n in tensors if shards[n] == shard}, coded / shard, metadata={"format": "pt"})
    (coded / "model.safetensors").rename(coded / "consolidated.safetensors")  # which the index does not name
    (coded / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": shards}))
    report = tune(coded, text(), 10, teacher=teacher, out=tmp_path / "out", **FAST)
    out = tmp_path / "out"
    assert report.after == pytest.approx(divergence(out, teacher, text().view(-1, WINDOW)[-3:]), rel=1e-4)
    same = {name for name, content in contents(coded).items() if contents(out)[name] == content}
    assert contents(out).keys() == contents(coded).keys() and contents(coded).keys() - same == set(shards.values())
    assert all(metadata_of(out / shard) == {"format": "pt"} for shard in set(shards.values()))
    assert not load_file(out / shards["model.layers.1.self_attn.q_proj.bias"])[
        "model.layers.1.self_attn.q_proj.bias"
    ].any()


def test_the_same_numbers_make_the_same_bytes(tmp_path):
    coded, teacher = made(tmp_path)
    for name, seed in {"a": 1, "b": 1, "c": 2}.items():
        tune(coded, text().tolist(), 4, teacher=teacher, out=tmp_path / name, seed=seed, **FAST)
    assert contents(tmp_path / "a") == contents(tmp_path / "b") != contents(tmp_path / "c")


def test_what_training_makes_worse_is_not_written(tmp_path):
    coded, teacher = made(tmp_path)
    (tmp_path / "out").mkdir()
    with torch.no_grad():
        report = tune(coded, text(), 1, teacher=teacher, out=tmp_path / "out", **FAST | {"rate": 0.99})
    assert report.step == 0 and report.after == report.before
    assert contents(tmp_path / "out") == contents(coded)


def test_scales_keep_their_signs(tmp_path):
    coded, _ = made(tmp_path)
    student = tuning._Student(coded, load_weights_folder(coded))
    part = student.codes["model.layers.0.mlp.up_proj"]
    with torch.no_grad():
        part.scale_change.fill_(-3)
        student.keep_signs()
        assert torch.allclose(part.numbers()[0], 0.1 * part.scales, rtol=1e-3)


def test_progress_is_told_each_step_and_its_loss(tmp_path):
    coded, teacher = made(tmp_path)
    told = []
    tokens = text(5)
    inside = coded / "out"
    tune(coded, tokens, 3, teacher=teacher, out=inside, progress=lambda *now: told.append(now), **FAST)
    assert contents(inside).keys() == {path.name for path in coded.iterdir() if path.is_file()}
    assert [step for step, _ in told] == [1, 2, 3]
    assert told[0][1] == pytest.approx(divergence(coded, teacher, tokens.view(-1, WINDOW)[:4]), rel=1e-4)


def test_a_teacher_of_codes_in_a_gguf_file(tmp_path):
    coded, _ = made(tmp_path)
    teacher = tmp_path / "teacher.gguf"
    bie.hf.save_gguf(float_model("llama", tied=True), teacher)
    file = bie.formats.load_gguf(teacher)
    quantised = {n: (t.open().float(), "Q4_1") if len(t.shape) == 2 else t for n, t in file.tensors.items()}
    bie.formats.save_gguf(teacher, quantised, file.metadata, file.types)
    report = tune(coded, text(), 10, teacher=teacher, out=tmp_path / "out", **FAST)
    held_out = text().view(-1, WINDOW)[-3:]
    assert report.after == pytest.approx(divergence(tmp_path / "out", teacher, held_out), rel=1e-4)
    assert report.after < report.before


def test_a_text_is_read_by_the_tokenizer_of_the_folder(tmp_path):
    """Each window begins with BOS where the tokenizer begins a text with it."""
    from tokenizers import Tokenizer, models, pre_tokenizers, processors

    coded, teacher = made(tmp_path)
    words = {"<s>": 1} | {f"w{i}": i for i in range(VOCABULARY) if i != 1}
    tokenizer = Tokenizer(models.WordLevel(words, unk_token="w0"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.post_processor = processors.TemplateProcessing("<s> $A", special_tokens=[("<s>", 1)])
    transformers.PreTrainedTokenizerFast(tokenizer_object=tokenizer, bos_token="<s>").save_pretrained(coded)
    tokens = torch.randint(2, VOCABULARY, (4, WINDOW - 1), generator=generator(0))
    sentence = " ".join(f"w{token}" for token in [*tokens.flatten().tolist(), 5, 5])  # two more than whole windows
    tune(coded, sentence, 2, teacher=teacher, out=tmp_path / "a", **FAST)
    windows = torch.cat([torch.ones(4, 1, dtype=torch.long), tokens], 1)
    tune(coded, windows, 2, teacher=teacher, out=tmp_path / "b", **FAST)
    assert contents(tmp_path / "a") == contents(tmp_path / "b")


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    return made(tmp_path_factory.mktemp("small"), tied=False)


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"steps": 0}, "steps: expected at least 1, got 0"),
        ({"batch": 0}, "batch: expected at least 1, got 0"),
        ({"window": 1}, "window: expected at least 2, got 1"),
        ({"window": 25}, "window: expected at most the 24 tokens that .*coded reads, got 25"),
        ({"rate": 1}, "rate: expected a number between 0 and 1, got 1"),
        ({"rate": float("nan")}, "rate: expected a number between 0 and 1, got nan"),
        ({"text": text(1)}, "text: expected at least two windows of 16 tokens, got 16 tokens"),
        ({"text": text() + 1}, "text: expected tokens from 0 to 60, got 61"),
        ({"text": text() - 1}, "text: expected tokens from 0 to 60, got -1"),
        ({"text": text().float()}, r"text: expected whole numbers of tokens, got torch\.float32"),
        ({"text": ["a", "b"]}, "text: expected a string or its tokens, got a list"),
        ({"text": "words"}, "coded: expected a tokenizer for the text, got none that is read"),
    ],
)
def test_arguments_that_are_refused(change, sentence, small, tmp_path):
    coded, teacher = small
    options = {"text": text(), "steps": 2, "teacher": teacher, "out": tmp_path / "out"} | FAST | change
    with pytest.raises(ValueError, match=f"^tune: .*{sentence}$"):
        tune(coded, **options)
    assert list(tmp_path.iterdir()) == []


def test_folders_that_are_refused(small, tmp_path):
    coded, teacher = small
    (tmp_path / "file").write_text("")
    places = {
        coded: "coded: expected a folder that is empty or not there, got one with files in it",
        tmp_path / "file": "file: expected a folder that is empty or not there, got a file",
    }
    for out, sentence in places.items():
        with pytest.raises(ValueError, match=f"^tune: .*{sentence}$"):
            tune(coded, text(), 2, teacher=teacher, out=out, **FAST)
    with pytest.raises(FileNotFoundError, match="there is no folder"):
        tune(coded, text(), 2, teacher=teacher, out=tmp_path / "none/out", **FAST)
    models = {
        teacher: "float: expected layers of codes, got none",
        tmp_path / "file": "file: expected a folder of codes, got a file",
        tmp_path / "none": "none: expected a folder of codes, got none",
    }
    for model, sentence in models.items():
        with pytest.raises(ValueError, match=f"^tune: .*{sentence}$"):
            tune(model, text(), 2, teacher=teacher, out=tmp_path / "out", **FAST)
    float_model("llama", True, vocab_size=60).save_pretrained(tmp_path / "other")
    with pytest.raises(ValueError, match=r"other: expected the 61 tokens of .*coded, got 60$"):
        tune(coded, text(), 2, teacher=tmp_path / "other", out=tmp_path / "out", **FAST)
    assert not (tmp_path / "out").exists()


def test_an_order_of_inputs_is_refused(tmp_path):
    coded, teacher = made_gptq(tmp_path)
    tensors = load_file(coded / "model.safetensors")
    index = tensors["model.layers.0.mlp.up_proj.g_idx"]
    index.copy_(index[torch.randperm(len(index), generator=generator(0))])
    save_file(tensors, coded / "model.safetensors")
    sentence = "coded: model.layers.0.mlp.up_proj: expected codes of one width in groups, got an order of inputs"
    with pytest.raises(ValueError, match=sentence):
        tune(coded, text(), 2, teacher=teacher, out=tmp_path / "out", **FAST)


def test_nan_is_refused_and_nothing_is_written(small, tmp_path):
    coded, teacher = small
    shutil.copytree(teacher, tmp_path / "float")
    tensors = load_file(teacher / "model.safetensors")
    tensors["model.embed_tokens.weight"][60] = float("nan")
    save_file(tensors, tmp_path / "float/model.safetensors", metadata={"format": "pt"})
    tokens = text().clamp(max=59).view(-1, WINDOW)
    tokens[:20, 3] = 60
    with pytest.raises(ValueError, match=r"^tune: step 1: expected a finite loss, got nan; nothing is written$"):
        tune(coded, tokens, 2, teacher=tmp_path / "float", out=tmp_path / "out", **FAST | {"batch": 16})
    tokens[-1, 3] = 60
    with pytest.raises(ValueError, match=r"^tune: expected a finite divergence of the two models, got nan$"):
        tune(coded, tokens, 2, teacher=tmp_path / "float", out=tmp_path / "out", **FAST)
    assert [path.name for path in tmp_path.iterdir()] == ["float"]


@pytest.mark.parametrize("when", ["training", "writing"])
def test_an_interrupt_leaves_nothing(when, small, tmp_path, monkeypatch):
    def interrupt(*arguments):
        raise KeyboardInterrupt

    if when == "writing":
        monkeypatch.setattr(shutil, "copyfile", interrupt)
    progress = interrupt if when == "training" else None
    with pytest.raises(KeyboardInterrupt):
        tune(small[0], text(), 1, teacher=small[1], out=tmp_path / "out", progress=progress, **FAST)
    assert list(tmp_path.iterdir()) == []
