"""Every subset of a state dict into every layer: an entry that is not given stays, or the load is refused whole."""

import copy
import itertools
import random

import pytest
import torch
from kinds import KINDS
from mpq_cases import CODED, inputs_of

from bie.nn import BinaryEmbedding, BinaryMatMul, Q4MatMul, Q8MatMul, QuantLayer, WeightOnlyLinear
from bie.optim import DiodeMix
from bie.weights.parameters import AnchoredParameter

MATMULS = {"binary_matmul": BinaryMatMul, "q8_matmul": Q8MatMul, "q4_matmul": Q4MatMul}


def prepared(layer):
    layer.eval()(inputs_of(layer))
    return layer


def quantised(kind, seed, form):
    layer = kind.trained(seed).eval() if form != "float" else kind.make().eval()
    if form == "packed":
        layer.generate_quantized_weight(qweight_only=True)
    return layer


def product(kind, seed, ready):
    layer = kind()
    if ready:
        torch.manual_seed(seed)
        layer(torch.randn(2, 3, 8), torch.randn(2, 4, 8))
    return layer


#: {name: [seed -> layer in one of the forms of its state]}
LAYERS = {
    **{name: [make, lambda seed, make=make: prepared(make(seed))] for name, make in CODED.items()},
    "new_signs": [lambda seed: BinaryEmbedding(11, 21)],
    **{
        kind.name: [lambda seed, kind=kind, form=form: quantised(kind, seed, form) for form in ("float", "", "packed")]
        for kind in KINDS
    },
    **{
        name: [lambda seed, kind=kind, ready=ready: product(kind, seed, ready) for ready in (False, True)]
        for name, kind in MATMULS.items()
    },
}


def subsets(names):
    """All of a few names; of many the smallest, the greatest and some at random."""
    if len(names) <= 3:
        return [set(some) for n in range(len(names) + 1) for some in itertools.combinations(names, n)]
    few = [set(), set(names), *({name} for name in names), *(set(names) - {name} for name in names)]
    chosen = random.Random(0)
    return few + [{name for name in names if chosen.random() < 0.5} for _ in range(6)]


def state_of(layer):
    return {name: tensor.clone() for name, tensor in layer.state_dict().items()}


def same(a, b):
    return a.shape == b.shape and a.dtype == b.dtype and torch.equal(a, b)


def follows(before, given, name, layer):
    """Entries that another one which is given makes meaningless."""
    if name == "rest":  # is of the codes that were there
        return "qweight" in given
    if (
        name == "scale_w" and "weight" in given and isinstance(layer, QuantLayer)
    ):  # a float weight in place of codes is coded by a scale of its own
        return layer.weight_form == "float"
    if isinstance(layer, BinaryEmbedding) and "weight" in before:  # signs and sizes of a new layer are of its weight
        return name in ("qweight", "scale_w", "weight")
    return isinstance(layer, BinaryEmbedding) and "weight" in given


def used(layer, name):
    """Whether the layer reads the entry in the form that it has."""
    return not isinstance(layer, WeightOnlyLinear) or name == "rest" or name in layer._forms()[layer._prepared]


def check(layer, state, names, strict):
    before, given = state_of(layer), {name: state[name] for name in names}
    unused = {name for name in before if not used(layer, name)}
    try:
        unexpected = layer.load_state_dict(given, strict=strict).unexpected_keys
    except RuntimeError:
        after = state_of(layer)
        assert after.keys() == before.keys() and all(same(after[name], before[name]) for name in after), "half a load"
        assert strict or layer._double_quantised, "refused although it is not strict"
        return
    after = state_of(layer)
    for name, tensor in after.items():
        if not used(layer, name):
            continue
        if name in given and name not in unexpected and not (isinstance(layer, BinaryEmbedding) and "weight" in before):
            assert same(tensor.float(), state[name].float()), f"{name} was given"
        elif name in before.keys() - given.keys() - unused and not follows(before, given, name, layer):
            assert same(tensor, before[name]), f"{name} was not given"
    if not given:
        assert after.keys() == before.keys() and all(same(after[name], before[name]) for name in after)


@pytest.mark.parametrize("name", LAYERS)
def test_an_entry_that_is_not_given_stays(name):
    for target, source in itertools.product([make(1) for make in LAYERS[name]], [make(2) for make in LAYERS[name]]):
        state = state_of(source)
        for names in subsets(list(state)):
            check(copy.deepcopy(target), state, names, strict=False)
        check(copy.deepcopy(target), state, set(list(state)[1:]), strict=True)
        check(copy.deepcopy(target), state, set(state), strict=True)


