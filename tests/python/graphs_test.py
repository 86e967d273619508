"""Graphs of torch that hold our layers: programs of torch.export with their panels, AOTInductor, compiled training."""

import copy
import io

import pytest
import torch
from kinds import KINDS
from torch import nn

import bie

LATENT = [kind for kind in KINDS if not kind.integer]


@pytest.fixture(autouse=True)
def fresh_compiler():
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


def packed_net():
    """One layer of each table, weights alone included."""
    torch.manual_seed(0)
    net = nn.Sequential(
        *(nn.Embedding(9, 24), nn.Linear(24, 36), nn.ReLU(), bie.nn.Q8Linear(36, 20), bie.nn.BinaryLinear(20, 75)),
        *(bie.nn.Q4Linear(75, 36), nn.Unflatten(1, (1, 6, 6)), bie.nn.BinaryConv2d(1, 8, 3), bie.nn.Q8Conv2d(8, 4, 3)),
        *(bie.nn.Q4Conv2d(4, 4, 1), nn.Flatten(), nn.Linear(16, 5)),
    )
    bie.convert(net, "w4", filter=lambda name, module: name in ("0", "11"))
    net(torch.randint(9, (12,)))
    net.eval()
    bie.pack(net)
    net(torch.randint(9, (2,)))  # weights alone are arranged by the first call
    return net


def panels_of(program):
    return [name for name, value in program.constants.items() if value.dtype == torch.uint8 and "panels" in name]


@pytest.mark.parametrize("strict", [False, True])
def test_a_program_keeps_its_panels(strict):
    net, x = packed_net(), torch.randint(9, (4,))
    program = torch.export.export(net, (x,), strict=strict)
    assert len(panels_of(program)) >= 6
    wanted = net(x)
    assert torch.equal(program.module()(x), wanted)
    file = io.BytesIO()
    torch.export.save(program, file)
    file.seek(0)
    assert torch.equal(torch.export.load(file).module()(x), wanted)  # with panels that are not aligned


def test_a_program_of_a_net_whose_weights_were_written_into_before():
    """Panels know how often their weight was written to; the copy of a weight in a file was never."""
    net, x = packed_net(), torch.randint(9, (4,))
    other = copy.deepcopy(net)
    other.load_state_dict(packed_net().state_dict())
    file = io.BytesIO()
    torch.export.save(torch.export.export(other, (x,)), file)
    file.seek(0)
    assert torch.equal(torch.export.load(file).module()(x), net(x))


def test_a_program_sees_weights_that_are_written_into():
    net, x = nn.Sequential(bie.nn.Q8Linear(8, 4)), torch.randn(3, 8)
    net(x)
    net.eval()
    bie.pack(net)
    program = torch.export.export(net, (x,)).module()
    with torch.no_grad():
        net[0].qweight.neg_()
    assert torch.equal(program(x), net(x))


def test_copies_have_their_own_constants():
    net, x = packed_net(), torch.randint(9, (4,))
    twin = copy.deepcopy(net)
    wanted = net(x)
    with torch.no_grad():
        net[3].qweight.zero_()
        net[11].qweight.zero_()
        net[0].qweight.zero_()
    assert torch.equal(torch.export.export(twin, (x,)).module()(x), wanted)


def test_weight_only_layers_export():
    layer = bie.nn.MPQLinear(64, 8, dtype=torch.float32, group_size=32)
    layer.set_weight_data(torch.randn(8, 64))
    x = torch.randn(3, 64)
    program = torch.export.export(layer.eval(), (x,))
    assert torch.equal(program.module()(x), layer(x))


def test_aot_inductor(tmp_path):
    """Once, a whole model: the compiled package gives the model's bits."""
    net, x = packed_net(), torch.randint(9, (4,))
    program = torch.export.export(net, (x,))
    path = torch._inductor.aoti_compile_and_package(program, package_path=str(tmp_path / "net.pt2"))
    assert torch.equal(torch._inductor.aoti_load_package(path)(x), net(x))


@pytest.mark.parametrize("kind", LATENT, ids=repr)
def test_float_weights_train_in_one_graph(kind):
    layer = kind.trained()
    twin = copy.deepcopy(layer)
    compiled = torch.compile(lambda v: layer(v * 1.0).square().mean(), backend="aot_eager", fullgraph=True)
    optimizers = [torch.optim.SGD(module.parameters(), lr=0.3) for module in (layer, twin)]
    for seed in range(3):
        x = kind.batch(seed)
        for optimizer, loss in zip(optimizers, (compiled(x), twin(x * 1.0).square().mean()), strict=True):
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        for (name, ours), theirs in zip(layer.named_parameters(), twin.parameters(), strict=True):
            assert torch.equal(ours, theirs), name


def test_the_first_batch_and_a_new_weight_break_the_graph():
    layer, x = bie.nn.Q4Linear(8, 4), torch.randn(3, 8)
    compiled = torch.compile(layer, backend="aot_eager", fullgraph=True)
    with pytest.raises(Exception, match="no integer gradient is lost"):
        compiled(x)
    layer(x)
    compiled(x)
    layer.set_weight_data(torch.randn(4, 8))
    with pytest.raises(Exception, match="no integer gradient is lost"):
        compiled(x)


@pytest.mark.parametrize("make", [bie.nn.Q8MatMul, bie.nn.Q4MatMul, bie.nn.BinaryMatMul])
def test_products_of_activations_train_in_one_graph(make):
    torch.manual_seed(0)
    layer, x, y = make(), torch.randn(2, 3, 8), torch.randn(2, 5, 8)
    layer(x, y).square().mean().backward()
    wanted = layer.x_clip.grad.clone()
    layer.zero_grad()
    torch.compile(lambda a, b: layer(a, b).square().mean(), backend="aot_eager", fullgraph=True)(x, y).backward()
    assert torch.equal(layer.x_clip.grad, wanted)


@pytest.mark.parametrize("in_backward", [False, True])
def test_packed_codes_train_in_one_graph(in_backward):
    layer, x = bie.nn.MPQLinear(64, 8, dtype=torch.float32, group_size=32, master=torch.int8), torch.randn(3, 64)
    layer.set_weight_data(torch.randn(8, 64))
    twin = copy.deepcopy(layer)
    compiled = torch.compile(lambda v: layer(v * 1.0).square().sum(), backend="aot_eager", fullgraph=True)
    with pytest.raises(Exception, match="made outside of graphs"):
        compiled(x)
    layer(x)
    optimizers = [bie.optim.DiodeMix(each.parameters(), lr=0.05, scale_lr=0.01) for each in (layer, twin)]
    for _ in range(3):
        for optimizer, loss in zip(optimizers, (compiled(x), twin(x * 1.0).square().sum()), strict=True):
            optimizer.step_in_backward(in_backward)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    for name in ("qweight", "rest", "scales"):
        assert torch.equal(getattr(layer, name), getattr(twin, name)), name
    assert not torch.equal(layer.rest, torch.zeros_like(layer.rest))
