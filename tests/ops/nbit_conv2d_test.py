"""q8_conv2d and q4_conv2d: forward bit for bit, backward in both modes against the formula in float64."""

import formulas
import pytest
import torch
from formulas import Q4, Q8

WIDTHS = pytest.mark.parametrize("width", [Q8, Q4], ids=["q8", "q4"])
# batch, in_c, h, w, out_c, kernel, stride, padding, dilation, groups
CASES = [
    (1, 1, 1, 1, 1, (1, 1), (1, 1), (0, 0), (1, 1), 1),
    (2, 3, 9, 7, 5, (3, 3), (1, 1), (1, 1), (1, 1), 1),
    (1, 16, 8, 8, 33, (3, 3), (2, 2), (1, 1), (1, 1), 1),
    (2, 7, 11, 6, 4, (2, 5), (2, 1), (1, 2), (1, 1), 1),
    (1, 5, 13, 12, 65, (3, 2), (1, 3), (0, 2), (3, 2), 1),
    (3, 64, 5, 5, 64, (1, 1), (1, 1), (0, 0), (1, 1), 1),
    (1, 2, 4, 4, 3, (4, 4), (1, 1), (3, 3), (1, 1), 1),
    (2, 6, 7, 5, 9, (3, 2), (1, 2), (1, 0), (1, 1), 3),
    (1, 12, 5, 6, 4, (1, 3), (1, 1), (0, 1), (1, 2), 2),
    (2, 5, 6, 6, 10, (3, 3), (2, 1), (1, 1), (1, 1), 5),
]
# More weights than 2^21 and few pixels: the CPU multiplies copied windows.
LARGE_FILTER = (2, 480, 5, 6, 490, (3, 3), (1, 2), (1, 1), (2, 1), 1)


def op(operators, width):
    return operators.q8_conv2d if width is Q8 else operators.q4_conv2d


