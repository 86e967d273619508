"""Models of bie.hf in the trainers of others: transformers, trl and, with adapters, peft."""

from __future__ import annotations

import pytest
import torch

pytest.importorskip("transformers")
from coded_folders import write_coded_folder
from lm_train_test import SIZES, sentences, tokenizer
from transformers import AutoModelForCausalLM, Trainer, TrainerCallback, TrainingArguments

import bie
from bie import hf
from bie.lm import make_optimizer, make_trainable, open_table
from bie.lm.layers import keep_codes_alone
from bie.lm.models import new_model, write_folder
from bie.lm.widths import WIDTHS
from bie.nn import MPQLinear, WeightOnlyEmbedding
from bie.nn.weight_only import WeightOnlyLinear

pytestmark = pytest.mark.filterwarnings("ignore:.*gradient_checkpointing:FutureWarning")  # of transformers' own code

STEPS = 20
IDS = torch.arange(3, 20)[None]
LORA = {"r": 4, "lora_alpha": 8, "target_modules": ["q_proj", "v_proj", "up_proj"], "task_type": "CAUSAL_LM"}


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
    return make_optimizer(model, 3e-3, scale_lr=0.01)


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
    return [layer.qweight.clone() for layer in model.modules() if isinstance(layer, WeightOnlyLinear)]


def moved(before, model):
    return [not torch.equal(*pair) for pair in zip(before, weights(model), strict=True)]


def logits(model):
    with torch.no_grad():
        return model.eval()(IDS).logits


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
    assert all(moved(before, model))

    again = loaded(path, method, bits)
    resumed = Trainer(again, arguments(tmp_path / "out"), **options, optimizers=(optimizer_of(again), None))
    resumed.train(resume_from_checkpoint=str(tmp_path / "out" / "checkpoint-10"))
    assert losses(resumed) == found
    assert not any(moved(weights(model), again))


@pytest.mark.parametrize(("method", "bits"), [("codes+rest8", "ternary"), ("codes+rest16", "4"), ("codes", "2")])
def test_a_checkpoint_of_transformers_is_a_model(path, tmp_path, method, bits):
    model = loaded(path, method, bits)
    model.save_pretrained(tmp_path / "folder")
    again = AutoModelForCausalLM.from_pretrained(tmp_path / "folder")
    assert torch.equal(logits(again), logits(model))
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
    hf.save_gguf(model, tmp_path / "trained.gguf")
    torch.testing.assert_close(logits(hf.load(tmp_path / "trained.gguf")), logits(model), rtol=0.02, atol=0.02)


@pytest.mark.parametrize("method", ["codes", "codes+rest8", "codes+rest16", "latent"])
def test_a_new_model_is_saved_as_every_model_of_transformers(tmp_path, method):
    model = new_model(SIZES, tokenizer())
    make_trainable(model, method, WIDTHS["2"], 32)
    if method == "latent":
        keep_codes_alone(model)
    model.save_pretrained(tmp_path / "folder")
    again = hf.load(tmp_path / "folder")
    assert torch.equal(logits(again), logits(model))
    assert not any(parameter.requires_grad for parameter in again.parameters())
    eight = hf.load(tmp_path / "folder", activation="int8")
    assert all(layer.activation == "int8" for layer in eight.modules() if isinstance(layer, MPQLinear))


@pytest.mark.parametrize(("method", "rest"), [("codes+rest8", 7), ("codes+rest16", 2**-10)])
def test_a_checkpoint_keeps_its_rests(path, tmp_path, method, rest):
    def kept(model):
        return [bool((layer.rest == rest).all()) for layer in model.modules() if isinstance(layer, MPQLinear)]

    model = loaded(path, method)
    for layer in model.modules():
        if isinstance(layer, MPQLinear):
            layer.rest.fill_(rest)
    model.save_pretrained(tmp_path / "folder")
    again = hf.load(tmp_path / "folder")
    make_trainable(again, method, WIDTHS["4"], 32)
    assert all(kept(again))
    optimizer = optimizer_of(again)
    again(IDS, labels=IDS).loss.backward()
    optimizer.step()
    assert not any(kept(again))
    make_trainable(again, "codes+rest8", WIDTHS["8"], 32)
    assert all(layer.w_bit == 8 for layer in again.modules() if isinstance(layer, MPQLinear))


OPTIONS = {
    "blocks anew": {"gradient_checkpointing": True},
    "two passes a step": {"gradient_accumulation_steps": 2, "per_device_train_batch_size": 4},
    "bfloat16": {"bf16": True},
    "the best checkpoint": {"eval_strategy": "steps", "eval_steps": 2, "save_steps": 2, "load_best_model_at_end": True},
}


