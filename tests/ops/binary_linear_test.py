"""binary_linear: forward bit for bit, backward against the formula in float64, every form of x and weight."""

import formulas
import pytest
import torch

SHAPES = [(1, 1, 1), (3, 7, 5), (7, 31, 33), (2, 129, 65), (65, 64, 3), (1, 1000, 130), (33, 127, 17)]
DTYPES = [torch.float32, torch.bfloat16, torch.float16]


def make(m, k, n, dtype=torch.float32, seed=0):
    g = torch.Generator().manual_seed(1000 * seed + m + 31 * k + 977 * n)
    x = torch.randn(m, k, generator=g).to(dtype)
    weight = torch.randint(-127, 128, (n, k), generator=g).to(torch.int8)
    weight[weight == 0] = 1
    bias = 0.3 * torch.randn(k, generator=g)
    return x, weight, torch.tensor(0.9), torch.tensor(0.031), bias


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", SHAPES)
def test_forward_equals_the_formula(operators, shape, dtype):
    x, weight, sa, sw, bias = make(*shape, dtype)
    for b in (None, bias):
        wanted = formulas.binary_forward(x, weight, sa, sw, b)
        y = operators.binary_linear(x, weight, sa, sw, b)
        assert y.dtype == dtype
        assert torch.equal(y, wanted)


@pytest.mark.parametrize("shape", SHAPES)
def test_every_form_gives_the_same_numbers(operators, shape):
    x, weight, sa, sw, bias = make(*shape)
    k = shape[1]
    wanted = operators.binary_linear(x, weight, sa, sw, bias)
    packed = operators.pack_signs(weight)
    panels = operators.binary_prepack(packed, k)
    x_bits = operators.pack_signs(x, bias)
    for form in (weight.float(), weight.bfloat16(), weight.double().float(), packed):
        assert torch.equal(operators.binary_linear(x, form, sa, sw, bias), wanted)
    assert torch.equal(operators.binary_linear(x, packed, sa, sw, bias, panels=panels), wanted)
    assert torch.equal(operators.binary_linear(x_bits, packed, sa, sw, in_features=k), wanted)
    assert torch.equal(operators.binary_linear(x_bits, weight, sa, sw), wanted)


def test_leading_shapes_and_strides(operators):
    x, weight, sa, sw, bias = make(24, 37, 11)
    wanted = operators.binary_linear(x, weight, sa, sw, bias)
    y = operators.binary_linear(x.view(2, 3, 4, 37), weight, sa, sw, bias)
    assert torch.equal(y, wanted.view(2, 3, 4, 11))
    assert torch.equal(operators.binary_linear(x[0], weight, sa, sw, bias), wanted[0])
    wide = torch.randn(24, 50)
    wide[:, :37] = x
    assert torch.equal(operators.binary_linear(wide[:, :37], weight, sa, sw, bias), wanted)
    assert torch.equal(operators.binary_linear(x.T.contiguous().T, weight, sa, sw, bias), wanted)
    assert torch.equal(operators.binary_linear(x[::2], weight, sa, sw, bias), wanted[::2])
    assert operators.binary_linear(x[:0], weight, sa, sw, bias).shape == (0, 11)
    strided = weight.T.contiguous().T
    assert torch.equal(operators.binary_linear(x, strided, sa, sw, bias), wanted)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", SHAPES)
def test_backward_equals_the_formula(operators, shape, dtype):
    x, weight, sa, sw, bias = make(*shape, dtype)
    x.requires_grad_()
    sa.requires_grad_()
    bias.requires_grad_()
    latent = (weight.float() / 100).requires_grad_()
    y = operators.binary_linear(x, latent, sa, sw, bias)
    g = torch.randn(y.shape, generator=torch.Generator().manual_seed(5)).to(dtype)
    y.backward(g)
    gx, gw, gs, gb, size = formulas.binary_backward(x.detach(), latent.detach(), sa.detach(), sw, bias.detach(), g)
    assert x.grad.dtype == dtype
    formulas.close(x.grad, gx, dtype)
    formulas.close(latent.grad, gw)
    formulas.close(sa.grad, gs, size=size)
    formulas.close(bias.grad, gb)


def test_only_the_signs_of_int8_weights_count_in_the_backward(operators):
    """More rows than a tile has, so that a kernel of floats and codes is taken where there is one."""
    x, g = torch.randn(40, 50), torch.randn(40, 33)
    weight = torch.randint(-127, 128, (33, 50), dtype=torch.int8)
    weight[3, 5] = 0
    one = torch.ones(())
    found = operators.binary_linear_backward(g, x, weight, one, one, None, weight_grad=None)[0]
    wanted = g.double() @ weight.sign().double() * (x.abs() <= 1)
    formulas.close(found, wanted)


