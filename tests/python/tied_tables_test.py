"""An embedding and the output layer that shares its weight as one table of codes: converted, saved, trained."""

import copy
import io

import pytest
import torch
from torch import nn

import bie
from bie.nn import MPQLinear, WeightOnlyEmbedding
from bie.quantization import quantize

WORDS, WIDTH = 40, 64


class Words(nn.Module):
    def __init__(self, tied=True, bias=False):
        super().__init__()
        self.embed, self.inner = nn.Embedding(WORDS, WIDTH), nn.Linear(WIDTH, WIDTH)
        self.head = nn.Linear(WIDTH, WORDS, bias=bias)
        if tied:
            self.head.weight = self.embed.weight

    def forward(self, x):
        return self.head(torch.tanh(self.inner(self.embed(x))))


X = torch.arange(WORDS).view(4, -1)
DATA = [torch.randint(0, WORDS, (4, 10), generator=torch.Generator().manual_seed(seed)) for seed in range(4)]


def words(**options):
    torch.manual_seed(0)
    return Words(**options).eval()


def answers(model):
    with torch.no_grad():
        return model(X)


def difference(found, wanted):
    return float((found - wanted).norm() / wanted.norm())


def bytes_of(model):
    return sum(tensor.nbytes for tensor in model.state_dict().values())


def converted(**options):
    return bie.convert(words(), "w4", **options).model


def test_a_conversion_makes_one_table_of_codes():
    model, wanted = words(), answers(words())
    report = bie.convert(model, "w8")
    assert type(model.embed) is WeightOnlyEmbedding and model.head.table is model.embed
    assert [entry.target for entry in report.swapped] == ["WeightOnlyEmbedding", "TiedHead of embed", "MPQLinear"]
    assert not report.skipped and "TiedHead of embed" in str(report)
    assert difference(answers(model), wanted) < 0.02
    assert not any(key.startswith("head") for key in model.state_dict())
    assert bytes_of(model) < 0.4 * bytes_of(words())


@pytest.mark.parametrize("leave", ["option", "head", "table", "hook", "bias", "no such option", "read"])
def test_what_leaves_a_table_in_floats(leave):
    model, options = words(bias=leave == "bias"), {}
    if leave == "option":
        options["tied"] = False
    elif leave in ("head", "table"):
        options["filter"] = lambda name, module: name != {"head": "head", "table": "embed"}[leave]
    elif leave == "hook":
        model.head.register_forward_hook(lambda *_: None)
    elif leave == "no such option":
        options["use_gba_quant"] = False
    elif leave == "read":
        model.forward = lambda x: nn.functional.linear(model.embed(x), model.embed.weight)
        options["batch"] = X
    report = bie.convert(model, "w4", **options)
    assert model.head.weight is model.embed.weight and type(model.inner) is MPQLinear
    reasons = {entry.name: entry.reason for entry in report.skipped}
    sentence = {
        "option": "its parameter is shared: embed.weight, head.weight",
        "head": "the filter leaves head, and embed and head share one weight",
        "table": "the filter leaves embed, and embed and head share one weight",
        "hook": "head has hooks",
        "bias": "head has a bias, which the head of a table of codes has not",
        "no such option": "embed and head share one weight, a table of codes has no option 'use_gba_quant'",
        "read": "the model reads the weight of embed past its forward",
    }[leave]
    assert reasons == {"embed": sentence, "head": sentence}


def test_other_targets_and_other_sharing_are_left():
    assert len(bie.convert(words(), "q8").skipped) == 2
    assert len(bie.convert(words(), MPQLinear).skipped) == 2
    three = words()
    three.again = nn.Embedding(WORDS, WIDTH)
    three.again.weight = three.embed.weight
    assert len(bie.convert(three, "w4").skipped) == 3


@pytest.mark.parametrize("bits", [4, 8])
def test_quantize_makes_one_table_of_codes(bits):
    model, wanted = words(), answers(words())
    model.train()
    report = quantize(model, DATA, bits=bits, group_size=32)
    assert model.head.table is model.embed and type(model.inner) is MPQLinear
    assert model.embed.training and model.head.training and model.inner.training
    assert [layer.name for layer in report.layers] == ["embed", "inner", "head"]
    assert report.layers[2].tied == "embed" and "one table with head" in str(report)
    assert 0 < report.layers[2].error < {4: 0.2, 8: 0.02}[bits]
    assert difference(answers(model.eval()), wanted) < {4: 0.3, 8: 0.03}[bits]


