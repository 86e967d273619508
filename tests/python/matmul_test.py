"""BinaryMatMul, Q8MatMul and Q4MatMul: the formula, how clips start and are kept, files, dtypes, refusals, graphs."""

import copy
import io
import pickle

import formulas
import pytest
import torch
from torch import nn

from bie import ShapeError
from bie.nn import BinaryMatMul, Q4MatMul, Q8MatMul, set_compat, set_grad_mode
from bitorch_engine.layers.qlinear.nbit.cutlass import Q4MatMulFunction, Q8MatMulFunction

WIDTHS = {BinaryMatMul: None, Q8MatMul: formulas.Q8, Q4MatMul: formulas.Q4}
CONSTANT = {BinaryMatMul: 1, Q8MatMul: 11.269, Q4MatMul: 5.6345}
every_class = pytest.mark.parametrize("cls", WIDTHS, ids=lambda cls: cls.__name__)
codes_class = pytest.mark.parametrize("cls", [Q8MatMul, Q4MatMul], ids=lambda cls: cls.__name__)


def operands(seed=0, dtype=torch.float32):
    """x and y of different sizes, so that their clips differ."""
    g = torch.Generator().manual_seed(seed)
    x, y = torch.randn(2, 3, 5, 37, generator=g), 3 * torch.randn(3, 7, 37, generator=g)
    return x.to(dtype), y.to(dtype)


def formula(layer, x, y):
    return formulas.matmul_forward(x, y, layer.x_clip.detach(), layer.y_clip.detach(), WIDTHS[type(layer)])


@every_class
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_training_and_evaluation_are_the_formula(cls, dtype):
    layer, (x, y) = cls(dtype=dtype), operands(dtype=dtype)
    out = layer(x, y)
    assert out.dtype == dtype and torch.equal(out, formula(layer, x, y))
    for name, v in (("x_clip", x), ("y_clip", y)):
        wanted = 2 * v.double().abs().mean() / CONSTANT[cls]
        torch.testing.assert_close(getattr(layer, name).detach().double(), wanted, rtol=1e-6, atol=0)
    assert torch.equal(layer.eval()(x, y), out)
    other = operands(1, dtype)
    assert torch.equal(layer(*other), formula(layer, *other))


@every_class
@pytest.mark.parametrize("mode", ["exact", "reference"])
def test_every_gradient_is_the_formula(cls, mode):
    layer, (x, y) = cls(), operands()
    layer(x, y)
    set_grad_mode(nn.ModuleList([layer]), mode)
    x.requires_grad_(), y.requires_grad_()
    out = layer(x, y)
    g = torch.randn(out.shape, generator=torch.Generator().manual_seed(7))
    out.backward(g)
    clips = layer.x_clip.detach(), layer.y_clip.detach()
    wanted = formulas.matmul_backward(x.detach(), y.detach(), *clips, g, WIDTHS[cls], mode == "reference")
    for leaf, (grad, size) in zip((x, y, layer.x_clip, layer.y_clip), wanted, strict=True):
        formulas.close(leaf.grad, grad, size=size)


@codes_class
def test_compat(cls):
    """BITorch Engine's constant of the first batch and its gradients."""
    layer, (x, y) = cls(compat="bie-0.2.6"), operands()
    layer(x, y)
    torch.testing.assert_close(float(layer.x_clip.detach()), float(2 * x.abs().mean() / 11.269))
    assert layer.grad_mode == "reference"
    set_compat(layer, "none")
    assert layer.grad_mode == "exact"


@every_class
def test_evaluation_of_an_untrained_layer_warns_once(cls, recwarn):
    layer, (x, y) = cls().eval(), operands()
    layer(x, y)
    (warning,) = recwarn
    assert f"{cls.__name__} takes its activation scale from a batch of the evaluation" in str(warning.message)
    layer(x, y)
    assert len(recwarn) == 1