def test_a_zero_weight_has_sign_zero_in_the_backward_only(operators):
    x = torch.ones(1, 2, requires_grad=True)
    weight = torch.tensor([[0.0, -2.0]])
    y = operators.binary_linear(x, weight, torch.tensor(1.0), torch.tensor(1.0))
    assert y.item() == 0  # bit(0) = 1, so +1 - 1
    y.sum().backward()
    assert x.grad.tolist() == [[0.0, -1.0]]


def test_packed_weight_hands_gradients_through(operators):
    x, weight, sa, sw, _ = make(5, 33, 9)
    x1, x2 = x.clone().requires_grad_(), x.clone().requires_grad_()
    operators.binary_linear(x1, weight, sa, sw).sum().backward()
    operators.binary_linear(x2, operators.pack_signs(weight), sa, sw).sum().backward()
    assert torch.equal(x1.grad, x2.grad)


def test_refusals(operators):
    x, weight, sa, sw, bias = make(3, 7, 5)
    packed = operators.pack_signs(weight)
    call = operators.binary_linear
    with pytest.raises(ValueError, match=r"binary_linear: x is \[3, 7\], the weight is \[5, 64\]"):
        call(x, torch.ones(5, 64), sa, sw)
    with pytest.raises(ValueError, match="0-dimensional"):
        call(torch.tensor(1.0), weight, sa, sw)
    with pytest.raises(ValueError, match="two axes"):
        call(x, torch.ones(7), sa, sw)
    with pytest.raises(TypeError, match=r"x: expected .*, got Double"):
        call(x.double(), weight, sa, sw)
    with pytest.raises(TypeError, match=r"the weight: expected .*, got Int"):
        call(x, weight.int(), sa, sw)
    with pytest.raises(ValueError, match=r"bias_a: expected .*, got \[3\]"):
        call(x, weight, sa, sw, bias[:3])
    with pytest.raises(TypeError, match=r"bias_a: expected .*, got Double"):
        call(x, weight, sa, sw, bias.double())
    with pytest.raises(ValueError, match="in_features"):
        call(x, packed, sa, sw, in_features=9)
    with pytest.raises(ValueError, match="positive number"):
        call(torch.ones(2, 0), torch.ones(5, 0), sa, sw)
    with pytest.raises(ValueError, match="scale_a: expected a finite number, got nan"):
        call(x, weight, torch.tensor(float("nan")), sw)
    with pytest.raises(ValueError, match="scale_w: expected a finite number, got inf"):
        call(x, weight, sa, torch.tensor(float("inf")))
    with pytest.raises(ValueError, match="one element"):
        call(x, weight, torch.ones(2), sw)
    with pytest.raises(ValueError, match="not initialised"):
        call(operators.pack_signs(x), weight, torch.tensor(0.0), sw)
    for poison in (float("nan"), float("inf"), -float("inf")):
        bad = x.clone()
        bad[2, 6] = poison
        with pytest.raises(ValueError, match="NaN or infinity"):
            call(bad, weight, sa, sw)
    with pytest.raises(ValueError, match="anchor"):
        call(x, weight, sa, sw, anchor=torch.ones(3, requires_grad=True))


def test_panels_do_not_outlive_a_training_weight(operators):
    """Panels stand for a packed weight; an unpacked one is what was just trained and wins."""
    x, weight, sa, sw, bias = make(3, 70, 5)
    stale = operators.binary_prepack(operators.pack_signs(-weight), 70)
    wanted = operators.binary_linear(x, weight, sa, sw, bias)
    assert torch.equal(operators.binary_linear(x, weight, sa, sw, bias, panels=stale), wanted)


def test_foreign_panels_are_refused(operators):
    x, weight, sa, sw, _ = make(3, 70, 5)
    packed = operators.pack_signs(weight)
    panels = operators.binary_prepack(packed, 70)
    call = operators.binary_linear
    with pytest.raises(ValueError, match="panels hold a weight of 5 outputs and depth 70"):
        call(torch.ones(3, 9), operators.pack_signs(torch.ones(5, 9)), sa, sw, panels=panels)
    with pytest.raises(ValueError, match="not made by a prepack operator"):
        call(x, packed, sa, sw, panels=torch.zeros_like(panels))
    with pytest.raises(ValueError, match="bytes"):
        call(x, packed, sa, sw, panels=panels[:-1].clone())
    with pytest.raises(TypeError, match="prepack operator"):
        call(x, packed, sa, sw, panels=panels.int())
    with pytest.raises(ValueError, match="not made by a prepack operator"):
        call(x, packed, sa, sw, panels=operators.q8_prepack(torch.ones(5, 70, dtype=torch.int8)))
    with pytest.raises(TypeError, match="uint8"):
        operators.binary_prepack(weight, 70)
    with pytest.raises(ValueError, match="in_features = 79"):
        operators.binary_prepack(operators.pack_signs(torch.ones(5, 72)), 71 + 8)