@pytest.mark.parametrize(
    "options",
    [{"tied": False}, {"whole_zeros": True}, {"master": True}, {"filter": lambda name, module: name != "head"}],
    ids=["option", "whole zeros", "no such option", "filter"],
)
def test_quantize_leaves_a_table_in_floats(options):
    model = words()
    report = quantize(model, DATA, group_size=32, **options)
    assert model.head.weight is model.embed.weight
    assert [layer.reason for layer in report.skipped] == ["its parameter is shared: embed.weight, head.weight"]


@pytest.mark.parametrize("float_model_is_tied", [True, False])
@pytest.mark.parametrize("device", ["cpu", "meta"])
def test_save_weights_and_load_into(float_model_is_tied, device, tmp_path):
    model = converted()
    bie.formats.save_weights(tmp_path / "a.safetensors", model)
    folder = bie.formats.load_weights_folder(tmp_path / "a.safetensors")
    assert folder.heads == {"head": "embed"}
    with torch.device(device):
        again = Words(tied=float_model_is_tied)
    folder.load_into(again)
    assert again.head.table is again.embed
    assert torch.equal(answers(again.eval()), answers(model))
    assert again.state_dict().keys() == model.state_dict().keys()


def test_a_head_that_the_model_has_no_place_for(tmp_path):
    bie.formats.save_weights(tmp_path / "a.safetensors", converted())
    folder = bie.formats.load_weights_folder(tmp_path)
    for head, sentence in [
        (nn.Linear(WIDTH, WORDS), r"the head 'head' of 'embed', the model has Linear\("),
        (nn.Linear(WIDTH, 7, bias=False), "does not fit Linear"),
        (nn.Identity(), r"the head 'head' of 'embed', the model has Identity\(\)"),
    ]:
        model = words(tied=False)
        model.head = head
        with pytest.raises(ValueError, match=sentence):
            folder.load_into(model)
        assert type(model.embed) is nn.Embedding


def test_state_dicts_checkpoints_and_copies(tmp_path):
    model = converted()
    wanted = answers(model)
    other = converted()
    with torch.no_grad():
        other.embed.scales.mul_(3)
    other.load_state_dict(model.state_dict())
    assert torch.equal(answers(other), wanted)
    bie.save_checkpoint(model, tmp_path / "a.pt")
    with torch.no_grad():
        other.embed.scales.mul_(3)
    bie.load_checkpoint(other, tmp_path / "a.pt")
    assert torch.equal(answers(other), wanted)
    file = io.BytesIO()
    torch.save(model, file)
    file.seek(0)
    for copied in (copy.deepcopy(model), torch.load(file, weights_only=False)):
        assert torch.equal(answers(copied), wanted) and copied.head.table is copied.embed


def test_a_converted_table_trains_from_both_ends():
    model = converted().train()
    before = model.embed.qweight.detach().clone()
    optimizer = bie.optim.DiodeMix(model.parameters(), lr=1e-2, betas=(0.9, 0.999))
    losses = []
    for _ in range(80):
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(X).flatten(0, 1), X.flatten().roll(1))
        loss.backward()
        losses.append(float(loss.detach()))
        optimizer.step()
    assert losses[-1] < 0.8 * losses[0]
    assert not torch.equal(model.embed.qweight, before)


def test_a_factor_scales_rows_and_not_the_head():
    table = WeightOnlyEmbedding(11, 24, 4, 8, factor=3.0)
    plain = WeightOnlyEmbedding(11, 24, 4, 8)
    for one in (table, plain):
        one.set_weight_data(torch.randn(11, 24, generator=torch.Generator().manual_seed(0)))
        one.eval()
    index, h = torch.tensor([[2, 7], [0, 2]]), torch.randn(5, 24)
    assert torch.equal(table(index), 3 * plain(index)) and torch.equal(table.head()(h), plain.head()(h))
    for one in (table, plain):
        one.train()(index).sum().backward()
    assert torch.equal(table.qweight.grad.to_dense(), 3 * plain.qweight.grad.to_dense())
    assert "factor=3" in repr(table)
