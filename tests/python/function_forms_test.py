"""BITorch Engine's functions: a call as the operator, forward and backward by hand, nothing saved in evaluation."""

import pytest
import torch

from bie.nn import BinaryLinear
from bitorch_engine.layers.qconv.nbit.cutlass import Q4Conv2dCutlassForward
from bitorch_engine.layers.qlinear.binary.cpp import BinaryLinearForward as PlainForward
from bitorch_engine.layers.qlinear.binary.cuda import BinaryLinearCuda
from bitorch_engine.layers.qlinear.binary.cuda import BinaryLinearForward as CudaForward
from bitorch_engine.layers.qlinear.binary.cutlass import BinaryLinearForward
from bitorch_engine.layers.qlinear.nbit.cutlass import Q4LinearFunction, Q8LinearFunction


def test_hooks_lose_no_gradient_of_a_function():
    layer, x = BinaryLinear(9, 4), torch.randn(3, 9)
    layer(x)
    codes, args = layer.weight.detach().clone(), (layer.scale_a.detach(), layer.scale_w)
    with torch.autograd.graph.saved_tensors_hooks(torch.clone, lambda tensor: tensor):
        y = BinaryLinearForward.apply(x, codes, *args, 3, True)
    y.square().sum().backward()
    assert codes.grad is not None


X, W = torch.randn(5, 37), torch.randn(13, 37)


SA, SW, EPS = torch.tensor(0.8), torch.tensor(0.3), torch.tensor(1e-5)


IMAGE, KERNEL = torch.randn(2, 3, 7, 6), torch.randn(4, 3, 3, 3)


def function_cases():
    codes8 = torch.ops.bie.q8_quantize(W)[0]
    codes4 = torch.ops.bie.q4_quantize(W)[0]
    ints = torch.where(W >= 0, 1, -1).to(torch.int8)
    packed = torch.ops.bie.pack_signs(W)
    flat = BinaryLinearCuda.w_pack(torch.randn(32, 64))
    wide = torch.randn(5, 64)
    conv4 = torch.ops.bie.q4_quantize(KERNEL)[0]
    return {
        "binary float": (BinaryLinearForward, (X, W, SA, SW, 3, True)),
        "binary int8": (BinaryLinearForward, (X, ints, SA, SW, 3, True)),
        "binary packed": (BinaryLinearForward, (X, packed, SA, SW, 3, True)),
        "cuda float": (CudaForward, (X, W, 3, SA, SW, True)),
        "cuda int8": (CudaForward, (X, ints, 2, SA, SW, True)),
        "cuda flat": (CudaForward, (wide, flat, 3, SA, SW, True)),
        "cpp": (PlainForward, (X, W, 5, 13, 37)),
        "q8 float": (Q8LinearFunction, (X, W, SA, SW, EPS, True)),
        "q8 int8": (Q8LinearFunction, (X, codes8, SA, SW, EPS, True)),
        "q4 float": (Q4LinearFunction, (X, W, SA, SW, EPS, True)),
        "q4 int8": (Q4LinearFunction, (X, codes4, SA, SW, EPS, True)),
        "q4 packed": (Q4LinearFunction, (X, torch.ops.bie.pack_int4(codes4), SA, SW, EPS, True)),
        "conv float": (Q4Conv2dCutlassForward, (IMAGE, KERNEL, SA, SW, True, 3, 2, 1, 1)),
        "conv int8": (Q4Conv2dCutlassForward, (IMAGE, conv4, SA, SW, True, 3, 1, 0, 2)),
    }


@pytest.mark.parametrize("name", function_cases())
def test_functions(name):
    function, args = function_cases()[name]
    assert issubclass(function, torch.autograd.Function)
    leaves = [
        arg.clone().requires_grad_() if isinstance(arg, torch.Tensor) and arg.is_floating_point() else arg
        for arg in args
    ]
    weight = leaves[1].clone() if not leaves[1].is_floating_point() else leaves[1]
    leaves[1] = weight
    y = function.apply(*leaves)
    g = torch.randn_like(y)
    y.backward(g)
    assert leaves[0].grad is not None
    assert (weight.grad is not None) == (weight.dtype != torch.uint8 and not name.endswith("packed"))

    class Context:
        pass

    context = Context()
    assert torch.equal(function.forward(context, *args), y)
    grads = function.backward(context, g)
    assert len(grads) == len(args)
    for leaf, grad in zip(leaves, grads, strict=True):
        if isinstance(leaf, torch.Tensor) and leaf.requires_grad and leaf.grad is not None:
            assert torch.equal(leaf.grad, grad)
        else:
            assert grad is None


@pytest.mark.parametrize("name", [n for n in function_cases() if n != "cpp"])
def test_functions_save_nothing_in_evaluation(name):
    function, args = function_cases()[name]
    place = next(i for i, arg in enumerate(args) if arg is True)
    args = list(args)
    args[0] = args[0].clone().requires_grad_()
    args[place] = False
    y = function.apply(*args)
    assert not y.requires_grad
    args[place] = True
    assert torch.equal(function.apply(*args), y)


def test_a_flat_weight_of_no_layout_is_refused():
    with pytest.raises(AssertionError, match="no layout"):
        CudaForward.apply(X, torch.zeros(7, dtype=torch.uint8), 3, SA, SW, False)
