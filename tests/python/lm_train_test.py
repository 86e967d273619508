"""Language models that train in codes: layers, attention of packed rows, resuming, files, the command."""

from __future__ import annotations

import json
import math
import random

import pytest
import torch
from torch import nn

pytest.importorskip("transformers")
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

import bie
from bie import hf
from bie.lm import Rows, Schedule, StoppedError, Trainer, make_trainable, tokenize
from bie.lm.layers import METHODS, LatentLinear, block_linears, coded_linear
from bie.lm.models import new_model
from bie.lm.train import main
from bie.lm.widths import WIDTHS, first_scales, gguf_type, places
from bie.nn.merging import opened

SIZES = "llama:hidden=64,layers=2,heads=4,kv_heads=2,intermediate=128,context=128"


def tokenizer():
    words = [chr(c) for c in range(32, 127)]
    made = Tokenizer(
        models.WordLevel({word: i for i, word in enumerate(["<s>", "</s>", "<u>", *words])}, unk_token="<u>")
    )
    made.pre_tokenizer = pre_tokenizers.Split("", "isolated")
    return PreTrainedTokenizerFast(tokenizer_object=made, bos_token="<s>", eos_token="</s>", unk_token="<u>")


def sentences(count, seed=0):
    """Documents of a small grammar, which a small model learns."""
    choose = random.Random(seed).choice
    who, does, what = (
        ["the cat", "a dog", "the old man"],
        ["sees", "likes", "follows"],
        ["the moon", "a red ball", "it"],
    )
    return [" ".join(f"{choose(who)} {choose(does)} {choose(what)}." for _ in range(6)) for _ in range(count)]


@pytest.fixture(scope="module")
def texts(tmp_path_factory):
    folder = tmp_path_factory.mktemp("texts")
    path = folder / "a.jsonl"
    path.write_text("".join(json.dumps({"text": text}) + "\n" for text in sentences(400)))
    return tokenize([path], tokenizer(), folder / "tokens", validation=0.05)


def prepared(method, bits, group=32, seed=0):
    model = new_model(SIZES, tokenizer(), seed)
    types = make_trainable(model, method, WIDTHS[bits], group)
    return model, types


SCHEDULE = {"rows": 8, "lr": 3e-3, "scale_lr": 0.01, "float_lr": 3e-3}


def trained(method, bits, texts, steps=60, out=None, **changes):
    model, _ = prepared(method, bits)
    options = SCHEDULE | {"tokens": steps * 8 * 64} | changes
    trainer = Trainer(model, Rows(texts, 64), Schedule(**options), out)
    reports = list(trainer.run())
    return trainer, reports


@pytest.mark.parametrize("method", ["codes", "codes+rest8", "codes+rest16", "latent"])
@pytest.mark.parametrize("bits", WIDTHS)
def test_codes_of_the_width_asked_for_are_kept(bits, method):
    """Also where the largest code of a group is not there, from which a scale could be guessed."""
    model, _ = prepared("codes", bits)
    layer = model.model.layers[0].mlp.up_proj
    codes = torch.randint(0, max(2, WIDTHS[bits].levels - 1), (64, 128), dtype=torch.int32)
    layer.set_codes(codes, layer.scales.clone(), layer.zeros.clone())
    before = [opened(layer).clone() for *_, layer in block_linears(model)]
    make_trainable(model, method, WIDTHS[bits], 32)
    for (*_, layer), weight in zip(block_linears(model), before, strict=True):
        found = layer.rounded() if method == "latent" else opened(layer)
        torch.testing.assert_close(found, weight, rtol=1e-3, atol=1e-6)


