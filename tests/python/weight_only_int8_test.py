"""Weight-only layers whose activations become 8-bit codes: the option, its products and its gradients."""

import copy
import io

import pytest
import torch
from mpq_cases import filled, generator, mpq
from torch import nn
from weight_only_test import SIZES, float_weight

import bie
from bie.nn import MBWQLinear, MPQLinear


def half_steps(x, layer):
    """How far codes of x may be from x, for each feature: half a step of the group."""
    groups = layer.g_idx.long()
    largest = torch.stack([x[:, groups == g].abs().amax(1) for g in range(int(groups.max()) + 1)], 1)
    return (largest / 127 / 2)[:, groups].double()


@pytest.mark.parametrize("form", ["gptq", "gba", "gba_asym"])
def test_int8_activations(form):
    for k, n, group in SIZES:
        exact, layer = (mpq(k, n, form=form, group=group, activation=a).eval() for a in ("exact", "int8"))
        assert "activation" not in repr(exact) and "activation=int8" in repr(layer)
        assert layer.state_dict().keys() == exact.state_dict().keys()
        x = torch.randn(6, k)
        y = layer(x)
        error, weight = (y.double() - x.double() @ float_weight(layer)).abs(), float_weight(layer)
        assert (error <= (half_steps(x, layer) * 1.01) @ weight.abs() + 1e-4).all() and error.max() > 0
        assert "weight_only_q8" in repr(layer)
        assert torch.equal(layer(x[:1]), y[:1]) and torch.equal(layer.train()(x), y)
        exact.activation = "int8"  # an attribute like others: of a layer that has computed already
        assert torch.equal(exact(x), y)
        exact.activation = "exact"
        assert not torch.equal(exact(x), y)


def test_int8_activations_of_permuted_rows():
    layer, exact = (
        filled(MBWQLinear(64, 9, group_size=32, use_mbw=False, dtype=torch.float32, activation=a)).eval()
        for a in ("int8", "exact")
    )
    for each in (layer, exact):
        each.q_perm.copy_(torch.randperm(64, generator=generator(1)).short())
        each.channel_scale.uniform_(0.5, 2, generator=generator(2))
    x = torch.randn(5, 64)
    y, wanted = layer(x), exact(x)
    assert not torch.equal(y, wanted)
    torch.testing.assert_close(y, wanted, rtol=0.02, atol=0.02 * float(wanted.abs().max()))


def test_int8_activations_survive_copies_and_files():
    layer = mpq(64, 9, activation="int8").eval()
    x = torch.randn(3, 64)
    y = layer(x)
    stream = io.BytesIO()
    torch.save(layer, stream)
    stream.seek(0)
    for other in (copy.deepcopy(layer), torch.load(stream, weights_only=False)):
        assert other.activation == "int8" and torch.equal(other(x), y)
    loaded = mpq(64, 9, seed=5, activation="int8").eval()
    loaded.load_state_dict(layer.state_dict())
    assert torch.equal(loaded(x), y)
    older = layer.__getstate__()
    del older["_activation"]  # a layer of a file from before there was one
    revived = MPQLinear.__new__(MPQLinear)
    revived.__setstate__(older)
    assert revived.activation == "exact" and not torch.equal(revived(x), y)


def test_int8_activations_are_asked_for_where_layers_are_made():
    model = nn.Sequential(nn.Embedding(20, 64), nn.Linear(64, 64), nn.Linear(64, 9)).eval()
    tokens = torch.arange(20)
    exact = bie.convert(model, "w4", inplace=False).model
    report = bie.convert(model, "w4", inplace=False, activation="int8")
    assert [layer.activation for layer in report.model] == ["int8"] * 3
    y, wanted = report.model(tokens), exact(tokens)
    assert not torch.equal(y, wanted)
    assert (y - wanted).norm() < 0.02 * wanted.norm()
    for layer in report.model:
        layer.activation = "exact"
    assert torch.equal(report.model(tokens), wanted)


@pytest.mark.parametrize("mode", ["eval", "train"])
def test_a_tied_head_takes_the_activation_of_its_table(mode):
    table = bie.nn.WeightOnlyEmbedding(30, 64, activation="int8")
    table.set_weight_data(torch.randn(30, 64))
    head, x = getattr(table.head(), mode)(), torch.randn(5, 64)
    assert "activation=int8" in repr(table)
    y = head(x)
    wanted = torch.ops.bie.weight_only_linear(
        x, table.qweight.detach().t(), table.scales.t(), table.zeros.t(), bits=4, group_size=32, int8_activations=True
    )
    assert torch.equal(y, wanted) and torch.equal(copy.deepcopy(head)(x), y)
    table.activation = "exact"  # of a head that has computed already
    assert not torch.equal(head(x), y)
    torch.testing.assert_close(head(x), x @ table(torch.arange(30)).t())
    with pytest.raises(ValueError, match="WeightOnlyEmbedding: activation: expected 'exact' or 'int8', got 'int4'"):
        table.activation = "int4"


def test_gradients_of_int8_activations_are_those_of_exact_ones():
    grads = []
    for activation in ("exact", "int8"):
        layer = mpq(64, 9, activation=activation, requires_grad=True).train()
        x = torch.randn(5, 64, generator=generator(3)).requires_grad_()
        layer(x).backward(torch.ones(5, 9))
        grads.append((x.grad, layer.privileged_grad))
    assert all(torch.equal(a, b) for a, b in zip(*grads, strict=True))
