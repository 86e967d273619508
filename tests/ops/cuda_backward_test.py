"""Backward passes of the layers on CUDA are the formula in float64, or the CPU's where weights are integers."""

import formulas
import pytest
import torch
from cuda_operands import (
    BF16,
    CONV,
    DTYPES,
    F32,
    GEOMETRIES,
    LINEAR,
    binary_conv_operands,
    conv_operands,
    integer_forms,
    linear_operands,
)
from formulas import Q4, Q8

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")


def gradients(operators, layer, kind, dtype, reference, x, weight, sa, sw, bias, wide=None, **keys):
    """What autograd gives for x, the weight, scale_a and bias_a on CUDA, against float64."""
    x, latent, scale, bias = (t.cuda().requires_grad_() for t in (x, weight, sa, bias))
    more = {} if layer == "binary" else {"reference_grad": reference}
    y = getattr(operators, f"{layer}_{kind}")(x, latent, scale, sw.cuda(), bias, **more, **keys)
    g = torch.randn(y.shape, generator=torch.Generator().manual_seed(3)).to(dtype)
    y.backward(g.cuda())
    return g, [t.grad.cpu() for t in (x, latent, scale, bias)]


def check_gradients(found, wanted, dtype):
    gx, gw, gs, gb = found
    wx, ww, ws, wb, size = wanted
    formulas.close(gx, wx, dtype)
    formulas.close(gw, ww)
    formulas.close(gs, ws, size=size)
    formulas.close(gb, wb)


@LINEAR
@DTYPES
@pytest.mark.parametrize("reference", [False, True])
@pytest.mark.parametrize("shape", [(1, 1, 1), (7, 31, 33), (130, 257, 70), (1, 16, 8), (33, 96, 72), (300, 176, 520)])
def test_linear_backward_is_the_formula(operators, layer, dtype, reference, shape):
    x, weight, sa, sw, bias = linear_operands(layer, *shape, dtype)
    g, found = gradients(operators, layer, "linear", dtype, reference, x, weight, sa, sw, bias)
    if layer == "binary":
        wanted = formulas.binary_backward(x, weight, sa, sw, bias, g)
    else:
        wanted = formulas.nbit_backward(x, weight, sa, sw, bias, g, Q8 if layer == "q8" else Q4, reference)
    check_gradients(found, wanted, dtype)


@CONV
@DTYPES
@pytest.mark.parametrize("reference", [False, True])
@pytest.mark.parametrize("case", range(len(GEOMETRIES)))
def test_conv_backward_is_the_formula(operators, layer, dtype, reference, case):
    x_shape, w_shape, *geometry = GEOMETRIES[case]
    x, weight, sa, sw, bias = conv_operands(layer, x_shape, w_shape, dtype)
    keys = dict(zip(("stride", "padding", "dilation"), geometry, strict=True))
    for layout in (torch.contiguous_format, torch.channels_last):
        images = x.contiguous(memory_format=layout)
        g, found = gradients(operators, layer, "conv2d", dtype, reference, images, weight, sa, sw, bias, **keys)
        width = Q8 if layer == "q8" else Q4
        check_gradients(found, formulas.conv_backward(x, weight, sa, sw, bias, g, width, reference, **keys), dtype)


@DTYPES
@pytest.mark.parametrize("value", [-1, 0])
@pytest.mark.parametrize("case", range(len(GEOMETRIES)))
def test_binary_conv_backward_is_the_formula(operators, dtype, value, case):
    x, weight, sa, sw, bias, moves = binary_conv_operands(case, dtype)
    keys = moves | {"padding_value": value}
    for layout in (torch.contiguous_format, torch.channels_last):
        images = x.contiguous(memory_format=layout)
        g, found = gradients(operators, "binary", "conv2d", dtype, False, images, weight, sa, sw, bias, **keys)
        check_gradients(found, formulas.binary_conv_backward(x, weight, sa, sw, bias, g, **keys), dtype)