def test_a_start_is_near_the_floats():
    torch.manual_seed(0)
    weight = torch.randn(24, 160) * 0.05
    for name, most in (("8", 1e-4), ("4", 0.02), ("3", 0.08), ("2", 0.25), ("ternary", 0.3), ("1", 0.45)):
        width = WIDTHS[name]
        layer = coded_linear(weight, None, width, 32, "codes+rest8")
        assert (opened(layer) - weight).square().mean() < most * weight.square().mean(), name
        place = places(weight, first_scales(weight, width, 32).half(), width, 32)
        codes = torch.ops.bie.unpack_words(layer.qweight.detach(), width.bits, 160, 0)
        kept = codes + layer.rest / 256
        assert (kept.T - place).abs().max() < 0.004, name


def test_a_type_of_gguf_wants_whole_blocks():
    assert gguf_type(WIDTHS["2"], 576, 64) == "Q2_0" and gguf_type(WIDTHS["ternary"], 576, 128) == "Q2_0"
    assert gguf_type(WIDTHS["2"], 100, 64) is None and gguf_type(WIDTHS["2"], 128, 32) is None
    assert gguf_type(WIDTHS["1"], 576, 128) is None and gguf_type(WIDTHS["4"], 576, 32) == "Q4_0"
    assert gguf_type(WIDTHS["3"], 512, 64) is None


def test_latent_gradients_are_lsq():
    torch.manual_seed(0)
    width, group = WIDTHS["2"], 8
    layer = LatentLinear(torch.randn(3, 20) * 0.1, None, width, group).double()
    grad = torch.randn(3, 20, dtype=torch.float64)
    layer.rounded().backward(grad)
    wide = layer.scales.detach().repeat_interleave(group, 1)[:, :20]
    place = layer.weight.detach() / wide + width.zero
    inside = (place >= -0.5) & (place <= 3.5)
    torch.testing.assert_close(layer.weight.grad, grad * inside)
    codes = place.round().clamp(0, 3)
    slopes = torch.where(inside, codes - place, codes - width.zero) * grad
    for g, part in enumerate(slopes.split(group, 1)):
        torch.testing.assert_close(layer.scales.grad[:, g], part.sum(1) / math.sqrt(group * 3))


def test_packed_documents_do_not_see_each_other(texts):
    model, _ = prepared("codes+rest8", "4")
    model.eval()
    rows = Rows(texts, 96)
    batch = rows.batch(0, 0, 4)
    with torch.no_grad():
        positions = {"position_ids": batch["position_ids"], "use_cache": False}
        together = model.model(input_ids=batch["input_ids"], **positions).last_hidden_state
        several = 0
        for row in range(4):
            starts = (batch["position_ids"][row] == 0).nonzero().flatten().tolist()
            several += len(starts) > 1
            for begin, end in zip(starts, [*starts[1:], 96], strict=True):
                alone = model.model(input_ids=batch["input_ids"][row : row + 1, begin:end]).last_hidden_state
                torch.testing.assert_close(together[row : row + 1, begin:end], alone, rtol=1e-4, atol=1e-4)
    assert several > 0


@pytest.mark.parametrize(("method", "bits"), [("codes+rest8", "ternary"), ("codes+rest8", "4"), ("codes", "4")])
def test_codes_learn_a_text(method, bits, texts):
    trainer, reports = trained(method, bits, texts, small_moments=True, in_backward=True)
    frozen, _ = trained(method, bits, texts, lr=0.0, scale_lr=0.0, float_lr=0.0)
    assert reports[-1]["validation"] < frozen.evaluate() - 1
    moved = 0
    for (_, _, _, layer), (_, _, _, still) in zip(
        block_linears(trainer.model), block_linears(frozen.model), strict=True
    ):
        moved += (layer.qweight != still.qweight).sum().item()
        assert layer.qweight.grad is None
    assert moved > 0