@pytest.mark.parametrize("options", OPTIONS)
def test_options_of_transformers(path, tmp_path, options):
    """Each gives the losses of a training without it, but for the order of sums and 16-bit products."""
    found = []
    for changes in ({}, OPTIONS[options]):
        model = loaded(path)
        given = arguments(tmp_path / "out", **{"max_steps": 4, "logging_steps": 1} | changes)
        sets = {"train_dataset": rows(), "eval_dataset": rows()[:8], "data_collator": together}
        trainer = Trainer(model, given, **sets, optimizers=(optimizer_of(model), None))
        trainer.train()
        found.append(losses(trainer))
    assert found[1] == pytest.approx(found[0], rel=2e-3)
    assert found[1][-1] < found[1][0] - 0.3


def test_steps_in_the_backward_pass_are_those_behind_it(path, tmp_path):
    found = []
    for in_backward in (False, True):
        model = loaded(path)
        optimizer = optimizer_of(model)
        optimizer.step_in_backward(in_backward)
        given = arguments(tmp_path / "out", max_steps=3, logging_steps=1, save_strategy="no", max_grad_norm=0)
        sets = {"train_dataset": rows(), "data_collator": together}
        trainer = Trainer(model, given, **sets, optimizers=(optimizer, None))
        trainer.train()
        found.append((losses(trainer), weights(model)))
    assert found[0][0] == found[1][0]
    assert all(torch.equal(*pair) for pair in zip(found[0][1], found[1][1], strict=True))


def test_clipping_counts_the_gradients_of_codes(path, tmp_path):
    model = loaded(path)
    seen = []

    class Looks(TrainerCallback):
        def on_pre_optimizer_step(self, *_, **__):
            seen.append([p.grad.norm() for p in model.parameters() if p.grad is not None])

    options = {"train_dataset": rows(), "data_collator": together, "callbacks": [Looks()]}
    given = arguments(tmp_path / "out", max_steps=1, logging_steps=1, max_grad_norm=0.5)
    trainer = Trainer(model, given, **options, optimizers=(optimizer_of(model), None))
    trainer.train()
    assert len(seen[0]) == len(list(model.parameters()))
    assert trainer.state.log_history[0]["grad_norm"] > 1
    assert float(torch.stack(seen[0]).norm()) == pytest.approx(0.5, rel=1e-3)


def coded(path, type="Q8_0"):
    """A file whose table has codes too, as most files have."""
    file = bie.formats.load_gguf(path)
    tensors = {n: (t.open().float(), type) if n == "token_embd.weight" else t for n, t in file.tensors.items()}
    bie.formats.save_gguf(path.with_name("coded.gguf"), tensors, file.metadata, file.types)
    return path.with_name("coded.gguf")


FOLDERS = ["gptq of 4 bits", "gptq of 3 bits, act-order", "greenbit legacy", "greenbit channel-mix", "a coded table"]


@pytest.mark.parametrize("name", FOLDERS)
def test_codes_train_as_a_file_has_them(path, tmp_path, name):
    """Any mix of widths, zeros and orders of rows, without make_trainable."""
    if name == "a coded table":
        source = coded(path)
    else:
        source = tmp_path / "source"
        source.mkdir()
        write_coded_folder(source, name, vocabulary=100)
    model = hf.load(source).requires_grad_(True)
    before, table = weights(model), model.model.embed_tokens
    words = table.qweight.clone() if isinstance(table, WeightOnlyEmbedding) else None
    options = {"train_dataset": rows(), "data_collator": together}
    given = arguments(tmp_path / "out", save_strategy="no")
    trainer = Trainer(model, given, **options, optimizers=(make_optimizer(model, 2e-3), None))
    trainer.train()
    found = losses(trainer)
    assert found[-1] < found[0] - 0.4, found
    assert all(moved(before, model))
    assert words is None or not torch.equal(words, table.qweight)
    model.save_pretrained(tmp_path / "folder")
    assert torch.equal(logits(hf.load(tmp_path / "folder")), logits(model))
    write_folder(model, tokenizer(), tmp_path / "weights")
    assert torch.equal(logits(hf.load(tmp_path / "weights")), logits(model))


