"""What a layer derives from its tensors (panels, packed weights, rows) after every way of writing a weight."""

import copy
import io
import sys
import threading
from types import SimpleNamespace

import pytest
import torch
from kinds import KINDS
from mpq_cases import CODED, inputs_of

from bie.nn import BinaryEmbedding, QuantLayer, WeightOnlyLinear, weight_only, weight_only_embedding
from bie.optim import DiodeMix


class Subject:
    """A kind of layer, its seeds, its inputs and the name of its weight."""

    def __init__(self, make, batch):
        self.make, self.batch = make, batch


def quantised(kind, packed):
    def make(seed):
        layer = kind.trained(seed).eval()
        if packed:
            layer.generate_quantized_weight(qweight_only=True)
        return layer

    return make


SUBJECTS = {
    **{name: Subject(lambda seed, make=make: make(seed).eval(), inputs_of) for name, make in CODED.items()},
    **{kind.name: Subject(quantised(kind, False), lambda _, kind=kind: kind.batch()) for kind in KINDS},
    **{f"{kind.name}_packed": Subject(quantised(kind, True), lambda _, kind=kind: kind.batch()) for kind in KINDS},
}


def by_load(layer, other):
    layer.load_state_dict(other.state_dict())


def by_assignment(layer, other):
    layer.load_state_dict(copy.deepcopy(other.state_dict()), assign=True)


def copy_tensors(layer, other, write):
    theirs = dict(other.named_parameters()) | dict(other.named_buffers())
    for name, tensor in [*layer.named_parameters(), *layer.named_buffers()]:
        write(tensor, theirs[name])


def by_copy(layer, other):
    with torch.no_grad():
        copy_tensors(layer, other, lambda a, b: a.copy_(b))


def past_the_counters(layer, other, write):
    """Writes past the counters of versions are told to the layer by ``repack``."""
    copy_tensors(layer, other, write)
    getattr(layer, "repack", lambda: None)()


def by_data(layer, other):
    past_the_counters(layer, other, lambda a, b: setattr(a, "data", b.detach().clone()))


def by_write_through_data(layer, other):
    past_the_counters(layer, other, lambda a, b: a.data.copy_(b))


def by_setters(layer, other):
    by_copy(layer, other)
    if isinstance(layer, WeightOnlyLinear):
        layer.set_qweight_data(other.qweight.detach())
    elif isinstance(layer, QuantLayer) and layer.weight is None:
        layer.set_quantized_weight_data(other.qweight.detach())


WAYS = [by_load, by_assignment, by_copy, by_data, by_write_through_data, by_setters]


def fresh(layer):
    """A layer of the same tensors, which has derived nothing."""
    return copy.deepcopy(layer).eval()


@pytest.mark.parametrize("name", SUBJECTS)
def test_evaluation_computes_with_what_was_written(name):
    subject = SUBJECTS[name]
    other = subject.make(2)
    x = subject.batch(other)
    wanted = fresh(other)(x)
    for way in WAYS:
        layer = subject.make(1)
        layer(x)
        source = copy.deepcopy(other)
        if isinstance(layer, WeightOnlyLinear) or hasattr(layer, "prepare_params"):
            source(x)  # so that both have one form
        way(layer, source)
        assert torch.equal(layer(x), wanted), way.__name__


@pytest.mark.parametrize("name", SUBJECTS)
def test_evaluation_after_moves_copies_and_pickles(name):
    subject = SUBJECTS[name]
    layer = subject.make(1)
    x = subject.batch(layer)
    wanted = layer(x)
    file = io.BytesIO()
    torch.save(layer, file)
    file.seek(0)
    for other in (copy.deepcopy(layer), torch.load(file, weights_only=False), copy.deepcopy(layer).to("cpu")):
        assert torch.equal(other(x), wanted) and torch.equal(other(x), wanted)
    moved = copy.deepcopy(layer).to("meta").to_empty(device="cpu")
    moved.load_state_dict(layer.state_dict())
    assert torch.equal(moved.eval()(x), wanted)


