"""Models of bie.hf in the trainers of others: transformers, trl and, with adapters, peft."""

from __future__ import annotations

import pytest
import torch

pytest.importorskip("transformers")
from lm_train_test import SIZES, sentences, tokenizer
from transformers import AutoModelForCausalLM, Trainer, TrainingArguments

import bie
from bie import hf
from bie.lm import make_trainable
from bie.lm.models import new_model
from bie.lm.widths import WIDTHS
from bie.nn import MPQLinear
from bie.weights.parameters import WeightOnlyParameter

STEPS = 20


@pytest.fixture
def path(tmp_path):
    """A GGUF file of 4-bit codes."""
    model = new_model(SIZES, tokenizer())
    make_trainable(model, "codes", WIDTHS["4"], 32)
    hf.save_gguf(model.eval(), tmp_path / "model.gguf")
    return tmp_path / "model.gguf"


def loaded(path, method="codes+rest8", bits="4"):
    model = hf.load(path)
    make_trainable(model, method, WIDTHS[bits], 32)
    return model


def optimizer_of(model):
    codes = [p for p in model.parameters() if isinstance(p, WeightOnlyParameter)]
    floats = [p for p in model.parameters() if p.is_floating_point()]
    groups = [{"params": codes, "lr": 3e-3, "scale_lr": 0.01}, {"params": floats, "lr": 3e-3}]
    return bie.optim.DiodeMix(groups, betas=(0.9, 0.95), eps=1e-10)


def rows():
    read = tokenizer()
    ids = [read(text)["input_ids"][:48] for text in sentences(64)]
    return [{"input_ids": row, "labels": row} for row in ids]


def together(some):
    return {name: torch.tensor([row[name] for row in some]) for name in ("input_ids", "labels")}


def arguments(folder, kind=TrainingArguments, **options):
    options = {"max_steps": STEPS, "per_device_train_batch_size": 8, "logging_steps": 5, "save_steps": 10} | options
    return kind(str(folder), use_cpu=True, report_to=[], disable_tqdm=True, **options)


def weights(model):
    return [layer.qweight.clone() for layer in model.modules() if isinstance(layer, MPQLinear)]


def losses(trainer):
    return [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]


@pytest.mark.parametrize("bits", ["4", "2"])
@pytest.mark.parametrize("method", ["codes", "codes+rest8"])
def test_transformers_trains_codes(path, tmp_path, method, bits):
    model = loaded(path, method, bits)
    before = weights(model)
    options = {"train_dataset": rows(), "data_collator": together}
    trainer = Trainer(model, arguments(tmp_path / "out"), **options, optimizers=(optimizer_of(model), None))
    trainer.train()
    found = losses(trainer)
    assert found[-1] < found[0] - 0.5, found
    after = weights(model)
    assert not any(torch.equal(*pair) for pair in zip(before, after, strict=True))

    again = loaded(path, method, bits)
    resumed = Trainer(again, arguments(tmp_path / "out"), **options, optimizers=(optimizer_of(again), None))
    resumed.train(resume_from_checkpoint=str(tmp_path / "out" / "checkpoint-10"))
    assert losses(resumed) == found
    assert all(torch.equal(*pair) for pair in zip(after, weights(again), strict=True))


@pytest.mark.parametrize(("method", "bits"), [("codes+rest8", "ternary"), ("codes+rest16", "4"), ("codes", "2")])
def test_a_checkpoint_of_transformers_is_a_model(path, tmp_path, method, bits):
    model = loaded(path, method, bits)
    model.save_pretrained(tmp_path / "folder")
    again = AutoModelForCausalLM.from_pretrained(tmp_path / "folder")
    ids = torch.arange(3, 20)[None]
    with torch.no_grad():
        assert torch.equal(again(ids).logits, model.eval()(ids).logits)
    layers = [[m for m in each.modules() if isinstance(m, MPQLinear)] for each in (model, again)]
    for ours, theirs in zip(*layers, strict=True):
        assert (ours.master, ours.levels) == (theirs.master, theirs.levels)
        assert not ours.master or torch.equal(ours.rest, theirs.rest)


def test_what_transformers_trained_is_a_file(path, tmp_path):
    model = loaded(path)
    trainer = Trainer(
        model,
        arguments(tmp_path / "out", max_steps=3),
        train_dataset=rows(),
        data_collator=together,
        optimizers=(optimizer_of(model), None),
    )
    trainer.train()
    hf.save_gguf(model.eval(), tmp_path / "trained.gguf")
    ids = torch.arange(3, 20)[None]
    with torch.no_grad():
        torch.testing.assert_close(
            hf.load(tmp_path / "trained.gguf")(ids).logits, model(ids).logits, rtol=0.02, atol=0.02
        )


def test_another_optimizer_leaves_codes_where_they_are(path, tmp_path):
    """AdamW of transformers' default gets the parameters that require grad, which codes never do."""
    model = loaded(path)
    before = weights(model)
    trainer = Trainer(model, arguments(tmp_path / "out", max_steps=2), train_dataset=rows(), data_collator=together)
    trainer.train()
    assert all(torch.equal(*pair) for pair in zip(before, weights(model), strict=True))


def test_peft_trains_adapters_alone(path, tmp_path):
    peft = pytest.importorskip("peft", reason="peft is not installed")
    import bie.peft

    model = hf.load(path)
    before = weights(model)
    config = peft.LoraConfig(r=4, lora_alpha=8, target_modules=["q_proj", "v_proj", "up_proj"], task_type="CAUSAL_LM")
    adapted = peft.get_peft_model(model, config)
    assert isinstance(adapted.base_model.model.model.layers[0].mlp.up_proj, bie.peft.LoraLinear)
    options = arguments(tmp_path / "out", learning_rate=2e-2)
    trainer = Trainer(adapted, options, train_dataset=rows(), data_collator=together)
    trainer.train()
    found = losses(trainer)
    assert found[-1] < found[0] - 0.2, found
    assert all(torch.equal(*pair) for pair in zip(before, weights(adapted), strict=True))
    adapted.save_pretrained(tmp_path / "adapter")
    again = peft.PeftModel.from_pretrained(hf.load(path), tmp_path / "adapter").eval()
    ids = torch.arange(3, 20)[None]
    with torch.no_grad():
        torch.testing.assert_close(again(ids).logits, adapted.eval()(ids).logits)


def test_trl_trains_codes(path, tmp_path):
    trl = pytest.importorskip("trl", reason="trl is not installed")
    import datasets
    import pyarrow

    table = pyarrow.table({"input_ids": [row["input_ids"] for row in rows()]})
    model = loaded(path)
    before = weights(model)
    told = {"max_length": 48, "dataset_kwargs": {"skip_prepare_dataset": True}}
    trainer = trl.SFTTrainer(
        model,
        arguments(tmp_path / "out", trl.SFTConfig, **told),
        train_dataset=datasets.Dataset(table, fingerprint="rows"),
        processing_class=tokenizer(),
        optimizers=(optimizer_of(model), None),
    )
    trainer.train()
    found = losses(trainer)
    assert found[-1] < found[0] - 0.5, found
    assert not any(torch.equal(*pair) for pair in zip(before, weights(model), strict=True))