def rows(layer):
    """[k or N, n or D], what a linear or a table of codes computes with."""
    if isinstance(layer, WeightOnlyLinear):
        return layer.eval()(torch.eye(layer.in_channels, dtype=layer.dtype))
    return layer.eval()(torch.arange(layer.num_embeddings))


@pytest.mark.parametrize("name", ["gptq", "gba", "gba_asym", "large_group"])
@pytest.mark.parametrize("ready", [False, True])
def test_words_alone_are_read_with_the_scales_and_zeros_that_are_there(name, ready):
    layer, other = CODED[name](1), CODED[name](2)
    wanted = CODED[name](1)
    wanted.set_qweight_data(other.qweight.detach())
    if ready:
        prepared(layer)
    layer.load_state_dict({"qweight": other.qweight}, strict=False)
    assert torch.equal(rows(layer), rows(wanted))


@pytest.mark.parametrize("name", ["gba", "gba_asym"])
def test_scales_alone_leave_the_zeros_of_double_quantised_files(name):
    other, ready = prepared(CODED[name](2)), prepared(CODED[name](1))
    for layer in (ready, CODED[name](1)):
        layer.load_state_dict({"scales": other.scales}, strict=False)
        assert torch.equal(layer.eval()(inputs_of(layer)), layer(inputs_of(layer)))
        assert torch.equal(layer.scales, other.scales) and torch.equal(layer.zeros, ready.zeros)
    files = CODED[name](3).state_dict()
    before = state_of(ready)
    part = {key: value for key, value in files.items() if key != "qscales_zeros"}
    with pytest.raises(RuntimeError, match="'qscales_zeros' is missing"):
        ready.load_state_dict(part, strict=False)
    assert all(same(value, before[key]) for key, value in state_of(ready).items())


def test_a_table_of_mixed_rows_of_other_sizes_wants_all_its_entries():
    layer, other = prepared(CODED["exl2"](1)), CODED["exl2"](2)
    before, state = state_of(layer), state_of(other)
    groups = state["q_groups"].numel() - 2
    part = {"q_groups": state["q_groups"][:groups], "qweight": state["qweight"]}
    with pytest.raises(RuntimeError, match="q_groups"):
        layer.load_state_dict(part, strict=False)
    assert all(same(value, before[key]) for key, value in state_of(layer).items())


@pytest.mark.parametrize("names", subsets(["weight", "qweight", "scale_w"]), ids=lambda names: "-".join(sorted(names)))
def test_a_new_table_of_signs_computes_with_what_was_given(names):
    torch.manual_seed(0)
    unprepared, other = BinaryEmbedding(11, 21), BinaryEmbedding(11, 21)
    for state in (state_of(unprepared), state_of(prepared(other))):
        given = {name: state[name] for name in names if name in state}
        layer, twin = BinaryEmbedding(11, 21), BinaryEmbedding(11, 21)
        twin.load_state_dict(layer.state_dict())
        twin.prepare_params()
        layer.load_state_dict(given, strict=False)
        y = rows(layer)
        assert torch.isfinite(y).all() and (y != 0).all()
        if "weight" in given:
            unprepared.prepare_params()
            assert torch.equal(y, rows(unprepared))
        elif "weight" not in state:
            scale = given.get("scale_w", twin.scale_w)
            assert torch.equal(y.abs(), scale.expand_as(y))
            assert torch.equal(layer.qweight, given.get("qweight", twin.qweight))
        elif not given:
            assert torch.equal(y, rows(twin))


@pytest.mark.parametrize("make", CODED.values(), ids=CODED)
@pytest.mark.parametrize("place", ["meta", "memory"])
@pytest.mark.parametrize("ready", [False, True])
def test_packed_codes_are_taken_by_assignment(make, place, ready):
    source = prepared(make(1)) if ready else make(1)
    state = state_of(source)
    target = make(2).to("meta") if place == "meta" else make(2)
    kind = type(next(p for p in target.parameters() if isinstance(p, AnchoredParameter)))
    target.load_state_dict(state, assign=True)
    packed = next(p for p in target.parameters() if isinstance(p, AnchoredParameter))
    assert type(packed) is kind and not any(tensor.is_meta for tensor in target.state_dict().values())
    assert packed.data_ptr() == state["weight" if "qweight" not in state else "qweight"].data_ptr()
    assert torch.equal(target.eval()(inputs_of(target)), source.eval()(inputs_of(source)))
    y = target.train()(inputs_of(target))
    y.sum().backward()
    assert packed.grad is not None
    before = packed.detach().clone()
    DiodeMix(target.parameters(), lr=1.0).step()
    assert not torch.equal(packed, before)