@pytest.mark.parametrize("name", [name for name in SUBJECTS if not name.endswith("_packed")])
def test_evaluation_after_a_step(name):
    subject = SUBJECTS[name]
    layer = subject.make(1)
    x = subject.batch(layer)
    layer(x)
    optimizer = DiodeMix(layer.parameters(), lr=0.5, betas=(0.5, 0.5))
    for _ in range(6):
        layer.train()(x).sum().backward()
        layer.eval()(x)
        optimizer.step()
        assert torch.equal(layer(x), fresh(layer)(x))


def at_once(layer, x, threads=4):
    """What so many threads get that call the layer at once; their exceptions among it."""
    found, start = [], threading.Barrier(threads)

    def call():
        start.wait()
        try:
            found.append(layer(x))
        except Exception as error:
            found.append(error)

    running = [threading.Thread(target=call) for _ in range(threads)]
    for thread in running:
        thread.start()
    for thread in running:
        thread.join()
    return found


def all_get(wanted, layer, x):
    found = at_once(layer, x)
    assert not [y for y in found if isinstance(y, Exception)]
    assert all(torch.equal(y, wanted) for y in found)


@pytest.fixture
def eager_threads():
    """Threads take turns as often as they can."""
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(interval)


@pytest.mark.usefixtures("eager_threads")
@pytest.mark.parametrize("name", SUBJECTS)
def test_the_first_calls_of_a_layer_may_come_from_several_threads(name):
    subject = SUBJECTS[name]
    whole = subject.make(1)
    x = subject.batch(whole)
    wanted = fresh(whole)(x)
    for _ in range(12):
        all_get(wanted, fresh(whole), x)


def test_a_new_table_of_signs_is_prepared_once_by_several_threads(eager_threads):
    for seed in range(40):
        torch.manual_seed(seed)
        layer, x = BinaryEmbedding(50, 64).eval(), torch.arange(50)
        all_get(copy.deepcopy(layer)(x), layer, x)


@pytest.mark.parametrize("way", ["copy", "data"])
@pytest.mark.parametrize("head", [False, True])
def test_panels_of_a_weight_that_was_written_while_they_were_made_are_not_kept(way, head, monkeypatch):
    table, other = (CODED["table" if head else "gptq"](seed).eval() for seed in (1, 2))
    layer, x = (table.head().eval(), torch.randn(5, 24)) if head else (table, inputs_of(table))
    prepack = torch.ops.bie.weight_only_prepack

    def interrupted(*args, **options):
        """As another thread does: it writes between the reading of the weight and the keeping of its panels."""
        panels = prepack(*args, **options)
        monkeypatch.undo()
        with torch.no_grad():
            table.qweight.copy_(other.qweight) if way == "copy" else table.set_qweight_data(other.qweight)
        return panels

    ops = SimpleNamespace(weight_only_prepack=interrupted, weight_only_linear=torch.ops.bie.weight_only_linear)
    monkeypatch.setattr(weight_only_embedding if head else weight_only, "ops", ops)
    if head:
        table.set_qweight_data = lambda data: setattr(table.qweight, "data", data.detach().clone())
    layer(x)
    assert torch.equal(table.qweight, other.qweight)
    wanted = fresh(table).head().eval()(x) if head else fresh(table)(x)
    assert torch.equal(layer(x), wanted)


@pytest.mark.parametrize("name", [*CODED, "new signs"])
@pytest.mark.parametrize("training", [False, True])
def test_a_new_layer_in_a_graph_is_prepared_outside_of_it(name, training):
    layer = BinaryEmbedding(11, 21) if name == "new signs" else CODED[name](1)
    layer.train(training)
    x, twin = inputs_of(layer), copy.deepcopy(layer)
    torch._dynamo.reset()
    assert torch.equal(torch.compile(layer, backend="eager")(x), twin(x))
