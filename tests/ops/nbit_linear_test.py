"""q8_linear and q4_linear: forward bit for bit, backward in both modes against the formula in float64."""

import formulas
import pytest
import torch
from formulas import Q4, Q8

SHAPES = [(1, 1, 1), (3, 7, 5), (7, 31, 33), (2, 129, 65), (65, 64, 3), (1, 1000, 130), (33, 127, 17)]
DTYPES = [torch.float32, torch.bfloat16, torch.float16]
WIDTHS = pytest.mark.parametrize("width", [Q8, Q4], ids=["q8", "q4"])


def op(operators, width):
    return operators.q8_linear if width is Q8 else operators.q4_linear


def make(m, k, n, dtype=torch.float32, width=Q8):
    g = torch.Generator().manual_seed(m + 31 * k + 977 * n)
    x = torch.randn(m, k, generator=g).to(dtype)
    weight = torch.randn(n, k, generator=g)
    bias = 0.3 * torch.randn(k, generator=g)
    # Small enough that some activations are clipped.
    scale_a = torch.tensor(0.013 if width is Q8 else 0.21)
    return x, weight, scale_a, bias


def packed_weight(operators, weight, width):
    """(weight as it lies in a checkpoint, its scale)."""
    if width is Q8:
        return operators.q8_quantize(weight)
    codes, scale = operators.q4_quantize(weight)
    return operators.pack_int4(codes), scale


def prepack(operators, packed, width, k):
    return operators.q8_prepack(packed) if width is Q8 else operators.q4_prepack(packed, k)


@WIDTHS
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", SHAPES)
def test_forward_equals_the_formula(operators, shape, dtype, width):
    x, weight, sa, bias = make(*shape, dtype, width)
    for b in (None, bias):
        for sw in (None, torch.tensor(0.09)):
            y = op(operators, width)(x, weight, sa, sw, b)
            assert y.dtype == dtype
            assert torch.equal(y, formulas.nbit_forward(x, weight, sa, sw, b, width))


@WIDTHS
@pytest.mark.parametrize("shape", SHAPES)
def test_every_form_gives_the_same_numbers(operators, shape, width):
    x, weight, sa, bias = make(*shape, width=width)
    k = shape[1]
    call = op(operators, width)
    packed, sw = packed_weight(operators, weight, width)
    wanted = call(x, weight, sa, sw, bias)
    assert torch.equal(call(x, packed, sa, sw, bias), wanted)
    assert torch.equal(call(x, packed, sa, sw, bias, panels=prepack(operators, packed, width, k)), wanted)
    q_x, _ = (operators.q8_quantize if width is Q8 else operators.q4_quantize)(x + bias, sa)
    q_x = q_x if width is Q8 else operators.pack_int4(q_x)
    assert torch.equal(call(q_x, packed, sa, sw, in_features=k), wanted)
    assert torch.equal(call(q_x, weight, sa, sw), wanted)


@WIDTHS
def test_leading_shapes_and_strides(operators, width):
    x, weight, sa, bias = make(24, 37, 11, width=width)
    call = op(operators, width)
    wanted = call(x, weight, sa, None, bias)
    assert torch.equal(call(x.view(2, 3, 4, 37), weight, sa, None, bias), wanted.view(2, 3, 4, 11))
    assert torch.equal(call(x[0], weight, sa, None, bias), wanted[0])
    assert torch.equal(call(x.T.contiguous().T, weight.T.contiguous().T, sa, None, bias), wanted)
    assert torch.equal(call(x[::2], weight, sa, None, bias), wanted[::2])
    assert call(x[:0], weight, sa, None, bias).shape == (0, 11)


@WIDTHS
@pytest.mark.parametrize("reference", [False, True], ids=["exact", "reference"])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", SHAPES)
def test_backward_equals_the_formula(operators, shape, dtype, reference, width):
    x, weight, sa, bias = make(*shape, dtype, width)
    for sw in (None, torch.tensor(0.09)):  # the second clips many weights
        leaves = [t.clone().requires_grad_() for t in (x, weight, sa, bias)]
        y = op(operators, width)(leaves[0], leaves[1], leaves[2], sw, leaves[3], reference_grad=reference)
        g = torch.randn(y.shape, generator=torch.Generator().manual_seed(5)).to(dtype)
        y.backward(g)
        wanted = formulas.nbit_backward(x, weight, sa, sw, bias, g, width, reference)
        assert leaves[0].grad.dtype == dtype
        formulas.close(leaves[0].grad, wanted[0], dtype)
        formulas.close(leaves[1].grad, wanted[1])
        formulas.close(leaves[2].grad, wanted[2], size=wanted[4])
        formulas.close(leaves[3].grad, wanted[3])