def test_an_optimizer_of_floats_alone_warns(path, tmp_path):
    """AdamW of transformers' default gets the parameters that require grad, which codes never do."""
    model = loaded(path)
    before = weights(model)
    given = arguments(tmp_path / "out", max_steps=2, save_strategy="no")
    trainer = Trainer(model, given, train_dataset=rows(), data_collator=together)
    with pytest.warns(UserWarning, match="AdamW steps floats, and no optimizer holds the codes of 14 layers") as told:
        trainer.train()
    assert len([warning for warning in told if "no optimizer holds" in str(warning.message)]) == 1
    assert not any(moved(before, model))


@pytest.mark.filterwarnings("error:.*no optimizer holds")
def test_codes_that_are_frozen_or_held_do_not_warn(path):
    for holds in (False, True):
        model = loaded(path)
        for layer in model.modules():
            if isinstance(layer, MPQLinear):
                layer.requires_grad_(holds)
        codes = [p for p in model.parameters() if not p.is_floating_point()]
        both = [torch.optim.AdamW([p for p in model.parameters() if p.requires_grad])]
        both += [bie.optim.DiodeMix(codes, lr=1e-3)] if holds else []
        model(IDS, labels=IDS).loss.backward()
        for optimizer in both:
            optimizer.step()


def test_uses_that_are_wrong(path):
    model = loaded(path)
    optimizer = torch.optim.AdamW(model.parameters())
    model(IDS, labels=IDS).loss.backward()
    with pytest.raises(TypeError, match="AdamW: expected parameters of floats, got packed weights of codes"):
        optimizer.step()
    with pytest.raises(ValueError, match="make_optimizer: expected a model that trains, got one whose parameters are"):
        make_optimizer(hf.load(path), 1e-3)
    with pytest.raises(AttributeError, match=r"TiedHead has no attribute 'weight'.*open_table"):
        hf.load(coded(path)).lm_head.weight  # noqa: B018
    peft = pytest.importorskip("peft", reason="peft is not installed")
    import bie.peft  # noqa: F401

    adapted = peft.get_peft_model(hf.load(path), peft.LoraConfig(**LORA))
    with pytest.raises(ValueError, match=r"make_trainable: expected a model with blocks.*got a PeftModelForCausalLM"):
        make_trainable(adapted, "codes", WIDTHS["4"], 32)


@pytest.mark.parametrize("table", ["floats", "codes"])
def test_peft_trains_adapters_alone(path, tmp_path, table):
    peft = pytest.importorskip("peft", reason="peft is not installed")
    import bie.peft

    path = path if table == "floats" else coded(path)
    model = hf.load(path)
    before = weights(model)
    adapted = peft.get_peft_model(model, peft.LoraConfig(**LORA))
    assert isinstance(adapted.base_model.model.model.layers[0].mlp.up_proj, bie.peft.LoraLinear)
    options = arguments(tmp_path / "out", learning_rate=2e-2)
    trainer = Trainer(adapted, options, train_dataset=rows(), data_collator=together)
    trainer.train()
    found = losses(trainer)
    assert found[-1] < found[0] - 0.2, found
    assert not any(moved(before, adapted))
    adapted.save_pretrained(tmp_path / "adapter")
    again = peft.PeftModel.from_pretrained(hf.load(path), tmp_path / "adapter")
    torch.testing.assert_close(logits(again), logits(adapted))


@pytest.fixture
def supervised(tmp_path):
    """Makes a trainer of trl."""
    trl = pytest.importorskip("trl", reason="trl is not installed")
    import datasets
    import pyarrow

    def make(model, rate, **options):
        told = {"max_length": 48, "dataset_kwargs": {"skip_prepare_dataset": True}, "learning_rate": rate}
        table = pyarrow.table({"input_ids": [row["input_ids"] for row in rows()]})
        return trl.SFTTrainer(
            model,
            arguments(tmp_path / "out", trl.SFTConfig, **told),
            train_dataset=datasets.Dataset(table, fingerprint="rows"),
            processing_class=tokenizer(),
            **options,
        )

    return make


def test_trl_trains_codes(path, supervised):
    model = loaded(path)
    before = weights(model)
    trainer = supervised(model, 3e-3, optimizers=(optimizer_of(model), None))
    trainer.train()
    found = losses(trainer)
    assert found[-1] < found[0] - 0.5, found
    assert all(moved(before, model))


def test_trl_trains_adapters(path, supervised):
    peft = pytest.importorskip("peft", reason="peft is not installed")
    import bie.peft  # noqa: F401

    model = hf.load(coded(path))
    open_table(model)
    before = weights(model)
    trainer = supervised(model, 2e-2, peft_config=peft.LoraConfig(**LORA))
    trainer.train()
    found = losses(trainer)
    assert found[-1] < found[0] - 0.2, found
    assert not any(moved(before, trainer.model))
