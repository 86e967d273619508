"""Attention over binary linears under both names, against float64 over the outputs of its four linears."""

import copy
import math

import formulas
import pytest
import torch

from bie import ShapeError
from bie.nn import BinaryAttention, BinaryLinear, BinaryMatMul, Q4MatMul, Q8MatMul
from bitorch_engine.layers.qlinear.binary.cutlass import BinaryLinearCutlass
from bitorch_engine.layers.qmha import BMHA, LearnableBias


def ours(d, h, heads, dtype=torch.float32, **options):
    return BinaryAttention(d, heads, hidden_dim=h, dtype=dtype, **options)


@pytest.fixture(params=[ours, BMHA], ids=["BinaryAttention", "BMHA"])
def build(request):
    return request.param


def make(build, b=2, s=5, d=11, h=12, heads=3, seed=0, dtype=torch.float32):
    torch.manual_seed(seed)
    layer = build(d, h, heads, dtype)
    x = torch.randn(b, s, d).to(dtype)
    layer(x)  # the first batch sets the scales
    with torch.no_grad():
        for linear in (layer.q_linear, layer.k_linear, layer.v_linear, layer.out):
            linear.bias_a.uniform_(-0.3, 0.3)
    return layer.eval(), x


def attention(layer, x, mask=None):
    """(input of the last linear, scores) in float64 from what q, k and v give, head by head."""
    q, k, v = (linear(x).double() for linear in (layer.q_linear, layer.k_linear, layer.v_linear))
    b, s, _ = x.shape
    size = layer.head_dim
    scores = torch.zeros(b, layer.num_heads, s, s, dtype=torch.float64)
    context = torch.zeros(b, s, layer.hidden_dim, dtype=torch.float64)
    for i in range(b):
        for head in range(layer.num_heads):
            part = slice(head * size, (head + 1) * size)
            raw = q[i][:, part] @ k[i][:, part].T / math.sqrt(size)
            if mask is not None:
                raw = torch.where(mask[i].expand(s, s) == 0, -1e9, raw)
            scores[i, head] = torch.softmax(raw, -1)
            context[i][:, part] = scores[i, head] @ v[i][:, part]
    return context, scores


@pytest.mark.parametrize(("s", "d", "h", "heads"), [(5, 11, 12, 3), (1, 8, 8, 1), (7, 16, 24, 4), (3, 3, 2, 2)])
def test_scores_and_output(build, s, d, h, heads):
    layer, x = make(build, 2, s, d, h, heads)
    output, scores = layer(x)
    context, wanted = attention(layer, x)
    assert output.shape == x.shape and scores.shape == (2, heads, s, s)
    assert torch.allclose(scores.double(), wanted, atol=1e-5)
    # The last linear sees signs: compare where rounding cannot turn one.
    clear = ((context + layer.out.bias_a).abs() > 1e-4).all(-1)
    assert clear.any()
    assert torch.allclose(output[clear], layer.out(context.float())[clear], rtol=1e-6)


@pytest.mark.parametrize(("matmul", "width"), [(BinaryMatMul, None), (Q8MatMul, formulas.Q8), (Q4MatMul, formulas.Q4)])
def test_products_of_a_class(build, matmul, width):
    """Both products quantised, to the bit; the clips learn and are saved."""
    torch.manual_seed(0)
    layer, x = build(11, 12, 3, scores_matmul=matmul, context_matmul=matmul), torch.randn(2, 5, 11)
    layer(x)
    layer.eval()
    output, scores = layer(x)
    q, k, v = (
        linear(x).view(2, 5, 3, 4).transpose(1, 2) for linear in (layer.q_linear, layer.k_linear, layer.v_linear)
    )
    clips = [layer.scores_matmul.x_clip.detach(), layer.scores_matmul.y_clip.detach()]
    raw = formulas.matmul_forward(q, k, *clips, width) / math.sqrt(4)
    assert torch.equal(scores, torch.softmax(raw, -1))
    clips = [layer.context_matmul.x_clip.detach(), layer.context_matmul.y_clip.detach()]
    context = formulas.matmul_forward(scores, v.mT, *clips, width).transpose(1, 2).reshape(2, 5, 12)
    assert torch.equal(output, layer.out(context))
    layer.train()(x)[0].square().sum().backward()
    assert layer.context_matmul.y_clip.grad is not None
    twin = build(11, 12, 3, scores_matmul=matmul, context_matmul=matmul)
    twin.load_state_dict(layer.state_dict())
    assert torch.equal(twin.eval()(x)[0], layer.eval()(x)[0])
    plain = set(build(11, 12, 3).state_dict())
    assert {key.split(".")[0] for key in set(layer.state_dict()) - plain} == {"scores_matmul", "context_matmul"}