@pytest.mark.parametrize("method", METHODS)
def test_every_method_learns_and_is_written(method, texts, tmp_path):
    trainer, reports = trained(method, "4", texts, steps=25)
    assert reports[-1]["loss"] < reports[0]["loss"] - 0.3
    model = trainer.finish()
    hf.save_gguf(model, tmp_path / "m.gguf")
    again = hf.load(tmp_path / "m.gguf")
    ids = torch.randint(3, 90, (2, 20))
    with torch.no_grad():
        torch.testing.assert_close(again(ids).logits, model(ids).logits, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("small", [False, True])
def test_a_training_resumes_to_the_bit(small, texts, tmp_path):
    options = SCHEDULE | {"tokens": 12 * 8 * 64, "small_moments": small, "in_backward": True}
    whole, _ = trained("codes+rest8", "2", texts, steps=12, small_moments=small, in_backward=True)
    model, _ = prepared("codes+rest8", "2")
    first = Trainer(model, Rows(texts, 64), Schedule(**options), tmp_path)
    for report in first.run(save_every=5):
        if report["step"] == 7:
            break
    other, _ = prepared("codes+rest8", "2", seed=9)
    second = Trainer(other, Rows(texts, 64), Schedule(**options), tmp_path)
    second.resume(tmp_path / "checkpoint.pt")
    assert second.step == 5
    assert [json.loads(line)["step"] for line in (tmp_path / "log.jsonl").read_text().splitlines()] == [1, 2, 3, 4, 5]
    list(second.run())
    for name, tensor in whole.model.state_dict().items():
        assert torch.equal(tensor, other.state_dict()[name]), name


@pytest.mark.parametrize("small", [False, True])
@pytest.mark.parametrize("method", ["codes+rest8", "codes+rest16"])
def test_rests_move(texts, method, small):
    """Scales stay where rests are in units of the weight, whatever is asked for."""
    model, _ = prepared(method, "4")
    layers = [layer for *_, layer in block_linears(model)]
    rests, scales = ([getattr(layer, name).clone() for layer in layers] for name in ("rest", "scales"))
    trainer = Trainer(model, Rows(texts, 64), Schedule(**SCHEDULE, tokens=2 * 8 * 64, small_moments=small))
    list(trainer.run())
    assert not any(torch.equal(before, layer.rest) for before, layer in zip(rests, layers, strict=True))
    stay = [torch.equal(before, layer.scales) for before, layer in zip(scales, layers, strict=True)]
    assert all(stay) if method == "codes+rest16" else not any(stay)
    states = [trainer.optimizer.state[layer.qweight] for layer in layers]
    assert {state["exp_avg_l"].dtype for state in states} == {
        torch.int8 if small and method == "codes+rest8" else torch.float32
    }


def test_passes_of_a_step_add_up(texts):
    one, _ = trained("latent", "4", texts, steps=3, rows=8)
    four, _ = trained("latent", "4", texts, steps=3, rows=2, accumulate=4)
    for name, tensor in one.model.state_dict().items():
        torch.testing.assert_close(tensor, four.model.state_dict()[name], rtol=1e-2, atol=2e-4, msg=name)


def test_blocks_computed_anew_give_the_same(texts):
    plain, _ = trained("codes+rest8", "2", texts, steps=4, in_backward=True)
    model, _ = prepared("codes+rest8", "2")
    model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    trainer = Trainer(model, Rows(texts, 64), Schedule(**SCHEDULE, tokens=4 * 8 * 64, in_backward=True))
    list(trainer.run())
    for name, tensor in plain.model.state_dict().items():
        assert torch.equal(tensor, model.state_dict()[name]), name


def test_a_loss_that_is_no_number_stops(texts, tmp_path):
    model, _ = prepared("codes+rest8", "4")
    trainer = Trainer(model, Rows(texts, 64), Schedule(**SCHEDULE, tokens=8 * 8 * 64), tmp_path)
    run = trainer.run(save_every=1)
    next(run)
    with torch.no_grad():
        model.model.norm.weight.fill_(math.nan)
    with pytest.raises(StoppedError, match=r"the loss of step 2 is nan.*checkpoint\.pt"):
        next(run)
    assert torch.load(tmp_path / "checkpoint.pt", weights_only=True)["step"] == 1


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"tokens": 0}, "tokens: expected 1 or more, got 0"),
        ({"rows": 0}, "rows: expected 1 or more"),
        ({"lr": math.nan}, "lr: expected a number >= 0, got nan"),
        ({"warmup": 2.0}, r"warmup: expected a share in \[0, 1\]"),
        ({"accumulate": 2, "in_backward": True}, "accumulate: expected 1, got 2"),
    ],
)
def test_numbers_that_cannot_be(change, said):
    with pytest.raises(ValueError, match=said):
        Schedule(**({"tokens": 1000} | change))


