"""The training of green-bit-llm 0.2.6: its options on folders and files of this machine, 20 steps each."""

from __future__ import annotations

import json
import sys

import pytest
import torch

pytest.importorskip("transformers", reason="transformers is not installed")
pytest.importorskip("accelerate", reason="accelerate is not installed")
pytest.importorskip("bie.llm", reason="bie-llm is not installed")
from bie.green_bit_llm.common import generate, load
from bie.green_bit_llm.sft import finetune, peft_lora
from bie.green_bit_llm.sft.training import Documents, together
from coded_folders import write_coded_folder
from lm_train_test import SIZES, sentences, tokenizer
from model_folders import write_tokenizer_files

from bie import hf
from bie.lm import WIDTHS, make_trainable, tokenize
from bie.lm.models import new_model
from bie.nn.weight_only import WeightOnlyLinear
from bie.weights.parameters import WeightOnlyParameter

pytestmark = pytest.mark.filterwarnings("ignore:.*gradient_checkpointing:FutureWarning")  # of transformers' own code

IDS = torch.arange(3, 40)[None]
CHAT = "{% for m in messages %}{{ m['role'] }}: {{ m['content'] }}</s>{% endfor %}"


@pytest.fixture
def folder(tmp_path):
    """Makes a folder of a kind of coded_folders, with a tokenizer."""

    def make(kind):
        path = tmp_path / "GreenBitAI" / "a-model"
        path.mkdir(parents=True)
        write_coded_folder(path, kind, "qwen2", vocabulary=write_tokenizer_files(path))
        return path

    return make


@pytest.fixture
def data(tmp_path):
    path = tmp_path / "data.jsonl"
    path.write_text("".join(json.dumps({"text": text}) + "\n" for text in sentences(80)))
    return path


@pytest.fixture
def run(tmp_path, data, capsys):
    """Runs a command; returns its exit status, what it wrote on stdout and on stderr."""

    def run(command, model, *words):
        words = ["--model", str(model), "--save-dir", str(tmp_path / "out"), "--seqlen", "48", *words]
        words += [] if "--dataset" in words else ["--dataset", str(data)]
        status = command.main(command.setup_arg_parser().parse_args(words))
        told = capsys.readouterr()
        return status, told.out, told.err

    return run


def losses(told):
    lines = [line[line.index("{") :] for line in told.replace("\r", "\n").splitlines() if "'loss'" in line]
    return [float(line.split("'loss': '")[1].split("'")[0]) for line in lines]


def weights(model):
    return {name: layer.qweight for name, layer in model.named_modules() if isinstance(layer, WeightOnlyLinear)}


def moved(before, after):
    return [not torch.equal(weight, after[name]) for name, weight in before.items()]


def logits(model):
    with torch.no_grad():
        return model.eval()(IDS).logits


RATES = ("--lr-2bit", "2e-3", "--lr-4bit", "2e-3")
KINDS = {
    "greenbit channel-mix": ("--lr-fp", "2e-3"),
    "greenbit layer-mix": ("--tune-qweight-only", "--optimizer", "AdamW8bit"),
    "gptq of 4 bits": ("--tune-qweight-only", "--optimizer", "AdamW8bit", "--dtype", "float"),
    "gptq of 3 bits, act-order": ("--galore", "--galore-rank", "8", "--galore-scale", "4", "--lr-fp", "2e-3"),
}


@pytest.mark.parametrize("kind", KINDS)
def test_finetune(folder, run, tmp_path, kind):
    source, words = folder(kind), KINDS[kind]
    status, out, err = run(finetune, source, *RATES, *words, "--save-step", "6")
    assert status == 0
    found = losses(out)
    assert len(found) == 20 and found[-1] < found[0] - 0.4, found
    result = tmp_path / "out" / "finetune" / ("galore" if "--galore" in words else "common") / "a-model"
    assert out.splitlines()[-1] == str(result)
    kept = sorted(path.name for path in result.glob("checkpoint-*"))
    assert kept == ["checkpoint-12", "checkpoint-18", "checkpoint-20"]
    assert "80 of 80 documents have more than --seqlen tokens and are cut" in err
    assert ("rows of the model have an order of their own" in err) == (kind == "greenbit layer-mix")
    before, after = hf.load(source), hf.load(result)
    assert all(moved(weights(before), weights(after)))
    norms = [model.model.norm.weight for model in (before, after)]
    assert torch.equal(*norms) == ("--tune-qweight-only" in words)
    assert torch.equal(logits(hf.load(result / "checkpoint-20")), logits(after))
    names = ("tokenizer.json", "tokenizer_config.json")
    assert all((source / name).read_bytes() == (result / name).read_bytes() for name in names)
    model, read, _ = load(str(result), dtype=torch.float32)
    assert generate(model, read, "the cat ", temp=0, max_tokens=4)