@WIDTHS
def test_the_two_modes_differ(operators, width):
    x, weight, sa, _ = make(9, 33, 7, width=width)
    grads = []
    for reference in (False, True):
        scale = sa.clone().requires_grad_()
        op(operators, width)(x, weight, scale, None, reference_grad=reference).square().sum().backward()
        grads.append(scale.grad)
    assert not torch.allclose(grads[0], grads[1], rtol=1e-3)


@WIDTHS
def test_a_step_below_eps_is_lifted(operators, width):
    x, weight, _, _ = make(3, 9, 5, width=width)
    tiny = torch.tensor(1e-7)
    wanted = formulas.nbit_forward(x, weight, tiny, None, None, width)
    assert torch.equal(op(operators, width)(x, weight, tiny, None), wanted)


@WIDTHS
def test_packed_weight_hands_gradients_through(operators, width):
    x, weight, sa, _ = make(5, 33, 9, width=width)
    packed, sw = packed_weight(operators, weight, width)
    x1, x2 = x.clone().requires_grad_(), x.clone().requires_grad_()
    op(operators, width)(x1, weight, sa, sw).sum().backward()
    op(operators, width)(x2, packed, sa, sw).sum().backward()
    assert torch.equal(x1.grad, x2.grad)


def plain_case(m, k, n, width):
    """(x, weight codes one a byte, scale_a, scale_w, bias, g)."""
    x, _, sa, bias = make(m, k, n, width=width)
    g = torch.Generator().manual_seed(m + k + n)
    codes = torch.randint(width.lo, width.hi + 1, (n, k), generator=g).to(torch.int8)
    return x, codes, sa, torch.tensor(0.0625), bias, torch.randn(m, n, generator=g)


def anchor():
    return torch.empty(0, requires_grad=True)


@WIDTHS
@pytest.mark.parametrize("shape", SHAPES)
def test_plain_codes_give_the_numbers_of_the_packed_ones(operators, shape, width):
    x, codes, sa, sw, bias, _ = plain_case(*shape, width)
    call = op(operators, width)
    wanted = formulas.nbit_forward(x, codes * sw, sa, sw, bias, width)
    assert torch.equal(call(x, codes, sa, sw, bias, anchor=anchor()), wanted)
    assert torch.equal(call(x, codes.T.contiguous().T, sa, sw, bias, anchor=anchor()), wanted)
    if width is Q8 or shape[1] > 1:
        assert torch.equal(call(x, codes, sa, sw, bias), wanted)
    if width is Q4:
        packed = operators.pack_int4(codes)
        assert torch.equal(call(x, packed, sa, sw, bias), wanted)
        q_x = operators.pack_int4(operators.q4_quantize(x + bias, sa)[0])
        assert torch.equal(call(q_x, codes, sa, sw, anchor=anchor()), wanted)
        if shape[1] > 1:
            panels = operators.q4_prepack(packed, shape[1])
            assert torch.equal(call(x, codes, sa, sw, bias, panels=panels), wanted)
            assert torch.equal(call(q_x, codes, sa, sw, in_features=shape[1]), wanted)