@pytest.mark.parametrize("shape", [(2, 5, 5), (2, 1, 5)])
@pytest.mark.parametrize("dtype", [torch.bool, torch.float32, torch.int64])
def test_masks(build, shape, dtype):
    layer, x = make(build)
    mask = (torch.rand(*shape, generator=torch.Generator().manual_seed(3)) > 0.4).to(dtype)
    mask[..., 0] = 1
    _, scores = layer(x, mask)
    _, wanted = attention(layer, x, mask)
    assert torch.allclose(scores.double(), wanted, atol=1e-5)
    hidden = (mask.unsqueeze(1) == 0).expand_as(scores)
    assert hidden.any() and not scores[hidden].any()
    assert not torch.allclose(scores, layer(x)[1])


def test_a_row_that_is_all_masked_is_uniform(build):
    layer, x = make(build)
    _, scores = layer(x, torch.zeros(2, 5, 5))
    assert torch.allclose(scores, torch.full_like(scores, 0.2))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_sixteen_bits(build, dtype):
    layer, x = make(build, dtype=dtype)
    mask = torch.ones(2, 5, 5)
    mask[:, :, 3] = 0
    output, scores = layer(x, mask)
    assert output.dtype == dtype and scores.dtype == dtype
    assert torch.isfinite(output).all() and not scores[..., 3].any()


def test_dropout_is_in_the_scores(build):
    layer, x = make(build, s=30)
    layer.train()
    scores = layer(x)[1]
    share = (scores == 0).double().mean()
    assert 0.05 < share < 0.16
    assert layer.dropout.p == 0.1
    layer.eval()
    assert (layer(x)[1] > 0).all() and torch.equal(layer(x)[0], layer(x)[0])


def test_training_reaches_every_parameter(build):
    torch.manual_seed(1)
    layer = build(11, 12, 3)
    x = torch.randn(2, 5, 11, requires_grad=True)
    output, scores = layer(x)
    (output.sum() + (scores**2).sum()).backward()
    assert x.grad.abs().sum() > 0
    for linear in (layer.q_linear, layer.k_linear, layer.v_linear, layer.out):
        assert type(linear) is (BinaryLinearCutlass if build is BMHA else BinaryLinear)
        assert linear.weight.dtype == torch.int8 and linear.weight.grad.any()
        assert linear.bias_a.grad is not None and linear.scale_a.grad is not None


def test_a_copy_computes_the_same(build):
    layer, x = make(build)
    twin = build(11, 12, 3)
    twin.load_state_dict(layer.state_dict())
    for other in (copy.deepcopy(layer), twin.eval()):
        assert torch.equal(other(x)[0], layer(x)[0])


def test_refusals(build):
    name = "BMHA" if build is BMHA else "BinaryAttention"
    with pytest.raises(ValueError, match=f"{name}: hidden_dim: expected a multiple of num_heads = 3, got 10"):
        build(8, 10, 3)
    with pytest.raises(ValueError, match="num_heads = 0"):
        build(8, 8, 0)
    layer, x = make(build)
    for bad in (x[0], x[..., :10], x.unsqueeze(0)):
        with pytest.raises(ShapeError, match=rf"{name}: hidden_states: expected \[b, s, 11\], got"):
            layer(bad)
    for mask in (torch.ones(2, 5), torch.ones(3, 5, 5), torch.ones(2, 5, 6), torch.ones(2, 3, 5, 5)):
        with pytest.raises(ShapeError, match=f"{name}: mask is"):
            layer(x, mask)
    with pytest.raises(ValueError, match="NaN or infinity"):
        layer(x * float("nan"))


def test_learnable_bias():
    bias = LearnableBias(3)
    assert bias.bias.tolist() == [0, 0, 0] and bias.bias.requires_grad
    bias.bias.data = torch.tensor([1.0, -2.0, 3.0])
    x = torch.randn(2, 4, 3)
    y = bias(x)
    assert torch.equal(y, x + torch.tensor([1.0, -2.0, 3.0]))
    y.sum().backward()
    assert bias.bias.grad.tolist() == [8, 8, 8]
    for bad in (torch.ones(2, 4), torch.tensor(1.0), torch.ones(3, 1)):
        with pytest.raises(ShapeError, match=r"x: expected \[\.\.\., 3\], got"):
            bias(bad)


def test_our_arguments():
    layer = BinaryAttention(8, 2)
    assert (layer.embed_dim, layer.hidden_dim, layer.head_dim, layer.dropout.p) == (8, 8, 4, 0.1)
    layer = BinaryAttention(8, 2, dropout=0.0, device="meta", dtype=torch.half, scores_matmul=Q8MatMul)
    assert layer.dropout.p == 0 and {p.device.type for p in layer.parameters()} == {"meta"}
    assert layer.out.weight.dtype == torch.half