def test_a_file_of_gguf_is_taken(run, tmp_path):
    made = tokenizer()
    model = new_model(SIZES, made)
    make_trainable(model, "codes", WIDTHS["2"], 64)
    model.config.save_pretrained(tmp_path)
    hf.save_gguf(model.eval(), tmp_path / "small.gguf")
    before = hf.load(tmp_path / "small.gguf")
    optimizer = finetune.make_optimizer(before, parsed(finetune, "--lr-fp", "3e-4", "--lr-2bit", "1e-3"))
    assert [group["lr"] for group in optimizer.param_groups] == [1e-3, 3e-4]
    status, _, err = run(finetune, tmp_path / "small.gguf")
    assert status == 1 and "small.gguf: the file holds no tokenizer" in err


def parsed(command, *words):
    return command.setup_arg_parser().parse_args(["--model", "m", "--dataset", "d", *words])


@pytest.mark.parametrize(
    ("words", "rates"),
    [
        ((), (5e-6, 5e-6, 5e-6)),
        (("--galore",), (5e-5, 5e-5, 5e-6)),
        (("--optimizer", "adamw8bit"), (1e-3, 1e-3, 5e-6)),
        (("--optimizer", "AdamW8bit", "--galore", "--lr-fp", "1e-5"), (5e-3, 5e-3, 1e-5)),
        (("--lr-2bit", "1e-4"), (1e-4, 5e-6, 5e-6)),
        (("--lr-4bit", "1e-4", "--tune-qweight-only"), (5e-6, 1e-4)),
    ],
)
def test_groups_and_rates(folder, words, rates):
    model = hf.load(folder("greenbit layer-mix"))
    layer = model.model.layers[0].mlp.up_proj
    layer.w_bit = 2  # which alone decides on its group
    groups = finetune.param_groups(model, parsed(finetune, *words))
    assert tuple(group["lr"] for group in groups) == rates
    assert [p is layer.qweight for p in groups[0]["params"]] == [True]
    assert len(groups[1]["params"]) == 13 and all(isinstance(p, WeightOnlyParameter) for p in groups[1]["params"])
    assert all(group["betas"] == (0.9, 0.99) for group in groups)
    assert [group.get("rank") for group in groups[:2]] == [256 if "--galore" in words else None] * 2
    trains = any(p.requires_grad for p in model.parameters())
    assert trains == ("--tune-qweight-only" not in words)


@pytest.mark.parametrize(
    ("words", "dtype", "eps"),
    [
        ((), torch.bfloat16, 1e-6),
        (("--dtype", "float"), torch.float32, 1e-6),
        (("--optimizer", "AdamW8bit"), torch.int8, 1e-8),
        (("--optimizer", "AdamW8bit", "--galore"), torch.bfloat16, 1e-8),
    ],
)
def test_moments(folder, capsys, words, dtype, eps):
    model = hf.load(folder("gptq of 4 bits"))
    options = ["--tune-qweight-only", "--weight_decay", "0.1", "--seed", "3", *words]
    optimizer = finetune.make_optimizer(model, parsed(finetune, *options))
    model.train()(IDS, labels=IDS).loss.backward()
    optimizer.step()
    state = next(iter(optimizer.state.values()))
    assert state["exp_avg_l"].dtype == dtype and optimizer.seed == 3
    assert (optimizer.defaults["eps"], optimizer.defaults["weight_decay"]) == (eps, 0.1)
    assert ("with --galore moments are of --dtype" in capsys.readouterr().err) == (len(words) == 3)


