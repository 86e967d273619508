"""binary_conv2d: forward bit for bit, backward against the formula in float64, forms of the weight, both paddings."""

import formulas
import pytest
import torch

# batch, in_c, h, w, out_c, kernel, stride, padding, dilation, groups
CASES = [
    (1, 1, 1, 1, 1, (1, 1), (1, 1), (0, 0), (1, 1), 1),
    (2, 3, 9, 7, 5, (3, 3), (1, 1), (1, 1), (1, 1), 1),
    (1, 16, 8, 8, 33, (3, 3), (2, 2), (1, 1), (1, 1), 1),
    (2, 7, 11, 6, 4, (2, 5), (2, 1), (1, 2), (1, 1), 1),
    (1, 5, 13, 12, 65, (3, 2), (1, 3), (0, 2), (3, 2), 1),
    (3, 64, 5, 5, 64, (1, 1), (1, 1), (0, 0), (1, 1), 1),
    (1, 2, 4, 4, 3, (4, 4), (1, 1), (3, 3), (1, 1), 1),
    (2, 6, 5, 7, 9, (3, 3), (1, 2), (1, 1), (1, 1), 3),
    (1, 32, 6, 5, 16, (3, 1), (1, 1), (1, 0), (1, 1), 2),
    (2, 4, 6, 6, 4, (3, 3), (1, 1), (1, 1), (1, 1), 4),
]
# More weights than 2^21 and few pixels: the CPU multiplies copied windows.
LARGE_FILTER = (2, 480, 5, 6, 490, (3, 3), (1, 2), (1, 1), (2, 1), 1)
every_case = pytest.mark.parametrize("case", CASES)
every_padding = pytest.mark.parametrize("value", [-1, 0], ids=["minus_one", "zero"])
SA, SW = torch.tensor(0.9), torch.tensor(0.031)


