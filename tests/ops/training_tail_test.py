"""What follows a product in training: the formula in float64, torch's own operators, every layout, refusals."""

import pytest
import torch
import torch.nn.functional as F

LAST = torch.channels_last
DEVICES = [
    "cpu",
    pytest.param("cuda", marks=pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")),
]
# Layout, pool; of images 5 x 7, whose last line and column belong to no pool of 2.
CASES = [("rows", 1), *((order, pool) for order in ("planes", "pixels") for pool in (1, 2, 3))]


def operands(layout, channels, dtype=torch.float32, device="cpu", seed=0):
    """x, weight, bias, shortcut and slope; some pixels of x are far from the mean."""
    g = torch.Generator().manual_seed(seed)
    shape = (37, channels) if layout == "rows" else (6, channels, 5, 7)
    fmt = LAST if layout == "pixels" else torch.contiguous_format

    def image():
        return torch.randn(shape, generator=g).to(dtype).contiguous(memory_format=fmt).to(device)

    x = image() * 2 + 30
    weight, bias = torch.randn(channels, generator=g), torch.randn(channels, generator=g)
    return [x, weight.to(device), bias.to(device), image(), torch.tensor([-0.4], device=device)]


def by_torch(x, weight, bias, shortcut, slope, activation, pool, running):
    """torch's operators in the dtype that they are given."""
    z = F.batch_norm(x, *running, weight, bias, training=True, momentum=0.2, eps=1e-3)
    z = z if shortcut is None else z + shortcut
    z = F.relu(z) if activation == "relu" else F.prelu(z, slope) if activation == "prelu" else z
    return z if pool == 1 else F.max_pool2d(z, pool)


def leaves(tensors, dtype=None):
    return [None if t is None else t.detach().to(dtype or t.dtype).clone().requires_grad_() for t in tensors]


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("activation", ["none", "relu", "prelu"])
@pytest.mark.parametrize(("layout", "pool"), CASES)
@pytest.mark.parametrize("channels", [8, 100, 19])
def test_results_and_gradients_are_those_of_torch_in_float64(operators, device, activation, layout, pool, channels):
    for dtype, exactness in ((torch.float32, 2e-5), (torch.bfloat16, 2e-2), (torch.float16, 4e-3)):
        for learned, adds in ((True, True), (True, False), (False, True)):
            x, weight, bias, shortcut, slope = operands(layout, channels, dtype, device)
            given = [
                x,
                weight if learned else None,
                bias if learned else None,
                shortcut if adds else None,
                slope if activation == "prelu" else None,
            ]
            ours, exact = leaves(given), leaves(given, torch.float64)
            running = [torch.full((channels,), 3.0, device=device), torch.full((channels,), 2.0, device=device)]
            theirs = [t.double() for t in running]
            y, mean, rstd = operators.training_tail(
                *ours[:3], *running, *ours[3:], momentum=0.2, eps=1e-3, activation=activation, pool=pool
            )
            expected = by_torch(*exact, activation, pool, theirs)
            assert y.dtype == dtype
            assert y.is_contiguous(memory_format=LAST if layout == "pixels" else torch.contiguous_format)
            close = {"rtol": exactness, "atol": exactness}
            torch.testing.assert_close(y.double(), expected, **close)
            for found, wanted in zip(running, theirs, strict=True):
                torch.testing.assert_close(found.double(), wanted, rtol=1e-5, atol=1e-5)
            dims = [0] if layout == "rows" else [0, 2, 3]
            torch.testing.assert_close(mean.double(), exact[0].detach().mean(dims), rtol=1e-5, atol=1e-5)
            var = exact[0].detach().var(dims, correction=0)
            torch.testing.assert_close(rstd.double(), (var + 1e-3).rsqrt(), rtol=1e-4, atol=1e-5)
            g = torch.randn(y.shape, generator=torch.Generator().manual_seed(5)).to(device, dtype)
            y.backward(g)
            expected.backward(g.double())
            for found, wanted in zip(ours, exact, strict=True):
                if found is None:
                    continue
                assert found.grad.dtype == found.dtype
                terms = 1 if wanted.numel() > 1 else x.numel()  # that a sum adds up, of either sign
                size = max(wanted.grad.abs().max().item(), terms**0.5)
                torch.testing.assert_close(found.grad.double(), wanted.grad, rtol=exactness, atol=exactness * size)


@pytest.mark.parametrize("device", DEVICES)
def test_many_pixels_far_from_zero(operators, device):
    """Sums of squares lose nothing to a large mean, nor to a first pixel unlike the others."""
    x = 1000 + torch.randn(33, 72, 41, 39, generator=torch.Generator().manual_seed(1))
    x[0, :, 0, 0] = -500
    x = x.contiguous(memory_format=LAST).to(device)
    _, mean, rstd = operators.training_tail(x)
    exact = x.double()
    torch.testing.assert_close(mean.double(), exact.mean((0, 2, 3)), rtol=1e-6, atol=0)
    torch.testing.assert_close(rstd.double(), (exact.var((0, 2, 3), correction=0) + 1e-5).rsqrt(), rtol=1e-3, atol=0)


@pytest.mark.parametrize("device", DEVICES)
def test_results_repeat(operators, device):
    x, weight, bias, shortcut, slope = operands("pixels", 64, torch.bfloat16, device)
    found = []
    for _ in range(2):
        given = leaves([x, weight, bias, shortcut, slope])
        y = operators.training_tail(*given[:3], None, None, *given[3:], activation="prelu", pool=2)[0]
        y.backward(torch.ones_like(y))
        found.append([y, *(t.grad for t in given)])
    assert all(torch.equal(a, b) for a, b in zip(*found, strict=True))


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_what_is_not_finite_shows(operators, device, value):
    x = operands("pixels", 8, device=device)[0]
    x[2, 3, 1, 1] = value
    y = operators.training_tail(x, activation="relu", pool=2)[0]
    assert y[:, 3].isnan().all()
    assert y[:, :3].isfinite().all()


@pytest.mark.parametrize("device", DEVICES)
def test_equal_pixels_of_a_pool_leave_the_gradient_to_the_first(operators, device):
    x = torch.zeros(2, 4, 2, 4, device=device).contiguous(memory_format=LAST)
    x[1] = -1
    x.requires_grad_()
    weight = torch.ones(4, device=device, requires_grad=True)
    z = operators.training_tail(x, weight, pool=2)[0]
    z.backward(torch.arange(16.0, device=device).view(2, 4, 1, 2))
    other = x.detach().clone().requires_grad_()
    w = torch.ones(4, device=device, requires_grad=True)
    F.max_pool2d(F.batch_norm(other, None, None, w, None, training=True), 2).backward(
        torch.arange(16.0, device=device).view(2, 4, 1, 2)
    )
    torch.testing.assert_close(x.grad, other.grad, rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(weight.grad, w.grad, rtol=1e-4, atol=1e-4)


def test_a_second_derivative_and_transforms_are_refused(operators):
    x = torch.randn(5, 8, requires_grad=True)
    y = operators.training_tail(x)[0]
    with pytest.raises(RuntimeError, match="training_tail: the backward pass was asked for a graph"):
        torch.autograd.grad(y.square().sum(), x, create_graph=True)
    with pytest.raises(RuntimeError, match=r"transforms of torch\.func"):
        torch.func.vmap(operators.training_tail)(torch.randn(2, 3, 4))


REFUSALS = [
    ({"x": torch.ones(3, 4).int()}, TypeError, "x: expected float32, bfloat16 or float16, got Int"),
    (
        {"x": torch.ones(4)},
        ValueError,
        r"x: expected \[rows, channels\] or \[images, channels, height, width\], got \[4\]",
    ),
    (
        {"x": torch.ones(1, 4)},
        ValueError,
        r"x: expected more than one element a channel for its variance, got \[1, 4\]",
    ),
    (
        {"x": torch.ones(0, 4)},
        ValueError,
        r"x: expected more than one element a channel for its variance, got \[0, 4\]",
    ),
    ({"running_mean": torch.ones(4)}, ValueError, "running_mean and running_var belong together, one is missing"),
    ({"weight": torch.ones(3)}, ValueError, r"weight: expected \[4\] for an x of \[2, 4, 6, 6\], got \[3\]"),
    ({"bias": torch.ones(4).double()}, TypeError, "bias: expected float32, got Double"),
    ({"eps": -1.0}, ValueError, "eps: expected a number >= 0, got -1"),
    ({"momentum": float("inf")}, ValueError, "momentum: expected a finite number, got inf"),
    ({"shortcut": torch.ones(2, 4, 6, 5)}, ValueError, r"shortcut is \[2, 4, 6, 5\], x is \[2, 4, 6, 6\]"),
    ({"shortcut": torch.ones(2, 4, 6, 6).half()}, TypeError, "shortcut is Half, x is Float"),
    ({"activation": "gelu"}, ValueError, 'activation: expected none, relu or prelu, got "gelu"'),
    ({"activation": "prelu"}, ValueError, 'a slope is that of prelu, activation is "prelu"'),
    ({"activation": "prelu", "slope": torch.ones(4)}, ValueError, r"slope: expected one element, got \[4\]"),
    ({"pool": 0}, ValueError, "pool: expected a number >= 1, got 0"),
    ({"pool": 7}, ValueError, r"x: expected images of at least 7 x 7 pixels for the pool, got \[2, 4, 6, 6\]"),
]


@pytest.mark.parametrize(("given", "error", "sentence"), REFUSALS, ids=[r[2][:30] for r in REFUSALS])
def test_refusals(operators, given, error, sentence):
    with pytest.raises(error, match=f"training_tail: {sentence}"):
        operators.training_tail(**({"x": torch.ones(2, 4, 6, 6)} | given))