@pytest.mark.parametrize("optimizer", ["DiodeMix", "AdamW8bit"])
def test_peft_lora(folder, run, tmp_path, optimizer):
    peft = pytest.importorskip("peft", reason="peft is not installed")
    source = folder("greenbit layer-mix")
    words = ("--lr-fp", "1e-2", "--lora-rank", "8", "--lora-alpha", "16", "--optimizer", optimizer)
    status, out, err = run(peft_lora, source, *words)
    assert status == 0 and "weights of adapters train" in out
    found = losses(out)
    assert len(found) == 20 and found[-1] < found[0] - 0.4, found
    assert ("moments of adapters" in err) == (optimizer == "AdamW8bit")
    result = tmp_path / "out" / "lora" / "a-model"
    config = json.loads((result / "adapter_config.json").read_text())
    assert (config["r"], config["lora_alpha"], config["lora_dropout"]) == (8, 16, 0.01)
    assert config["base_model_name_or_path"] == str(source)
    plain = hf.load(source)
    before, wanted = {name: weight.clone() for name, weight in weights(plain).items()}, logits(plain)
    adapted = peft.PeftModel.from_pretrained(plain, result)
    assert not torch.allclose(logits(adapted), wanted, atol=0.1)
    inner = {name.replace(".base_layer", ""): weight for name, weight in weights(adapted.base_model.model).items()}
    assert not any(moved(before, inner))


def test_rows_are_the_first_tokens_of_documents(tmp_path):
    path = tmp_path / "a.jsonl"
    lines = [{"text": "abcdef"}, {"instruction": "a question", "output": "b"}, {"text": "gh"}]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    made = tokenizer()
    made.chat_template = CHAT
    texts = tokenize([path], made, tmp_path / "tokens", validation=0)
    rows = Documents(texts.training, 5)
    assert len(rows) == 2 and rows.cut == 2  # nothing that counts is among the first tokens of the question
    batch = together([rows[0], rows[1]])
    assert [made.decode(row) for row in batch["input_ids"]] == ["<s> a b c d", "<s> g h </s> <s>"]
    assert batch["labels"][:, 0].tolist() == [-100, -100]
    assert batch["labels"][1].tolist() == [-100, *batch["input_ids"][1, 1:4].tolist(), -100]
    assert batch["attention_mask"].tolist() == [[1] * 5, [1] * 4 + [0]]
    only = tmp_path / "b.jsonl"
    only.write_text(json.dumps(lines[1]))
    texts = tokenize([only], made, tmp_path / "tokens", validation=0)
    with pytest.raises(ValueError, match="--seqlen: expected tokens that count among the first 5, got none"):
        Documents(texts.training, 5)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--optimizer", "SGD"), "--optimizer: expected DiodeMix or AdamW8bit, got 'SGD'"),
        (("--seqlen", "1"), "--seqlen: expected 2 or more, got 1"),
        (("--batch-size", "0"), "--batch-size: expected 1 or more, got 0"),
        (("--model", "GreenBitAI/Some-Model"), "--model: expected a folder or a GGUF file on this machine, got"),
        (
            ("--dataset", "tatsu-lab/alpaca"),
            "--dataset: expected files on this machine, got 'tatsu-lab/alpaca'",
        ),
        (("--dataset", "DATA.parquet"), "--dataset: expected texts (.txt) or JSON lines (.jsonl), got"),
        (("--dataset", "DATA.json"), "--dataset: expected texts (.txt) or JSON lines (.jsonl), got"),
        (("--lr-fp", "-1"), "lr: expected a number >= 0, got -1.0"),
    ],
)
@pytest.mark.parametrize("command", [finetune, peft_lora], ids=["finetune", "peft_lora"])
def test_refusals(folder, run, tmp_path, command, words, said):
    words = [word.replace("DATA", str(tmp_path / "data")) for word in words]
    for ending in ("parquet", "json"):
        (tmp_path / f"data.{ending}").write_text("[]")
    status, _, err = run(command, folder("greenbit layer-mix"), *words, "--trust-remote-code")
    assert status == 1 and said in err and err.count("\n") <= 3, err
    assert "green_bit_llm: --trust-remote-code has no meaning here" in err


def test_a_model_of_floats_and_a_package_that_is_missing(run, tmp_path, monkeypatch):
    made = tokenizer()
    new_model(SIZES, made).save_pretrained(tmp_path / "floats")
    made.save_pretrained(tmp_path / "floats")
    status, _, err = run(finetune, tmp_path / "floats")
    assert status == 1 and "expected layers of codes, got a model of floats" in err
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    for command in (finetune, peft_lora):
        status, _, err = run(command, tmp_path / "floats")
        assert status == 1 and "expected one GPU, got 2: CUDA_VISIBLE_DEVICES=0" in err
    monkeypatch.setitem(sys.modules, "bie.lm.models", None)
    for command, name in ((finetune, "finetune"), (peft_lora, "peft_lora")):
        status, _, err = run(command, tmp_path / "floats")
        assert status == 1 and f"{name} needs bitorch_engine, transformers" in err