def make(case, value, dtype=torch.float32):
    """(x, int8 weight, bias, the operator's geometry)."""
    n, c, h, w, o, kernel, stride, padding, dilation, groups = case
    g = torch.Generator().manual_seed(n + 31 * c + 977 * o)
    x = torch.randn(n, c, h, w, generator=g).to(dtype)
    x.view(-1)[::7] = -0.0
    weight = torch.randint(-127, 128, (o, c // groups, *kernel), generator=g).to(torch.int8)
    weight[weight == 0] = 1
    moves = {"stride": stride, "padding": padding, "dilation": dilation, "groups": groups, "padding_value": value}
    return x, weight, 0.3 * torch.randn(c, generator=g), moves


def anchor():
    return torch.empty(0, requires_grad=True)


@every_padding
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@every_case
def test_forward_equals_the_formula(operators, case, dtype, value):
    x, weight, bias, moves = make(case, value, dtype)
    for b in (None, bias):
        y = operators.binary_conv2d(x, weight, SA, SW, b, **moves)
        assert y.dtype == dtype
        assert torch.equal(y, formulas.binary_conv_forward(x, weight, SA, SW, b, **moves))


def test_padding_is_minus_one_unless_told_otherwise(operators):
    x, weight, bias, moves = make(CASES[1], -1)
    wanted = operators.binary_conv2d(x, weight, SA, SW, bias, **moves)
    del moves["padding_value"]
    assert torch.equal(operators.binary_conv2d(x, weight, SA, SW, bias, **moves), wanted)


@every_padding
@every_case
def test_every_form_gives_the_same_numbers(operators, case, value):
    x, weight, bias, moves = make(case, value)
    o, c, kh, kw = weight.shape
    wanted = operators.binary_conv2d(x, weight, SA, SW, bias, **moves)
    flat = operators.pack_signs(weight.flatten(1))
    forms = [weight.float(), weight.bfloat16(), flat]
    if c % 8 == 0:
        forms.append(flat.view(o, kh, kw, c // 8))
    strided = weight.contiguous(memory_format=torch.channels_last)
    for form in [*forms, strided]:
        assert torch.equal(operators.binary_conv2d(x, form, SA, SW, bias, **moves, kernel_size=(kh, kw)), wanted)
    panels = operators.binary_conv2d_prepack(flat, x.shape[1], (kh, kw), moves["groups"], value)
    packed = {"kernel_size": (kh, kw), "panels": panels}
    assert torch.equal(operators.binary_conv2d(x, flat, SA, SW, bias, **moves, **packed), wanted)
    stale = operators.binary_conv2d_prepack(~flat, x.shape[1], (kh, kw), moves["groups"], value)
    assert torch.equal(operators.binary_conv2d(x, weight, SA, SW, bias, **moves, panels=stale), wanted)


@every_padding
@every_case
def test_channels_last_is_kept_and_equal(operators, case, value):
    x, weight, bias, moves = make(case, value)
    wanted = operators.binary_conv2d(x, weight, SA, SW, bias, **moves)
    last = x.contiguous(memory_format=torch.channels_last)
    y = operators.binary_conv2d(last, weight, SA, SW, bias, **moves)
    assert torch.equal(y, wanted)
    assert y.is_contiguous(memory_format=torch.channels_last)
    strided = torch.stack([x, x], dim=-1)[..., 0]
    assert torch.equal(operators.binary_conv2d(strided, weight, SA, SW, bias, **moves), wanted)
    sliced = torch.cat([x, x], dim=1)[:, : x.shape[1]]
    assert torch.equal(operators.binary_conv2d(sliced, weight, SA, SW, bias, **moves), wanted)


@every_padding
@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last], ids=["nchw", "nhwc"])
@pytest.mark.parametrize("case", [*CASES, LARGE_FILTER])
def test_backward_equals_the_formula(operators, case, layout, value):
    for dtype in (torch.float32, torch.bfloat16):
        x, weight, bias, moves = make(case, value, dtype)
        x = x.contiguous(memory_format=layout)
        latent = weight.float() / 100
        leaves = [t.clone().requires_grad_() for t in (x, latent, SA, bias)]
        y = operators.binary_conv2d(leaves[0], leaves[1], leaves[2], SW, leaves[3], **moves)
        g = torch.randn(y.shape, generator=torch.Generator().manual_seed(5)).to(dtype)
        y.backward(g)
        wanted = formulas.binary_conv_backward(x, latent, SA, SW, bias, g, **moves)
        assert leaves[0].grad.dtype == dtype
        formulas.close(leaves[0].grad, wanted[0], dtype)
        formulas.close(leaves[1].grad, wanted[1])
        formulas.close(leaves[2].grad, wanted[2], size=wanted[4])
        formulas.close(leaves[3].grad, wanted[3])


@every_padding
@every_case
def test_an_int8_weight_gets_an_integer_gradient(operators, case, value):
    x, signs, bias, moves = make(case, value)
    delivered = []
    for grad_dtype in (torch.int8, torch.float32):
        weight = signs.clone()
        weight.grad_dtype = grad_dtype
        y = operators.binary_conv2d(x, weight, SA, SW, bias, **moves, anchor=anchor())
        g = torch.randn(y.shape, generator=torch.Generator().manual_seed(5))
        y.backward(g)
        assert weight.grad.dtype == grad_dtype
        delivered.append(weight.grad)
    formulas.close(delivered[1], formulas.binary_conv_backward(x, signs, SA, SW, bias, g, **moves)[1])
    assert torch.equal(delivered[0], operators.int8_grad(delivered[1]))


def test_zeros_have_sign_zero_in_the_backward_only(operators):
    x = torch.tensor([0.0, 1.0]).view(1, 2, 1, 1).requires_grad_()
    weight = torch.tensor([0.0, -2.0]).view(1, 2, 1, 1).requires_grad_()
    y = operators.binary_conv2d(x, weight, torch.tensor(1.0), torch.tensor(1.0))
    assert y.item() == 0  # bit(0) = 1, so +1 - 1
    y.sum().backward()
    assert x.grad.flatten().tolist() == [0.0, -1.0]
    assert weight.grad.flatten().tolist() == [0.0, 1.0]


def test_a_packed_weight_hands_gradients_through(operators):
    x, weight, _, moves = make(CASES[7], -1)
    x1, x2 = x.clone().requires_grad_(), x.clone().requires_grad_()
    operators.binary_conv2d(x1, weight, SA, SW, **moves).sum().backward()
    flat = operators.pack_signs(weight.flatten(1))
    operators.binary_conv2d(x2, flat, SA, SW, **moves, kernel_size=(3, 3)).sum().backward()
    assert torch.equal(x1.grad, x2.grad)


def test_refusals(operators):
    x, weight, bias, moves = make(CASES[1], -1)
    call = operators.binary_conv2d
    flat = operators.pack_signs(weight.flatten(1))
    with pytest.raises(
        ValueError, match=r"binary_conv2d: x: expected \[batch, channels, height, width\], got \[3, 9, 7\]"
    ):
        call(x[0], weight, SA, SW)
    with pytest.raises(ValueError, match=r"x is \[2, 3, 9, 7\], the weight is \[5, 4, 3, 3\]"):
        call(x, torch.ones(5, 4, 3, 3), SA, SW)
    with pytest.raises(ValueError, match="four axes"):
        call(x, torch.ones(5, 3, 3), SA, SW)
    for dtype, name in ((torch.float64, "Double"), (torch.int8, "Char"), (torch.uint8, "Byte")):
        with pytest.raises(TypeError, match=f"x: expected float32, bfloat16 or float16, got {name}"):
            call(x.to(dtype), weight, SA, SW)
    with pytest.raises(TypeError, match=r"the weight: expected .*, got Short"):
        call(x, weight.short(), SA, SW)
    for name, bad in (("stride", 0), ("padding", -1), ("dilation", 0)):
        with pytest.raises(ValueError, match=f"{name}: expected two numbers from"):
            call(x, weight, SA, SW, **(moves | {name: [1, bad]}))
    for value in (1, -2):
        with pytest.raises(ValueError, match=f"padding_value: expected -1 or 0, got {value}"):
            call(x, weight, SA, SW, padding_value=value)
    for groups in (0, -1, 2):
        with pytest.raises(ValueError, match=f"{groups} groups do not divide its channels"):
            call(x, weight, SA, SW, groups=groups)
    with pytest.raises(ValueError, match="3 groups do not divide its outputs"):
        call(x, weight[:, :1], SA, SW, groups=3)
    with pytest.raises(ValueError, match="in 3 groups"):
        call(x, weight, SA, SW, groups=3)
    with pytest.raises(ValueError, match="does not fit an image"):
        call(x, torch.ones(5, 3, 3, 8), SA, SW)
    with pytest.raises(ValueError, match="kernel_size is"):
        call(x, weight, SA, SW, kernel_size=(5, 5))
    with pytest.raises(ValueError, match=r"bias_a: expected \[3\], got \[2\]"):
        call(x, weight, SA, SW, bias[:2])
    with pytest.raises(ValueError, match="scale_a: expected a finite number, got nan"):
        call(x, weight, torch.tensor(float("nan")), SW)
    with pytest.raises(ValueError, match="scale_w: expected a finite number, got inf"):
        call(x, weight, SA, torch.tensor(float("inf")))
    with pytest.raises(ValueError, match="wants kernel_size"):
        call(x, flat, SA, SW)
    with pytest.raises(ValueError, match="packed signs"):
        call(x, flat, SA, SW, kernel_size=(5, 5))
    with pytest.raises(ValueError, match="at least one channel"):
        call(torch.ones(1, 0, 3, 3), torch.ones(5, 0, 3, 3), SA, SW)
    for poison in (float("nan"), float("inf"), -float("inf")):
        bad = x.clone()
        bad[1, 2, 8, 6] = poison
        for layout in (torch.contiguous_format, torch.channels_last):
            with pytest.raises(ValueError, match="NaN or infinity"):
                call(bad.contiguous(memory_format=layout), weight, SA, SW)
    with pytest.raises(ValueError, match="anchor"):
        call(x, weight, SA, SW, anchor=torch.ones(3, requires_grad=True))
    assert call(x[:0], weight, SA, SW, bias, **moves).shape == (0, 5, 9, 7)


def test_foreign_panels_are_refused(operators):
    x, weight, _, moves = make(CASES[7], -1)
    flat = operators.pack_signs(weight.flatten(1))
    call = operators.binary_conv2d
    packed = {"kernel_size": (3, 3)}
    for groups, value in ((3, 0), (1, -1)):
        other = operators.binary_conv2d_prepack(flat, 6 // 3 * groups, (3, 3), groups, value)
        with pytest.raises(ValueError, match=f"panels hold a weight of 9 .*{groups} groups, padding {value}"):
            call(x, flat, SA, SW, **moves, **packed, panels=other)
    with pytest.raises(ValueError, match="not made by a prepack operator"):
        call(x, flat, SA, SW, **moves, **packed, panels=operators.binary_prepack(flat, 18))
    with pytest.raises(TypeError, match="uint8"):
        operators.binary_conv2d_prepack(weight, 6, (3, 3), 3)
    with pytest.raises(ValueError, match="want rows of 3 bytes"):
        operators.binary_conv2d_prepack(flat[:, :2], 6, (3, 3), 3)
    with pytest.raises(ValueError, match="groups do not divide 6 channels and 9 outputs"):
        operators.binary_conv2d_prepack(flat, 6, (3, 3), 2)
    with pytest.raises(ValueError, match="padding_value: expected -1 or 0, got 1"):
        operators.binary_conv2d_prepack(flat, 6, (3, 3), 3, 1)
    with pytest.raises(ValueError, match="kernel_size is"):
        operators.binary_conv2d_prepack(flat, 6, (0, 3), 3)