@WIDTHS
@pytest.mark.parametrize("reference", [False, True], ids=["exact", "reference"])
@pytest.mark.parametrize("shape", SHAPES)
def test_backward_of_plain_codes_equals_the_formula(operators, shape, reference, width):
    x, codes, sa, sw, bias, g = plain_case(*shape, width)
    # scale_w is a power of two, so w / scale_w is the code again and the formula clips none.
    wanted = formulas.nbit_backward(x, codes * sw, sa, sw, bias, g, width, reference=reference)
    for grad_dtype in (torch.int8, torch.float32):
        leaves = [t.clone().requires_grad_() for t in (x, sa, bias)]
        weight = codes.clone()
        weight.grad_dtype = grad_dtype
        call = op(operators, width)
        y = call(leaves[0], weight, leaves[1], sw, leaves[2], anchor=anchor(), reference_grad=reference)
        y.backward(g)
        assert weight.grad.dtype == grad_dtype and not weight.requires_grad and torch.equal(weight, codes)
        formulas.close(leaves[0].grad, wanted[0])
        formulas.close(leaves[1].grad, wanted[2], size=wanted[4])
        formulas.close(leaves[2].grad, wanted[3])
        if grad_dtype is torch.float32:
            formulas.close(weight.grad, wanted[1])
            exact = operators.int8_grad(weight.grad)
        else:
            delivered = weight.grad
    assert torch.equal(delivered, exact)


@WIDTHS
def test_the_int8_gradient_of_codes_is_the_formula(operators, width):
    """Powers of two and small integers: every sum is exact in float32, so the integers must be equal."""
    g = torch.Generator().manual_seed(3)
    x = torch.randint(-9, 10, (31, 33), generator=g) / 4
    codes = torch.randint(width.lo, width.hi + 1, (65, 33), generator=g).to(torch.int8)
    sa, sw = torch.tensor(0.25), torch.tensor(0.5)
    y = op(operators, width)(x, codes, sa, sw, anchor=anchor())
    grad = torch.randint(-4, 5, y.shape, generator=g).float()
    y.backward(grad)
    wanted = grad.double().T @ (formulas.codes(x, 0.25, width).double() * 0.25)
    assert torch.equal(codes.grad, formulas.int8_grad(wanted))


def test_one_column_of_anchored_codes_hands_its_gradient_on(operators):
    """At k = 1 both forms fit: the anchor decides in the backward too, even where the weight's gradient is unwanted."""
    x = torch.ones(3, 1, requires_grad=True)
    codes = torch.tensor([[3], [-8]], dtype=torch.int8)
    one = torch.tensor(1.0)
    y = operators.q4_linear(x, codes, one, one, anchor=anchor())
    (grad,) = torch.autograd.grad(y.sum(), x)
    assert grad.eq(-5).all()
    assert codes.grad is None


def test_an_anchor_without_a_gradient_says_plain_codes(operators):
    """A frozen weight in training: at k = 1 the packed form would fit too."""
    x = torch.ones(3, 1, requires_grad=True)
    codes = torch.tensor([[3], [-8]], dtype=torch.int8)
    one = torch.tensor(1.0)
    y = operators.q4_linear(x, codes, one, one, anchor=torch.empty(0))
    assert y.eq(torch.tensor([3.0, -8.0])).all()
    y.sum().backward()
    assert x.grad.eq(-5).all() and codes.grad is None


def test_refused_plain_codes(operators):
    x, codes, sa, sw, bias, _ = plain_case(3, 7, 5, Q4)
    call = operators.q4_linear
    for value in (8, -9, 127, -128):
        bad = codes.clone()
        bad[4, 6] = value
        for a in (None, anchor()):
            with pytest.raises(ValueError, match=r"q4_linear: the weight holds codes outside \[-8, 7\]"):
                call(x, bad, sa, sw, bias, anchor=a)
    with pytest.raises(ValueError, match="a packed int4 weight cannot be trained"):
        call(x, operators.pack_int4(codes), sa, sw, anchor=anchor())
    with pytest.raises(ValueError, match=r"x is \[3, 7\], the weight is \[5, 6\]$"):
        call(x, codes[:, :6], sa, sw, anchor=anchor())
    with pytest.raises(ValueError, match=r"x is \[3, 7\], the weight is \[5, 6\] \(packed int4\)"):
        call(x, codes[:, :6], sa, sw)
    with pytest.raises(ValueError, match=r"in_features: expected .*, got 8"):
        call(x, codes, sa, sw, in_features=8, anchor=anchor())
    for width in (Q8, Q4):
        with pytest.raises(ValueError, match="scale_w: expected one element, got none"):
            op(operators, width)(x, codes, sa, None, anchor=anchor())


