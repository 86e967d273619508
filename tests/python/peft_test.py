"""Adapters of peft beside layers of ours: they train, are saved, read again, merged into codes and taken out."""

import copy

import pytest
import torch
from torch import nn

peft = pytest.importorskip("peft", reason="peft is not installed")

import bie.peft  # noqa: E402  after the skip


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.up, self.down = nn.Linear(64, 32), nn.Linear(32, 4)

    def forward(self, x):
        return self.down(torch.relu(self.up(x)))


def converted(target="w4", **options):
    torch.manual_seed(0)
    net = bie.convert(Net(), target, **options).model
    net(torch.randn(8, 64))
    return net.eval()


def adapted(net, **options):
    options = {"r": 4, "lora_alpha": 8, "target_modules": ["up", "down"]} | options
    return peft.get_peft_model(net, peft.LoraConfig(**options))


X = torch.randn(64, 64, generator=torch.Generator().manual_seed(1))


def filled(model):
    """The model, whose matrices B are not 0."""
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "lora_B" in name:
                parameter.normal_(0, 0.05, generator=torch.Generator().manual_seed(2))
    return model.eval()


@pytest.mark.parametrize("target", ["w4", "w8", "w2", "q8", "q4", "binary"])
@pytest.mark.filterwarnings("error:Unsupported layer")
def test_adapters_train_and_nothing_else(target):
    net = converted(target)
    with torch.no_grad():
        wanted = net(X)
    before = {name: value.clone() for name, value in net.state_dict().items()}
    model = adapted(net)
    with torch.no_grad():
        assert torch.equal(model(X), wanted), "an adapter begins with zeros"
    assert isinstance(model.base_model.model.up, bie.peft.LoraLinear)
    label = torch.randint(0, 4, (64,), generator=torch.Generator().manual_seed(3))
    optimizer = torch.optim.Adam([p for p in model.parameters() if p.requires_grad], lr=2e-2)
    losses = []
    model.train()
    for _ in range(60):
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(X), label)
        loss.backward()
        optimizer.step()
        losses.append(float(loss.detach()))
    assert losses[-1] < 0.7 * losses[0]
    after = model.base_model.model.state_dict()
    assert all(torch.equal(after[name.replace(".", ".base_layer.", 1)], value) for name, value in before.items())


def test_adapters_are_saved_and_read(tmp_path):
    model = filled(adapted(converted()))
    model.save_pretrained(tmp_path)
    again = peft.PeftModel.from_pretrained(converted(), tmp_path)
    with torch.no_grad():
        assert torch.equal(again.eval()(X), model(X))


def test_an_adapter_is_its_formula():
    net = converted()
    layer, model = copy.deepcopy(net.up), filled(adapted(net))
    adapter = model.base_model.model.up
    with torch.no_grad():
        wanted = layer(X) + 2 * X @ (adapter.lora_B["default"].weight @ adapter.lora_A["default"].weight).t()
        torch.testing.assert_close(adapter(X), wanted, rtol=1e-4, atol=1e-4)
        with model.disable_adapter():
            assert torch.equal(adapter(X), layer(X))


@pytest.mark.parametrize(("target", "worst"), [("w8", 0.1), ("w4", 0.9), ("q8", 0.6)])
def test_a_merge_goes_into_codes_and_says_what_it_lost(target, worst):
    model = filled(adapted(converted(target)))
    adapter = model.base_model.model.up
    with torch.no_grad():
        plain, beside = adapter.get_base_layer()(X), adapter(X)
    state = {name: value.clone() for name, value in adapter.get_base_layer().state_dict().items()}
    adapter.merge()
    assert adapter.merged and 0 < adapter.lost < worst
    with torch.no_grad():
        left = float((adapter(X) - beside).norm() / (plain - beside).norm())
    assert left < max(2 * worst, 0.1)
    adapter.unmerge()
    assert not adapter.merged
    now = adapter.get_base_layer().state_dict()
    assert all(torch.equal(now[name], value) for name, value in state.items() if target != "q8")
    with torch.no_grad():
        torch.testing.assert_close(adapter.get_base_layer()(X), plain)


def test_merge_and_unload_leaves_layers_of_ours():
    model = filled(adapted(converted("w8")))
    with torch.no_grad():
        wanted = model(X)
    merged = model.merge_and_unload()
    assert type(merged.up) is bie.nn.MPQLinear and not any("lora" in name for name in merged.state_dict())
    with torch.no_grad():
        assert float((merged(X) - wanted).norm() / wanted.norm()) < 0.02


def test_a_merge_that_loses_most_warns():
    model = adapted(converted("w2"))
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "lora_B" in name:
                parameter.normal_(0, 1e-4)
    with pytest.warns(UserWarning, match=r"bie\.peft: rounding lost \d+% of the adapters default"):
        model.base_model.model.up.merge()


def test_refusals():
    with pytest.raises(ValueError, match="expected plain LoRA, got DoraLinearVariant"):
        adapted(converted(), use_dora=True)
    with pytest.raises(ValueError, match="init_lora_weights is 'pissa', expected True, False or 'gaussian'"):
        adapted(converted(), init_lora_weights="pissa")
    model = filled(adapted(converted("binary")))
    with pytest.raises(ValueError, match=r"merge: expected an MPQLinear.*got a BinaryLinear.*stay beside it"):
        model.base_model.model.up.merge()
