"""The floor of learned step sizes: whatever is taken of a model after an optimizer's step computes what it computes."""

import copy
import io
import pickle

import pytest
import torch
from kinds import KINDS
from torch import nn

from bie import load_checkpoint, save_checkpoint
from bie.nn import BinaryMatMul, Q4MatMul, Q8Linear, Q8MatMul
from bie.optim import DiodeMix

LEARNED = [kind for kind in KINDS if kind.make().scale_a is not None]
MATMULS = [BinaryMatMul, Q4MatMul, Q8MatMul]


class Product(nn.Module):
    """A product with itself, as a model of one input."""

    def __init__(self, make):
        super().__init__()
        self.product = make()

    def forward(self, x):
        x = x.reshape(1, -1, x.shape[-1])
        return self.product(x, x.flip(1))


def models():
    yield from ((repr(kind), kind.make, kind.batch) for kind in LEARNED)
    yield from ((make.__name__, lambda make=make: Product(make), lambda: torch.randn(6, 9)) for make in MATMULS)


every_model = pytest.mark.parametrize(
    ("make", "batch"), [(make, batch) for _, make, batch in models()], ids=[name for name, *_ in models()]
)


def step_sizes(model):
    return [p for name, p in model.named_parameters() if name.rpartition(".")[2] in ("scale_a", "x_clip", "y_clip")]


def crossed(make, batch):
    """A model in training whose step sizes crossed zero in the last step of a loop written by hand; and a batch."""
    torch.manual_seed(0)
    model, x = make(), batch()
    model(x)
    for scale in step_sizes(model):
        scale.data.fill_(-0.1)
    return model, x


def through_a_file(model):
    file = io.BytesIO()
    torch.save(model, file)
    file.seek(0)
    return torch.load(file, weights_only=False)


@every_model
@pytest.mark.parametrize("keep_vars", [False, True])
def test_a_state_computes_what_the_model_computes(make, batch, keep_vars):
    model, x = crossed(make, batch)
    state = {name: tensor.detach().clone() for name, tensor in model.state_dict(keep_vars=keep_vars).items()}
    other = make().eval()
    other.load_state_dict(state)
    assert torch.equal(other(x), model.eval()(x))
    assert all(float(scale) > 0 for scale in step_sizes(other))


@every_model
def test_a_checkpoint_computes_what_the_model_computes(make, batch, tmp_path):
    model, x = crossed(make, batch)
    save_checkpoint(model, tmp_path / "model.pt")
    other = make().eval()
    load_checkpoint(other, tmp_path / "model.pt")
    assert torch.equal(other(x), model.eval()(x))


@every_model
@pytest.mark.parametrize("copied", [copy.deepcopy, lambda m: pickle.loads(pickle.dumps(m)), through_a_file])
def test_a_copy_computes_what_the_model_computes(make, batch, copied):
    model, x = crossed(make, batch)
    twin = copied(model)
    for module in twin.modules():
        module.__dict__["training"] = False
    assert torch.equal(twin(x), model.eval()(x))
    assert all(float(scale) > 0 for scale in step_sizes(twin))


@every_model
def test_evaluation_by_assignment_sees_the_floor(make, batch):
    model, x = crossed(make, batch)
    twin = copy.deepcopy(model).eval()
    for module in model.modules():
        module.training = False
    assert torch.equal(model(x), twin(x))
    assert all(float(scale) > 0 for scale in step_sizes(model))