@WIDTHS
def test_panels_do_not_outlive_an_anchored_weight(operators, width):
    x, codes, sa, sw, bias, _ = plain_case(3, 70, 5, width)
    stale = prepack(operators, -codes.clamp(-7) if width is Q8 else operators.pack_int4(-codes.clamp(-7)), width, 70)
    wanted = op(operators, width)(x, codes, sa, sw, bias)
    assert torch.equal(op(operators, width)(x, codes, sa, sw, bias, anchor=anchor(), panels=stale), wanted)


@WIDTHS
def test_refusals(operators, width):
    x, weight, sa, bias = make(3, 7, 5, width=width)
    packed, sw = packed_weight(operators, weight, width)
    call = op(operators, width)
    with pytest.raises(ValueError, match=r"x is \[3, 7\], the weight is \[5, 64\]"):
        call(x, torch.ones(5, 64), sa, sw)
    with pytest.raises(ValueError, match="0-dimensional"):
        call(torch.tensor(1.0), weight, sa, sw)
    with pytest.raises(ValueError, match="two axes"):
        call(x, torch.ones(7), sa, sw)
    with pytest.raises(TypeError, match=r"x: expected .*, got Double"):
        call(x.double(), weight, sa, sw)
    with pytest.raises(TypeError, match=r"the weight: expected .*, got Byte"):
        call(x, weight.byte(), sa, sw)
    with pytest.raises(ValueError, match=r"bias_a: expected .*, got \[3\]"):
        call(x, weight, sa, sw, bias[:3])
    with pytest.raises(ValueError, match="positive number"):
        call(torch.ones(2, 0), torch.ones(5, 0), sa, sw)
    with pytest.raises(ValueError, match="scale_a: expected a finite number, got nan"):
        call(x, weight, torch.tensor(float("nan")), sw)
    with pytest.raises(ValueError, match="scale_w: expected one element, got none"):
        call(x, packed, sa, None)
    with pytest.raises(ValueError, match="one element"):
        call(x, weight, torch.ones(2), sw)
    with pytest.raises(ValueError, match="eps: expected a positive number, got 0"):
        call(x, weight, sa, sw, eps=0.0)
    with pytest.raises(ValueError, match="eps: expected a positive number, got nan"):
        call(x, weight, sa, sw, eps=float("nan"))
    with pytest.raises(ValueError, match="not initialised"):
        call(torch.ones(3, packed.shape[1], dtype=torch.int8), packed, torch.tensor(0.0), sw)
    for poison in (float("nan"), float("inf")):
        bad = x.clone()
        bad[2, 6] = poison
        with pytest.raises(ValueError, match="NaN or infinity"):
            call(bad, weight, sa, sw)
        bad = weight.clone()
        bad[4, 6] = poison
        with pytest.raises(ValueError, match="NaN or infinity"):
            call(x, bad, sa, None)
    too_deep = 131072 if width is Q8 else 1 << 21
    with pytest.raises(ValueError, match="too long for an int32"):
        call(torch.ones(1, too_deep), torch.ones(1, too_deep), sa, sw)


@WIDTHS
def test_panels_do_not_outlive_a_training_weight(operators, width):
    """Panels stand for a quantised weight; a float one is what was just trained and wins."""
    x, weight, sa, bias = make(3, 70, 5, width=width)
    stale = prepack(operators, packed_weight(operators, -weight, width)[0], width, 70)
    wanted = op(operators, width)(x, weight, sa, None, bias)
    assert torch.equal(op(operators, width)(x, weight, sa, None, bias, panels=stale), wanted)


@WIDTHS
def test_foreign_panels_are_refused(operators, width):
    _, weight, sa, _ = make(3, 70, 5, width=width)
    packed, sw = packed_weight(operators, weight, width)
    panels = prepack(operators, packed, width, 70)
    other, _ = packed_weight(operators, torch.ones(5, 9), width)
    call = op(operators, width)
    with pytest.raises(ValueError, match="panels hold a weight of 5 outputs and depth 70"):
        call(torch.ones(3, 9), other, sa, sw, panels=panels)
    with pytest.raises(ValueError, match="not made by a prepack operator"):
        call(torch.ones(3, 70), packed, sa, sw, panels=torch.zeros_like(panels))
    with pytest.raises(TypeError, match="int8"):
        prepack(operators, packed.byte(), width, 70)