def make(case, width, dtype=torch.float32):
    n, c, h, w, o, kernel, stride, padding, dilation, groups = case
    g = torch.Generator().manual_seed(n + 31 * c + 977 * o)
    x = torch.randn(n, c, h, w, generator=g).to(dtype)
    weight = torch.randn(o, c // groups, *kernel, generator=g)
    bias = 0.3 * torch.randn(c, generator=g)
    scale_a = torch.tensor(0.013 if width is Q8 else 0.21)
    return x, weight, scale_a, bias, {"stride": stride, "padding": padding, "dilation": dilation, "groups": groups}


def packed_weight(operators, weight, width, flat=False):
    if width is Q8:
        return operators.q8_quantize(weight)
    codes, scale = operators.q4_quantize(weight)
    packed = operators.pack_int4(codes.flatten(1))
    o, c, kh, kw = weight.shape
    return (packed if flat or c % 2 else packed.view(o, kh, kw, c // 2)), scale


@WIDTHS
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("case", CASES)
def test_forward_equals_the_formula(operators, case, dtype, width):
    x, weight, sa, bias, geometry = make(case, width, dtype)
    for b in (None, bias):
        y = op(operators, width)(x, weight, sa, None, b, **geometry)
        assert y.dtype == dtype
        assert torch.equal(y, formulas.conv_forward(x, weight, sa, None, b, width, **geometry))


@WIDTHS
@pytest.mark.parametrize("case", CASES)
def test_every_form_gives_the_same_numbers(operators, case, width):
    x, weight, sa, bias, geometry = make(case, width)
    kernel = case[5]
    call = op(operators, width)
    packed, sw = packed_weight(operators, weight, width)
    wanted = call(x, weight, sa, sw, bias, **geometry)
    assert torch.equal(call(x, packed, sa, sw, bias, **geometry, kernel_size=kernel), wanted)
    if width is Q8:
        panels = operators.q8_conv2d_prepack(packed, case[9])
    else:
        flat, _ = packed_weight(operators, weight, width, flat=True)
        assert torch.equal(call(x, flat, sa, sw, bias, **geometry, kernel_size=kernel), wanted)
        panels = operators.q4_conv2d_prepack(packed, case[1], kernel, case[9])
    assert torch.equal(call(x, packed, sa, sw, bias, **geometry, kernel_size=kernel, panels=panels), wanted)
    codes, _ = (operators.q8_quantize if width is Q8 else operators.q4_quantize)(x + bias.view(1, -1, 1, 1), sa)
    assert torch.equal(call(codes, weight, sa, sw, **geometry), wanted)


@WIDTHS
@pytest.mark.parametrize("case", CASES)
def test_channels_last_is_kept_and_equal(operators, case, width):
    x, weight, sa, bias, geometry = make(case, width)
    wanted = op(operators, width)(x, weight, sa, None, bias, **geometry)
    last = x.contiguous(memory_format=torch.channels_last)
    y = op(operators, width)(last, weight, sa, None, bias, **geometry)
    assert torch.equal(y, wanted)
    assert y.is_contiguous(memory_format=torch.channels_last)
    strided = torch.stack([x, x], dim=-1)[..., 0]
    assert torch.equal(op(operators, width)(strided, weight, sa, None, bias, **geometry), wanted)
    sliced = torch.cat([x, x], dim=1)[:, : x.shape[1]]
    assert torch.equal(op(operators, width)(sliced, weight, sa, None, bias, **geometry), wanted)


@WIDTHS
@pytest.mark.parametrize("reference", [False, True], ids=["exact", "reference"])
@pytest.mark.parametrize("case", [*CASES, LARGE_FILTER])
def test_backward_equals_the_formula(operators, case, reference, width):
    for dtype in (torch.float32, torch.bfloat16):
        x, weight, sa, bias, geometry = make(case, width, dtype)
        for sw in (None, torch.tensor(0.09)):
            leaves = [t.clone().requires_grad_() for t in (x, weight, sa, bias)]
            y = op(operators, width)(
                leaves[0], leaves[1], leaves[2], sw, leaves[3], **geometry, reference_grad=reference
            )
            g = torch.randn(y.shape, generator=torch.Generator().manual_seed(5)).to(dtype)
            y.backward(g)
            wanted = formulas.conv_backward(x, weight, sa, sw, bias, g, width, reference, **geometry)
            formulas.close(leaves[0].grad, wanted[0], dtype)
            formulas.close(leaves[1].grad, wanted[1])
            formulas.close(leaves[2].grad, wanted[2], size=wanted[4])
            formulas.close(leaves[3].grad, wanted[3])


def anchor():
    return torch.empty(0, requires_grad=True)


def plain_case(case, width):
    """(x, weight codes one a byte, scale_a, scale_w, bias, geometry)."""
    x, weight, sa, bias, geometry = make(case, width)
    g = torch.Generator().manual_seed(sum(weight.shape))
    codes = torch.randint(width.lo, width.hi + 1, weight.shape, generator=g).to(torch.int8)
    return x, codes, sa, torch.tensor(0.0625), bias, geometry


@WIDTHS
@pytest.mark.parametrize("case", CASES)
def test_plain_codes_give_the_formula(operators, case, width):
    x, codes, sa, sw, bias, geometry = plain_case(case, width)
    call = op(operators, width)
    wanted = formulas.conv_forward(x, codes * sw, sa, sw, bias, width, **geometry)
    assert torch.equal(call(x, codes, sa, sw, bias, **geometry, kernel_size=case[5]), wanted)
    assert torch.equal(call(x, codes, sa, sw, bias, **geometry, anchor=anchor()), wanted)
    strided = codes.contiguous(memory_format=torch.channels_last)
    assert torch.equal(call(x, strided, sa, sw, bias, **geometry, anchor=anchor()), wanted)


@WIDTHS
@pytest.mark.parametrize("reference", [False, True], ids=["exact", "reference"])
@pytest.mark.parametrize("case", CASES)
def test_backward_of_plain_codes_equals_the_formula(operators, case, reference, width):
    x, codes, sa, sw, bias, geometry = plain_case(case, width)
    leaves = [t.clone().requires_grad_() for t in (x, sa, bias)]
    delivered = []
    for grad_dtype in (torch.int8, torch.float32):
        weight = codes.clone()
        weight.grad_dtype = grad_dtype
        for leaf in leaves:
            leaf.grad = None
        call = op(operators, width)
        y = call(leaves[0], weight, leaves[1], sw, leaves[2], **geometry, anchor=anchor(), reference_grad=reference)
        g = torch.randn(y.shape, generator=torch.Generator().manual_seed(5))
        y.backward(g)
        assert weight.grad.dtype == grad_dtype
        delivered.append(weight.grad)
    wanted = formulas.conv_backward(x, codes * sw, sa, sw, bias, g, width, reference, **geometry)
    formulas.close(leaves[0].grad, wanted[0])
    formulas.close(leaves[1].grad, wanted[2], size=wanted[4])
    formulas.close(leaves[2].grad, wanted[3])
    formulas.close(delivered[1], wanted[1])
    assert torch.equal(delivered[0], operators.int8_grad(delivered[1]))


def test_the_anchor_and_the_kernel_size_tell_plain_from_packed(operators):
    """[4, 4, 3, 2] over 4 channels is a plain 3x2 kernel or a packed 4x3 one."""
    g = torch.Generator().manual_seed(2)
    x, sa, sw = torch.randn(1, 4, 6, 6, generator=g), torch.tensor(0.2), torch.tensor(0.1)
    codes = torch.randint(-8, 8, (4, 4, 3, 2), generator=g).to(torch.int8)
    call = operators.q4_conv2d
    plain = formulas.conv_forward(x, codes * sw, sa, sw, None, Q4)
    unpacked = operators.unpack_int4(codes.flatten(1), 48).view(4, 4, 4, 3)
    packed = formulas.conv_forward(x, unpacked * sw, sa, sw, None, Q4)
    assert torch.equal(call(x, codes, sa, sw, anchor=anchor()), plain)
    assert torch.equal(call(x, codes, sa, sw, kernel_size=(3, 2)), plain)
    assert torch.equal(call(x, codes, sa, sw, kernel_size=(4, 3)), packed)
    assert torch.equal(call(x, codes, sa, sw), packed)


def test_refused_plain_codes(operators):
    x, codes, sa, sw, bias, geometry = plain_case(CASES[3], Q4)
    call = operators.q4_conv2d
    for value in (8, -9, 127, -128):
        bad = codes.clone()
        bad[-1, -1, -1, -1] = value
        for a in (None, anchor()):
            with pytest.raises(ValueError, match=r"q4_conv2d: the weight holds codes outside \[-8, 7\]"):
                call(x, bad, sa, sw, bias, **geometry, anchor=a)
    flat = operators.pack_int4(codes.flatten(1))
    with pytest.raises(ValueError, match="a packed int4 weight cannot be trained"):
        call(x, flat, sa, sw, bias, **geometry, kernel_size=CASES[3][5], anchor=anchor())
    label = torch.zeros(5, 3, 3, 8, dtype=torch.int8)
    with pytest.raises(ValueError, match="a packed int4 weight cannot be trained"):
        call(torch.ones(1, 16, 5, 5), label, sa, sw, anchor=anchor())
    with pytest.raises(ValueError, match=r"the weight is \[4, 6, 2, 5\]$"):
        call(x, codes[:, :6], sa, sw, anchor=anchor())
    with pytest.raises(ValueError, match=r"the weight is \[4, 6, 2, 5\] \(packed int4\)"):
        call(x, codes[:, :6], sa, sw)
    with pytest.raises(ValueError, match="kernel_size is"):
        call(x, codes, sa, sw, kernel_size=(5, 2), anchor=anchor())
    for width in (Q8, Q4):
        with pytest.raises(ValueError, match="scale_w: expected one element, got none"):
            op(operators, width)(x, codes, sa, None, anchor=anchor())


@WIDTHS
def test_refusals(operators, width):
    x, weight, sa, bias, geometry = make(CASES[1], width)
    call = op(operators, width)
    packed, sw = packed_weight(operators, weight, width)
    with pytest.raises(ValueError, match=r"x: expected \[batch, channels, height, width\], got \[3, 9, 7\]"):
        call(x[0], weight, sa, None)
    with pytest.raises(ValueError, match=r"x is \[2, 3, 9, 7\], the weight is \[5, 4, 3, 3\]"):
        call(x, torch.ones(5, 4, 3, 3), sa, None)
    with pytest.raises(ValueError, match="four axes"):
        call(x, torch.ones(5, 3, 3), sa, None)
    with pytest.raises(TypeError, match=r"x: expected .*, got Double"):
        call(x.double(), weight, sa, None)
    with pytest.raises(TypeError, match=r"the weight: expected .*, got Short"):
        call(x, weight.short(), sa, None)
    for name, bad in (("stride", 0), ("padding", -1), ("dilation", 0)):
        with pytest.raises(ValueError, match=f"{name}: expected two numbers from"):
            call(x, weight, sa, None, **(geometry | {name: [1, bad]}))
    with pytest.raises(ValueError, match="does not fit an image"):
        call(x, torch.ones(5, 3, 3, 8), sa, None)
    with pytest.raises(ValueError, match="kernel_size is"):
        call(x, weight, sa, None, kernel_size=(5, 5))
    with pytest.raises(ValueError, match=r"bias_a: expected .*, got \[2\]"):
        call(x, weight, sa, None, bias[:2])
    with pytest.raises(ValueError, match="scale_w: expected one element, got none"):
        call(x, packed, sa, None, kernel_size=(3, 3))
    for groups, sentence in ((0, "0 groups do not divide"), (2, "2 groups do not divide"), (3, r"the weight is \[5")):
        with pytest.raises(ValueError, match=sentence):
            call(x, weight, sa, None, groups=groups)
    with pytest.raises(ValueError, match="at least one channel"):
        call(torch.ones(1, 0, 3, 3), torch.ones(5, 0, 3, 3), sa, None)
    bad = x.clone()
    bad[1, 2, 8, 6] = float("nan")
    with pytest.raises(ValueError, match="NaN or infinity"):
        call(bad, weight, sa, None)
    with pytest.raises(ValueError, match="not initialised"):
        call(torch.ones(1, 3, 3, 3, dtype=torch.int8), weight, torch.tensor(0.0), None)
    assert call(x[:0], weight, sa, None, bias, **geometry).shape == (0, 5, 9, 7)
    if width is Q4:
        with pytest.raises(ValueError, match=r"codes outside \[-8, 7\]"):
            call(torch.full((1, 3, 3, 3), 8, dtype=torch.int8), weight, sa, None)
        with pytest.raises(ValueError, match="wants kernel_size"):
            call(x, packed, sa, sw)
        with pytest.raises(ValueError, match="packed int4"):
            call(x, packed, sa, sw, kernel_size=(5, 5))


@WIDTHS
def test_panels_of_another_kernel_shape_are_refused(operators, width):
    sa, sw = torch.tensor(0.1), torch.tensor(0.1)
    if width is Q8:
        panels = operators.q8_conv2d_prepack(torch.ones(4, 9, 2, 1, dtype=torch.int8))
        other = torch.ones(4, 2, 3, 3, dtype=torch.int8)
    else:
        panels = operators.q4_conv2d_prepack(torch.ones(4, 9, dtype=torch.int8), 9, (2, 1))
        other = torch.ones(4, 3, 3, 1, dtype=torch.int8)
    with pytest.raises(ValueError, match="panels hold a weight"):
        op(operators, width)(torch.ones(1, 2, 5, 5), other, sa, sw, kernel_size=(3, 3), panels=panels)


def test_prepack_refusals(operators):
    with pytest.raises(TypeError, match=r"the weight: expected .*, got Float"):
        operators.q8_conv2d_prepack(torch.ones(4, 2, 3, 3))
    with pytest.raises(ValueError, match="four axes"):
        operators.q8_conv2d_prepack(torch.ones(4, 2, dtype=torch.int8))
    with pytest.raises(ValueError, match="none empty"):
        operators.q8_conv2d_prepack(torch.ones(0, 2, 3, 3, dtype=torch.int8))
    for groups in (0, 3):
        with pytest.raises(ValueError, match=f"{groups} groups do not divide 4 outputs"):
            operators.q8_conv2d_prepack(torch.ones(4, 2, 3, 3, dtype=torch.int8), groups)
        with pytest.raises(ValueError, match=f"{groups} groups do not divide"):
            operators.q4_conv2d_prepack(torch.ones(4, 9, dtype=torch.int8), 2, (3, 3), groups)
    with pytest.raises(TypeError, match=r"the weight: expected .*, got Byte"):
        operators.q4_conv2d_prepack(torch.ones(4, 9, dtype=torch.uint8), 2, (3, 3))
    with pytest.raises(ValueError, match="want rows of 9 bytes"):
        operators.q4_conv2d_prepack(torch.ones(4, 8, dtype=torch.int8), 2, (3, 3))
    with pytest.raises(ValueError, match="kernel_size is"):
        operators.q4_conv2d_prepack(torch.ones(4, 9, dtype=torch.int8), 2, (0, 3))
