"""BatchNorms that are folded leave a model's answers as they were, whatever the model does with its layers."""

import copy

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.nn.utils import parametrizations, prune

import bie


class Model(nn.Module):
    """Modules by name, and a function of the model and x."""

    def __init__(self, run, **modules):
        super().__init__()
        self.run = run
        for name, module in modules.items():
            setattr(self, name, module)

    def forward(self, x):
        return self.run(self, x)


def conv():
    return nn.Conv2d(4, 4, 1)


def norm():
    return nn.BatchNorm2d(4)


def looks_at_values(run):
    """The same function, which torch.fx cannot trace."""
    return lambda self, x: run(self, x) if x.sum() < 1e9 else x


class Backwards(nn.Sequential):
    """A Sequential whose order is not that of its calls."""

    def forward(self, x):
        return self[0](self[1](x))


def two_norms(self, x):
    y = self.conv(x)
    return self.first(y) + self.second(y)


def called_alone(self, x):
    return self.body(x) + self.body[0](x)


def collects(self, x):
    kept = []
    for layer in self.body:
        x = layer(x)
        kept.append(x)
    return tuple(kept)


def keeps(self, x):
    self.kept = self.conv(x)
    return self.norm(self.kept)


def also_functional(self, x):
    return self.norm(self.conv(x)) + F.conv2d(x, self.conv.weight)


def norms_weight_read(self, x):
    return self.norm(self.conv(x)) * self.norm.weight.view(1, -1, 1, 1)


def in_order(self, x):
    return self.norm(self.conv(x))


def hooked(which, hook):
    model = Model(in_order, conv=conv(), norm=norm())
    getattr(model, which).register_forward_hook(hook)
    return model


def shared_under_two_norms(self, x):
    return self.second(self.conv(self.first(self.conv(x))))


def own_forward():
    model = Model(in_order, conv=conv(), norm=norm())
    plain = model.conv.forward
    model.conv.forward = lambda x: plain(x).relu()
    return model


def sequential(*layers):
    return Model(looks_at_values(lambda self, x: self.body(x)), body=nn.Sequential(*layers))


STAY = {
    "a Sequential with its own forward": lambda: Model(
        looks_at_values(lambda self, x: self.body(x)), body=Backwards(conv(), norm())
    ),
    "one conv under two norms": lambda: Model(looks_at_values(two_norms), conv=conv(), first=norm(), second=norm()),
    "a conv that is called alone": lambda: Model(looks_at_values(called_alone), body=nn.Sequential(conv(), norm())),
    "a trunk that collects": lambda: Model(looks_at_values(collects), body=nn.Sequential(conv(), norm())),
    "an output that is kept": lambda: Model(keeps, conv=conv(), norm=norm()),
    "a weight used functionally": lambda: Model(also_functional, conv=conv(), norm=norm()),
    "a norm's weight used functionally": lambda: Model(norms_weight_read, conv=conv(), norm=norm()),
    "a conv with a hook": lambda: hooked("conv", lambda module, args, y: y.relu()),
    "a norm with a hook": lambda: hooked("norm", lambda module, args, y: y + args[0].abs()),
    "a conv with a forward of its own": own_forward,
    "a conv called under two norms": lambda: Model(shared_under_two_norms, conv=conv(), first=norm(), second=norm()),
    "a conv in two places": lambda: (lambda one: sequential(one, norm(), one, norm()))(conv()),
    "a pruned conv": lambda: sequential(prune.l1_unstructured(conv(), "weight", 0.5), norm()),
    "weight_norm": lambda: sequential(parametrizations.weight_norm(conv()), norm()),
    "older weight_norm": lambda: sequential(nn.utils.weight_norm(conv()), norm()),
    "spectral_norm": lambda: sequential(parametrizations.spectral_norm(conv()), norm()),
    "older spectral_norm": lambda: sequential(nn.utils.spectral_norm(conv()), norm()),
    "a Linear's channels that are not its outputs": lambda: Model(
        lambda self, x: self.norm(self.linear(x.flatten(2)[..., :4])), linear=nn.Linear(4, 4), norm=nn.BatchNorm1d(4)
    ),
}
FOLD = {
    "two modules": (lambda: Model(in_order, conv=conv(), norm=norm()), ["conv"]),
    "untraceable": (lambda: sequential(conv(), norm(), nn.ReLU(inplace=True), conv(), norm()), ["body.0", "body.3"]),
    "a trunk called twice": (
        lambda: Model(lambda self, x: in_order(self, in_order(self, x)), conv=conv(), norm=norm()),
        ["conv"],
    ),
    "a norm in two places": (lambda: Model(in_order, conv=conv(), norm=norm(), _again=norm()), ["conv"]),
}


def trained(make):
    torch.manual_seed(0)
    model, x = make(), torch.randn(3, 4, 4, 4)
    for _ in range(3):
        model(torch.randn(8, 4, 4, 4))
    for module in model.modules():
        if isinstance(module, (nn.BatchNorm1d, nn.BatchNorm2d)):
            nn.init.uniform_(module.weight, 0.3, 2)
            nn.init.normal_(module.bias)
    return model.eval(), x


def flat(answer):
    return torch.cat([y.flatten() for y in (answer if isinstance(answer, tuple) else (answer,))])


@pytest.mark.parametrize("kind", STAY)
def test_what_is_not_proved_stays(kind):
    model, x = trained(STAY[kind])
    wanted = flat(model(x)).detach()
    assert bie.fold_batch_norms(model, x) == []
    assert not any(isinstance(module, nn.Identity) for module in model.modules())
    assert torch.equal(flat(model(x)), wanted)


@pytest.mark.parametrize("kind", FOLD)
def test_what_a_run_proves_is_folded(kind):
    make, names = FOLD[kind]
    model, x = trained(make)
    wanted = flat(model(x)).detach()
    assert bie.fold_batch_norms(model, x) == names
    torch.testing.assert_close(flat(model(x)), wanted, rtol=1e-4, atol=1e-5)
    assert all("forward" not in vars(module) for module in model.modules())


def test_what_changes_the_answers_is_put_back():
    """A model that asks for its BatchNorm answers otherwise without it: that pair alone comes back."""

    def asks(self, x):
        y = in_order(self, x)
        return self.last(self.tail(y)) * (2 if isinstance(self.norm, nn.BatchNorm2d) else 1)

    model, x = trained(lambda: Model(asks, conv=conv(), norm=norm(), tail=conv(), last=norm()))
    before, wanted = model.norm, model(x)
    assert bie.fold_batch_norms(model, x) == ["tail"]
    assert model.norm is before
    torch.testing.assert_close(model(x), wanted, rtol=1e-4, atol=1e-5)


def test_an_error_leaves_the_model_as_it_was():
    model, _ = trained(lambda: sequential(conv(), norm()))
    before = copy.deepcopy(model.state_dict())
    with pytest.raises(RuntimeError):
        bie.fold_batch_norms(model, torch.randn(1, 9, 2, 2))
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert all("forward" not in vars(module) for module in model.modules())


def test_post_training_takes_a_loader_that_is_gone_through_once():
    model, x = trained(lambda: sequential(conv(), norm(), nn.ReLU(), conv(), norm()))
    report = bie.post_training(model, iter([x, x, x]), "q8")
    assert [layer.name for layer in report.layers] == ["body.0", "body.3"]
    assert not any(isinstance(module, nn.BatchNorm2d) for module in report.model.modules())
    with torch.no_grad():
        assert float((report.model(x) - model(x)).norm() / model(x).norm()) < 0.03
