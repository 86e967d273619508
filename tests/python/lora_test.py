"""Low-rank adapters beside frozen quantised layers: gradients, what trains, what is saved, refusals."""

import copy

import pytest
import torch
from torch import nn

import bie


@pytest.mark.parametrize("target", ["w4", "w8", "q8", "q4", "binary"])
def test_adapters_train_and_nothing_else(target):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 4))
    bie.convert(model, target)
    x, y = torch.randn(64, 64), torch.randint(0, 4, (64,))
    model(x)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    with torch.no_grad():
        wanted = model(x)
    assert bie.nn.add_adapters(model, rank=4) == ["0", "2"]
    assert torch.equal(model(x), wanted), "an adapter begins with zeros"
    optimizer = torch.optim.Adam([p for p in model.parameters() if p.requires_grad], lr=2e-2)
    losses = []
    for _ in range(60):
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        losses.append(float(loss.detach()))
    assert losses[-1] < 0.7 * losses[0]
    after = model.state_dict()
    assert all(torch.equal(after[name.replace(".", ".layer.", 1)], value) for name, value in before.items())
    assert set(bie.nn.adapter_state(model)) == {"0.A", "0.B", "2.A", "2.B"}


def test_an_adapter_is_its_formula():
    torch.manual_seed(0)
    layer = bie.convert(nn.Linear(64, 8), "w4").model.eval()
    adapted, x = bie.nn.LoRA(copy.deepcopy(layer), rank=3, alpha=6), torch.randn(5, 64)
    with torch.no_grad():
        adapted.B.normal_()
        wanted = layer(x) + 2.0 * x @ (adapted.B @ adapted.A).T
        torch.testing.assert_close(adapted(x), wanted, rtol=1e-4, atol=1e-4)


def test_adapters_of_a_file_go_to_another_copy():
    torch.manual_seed(0)
    base = bie.convert(nn.Sequential(nn.Linear(64, 8)), "w4").model.eval()
    one, other, x = copy.deepcopy(base), copy.deepcopy(base), torch.randn(2, 64)
    for model in (one, other):
        bie.nn.add_adapters(model, rank=2)
    nn.init.normal_(one[0].B)
    missing = other.load_state_dict(bie.nn.adapter_state(one), strict=False)
    assert not missing.unexpected_keys
    assert torch.equal(one(x), other(x))


@pytest.mark.parametrize(
    ("target", "options", "worst"),
    [
        ("w8", {}, 0.1),
        ("w4", {}, 0.9),
        ("w8", {"use_gba_quant": False, "dtype": torch.float16}, 0.1),
        ("w8", {"master": True}, 0.1),
        ("q8", {}, 0.6),
        ("q8", {"channel_scale": True}, 0.6),
        (None, {}, 1e-5),
    ],
)
def test_a_merge_goes_into_codes_and_says_what_it_lost(target, options, worst):
    torch.manual_seed(0)
    model, x = nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 4)), torch.randn(64, 64)
    if target is not None:
        bie.convert(model, target, **options)
    model(x)
    bie.nn.add_adapters(model.eval(), rank=4, alpha=8, filter=lambda name, module: True)
    for adapter in (model[0], model[2]):
        nn.init.normal_(adapter.B, 0, 0.1)
    with torch.no_grad():
        wanted, plain = model[0](x), model[0].layer(x)
    lost = bie.nn.merge_adapters(model)
    assert lost.keys() == {"0", "2"} and all(share < worst for share in lost.values())
    assert target is None or all(share > 0 for share in lost.values())
    assert not any(isinstance(module, bie.nn.LoRA) for module in model.modules())
    with torch.no_grad():
        left = float((model[0](x) - wanted).norm() / (plain - wanted).norm())
    assert left < max(2 * worst, 1e-4)


def test_a_merge_keeps_the_grid_where_that_loses_less():
    """Groups of scattered inputs, as act-order files have them, stay when the change is small."""
    torch.manual_seed(0)
    scattered = torch.randperm(64)
    model = nn.Sequential(bie.nn.MPQLinear(64, 16, w_bit=4, group_size=16, use_gba_quant=True, dtype=torch.float32))
    coded = bie.quantization.round_to_nearest(torch.randn(16, 64), 4, 16)
    back = scattered.argsort()
    model[0].set_codes(coded.codes[back], coded.scales, coded.zeros, coded.g_idx[back])
    order, words = model[0].g_idx.clone(), model[0].qweight.detach().clone()
    bie.nn.add_adapters(model, rank=2)
    nn.init.normal_(model[0].B, 0, 1e-4)
    with pytest.warns(UserWarning, match=r"merge_adapters: rounding lost \d+% of the adapter of '0'"):
        bie.nn.merge_adapters(model)
    assert torch.equal(model[0].g_idx, order) and torch.equal(model[0].qweight, words)


def test_a_merge_that_cannot_be_changes_nothing():
    model = bie.convert(nn.Sequential(nn.Linear(64, 8), nn.Linear(8, 4)), "q8").model
    model[1] = bie.nn.BinaryLinear(8, 4)
    bie.nn.add_adapters(model, rank=2)
    before = model[0].layer.weight.detach().clone()
    nn.init.normal_(model[0].B)
    with pytest.raises(ValueError, match=r"layer '1': expected an MPQLinear.*, got a BinaryLinear with .* weights"):
        bie.nn.merge_adapters(model)
    assert torch.equal(model[0].layer.weight, before) and isinstance(model[0], bie.nn.LoRA)


def test_shared_layers_share_their_adapter():
    model = nn.Module()
    model.a = model.b = bie.nn.Q8Linear(8, 8)
    bie.nn.add_adapters(model, filter=lambda name, module: True)
    assert model.a is model.b and isinstance(model.a, bie.nn.LoRA)


def test_refusals():
    with pytest.raises(TypeError, match="the layer: expected a linear, got a ReLU"):
        bie.nn.LoRA(nn.ReLU())
    with pytest.raises(ValueError, match="rank: expected a positive number, got 0"):
        bie.nn.LoRA(nn.Linear(2, 2), rank=0)
    with pytest.raises(ValueError, match="no linear to put an adapter beside"):
        bie.nn.add_adapters(nn.Sequential(nn.Linear(2, 2)))
    with pytest.raises(bie.ShapeError, match=r"x: expected the layer's 4 features, got \[3, 5\]"):
        bie.nn.LoRA(nn.Linear(4, 2))(torch.ones(3, 5))