@every_class
def test_each_side_waits_for_its_first_batch(cls):
    """A dead x leaves its clip at 0; y's is set."""
    layer, (x, y) = cls(), operands()
    assert not layer(torch.zeros_like(x), y).any()
    assert layer.x_clip == 0 and layer.y_clip > 0
    kept = layer.y_clip.clone()
    layer(x, 2 * y)
    assert layer.x_clip > 0 and torch.equal(layer.y_clip, kept)


@every_class
def test_clips_do_not_cross_zero(cls):
    layer, (x, y) = cls(), operands()
    layer(x, y)
    first = layer.x_clip.detach().clone()
    with torch.no_grad():
        layer.x_clip.fill_(-1)
    layer(x, y)
    torch.testing.assert_close(layer.x_clip.detach(), 0.03 * first)
    with torch.no_grad():
        layer.y_clip.fill_(-1)
    layer.eval()
    assert layer.y_clip > 0
    layer.train().step_size_floor = 0
    with torch.no_grad():
        layer.x_clip.fill_(-1)
    layer(x, y)
    assert layer.x_clip == -1
    loaded = cls()
    loaded.load_state_dict(layer.state_dict())
    loaded(x, y)
    assert loaded.x_clip == -1, "a loaded scale has no floor"


@every_class
def test_files_and_copies(cls):
    layer, (x, y) = cls(), operands()
    out = layer(x, y)
    for other in (copy.deepcopy(layer), pickle.loads(pickle.dumps(layer))):
        assert torch.equal(other(x, y), out)
    file = io.BytesIO()
    torch.save(layer.state_dict(), file)
    file.seek(0)
    other = cls()
    other(2 * x, 2 * y)
    other.load_state_dict(torch.load(file))
    assert torch.equal(other.eval()(x, y), out)
    half = {name: tensor.half().view(1) for name, tensor in layer.state_dict().items() if name != "eps"}
    other.load_state_dict(layer.state_dict() | half)
    assert other.x_clip.dtype == torch.float32 and other.x_clip == layer.x_clip.half()
    for bad in (torch.ones(2), torch.tensor(1), torch.tensor(float("nan")), 1.0):
        with pytest.raises(RuntimeError, match=r"the entry 'y_clip'(: expected .*, got| is nan)"):
            other.load_state_dict(layer.state_dict() | {"y_clip": bad})
    with pytest.raises(RuntimeError, match=r"Missing.*y_clip"):
        other.load_state_dict({name: t for name, t in layer.state_dict().items() if name != "y_clip"})


@every_class
def test_conversions_leave_scales_float32(cls):
    layer, (x, y) = cls(), operands()
    layer(x, y)
    clip = layer.x_clip.detach().clone()
    for move in (lambda m: m.half(), lambda m: m.to(torch.bfloat16), lambda m: m.double()):
        assert torch.equal(move(layer).x_clip.detach(), clip) and layer.x_clip.dtype == torch.float32
    assert torch.equal(layer(x, y), formula(layer, x, y))


@codes_class
def test_eps_is_used(cls):
    layer, (x, y) = cls(), operands()
    with torch.no_grad():
        layer.x_clip.fill_(1e-4)
        layer.y_clip.fill_(1e-4)
    wanted = formulas.nbit_forward(x[0, 0], y[0], torch.tensor(0.3), torch.tensor(0.3), None, WIDTHS[cls])
    layer.eps = torch.tensor(0.3)
    out = layer(x, y)[0, 0]
    torch.testing.assert_close(out / 1e-8, wanted / 0.09, rtol=1e-4, atol=1e-3)