@pytest.mark.parametrize(
    ("sizes", "said"),
    [
        ("llama:width=3", "expected sizes hidden"),
        ("llama:hidden=x", "hidden: expected a positive number"),
        ("llama:hidden=10,heads=4", "heads of an even width"),
        ("llama:hidden=64,heads=4,kv_heads=3", "kv_heads divide"),
        ("llama:vocab=4", "vocab: expected the tokenizer's"),
    ],
)
def test_sizes_that_cannot_be(sizes, said):
    with pytest.raises(ValueError, match=said):
        new_model(sizes, tokenizer())


def test_a_checkpoint_of_something_else(texts, tmp_path):
    trainer, _ = trained("codes", "4", texts, steps=2, out=tmp_path)
    (tmp_path / "broken").write_bytes((tmp_path / "checkpoint.pt").read_bytes()[:1000])
    torch.save({"a": 1}, tmp_path / "other")
    for name in ("broken", "other"):
        with pytest.raises(ValueError, match="no checkpoint of a language model"):
            trainer.resume(tmp_path / name)
    model, _ = prepared("codes", "4")
    longer = Trainer(model, Rows(texts, 64), Schedule(**SCHEDULE, tokens=10**6))
    with pytest.raises(ValueError, match="another tokens: expected 1000000, got 1024"):
        longer.resume(tmp_path / "checkpoint.pt")


@pytest.fixture
def files(tmp_path):
    tokenizer().save_pretrained(tmp_path / "tokenizer")
    (tmp_path / "a.txt").write_text("\n<|endoftext|>\n".join(sentences(120)))
    return [
        *("--model", SIZES, "--tokenizer", str(tmp_path / "tokenizer"), "--data", str(tmp_path / "a.txt")),
        *("--validation", "0.1", "--context", "64", "--rows", "4", "--device", "cpu"),
    ]


@pytest.mark.parametrize(("bits", "group"), [("2", "64"), ("ternary", "64"), ("8", "32"), ("3", "32"), ("1", "64")])
def test_the_command(files, bits, group, tmp_path, capsys):
    run = tmp_path / "run"
    options = ["--bits", bits, "--group", group, "--tokens", "1k", "--out", str(run)]
    assert main([*files, *options]) == 0
    said = capsys.readouterr().out
    result = run / ("model.gguf" if bits in ("2", "ternary", "8") else "model")
    assert said.splitlines()[-1] == str(result) and result.exists()
    assert "validation as the file holds it" in said
    model = hf.load(result)
    with torch.no_grad():
        assert torch.isfinite(model(torch.arange(3, 20)[None]).logits).all()
    layers = [layer for _, _, _, layer in block_linears(model)]
    assert all(layer.w_bit == WIDTHS[bits].bits for layer in layers)
    with pytest.raises(SystemExit):
        main([*files, *options])
    assert "holds a run" in capsys.readouterr().err


def test_the_command_resumes(files, tmp_path, capsys):
    run = tmp_path / "run"
    assert main([*files, "--bits", "2", "--group", "64", "--tokens", "2k", "--save-every", "3", "--out", str(run)]) == 0
    wanted = (run / "model.gguf").read_bytes()
    (run / "model.gguf").unlink()
    assert main(["--resume", str(run)]) == 0
    assert "resumed behind step 8" in capsys.readouterr().out
    assert (run / "model.gguf").read_bytes() == wanted
    with pytest.raises(SystemExit):
        main(["--resume", str(run), "--bits", "4"])
    assert "--bits cannot change" in capsys.readouterr().err


