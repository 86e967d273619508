"""q8_conv2d and q4_conv2d: forward bit for bit, backward in both modes against the formula in float64."""

import formulas
import pytest
import torch
from formulas import Q4, Q8

WIDTHS = pytest.mark.parametrize("width", [Q8, Q4], ids=["q8", "q4"])
# batch, in_c, h, w, out_c, kernel, stride, padding, dilation
CASES = [
    (1, 1, 1, 1, 1, (1, 1), (1, 1), (0, 0), (1, 1)),
    (2, 3, 9, 7, 5, (3, 3), (1, 1), (1, 1), (1, 1)),
    (1, 16, 8, 8, 33, (3, 3), (2, 2), (1, 1), (1, 1)),
    (2, 7, 11, 6, 4, (2, 5), (2, 1), (1, 2), (1, 1)),
    (1, 5, 13, 12, 65, (3, 2), (1, 3), (0, 2), (3, 2)),
    (3, 64, 5, 5, 64, (1, 1), (1, 1), (0, 0), (1, 1)),
    (1, 2, 4, 4, 3, (4, 4), (1, 1), (3, 3), (1, 1)),
]


def op(operators, width):
    return operators.q8_conv2d if width is Q8 else operators.q4_conv2d


def make(case, width, dtype=torch.float32):
    n, c, h, w, o, kernel, stride, padding, dilation = case
    g = torch.Generator().manual_seed(n + 31 * c + 977 * o)
    x = torch.randn(n, c, h, w, generator=g).to(dtype)
    weight = torch.randn(o, c, *kernel, generator=g)
    bias = 0.3 * torch.randn(c, generator=g)
    scale_a = torch.tensor(0.013 if width is Q8 else 0.21)
    return x, weight, scale_a, bias, {"stride": stride, "padding": padding, "dilation": dilation}


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
        panels = operators.q8_conv2d_prepack(packed)
    else:
        flat, _ = packed_weight(operators, weight, width, flat=True)
        assert torch.equal(call(x, flat, sa, sw, bias, **geometry, kernel_size=kernel), wanted)
        panels = operators.q4_conv2d_prepack(packed, case[1], kernel)
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
@pytest.mark.parametrize("case", CASES)
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


@WIDTHS
def test_refusals(operators, width):
    x, weight, sa, bias, geometry = make(CASES[1], width)
    call = op(operators, width)
    packed, sw = packed_weight(operators, weight, width)
    with pytest.raises(ValueError, match=r"x is \[3, 9, 7\]"):
        call(x[0], weight, sa, None)
    with pytest.raises(ValueError, match=r"x is \[2, 3, 9, 7\], the weight is \[5, 4, 3, 3\]"):
        call(x, torch.ones(5, 4, 3, 3), sa, None)
    with pytest.raises(ValueError, match="four axes"):
        call(x, torch.ones(5, 3, 3), sa, None)
    with pytest.raises(TypeError, match="x is Double"):
        call(x.double(), weight, sa, None)
    with pytest.raises(TypeError, match="the weight is Short"):
        call(x, weight.short(), sa, None)
    for name, bad in (("stride", 0), ("padding", -1), ("dilation", 0)):
        with pytest.raises(ValueError, match=f"{name} is"):
            call(x, weight, sa, None, **(geometry | {name: [1, bad]}))
    with pytest.raises(ValueError, match="does not fit an image"):
        call(x, torch.ones(5, 3, 3, 8), sa, None)
    with pytest.raises(ValueError, match="kernel_size is"):
        call(x, weight, sa, None, kernel_size=(5, 5))
    with pytest.raises(ValueError, match=r"bias_a is \[2\]"):
        call(x, weight, sa, None, bias[:2])
    with pytest.raises(ValueError, match="scale_w is missing"):
        call(x, packed, sa, None, kernel_size=(3, 3))
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
    with pytest.raises(TypeError, match="the weight is Float"):
        operators.q8_conv2d_prepack(torch.ones(4, 2, 3, 3))
    with pytest.raises(ValueError, match="four axes"):
        operators.q8_conv2d_prepack(torch.ones(4, 2, dtype=torch.int8))
    with pytest.raises(ValueError, match="none empty"):
        operators.q8_conv2d_prepack(torch.ones(0, 2, 3, 3, dtype=torch.int8))
    with pytest.raises(TypeError, match="the weight is Byte"):
        operators.q4_conv2d_prepack(torch.ones(4, 9, dtype=torch.uint8), 2, (3, 3))
    with pytest.raises(ValueError, match="want rows of 9 bytes"):
        operators.q4_conv2d_prepack(torch.ones(4, 8, dtype=torch.int8), 2, (3, 3))
    with pytest.raises(ValueError, match="kernel_size is"):
        operators.q4_conv2d_prepack(torch.ones(4, 9, dtype=torch.int8), 2, (0, 3))
