"""What follows a product in evaluation: the formula in float64, torch's own operators, every layout, refusals."""

import formulas
import pytest
import torch
import torch.nn.functional as F

LAST = torch.channels_last


def numbers(channels, learned=True, seed=1):
    g = torch.Generator().manual_seed(seed)
    norm = {"mean": torch.randn(channels, generator=g), "var": torch.rand(channels, generator=g) + 0.1}
    if learned:
        norm |= {"weight": torch.randn(channels, generator=g), "bias": torch.randn(channels, generator=g)}
    return norm


def by_torch(x, norm, eps=1e-5, shortcut=None, activation="none", slope=None, pool=1):
    if norm:
        x = F.batch_norm(x, norm["mean"], norm["var"], norm.get("weight"), norm.get("bias"), eps=eps)
    x = x if shortcut is None else x + shortcut
    x = F.relu(x) if activation == "relu" else F.prelu(x, slope) if activation == "prelu" else x
    return x if pool == 1 else F.max_pool2d(x, pool)


@pytest.mark.parametrize("activation", ["none", "relu", "prelu"])
@pytest.mark.parametrize(
    ("layout", "pool"), [("matrix", 1), *((order, pool) for order in ("planes", "pixels") for pool in (1, 2, 3))]
)
def test_is_the_formula_and_what_torch_computes(operators, layout, activation, pool):
    g = torch.Generator().manual_seed(pool)
    shape = (37, 19) if layout == "matrix" else (3, 19, 9, 11)
    fmt = LAST if layout == "pixels" else torch.contiguous_format
    slope = torch.tensor([-0.4]) if activation == "prelu" else None
    for norm in ({}, numbers(19, learned=False), numbers(19)):
        for adds in (False, True):
            x = torch.randn(shape, generator=g).contiguous(memory_format=fmt)
            shortcut = torch.randn(shape, generator=g).contiguous(memory_format=fmt) if adds else None
            rest = {"shortcut": shortcut, "activation": activation, "slope": slope, "pool": pool, "eps": 1e-3}
            y = operators.block_tail(x, **norm, **rest)
            torch.testing.assert_close(y, by_torch(x, norm, **rest), rtol=1e-5, atol=2e-5)
            torch.testing.assert_close(
                y.double(), formulas.block_tail(x, norm, 1e-3, shortcut, activation, slope, pool), rtol=1e-5, atol=2e-5
            )
            assert y.is_contiguous(memory_format=fmt)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("fmt", [torch.contiguous_format, LAST])
def test_cuda_computes_the_same(operators, fmt):
    norm, slope = numbers(19), torch.tensor([-0.4])
    x, shortcut = (torch.randn(3, 19, 9, 11).contiguous(memory_format=fmt) for _ in range(2))
    for given in ({}, {"activation": "relu", "pool": 3}, {"activation": "prelu", "slope": slope, "shortcut": shortcut}):
        y = operators.block_tail(x, **norm, **given)
        on_cuda = {
            name: v.cuda() if isinstance(v, torch.Tensor) else v for name, v in ({"x": x} | norm | given).items()
        }
        found = operators.block_tail(**on_cuda)
        assert found.stride() == y.stride()
        torch.testing.assert_close(found.cpu(), y, rtol=1e-5, atol=2e-5)


def test_defaults_leave_x_as_it_is(operators):
    x = torch.randn(5, 7)
    y = operators.block_tail(x)
    assert torch.equal(x, y)
    assert x.data_ptr() != y.data_ptr()


def test_strides_of_any_kind(operators):
    norm = numbers(6)
    x, shortcut = torch.randn(4, 6, 5, 8)[:, :, :, ::2], torch.randn(4, 5, 4, 6).permute(0, 3, 1, 2)
    y = operators.block_tail(x, **norm, shortcut=shortcut, activation="relu", pool=2)
    torch.testing.assert_close(y, by_torch(x, norm, shortcut=shortcut, activation="relu", pool=2), rtol=1e-5, atol=2e-5)
    wide = {name: torch.stack((t, t), 1)[:, 0] for name, t in norm.items()}
    assert torch.equal(
        operators.block_tail(x, **wide, shortcut=shortcut), operators.block_tail(x, **norm, shortcut=shortcut)
    )