def test_the_command_is_interrupted(files, tmp_path, capsys, monkeypatch):
    run, taken = tmp_path / "run", Trainer._one_step
    options = [*files, "--bits", "2", "--group", "64", "--tokens", "2k", "--save-every", "2", "--out", str(run)]

    def interrupted(self):
        if self.step == 5:
            raise KeyboardInterrupt
        return taken(self)

    monkeypatch.setattr(Trainer, "_one_step", interrupted)
    assert main(options) == 130
    assert "stopped behind step 5" in capsys.readouterr().out
    monkeypatch.undo()
    assert main(["--resume", str(run)]) == 0
    assert "resumed behind step 4" in capsys.readouterr().out


def test_what_the_command_refuses(files, tmp_path, capsys):
    for arguments, said in (
        ([], "--model is missing"),
        (["--resume", str(tmp_path)], "no folder of a run"),
        ([*files, "--out", str(tmp_path / "r")], "--tokens is missing"),
    ):
        with pytest.raises(SystemExit):
            main(arguments)
        assert said in capsys.readouterr().err
    out = ["--tokens", "1k", "--out", str(tmp_path / "r")]
    for arguments, said in (
        ([*files, *out, "--group", "0"], "group: expected 1 or more"),
        ([*files, *out, "--data", str(tmp_path / "none.txt")], "none.txt"),
        ([*files[:2], *files[4:], *out], "wants a tokenizer"),
    ):
        assert main(arguments) == 1
        assert said in capsys.readouterr().err


def test_other_parts_stay_floats_that_train():
    model, types = prepared("codes+rest8", "2", group=64)
    assert types == ["Q2_0"]
    assert (
        isinstance(model.model.embed_tokens, nn.Embedding) and model.lm_head.weight is model.model.embed_tokens.weight
    )
    assert all(p.requires_grad for p in model.parameters() if p.is_floating_point())
    assert len(list(block_linears(model))) == 14
    assert all(isinstance(layer, bie.nn.MPQLinear) for _, _, _, layer in block_linears(model))
    with pytest.raises(ValueError, match="method: expected one of"):
        make_trainable(model, "qat", WIDTHS["2"])


def test_a_model_that_was_evaluated_trains(texts):
    model, _ = prepared("codes+rest8", "2")
    before = [layer.qweight.clone() for *_, layer in block_linears(model)]
    trainer = Trainer(model.eval(), Rows(texts, 64), Schedule(**SCHEDULE, tokens=3 * 8 * 64))
    for _ in trainer.run():
        trainer.evaluate()
    after = [layer.qweight for *_, layer in block_linears(model)]
    assert not any(torch.equal(*pair) for pair in zip(before, after, strict=True))


def test_a_captured_step_wants_a_gpu_and_one_batch(texts):
    model, _ = prepared("codes", "4")
    for changes in ({}, {"accumulate": 2}, {"in_backward": True}):
        with pytest.raises(ValueError, match="captured: expected a model on CUDA, accumulate=1 and in_backward=False"):
            Trainer(model, Rows(texts, 64), Schedule(**SCHEDULE, tokens=100, **changes), captured=True)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("bfloat16", [False, True])
@pytest.mark.parametrize("method", ["codes+rest8", "latent", "float"])
def test_a_captured_step_is_the_written_one(texts, method, bfloat16):
    losses = []
    for options in ({}, {"compiled": True}, {"captured": True}, {"compiled": True, "captured": True}):
        model, _ = prepared(method, "2")
        schedule = Schedule(**SCHEDULE, tokens=12 * 8 * 64, bfloat16=bfloat16)
        trainer = Trainer(model.cuda(), Rows(texts, 64), schedule, **options)
        losses.append([report["loss"] for report in trainer.run()])
        assert math.isfinite(trainer.evaluate())
    for found in losses[1:]:
        assert found == pytest.approx(losses[0], rel=0.02 if bfloat16 else 5e-3)