@every_class
def test_refusals_leave_nothing_behind(cls):
    layer, (x, y) = cls(), operands()
    wrong = [
        (x[0, 0], y),
        (x, y[0]),
        (x[..., :36], y),
        (x[..., :0], y[..., :0]),
        (x[:, :2], y),
        (x.half(), y),
        (x.double(), y.double()),
        (x.long(), y.long()),
    ]
    for training in (True, False):
        layer.train(training)
        for bad in wrong:
            with pytest.raises(ShapeError, match=rf"{cls.__name__}: x and y: expected .*, got \["):
                layer(*bad)
        with pytest.raises(TypeError, match="y: expected a tensor, got a list"):
            layer(x, [1.0])
        assert layer.x_clip == 0 and layer.y_clip == 0
    layer.train()(x, y)
    for bad in wrong:
        with pytest.raises(ShapeError, match=rf"{cls.__name__}: x and y: expected .*, got \["):
            layer(*bad)
    nan = y.clone()
    nan[2, 6, 36] = float("nan")
    with pytest.raises(ValueError, match="NaN"):
        layer(x, nan)


@pytest.mark.parametrize("cls", [Q8MatMul, Q4MatMul])
def test_options_are_checked(cls):
    with pytest.raises(ValueError, match=r"grad_mode: expected .*, got 'no'"):
        cls(grad_mode="no")
    with pytest.raises(ValueError, match=r"compat: expected .*, got 'no'"):
        cls(compat="no")
    assert repr(cls(grad_mode="reference")) == f"{cls.__name__}(grad_mode=reference)"


def test_the_floor_is_checked():
    with pytest.raises(ValueError, match=r"step_size_floor: expected a number in \[0, 1\], got 2"):
        BinaryMatMul().step_size_floor = 2


@every_class
def test_graphs(cls):
    """Evaluation is one graph for every length; training steps out of it and has the same gradients."""
    layer, (x, y) = cls(), operands()
    out = layer(x, y)
    out.square().sum().backward()
    wanted = layer.x_clip.grad.clone()
    layer.zero_grad()
    torch._dynamo.reset()
    torch.compile(layer, backend="aot_eager")(x, y).square().sum().backward()
    assert torch.equal(layer.x_clip.grad, wanted)
    layer.eval()
    compiled = torch.compile(layer, backend="aot_eager", fullgraph=True, dynamic=True)
    with torch.no_grad():
        for length in (5, 4, 9):
            longer = torch.randn(2, 3, length, 37)
            assert torch.equal(compiled(longer, y), layer(longer, y))
    fresh = cls().eval()
    with torch.no_grad():
        assert torch.equal(torch.compile(fresh, backend="aot_eager", fullgraph=True)(x, y), formula(fresh, x, y))
    assert fresh.x_clip > 0


@pytest.mark.parametrize(("function", "cls"), [(Q8MatMulFunction, Q8MatMul), (Q4MatMulFunction, Q4MatMul)])
def test_functions_are_the_layers(function, cls):
    x, y = operands()
    layer = cls()
    out = layer(x, y)
    assert torch.equal(function.apply(x, y, layer.x_clip, layer.y_clip, layer.eps, True), out)


@every_class
def test_attention_learns(cls):
    """Scores and context of an attention are such products; its loss falls."""
    torch.manual_seed(0)
    scores, context = cls(), cls()
    q, k, v = (nn.Linear(12, 12) for _ in range(3))
    optimizer = torch.optim.Adam([p for m in (q, k, v, scores, context) for p in m.parameters()], lr=1e-2)
    x, target = torch.randn(4, 9, 12), torch.randn(4, 9, 12)
    losses = []
    for _ in range(60):
        weights = (scores(q(x), k(x)) / 12**0.5).softmax(-1)
        loss = (context(weights, v(x).mT) - target).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(float(loss.detach()))
    assert losses[-1] < 0.9 * losses[0]


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs CUDA")
@every_class
def test_cuda_computes_what_the_cpu_does(cls):
    layer, (x, y) = cls(), operands()
    out = layer(x, y)
    assert torch.equal(layer.cuda()(x.cuda(), y.cuda()).cpu(), out)
    fresh = cls().cuda()
    fresh(x.cuda(), y.cuda()).square().sum().backward()
    assert fresh.x_clip.is_cuda and fresh.x_clip.grad.isfinite()
    torch.testing.assert_close(fresh.x_clip.detach().cpu(), layer.x_clip.detach().cpu(), rtol=1e-6, atol=0)