@pytest.mark.parametrize("shape", [(0, 5), (0, 5, 4, 4), (3, 0), (2, 0, 4, 4)])
def test_nothing(operators, shape):
    assert operators.block_tail(torch.ones(shape), **numbers(shape[1])).shape == shape


def test_threads_do_not_show(operators):
    x, norm = torch.randn(64, 3, 70, 70), numbers(3)
    before = torch.get_num_threads()
    try:
        results = []
        for threads in (1, 2, 3):
            torch.set_num_threads(threads)
            results.append(operators.block_tail(x, **norm, activation="relu", pool=2))
    finally:
        torch.set_num_threads(before)
    assert torch.equal(results[0], results[1])
    assert torch.equal(results[0], results[2])


def test_a_gradient_is_refused(operators):
    x = torch.randn(3, 4, requires_grad=True)
    with pytest.raises(
        ValueError, match=r"block_tail: has no derivative, it is for evaluation under torch.no_grad\(\)"
    ):
        operators.block_tail(x)
    with torch.no_grad():
        assert not operators.block_tail(x).requires_grad
    with pytest.raises(ValueError, match="no derivative"):
        operators.block_tail(torch.randn(3, 4), **(numbers(4) | {"weight": torch.ones(4, requires_grad=True)}))
    with pytest.raises(RuntimeError, match=r"transforms of torch\.func"):
        torch.func.vmap(operators.block_tail)(torch.randn(2, 3, 4))


REFUSALS = [
    ({"x": torch.ones(3, 4).half()}, TypeError, "x: expected float32, got Half"),
    (
        {"x": torch.ones(4)},
        ValueError,
        r"x: expected \[rows, channels\] or \[images, channels, height, width\], got \[4\]",
    ),
    ({"mean": torch.ones(4)}, ValueError, "mean and var belong together, one is missing"),
    ({"weight": torch.ones(4)}, ValueError, "weight and bias want mean and var"),
    (
        {"mean": torch.ones(3), "var": torch.ones(4)},
        ValueError,
        r"mean: expected \[4\] for an x of \[2, 4, 6, 6\], got \[3\]",
    ),
    ({"mean": torch.ones(4), "var": torch.ones(1, 4)}, ValueError, r"var: expected \[4\] for an x of .*, got \[1, 4\]"),
    (numbers(4) | {"bias": torch.ones(5)}, ValueError, r"bias: expected \[4\] for an x of .*, got \[5\]"),
    (numbers(4) | {"weight": torch.ones(4).double()}, TypeError, "weight: expected float32, got Double"),
    ({"eps": -1.0}, ValueError, "eps: expected a number >= 0, got -1"),
    ({"eps": float("nan")}, ValueError, "eps: expected a number >= 0, got nan"),
    ({"shortcut": torch.ones(2, 4, 6, 5)}, ValueError, r"shortcut is \[2, 4, 6, 5\], x is \[2, 4, 6, 6\]"),
    ({"shortcut": torch.ones(2, 4, 6, 6).int()}, TypeError, "shortcut: expected float32, got Int"),
    ({"activation": "gelu"}, ValueError, 'activation: expected none, relu or prelu, got "gelu"'),
    ({"activation": "prelu"}, ValueError, 'a slope is that of prelu, activation is "prelu"'),
    ({"slope": torch.ones(1)}, ValueError, 'a slope is that of prelu, activation is "none"'),
    ({"activation": "prelu", "slope": torch.ones(4)}, ValueError, r"slope: expected one element, got \[4\]"),
    ({"activation": "prelu", "slope": torch.ones(1).double()}, TypeError, "slope: expected float32, got Double"),
    ({"pool": 0}, ValueError, "pool: expected a number >= 1, got 0"),
    ({"pool": 7}, ValueError, r"x: expected images of at least 7 x 7 pixels for the pool, got \[2, 4, 6, 6\]"),
    (
        {"x": torch.ones(3, 4), "pool": 2},
        ValueError,
        r"x: expected images of at least 2 x 2 pixels for the pool, got \[3, 4\]",
    ),
]


@pytest.mark.parametrize(("given", "error", "sentence"), REFUSALS, ids=[r[2][:30] for r in REFUSALS])
def test_refusals(operators, given, error, sentence):
    with pytest.raises(error, match=f"block_tail: {sentence}"):
        operators.block_tail(**({"x": torch.ones(2, 4, 6, 6)} | given))
