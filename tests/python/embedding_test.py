"""Embeddings of signs and of codes: what they look up, sparse gradients, training, files, the tied head."""

import copy
import io

import pytest
import torch
from torch import nn

import bie
from bie.nn import BinaryEmbedding, BinaryEmbeddingBag, WeightOnlyEmbedding
from bitorch_engine import ShapeError
from bitorch_engine.layers.qembedding import BinaryEmbeddingBag as TheirBag
from bitorch_engine.layers.qembedding import (
    BinaryEmbeddingBagForward,
    BinaryEmbeddingCuda,
    BinaryEmbeddingForward,
)


def signs(layer):
    """[N, D] of +-1."""
    packed, d = layer.qweight, layer.embedding_dim
    bits = torch.stack([packed[:, i // 8] >> (i % 8) & 1 for i in range(d)], 1)
    return torch.where(bits == 1, 1.0, -1.0)


@pytest.mark.parametrize("padding", [None, 0, 3, -1])
@pytest.mark.parametrize("index", [torch.int32, torch.int64])
def test_rows_of_signs(padding, index):
    torch.manual_seed(0)
    layer = BinaryEmbedding(7, 13, padding)
    weight = layer.weight.detach().clone()
    x = torch.tensor([[0, 3], [6, 3]], dtype=index)
    y = layer(x)
    centred = nn.functional.pad(weight - weight.mean(), (0, 3), value=-1.0)
    scale = centred.abs().mean(1)
    if padding is not None:
        scale[padding] = 0
    assert layer.weight is None
    assert torch.allclose(layer.scale_w.flatten(), scale, rtol=1e-5)
    assert torch.equal(signs(layer), torch.where(centred[:, :13] >= 0, 1.0, -1.0))
    assert torch.equal(y, signs(layer)[x.long()] * layer.scale_w[x.long()])
    g = torch.randn(y.shape)
    y.backward(g)
    wanted = torch.zeros(7, 13).index_add_(0, x.flatten().long(), (g * layer.scale_w[x.long()]).view(-1, 13))
    grad = layer.qweight.grad
    assert grad.is_sparse and torch.allclose(grad.to_dense(), wanted, rtol=1e-5, atol=1e-6)
    rows = sorted({0, 3, 6} - ({padding % 7} if padding is not None else set()))
    assert grad.coalesce().indices()[0].tolist() == rows and layer.qweight.active_indices is x


def test_a_table_of_a_million_rows_trains_without_a_dense_gradient():
    layer = BinaryEmbedding(1_000_000, 64)
    layer.weight = None
    layer.qweight.random_(0, 256)
    layer.scale_w.fill_(0.1)
    layer(torch.tensor([5, 999_999, 5])).sum().backward()
    grad = layer.qweight.grad
    assert grad.is_sparse and grad.coalesce().values().shape == (2, 64)


def test_a_step_moves_the_rows_that_were_looked_up_and_no_pad_bit():
    torch.manual_seed(0)
    layer = BinaryEmbedding(9, 13, padding_idx=2)
    layer.prepare_params()
    before = layer.qweight.detach().clone()
    optimizer = bie.optim.DiodeMix(layer.parameters(), lr=1.0, betas=(0.9, 0.9))
    for _ in range(3):
        optimizer.zero_grad()
        layer(torch.tensor([1, 2, 4])).square().sum().backward()
        optimizer.step()
    moved = (layer.qweight != before).any(1).nonzero().flatten().tolist()
    assert moved and set(moved) <= {1, 4}
    assert torch.equal(layer.qweight[:, 1] >> 5, before[:, 1] >> 5), "pad bits"


def test_bags_are_majorities():
    torch.manual_seed(0)
    layer = BinaryEmbeddingBag(11, 6, padding_idx=-1)
    x = torch.tensor([[1, 2, 3], [4, 4, 10], [10, 10, 10], [5, 10, 10]])
    y = layer(x)
    for b, bag in enumerate(x.tolist()):
        rows = [row for row in bag if row != 10]
        ones = layer.weight[rows].sum(0)
        assert torch.equal(y[b], torch.where(ones >= (len(rows) + 1) // 2, 1.0, -1.0))
    g = torch.randn(4, 6)
    y.backward(g)
    dense = layer.weight.grad.to_dense()
    assert torch.allclose(dense[4], 2 * g[1]) and torch.equal(dense[1], g[0]) and not dense[10].any()


def test_a_bag_of_words_is_learned():
    """Which of two words stands in a bag of eight others: from chance to nearly always, for each of three seeds."""
    for seed in range(3):
        torch.manual_seed(seed)
        g = torch.Generator().manual_seed(seed)
        x = torch.randint(0, 50, (256, 3), generator=g)
        label = (x < 25).sum(1).ge(2).long()  # the majority of the words is of the first kind
        layer, head = BinaryEmbeddingBag(50, 32), nn.Linear(32, 2)
        frozen = copy.deepcopy(layer)
        optimizer = bie.optim.DiodeMix([*layer.parameters(), *head.parameters()], lr=1e-2, betas=(0.9, 0.99))
        for _ in range(150):
            optimizer.zero_grad()
            nn.functional.cross_entropy(head(layer(x)), label).backward()
            optimizer.step()
        accuracy = float((head(layer(x)).argmax(1) == label).double().mean())
        assert accuracy > 0.9, accuracy
        assert not torch.equal(layer.weight, frozen.weight)


@pytest.mark.parametrize("kind", [BinaryEmbedding, BinaryEmbeddingBag, WeightOnlyEmbedding])
def test_refusals(kind):
    layer = kind(7, 5)
    for bad in (7, -8, 2**31 - 1):
        with pytest.raises(ValueError, match="7"):
            layer(torch.tensor([[0, bad]]))
    with pytest.raises(TypeError):
        layer(torch.tensor([[0.0, 1.0]]))
    with pytest.raises(TypeError, match="expected a tensor, got"):
        layer([1])
    with pytest.raises(ValueError, match="padding_idx is 7"):
        type(layer)(7, 5, padding_idx=7)
    with pytest.raises(ShapeError, match="sizes are positive"):
        type(layer)(0, 5)


def test_files_and_copies():
    torch.manual_seed(0)
    layer, x = BinaryEmbedding(9, 13), torch.tensor([0, 8])
    fresh = BinaryEmbedding(9, 13)
    fresh.load_state_dict(layer.state_dict())  # floats
    assert torch.equal(fresh(x), layer(x))
    other = BinaryEmbedding(9, 13)
    other.load_state_dict(layer.state_dict())  # packed: what was loaded is kept
    assert other.weight is None and torch.equal(other(x), layer(x))
    file = io.BytesIO()
    torch.save(layer, file)
    file.seek(0)
    for again in (copy.deepcopy(layer), torch.load(file, weights_only=False)):
        assert torch.equal(again(x), layer(x)) and type(again.qweight) is type(layer.qweight)
    before, state = other(x), layer.state_dict()
    for name, bad in [
        ("qweight", state["qweight"][:-1]),
        ("qweight", state["qweight"].float()),
        ("scale_w", torch.full((9, 1), float("nan"))),
        ("scale_w", torch.ones(9)),
        ("scale_w", "x"),
    ]:
        with pytest.raises(RuntimeError, match=f"'{name}'"):
            other.load_state_dict(state | {name: bad})
    with pytest.raises(RuntimeError, match="qweight"):
        other.load_state_dict({"scale_w": state["scale_w"]})
    assert torch.equal(other(x), before)
    with pytest.raises(ShapeError, match=r"the weight: expected .*, got"):
        other.reset_parameters(torch.ones(2, 2))
    other.reset_parameters(torch.ones(9, 13))
    assert other.weight is not None and other(x).shape == (2, 13)


def test_function_forms_and_their_layers():
    torch.manual_seed(0)
    layer = BinaryEmbeddingCuda(num_embeddings=9, embedding_dim=13, other=3)
    x = torch.tensor([[0, 8]])
    y = layer(x)
    args = (x, layer.qweight, layer.scale_w, 13)
    assert torch.equal(BinaryEmbeddingForward.apply(*args, True), y)
    assert not BinaryEmbeddingForward.apply(*args, False).requires_grad
    BinaryEmbeddingForward.apply(*args, True).sum().backward()
    assert layer.qweight.active_indices is x
    bag = TheirBag(num_embeddings=9, embedding_dim=13)
    assert torch.equal(BinaryEmbeddingBagForward.apply(x, bag.weight, True), bag(x))
    assert bag(x).dtype == torch.float32


# Rows of codes


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize(("bits", "group"), [(8, 32), (4, 8), (2, -1), (1, 5)])
def test_rows_of_codes_and_the_tied_head(bits, group, dtype):
    torch.manual_seed(0)
    weight = torch.randn(11, 37)
    layer = WeightOnlyEmbedding(11, 37, bits, group, padding_idx=-2, dtype=dtype)
    layer.set_weight_data(weight)
    size = 37 if group == -1 else group
    table = torch.zeros(11, 37, dtype=torch.float64)
    for r in range(11):
        for d in range(37):
            word = int(layer.qweight[r, d * bits // 32]) & 0xFFFFFFFF
            q = word >> (d * bits % 32) & (2**bits - 1)
            table[r, d] = q * float(layer.scales[r, d // size]) - float(layer.zeros[r, d // size])
    x = torch.tensor([[0, 10], [9, 4]])
    y = layer(x)
    wanted = table[x]  # the padding row, 9, too
    eps = torch.finfo(dtype).eps
    assert y.dtype == dtype and (y.double() - wanted).abs().max() <= 4 * eps * table.abs().max()
    step = layer.scales.double().repeat_interleave(size, 1)[:, :37]
    if bits > 1:
        assert ((table - weight).abs() <= step * (0.5 + 8 * eps * 2**bits) + 8 * eps).all(), "to the nearest"
    else:
        assert float((table - weight).square().mean()) < 0.6 * float(weight.square().mean())
    head, h = layer.head(), torch.randn(3, 37).to(dtype)
    assert torch.allclose(head(h).double(), h.double() @ table.t(), rtol=8 * eps, atol=64 * eps)
    assert not list(head.parameters()) and not head.state_dict(), "the table is the embedding's"
    with torch.no_grad():
        layer.scales.mul_(2)
        layer.zeros.mul_(2)
    assert torch.allclose(head(h).double(), 2 * (h.double() @ table.t()), rtol=8 * eps, atol=128 * eps)
    with pytest.raises(ShapeError, match="the table has 37 features"):
        head(torch.ones(2, 36))
    other = WeightOnlyEmbedding(11, 37, bits, group, padding_idx=-2, dtype=dtype)
    other.load_state_dict(layer.state_dict())
    assert torch.equal(other(x), layer(x))


def test_a_table_that_does_not_fit():
    layer = WeightOnlyEmbedding(4, 8)
    with pytest.raises(ShapeError, match=r"the weight: expected .*, got"):
        layer.set_weight_data(torch.ones(4, 7))
    with pytest.raises(ValueError, match="NaN"):
        layer.set_weight_data(torch.full((4, 8), float("nan")))
    with pytest.raises(ValueError, match="bits: expected 1, 2, 3, 4, 5, 6 or 8, got 7"):
        WeightOnlyEmbedding(4, 8, bits=7)
    with pytest.raises(ValueError, match="group_size: expected -1 or a positive number, got 0"):
        WeightOnlyEmbedding(4, 8, group_size=0)
    with pytest.raises(ValueError, match="dtype"):
        WeightOnlyEmbedding(4, 8, dtype=torch.float64)


def coded(seed=0, **options):
    layer = WeightOnlyEmbedding(11, 24, 4, 8, **options)
    layer.set_weight_data(torch.randn(11, 24, generator=torch.Generator().manual_seed(seed)))
    return layer


def table_of(layer):
    return layer.eval()(torch.arange(layer.num_embeddings)).detach()


def test_the_gradient_of_codes_is_sparse_and_the_heads_joins_it():
    layer, index = coded(), torch.tensor([[2, 7], [2, 0]])
    table = table_of(layer).double()
    layer.train()
    g = torch.randn(2, 2, 24)
    layer(index).backward(g)
    grad = layer.qweight.grad
    assert grad.is_sparse and grad.coalesce().indices()[0].tolist() == [0, 2, 7]
    wanted = torch.zeros(11, 24, dtype=torch.float64).index_add_(0, index.flatten(), g.double().flatten(0, 1))
    assert torch.allclose(grad.to_dense().double(), wanted, atol=1e-6)
    head, h, up = layer.head(), torch.randn(5, 24, requires_grad=True), torch.randn(5, 11)
    head(h).backward(up)
    wanted += up.double().t() @ h.detach().double()
    assert not layer.qweight.grad.is_sparse and torch.allclose(layer.qweight.grad.double(), wanted, atol=1e-4)
    assert torch.allclose(h.grad.double(), up.double() @ table, atol=1e-4)
    layer.zero_grad()
    assert layer.qweight.grad is None
    for silent in (layer.eval(), coded(requires_grad=False)):
        silent(index)
        silent.head()(h).sum().backward()
        assert silent.qweight.grad is None
    padded = coded(padding_idx=2)
    padded(index).sum().backward()
    assert padded.qweight.grad.coalesce().indices()[0].tolist() == [0, 7]


def test_a_padding_row_that_means_something_stays_in_a_conversion():
    # Language models pad with a token that has a row of its own, such as the end of a text.
    torch.manual_seed(0)
    table = torch.nn.Embedding.from_pretrained(torch.randn(5, 64), freeze=False, padding_idx=2)
    model, x = torch.nn.Sequential(table), torch.arange(5)
    wanted = model(x).detach()
    bie.convert(model, "w8", dtype=torch.float32)
    torch.testing.assert_close(model(x), wanted, rtol=0, atol=0.02)
    assert model[0].padding_idx == 2


def test_a_step_moves_the_rows_that_were_looked_up():
    layer = coded()
    before, words = table_of(layer), layer.qweight.detach().clone()
    optimizer = bie.optim.DiodeMix(layer.parameters(), lr=0.2, betas=(0.9, 0.99))
    layer.train()
    for _ in range(5):
        optimizer.zero_grad()
        layer(torch.tensor([3, 8])).square().sum().backward()
        optimizer.step()
    others = [i for i in range(11) if i not in (3, 8)]
    assert torch.equal(layer.qweight[others], words[others]) and torch.equal(table_of(layer)[others], before[others])
    assert table_of(layer)[[3, 8]].norm() < 0.8 * before[[3, 8]].norm()
    state = optimizer.state[layer.qweight]
    assert state["exp_avg_l"].shape == (11, 24) and not state["exp_avg_s"][others].any()
    again = coded()
    again.load_state_dict(layer.state_dict())
    later = bie.optim.DiodeMix(again.parameters(), lr=1.0)
    later.load_state_dict(copy.deepcopy(optimizer.state_dict()))
    for one, mix in ((layer, optimizer), (again, later)):
        mix.zero_grad()
        one.train()(torch.tensor([3, 4])).sum().backward()
        mix.step()
    assert torch.equal(layer.qweight, again.qweight), "a run that is taken up goes on to the bit"


def test_codes_survive_copies_and_moves():
    layer = coded()
    wanted = table_of(layer)
    file = io.BytesIO()
    torch.save(layer, file)
    file.seek(0)
    meta = copy.deepcopy(layer).to("meta").to_empty(device="cpu")
    meta.load_state_dict(layer.state_dict())
    for other in (copy.deepcopy(layer), torch.load(file, weights_only=False), meta):
        assert torch.equal(table_of(other), wanted)
        assert type(other.qweight) is type(layer.qweight)
        assert other.qweight.scales is other.scales and other.qweight.zeros is other.zeros
        optimizer = bie.optim.DiodeMix(other.parameters(), lr=0.3)
        other.train()(torch.tensor([1])).sum().backward()
        optimizer.step()
        assert not torch.equal(table_of(other)[1], wanted[1])
    half = copy.deepcopy(layer).half()
    assert half.qweight.scales.dtype == torch.float16 and half.qweight.scales is half.scales


def test_a_tied_model_of_codes_learns_which_letter_follows():
    """A table that is looked up and is the head; frozen codes learn nothing."""
    text = "the quick brown fox jumps over the lazy dog "
    letters = sorted(set(text))
    codes = torch.tensor([letters.index(c) for c in text])
    x, y = codes[:-1], codes[1:]

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.embed = nn.Embedding(len(letters), 32)
            self.inner = nn.Linear(32, 32)

        def forward(self, x):
            return self.head(torch.tanh(self.inner(self.embed(x))))

    def learn(train):
        torch.manual_seed(0)
        model = Model()
        bie.convert(model, "w4")
        for parameter in (model.embed.qweight, model.inner.qweight):
            parameter.requires_grad = train
        model.head = model.embed.head()
        optimizer = bie.optim.DiodeMix(model.parameters(), lr=2e-2, betas=(0.9, 0.999))
        for _ in range(120):
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(model(x), y)
            loss.backward()
            optimizer.step()
        return float(loss.detach())

    trained, frozen = learn(True), learn(False)
    assert trained < 1.2 and frozen > 1.5 * trained, (trained, frozen)


def test_a_dense_gradient_where_it_is_asked_for():
    layer, other = coded(sparse=False), coded()
    index, g = torch.tensor([[2, 7], [2, 0]]), torch.randn(2, 2, 24)
    for one in (layer, other):
        one(index).backward(g)
    assert not layer.qweight.grad.is_sparse
    assert torch.equal(layer.qweight.grad, other.qweight.grad.to_dense())
    nn.utils.clip_grad_norm_(layer.parameters(), 1.0)
    assert float(layer.qweight.grad.norm()) == pytest.approx(1.0, rel=1e-4)
    words = layer.qweight.detach().clone()
    bie.optim.DiodeMix(layer.parameters(), lr=0.5).step()
    assert not torch.equal(layer.qweight[[0, 2, 7]], words[[0, 2, 7]])
    assert torch.equal(layer.qweight[[1, 3]], words[[1, 3]])  # whose moments are 0
    for sparse in (False, True):
        model = nn.Sequential(nn.Embedding(11, 24, sparse=sparse))
        assert bie.convert(model, "w4").model[0].sparse == sparse


@pytest.mark.parametrize("make", [lambda: BinaryEmbedding(11, 24), lambda: BinaryEmbeddingBag(11, 24), coded])
def test_training_stands_outside_of_graphs(make):
    layer, index = make(), torch.tensor([[2, 7], [2, 0]])
    plain = copy.deepcopy(layer)
    model = torch.compile(nn.Sequential(layer, nn.Flatten()), backend="eager")
    y = model(index)
    y.sum().backward()
    plain(index).sum().backward()
    (weight,) = [p for p in layer.parameters() if not p.is_floating_point()]
    (wanted,) = [p for p in plain.parameters() if not p.is_floating_point()]
    assert torch.equal(weight.grad.to_dense(), wanted.grad.to_dense())
    layer.eval()
    whole = torch.compile(layer, backend="eager", fullgraph=True)
    assert torch.equal(whole(index), layer(index))


def test_what_does_not_fit_a_table_of_codes_changes_nothing():
    layer, state = coded(), coded(1).state_dict()
    before = copy.deepcopy(layer.state_dict())
    for name, value, sentence in [
        ("qweight", state["qweight"].float(), "expected .* of int32, got .* of float32"),
        ("qweight", state["qweight"][1:], r"expected \[11, 3\] of int32, got \[10, 3\] of int32"),
        ("scales", state["scales"] * float("nan"), "holds NaN or infinity"),
        ("zeros", state["zeros"].int(), "of a floating-point dtype, got"),
        ("zeros", "x", "expected a tensor, got a str"),
    ]:
        with pytest.raises(RuntimeError, match=f"'{name}'.*{sentence}"):
            layer.load_state_dict(state | {name: value})
    with pytest.raises(RuntimeError, match=r'Missing key.*"scales"'):
        layer.load_state_dict({name: value for name, value in state.items() if name != "scales"})
    assert all(torch.equal(value, before[name]) for name, value in layer.state_dict().items())


@pytest.mark.parametrize("device", ["cpu", "meta"])
def test_a_table_of_codes_takes_tensors_themselves(device):
    state = coded(1).state_dict()
    layer = coded().to(device)
    layer.load_state_dict(state, assign=True)
    assert torch.equal(table_of(layer), table_of(coded(1)))
    assert layer.scales.data_ptr() == state["scales"].data_ptr()
    assert layer.qweight.scales is layer.scales and layer.qweight.w_bit == 4
    bie.optim.DiodeMix(layer.parameters())