@LINEAR
@pytest.mark.parametrize("shape", [(40, 65, 30), (40, 64, 32)])
def test_the_integer_gradient_of_an_anchored_weight(operators, layer, shape):
    x, weight, sa, _, _ = linear_operands(layer, *shape)
    integers, _, _, scale = integer_forms(operators, layer, weight)
    grads = {}
    for device in ("cpu", "cuda"):
        w, anchor = integers.to(device), torch.empty(0, device=device, requires_grad=True)
        y = getattr(operators, f"{layer}_linear")(x.to(device), w, sa.to(device), scale.to(device), anchor=anchor)
        (y * y).sum().backward()
        assert w.grad.dtype == torch.int8 and w.grad.device.type == device
        grads[device] = w.grad.cpu().int()
    # The float sums differ in their last bits, which may move a code across a half.
    assert (grads["cpu"] - grads["cuda"]).abs().max() <= 1
    assert (grads["cpu"] != grads["cuda"]).float().mean() < 0.01
    assert grads["cpu"].abs().max() == 127


@LINEAR
@DTYPES
@pytest.mark.parametrize("case", range(len(GEOMETRIES)))
def test_conv_backward_of_integers_is_the_cpus(operators, layer, dtype, case):
    """Weights of int8, zeros among them: codes, or numbers whose signs count."""
    x_shape, w_shape, *geometry = GEOMETRIES[case]
    x, _, sa, sw, bias = conv_operands(layer, x_shape, w_shape, dtype)
    weight = torch.randint(-8, 8, w_shape, dtype=torch.int8, generator=torch.Generator().manual_seed(case))
    op = getattr(operators, f"{layer}_conv2d_backward")
    sizes = torch.nn.functional.conv2d(x.float(), weight.float(), None, *geometry).shape
    g = torch.randn(sizes, generator=torch.Generator().manual_seed(3)).to(dtype)
    keys = dict(zip(("stride", "padding", "dilation"), geometry, strict=True))
    keys |= {"groups": 1, "kernel_size": w_shape[2:]}
    keys |= {"padding_value": -1} if layer == "binary" else {"eps": 1e-5, "reference_grad": False}
    for layout in (torch.contiguous_format, torch.channels_last):
        arguments = [g, x.contiguous(memory_format=layout), weight, sa, sw, bias]
        wanted = op(*arguments, **keys, weight_grad=F32)
        found = op(*(t.cuda() for t in arguments), **keys, weight_grad=F32)
        for i in (0, 1, 3):  # what the scale's gradient adds up, the formula's tests know
            assert found[i].dtype == wanted[i].dtype
            formulas.close(found[i].cpu(), wanted[i], dtype)
        codes = op(*(t.cuda() for t in arguments), **keys, weight_grad=torch.int8)[1]
        assert torch.equal(codes, operators.int8_grad(found[1]))


@pytest.mark.skipif(
    torch.cuda.is_available() and torch.cuda.get_device_capability() != (9, 0), reason="sm_90 opens codes in registers"
)
@pytest.mark.parametrize("dtype", [F32, BF16], ids=["f32", "bf16"])
def test_products_open_codes_and_finish_gradients_where_rows_fit(operators, dtype):
    """The products that ran, by the names of their kernels."""
    from torch.profiler import ProfilerActivity, profile

    g, x = torch.randn(64, 32, dtype=dtype).cuda(), torch.randn(64, 48, dtype=dtype).cuda()
    weight, one = torch.ones(32, 48, dtype=torch.int8).cuda(), torch.ones(()).cuda()
    images, filters = torch.randn(2, 16, 8, 8, dtype=dtype).cuda(), torch.ones(8, 16, 3, 3, dtype=torch.int8).cuda()
    sent = torch.randn(2, 8, 8, 8, dtype=dtype).cuda()
    keys = {"stride": 1, "padding": 1, "dilation": 1, "groups": 1, "padding_value": -1, "kernel_size": 3}
    with profile(activities=[ProfilerActivity.CUDA]) as found:
        operators.binary_linear_backward(g, x, weight, one, one, None, weight_grad=torch.int8)
        operators.binary_conv2d_backward(sent, images, filters, one, one, None, **keys, weight_grad=torch.int8)
        torch.cuda.synchronize()
    ran = [event.name for event in found.events()]
    assert sum("mixed_kernel" in name for name in ran) == 4, ran
    assert not any(word in name for name in ran for word in ("gemm", "nvjet", "cudnn", "xmma")), ran
    # The products make the activations' gradients; those of float32 come in parts, which a pass behind them adds.
    assert any("::input_pass<" in name for name in ran) == (dtype == F32), ran