@every_model
@pytest.mark.filterwarnings("ignore:DiodeMix has the scale")
@pytest.mark.parametrize("make_optimizer", [torch.optim.SGD, torch.optim.Adam, DiodeMix])
@pytest.mark.parametrize("training", [True, False])
def test_parameters_are_above_the_floor_after_a_step(make, batch, make_optimizer, training):
    torch.manual_seed(0)
    model, x = make(), batch()
    model(x)
    model.train(training)
    for owner in (model, copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        scales = step_sizes(owner)
        optimizer = make_optimizer(scales, lr=100.0)
        for scale in scales:
            scale.grad = torch.ones_like(scale)
        optimizer.step()
        assert all(float(scale) > 0 for scale in scales)


def test_only_training_has_a_floor():
    layer, x = Q8Linear(9, 4), torch.randn(3, 9)
    layer(x)
    layer.eval()
    layer.scale_a.data.fill_(1e-4)
    assert float(layer.state_dict()["scale_a"]) == pytest.approx(1e-4)
    assert float(copy.deepcopy(layer).scale_a.detach()) == pytest.approx(1e-4)
    loaded = Q8Linear(9, 4)
    loaded.load_state_dict(layer.state_dict() | {"scale_a": torch.tensor(-0.5)})
    loaded(x)
    assert float(loaded.state_dict()["scale_a"]) == -0.5


@every_model
def test_parameters_are_above_the_floor_after_a_compiled_step(make, batch):
    torch.manual_seed(0)
    model, x = make(), batch()
    model(x)
    model.eval()
    scales = step_sizes(model)
    optimizer = torch.optim.SGD(scales, lr=100.0)
    torch._dynamo.reset()
    step = torch.compile(optimizer.step, backend="eager")
    for _ in range(3):
        before = [scale.detach().clone() for scale in scales]
        for scale in scales:
            scale.grad = torch.ones_like(scale)
        step()
        assert all(0 < float(scale) <= float(old) for scale, old in zip(scales, before, strict=True))


class Descent(torch.optim.Optimizer):
    """A step that torch compiles to one graph: its own optimizers break theirs."""

    def __init__(self, params):
        super().__init__(params, {})

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            for param in group["params"]:
                param.sub_(param.grad)


def test_a_whole_graph_of_a_step():
    layer, linear = Q8Linear(9, 4), nn.Linear(3, 3)
    layer(torch.randn(3, 9)).sum().backward()
    linear(torch.randn(2, 3)).sum().backward()
    torch._dynamo.reset()
    before = linear.weight.detach().clone()
    torch.compile(Descent(linear.parameters()).step, backend="eager", fullgraph=True)()
    assert not torch.equal(linear.weight, before)
    with pytest.raises(RuntimeError, match="above their floors outside the graph"):
        torch.compile(Descent([layer.scale_a]).step, backend="eager", fullgraph=True)()


def test_a_compiled_step_of_another_model():
    layer = Q8Linear(9, 4)
    layer(torch.randn(3, 9))
    linear = nn.Linear(3, 3)
    linear(torch.randn(2, 3)).sum().backward()
    optimizer = torch.optim.SGD(linear.parameters(), lr=0.1)
    torch._dynamo.reset()
    before = linear.weight.detach().clone()
    torch.compile(optimizer.step, backend="eager")()
    assert not torch.equal(linear.weight, before)


@every_model
def test_gradients_of_four_micro_batches_add_up_to_twice_the_whole_batchs(make, batch):
    """Of step sizes, which docs/training.md says; those of float biases are the whole batch's."""
    torch.manual_seed(0)
    model = make()
    # A first layer's batch axis is its first; products take theirs along the first axis of four equal operands.
    x = batch()
    if isinstance(model, Product):
        model, x = model.product, None
        a, b = torch.randn(4, 3, 9), torch.randn(4, 5, 9)
        whole, parts = [(a, b)], [(a[i : i + 1], b[i : i + 1]) for i in range(4)]
    else:
        x = torch.cat([x[:1], 2 * x[:1], -x[:1], x[:1] / 2])
        whole, parts = [(x,)], [(x[i : i + 1],) for i in range(4)]
    model(*whole[0])
    found = []
    for batches in (whole, parts):
        model.zero_grad()
        for inputs in batches:
            model(*inputs).square().sum().backward()
        found.append({name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None})
    for name, grad in found[0].items():
        factor = 2.0 if name in ("scale_a", "x_clip", "y_clip") else 1.0
        if grad.dtype != torch.int8:
            torch.testing.assert_close(found[1][name], factor * grad, rtol=2e-4, atol=2e-4 * float(grad.abs().max()))
