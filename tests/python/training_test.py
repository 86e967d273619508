"""Gradients of every kind against the formulas, and every way in which torch users train."""

import sys
import threading

import formulas
import pytest
import torch
from kinds import CONV, INTEGER, KINDS, along, binary_options
from torch import nn
from torch.utils.checkpoint import checkpoint

from bie.nn import BinaryLinear, Q4Linear, Q8Linear
from bie.optim import DiodeMix, integer_parameters, wide_gradients
from bitorch_engine.layers.qconv.nbit.cutlass import Q4Conv2dCutlassForward
from bitorch_engine.layers.qlinear.binary.cpp import BinaryLinearForward as PlainForward
from bitorch_engine.layers.qlinear.binary.cuda import BinaryLinearCuda
from bitorch_engine.layers.qlinear.binary.cuda import BinaryLinearForward as CudaForward
from bitorch_engine.layers.qlinear.binary.cutlass import BinaryLinearForward
from bitorch_engine.layers.qlinear.nbit.cutlass import Q4LinearFunction, Q8LinearFunction

every_kind = pytest.mark.parametrize("kind", KINDS, ids=repr)
every_integer = pytest.mark.parametrize("kind", INTEGER, ids=repr)
ONE = torch.tensor(1.0)


def wanted_gradients(layer, x, g):
    """(x, weight, scale_a, bias_a, size of scale_a's terms) by the formulas, for layers without an output bias."""
    weight, scale_w, reference = layer.weight.detach(), layer.scale_w, layer.grad_mode == "reference"
    if layer.channel_scale is not None:
        g = g * along(layer.channel_scale, weight)
    if layer._bits == 1:
        backward = formulas.binary_conv_backward if weight.dim() == 4 else formulas.binary_backward
        options = binary_options(layer)
        if layer.scale_a is None:
            return backward(x, weight, ONE, ONE, None, g, **options)
        if weight.is_floating_point():
            scale_w = weight.double().abs().mean().float()
        return backward(x, weight, layer.scale_a.detach(), scale_w, layer.bias_a.detach(), g, **options)
    width = formulas.Q8 if layer._bits == 8 else formulas.Q4
    codes = not weight.is_floating_point()
    scales = (layer.scale_a.detach(), scale_w if codes or layer._bits == 4 else None, layer.bias_a.detach())
    if codes:
        weight = weight.float() * scale_w
    if weight.dim() == 4:
        moves = CONV | {"groups": layer.groups}
        return formulas.conv_backward(x, weight, *scales, g, width, reference, **moves)
    return formulas.nbit_backward(x, weight, *scales, g, width, reference)


def weight_gradient(layer, grad):
    return grad if layer.weight.is_floating_point() else formulas.int8_grad(grad).double()


@every_kind
@pytest.mark.parametrize("mode", ["exact", "reference"])
def test_every_gradient_is_the_formula(kind, mode):
    layer, x = kind.trained(), kind.batch(1).requires_grad_()
    layer.grad_mode = mode
    y = layer(x)
    g = torch.randn(y.shape, generator=torch.Generator().manual_seed(7))
    y.backward(g)
    grad_x, grad_w, grad_scale, grad_bias, size = wanted_gradients(layer, x.detach(), g)
    formulas.close(x.grad, grad_x)
    if layer.scale_a is not None:
        formulas.close(layer.scale_a.grad, grad_scale, size=size)
        formulas.close(layer.bias_a.grad, grad_bias)
        assert layer.scale_w.grad is None
    if layer.weight.is_floating_point():
        formulas.close(layer.weight.grad, grad_w)
    else:
        assert layer.weight.grad.dtype == torch.int8
        assert int((layer.weight.grad.double() - formulas.int8_grad(grad_w)).abs().max()) <= 1


@every_integer
@pytest.mark.parametrize("reentrant", [False, True])
def test_checkpointed(kind, reentrant):
    layer, x = kind.trained(), kind.batch(1).requires_grad_()
    layer(x).square().sum().backward()
    wanted = layer.weight.grad.clone()
    layer.weight.grad = None
    checkpoint(layer, x, use_reentrant=reentrant).square().sum().backward()
    assert torch.equal(layer.weight.grad, wanted)


def saved(pack, unpack):
    return lambda: torch.autograd.graph.saved_tensors_hooks(pack, unpack)


HOOKS = {
    "clone": saved(torch.clone, lambda tensor: tensor),
    "both": saved(torch.clone, torch.clone),
    "detach": saved(torch.detach, torch.detach),
    "double": saved(lambda t: t.double(), lambda t: t.float()),
    "cpu": torch.autograd.graph.save_on_cpu,
}


@every_integer
@pytest.mark.parametrize("hooks", HOOKS)
def test_hooks_of_saved_tensors_lose_no_gradient(kind, hooks):
    layer, x = kind.trained(), kind.batch(1).requires_grad_()
    wanted = torch.autograd.grad(layer(x).square().sum(), (x, layer.scale_a))
    layer(x).square().sum().backward()
    gradient = layer.weight.grad.clone()
    layer.zero_grad()
    for checkpointed in (False, True):
        x.grad = None
        with HOOKS[hooks]():
            y = checkpoint(layer, x, use_reentrant=False) if checkpointed else layer(x)
        y.square().sum().backward()
        assert torch.equal(layer.weight.grad, gradient)
        assert torch.equal(x.grad, wanted[0]) and torch.equal(layer.scale_a.grad, wanted[1])
        layer.zero_grad()


def test_other_saved_tensors_go_through_the_hooks():
    layer, x, seen = BinaryLinear(9, 4), torch.randn(3, 9), []

    def pack(tensor):
        seen.append(tensor.dtype)
        return tensor

    layer(x)
    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        layer(x).sum().backward()
    assert seen and torch.int8 not in seen


def test_hooks_lose_no_gradient_of_a_function():
    layer, x = BinaryLinear(9, 4), torch.randn(3, 9)
    layer(x)
    codes, args = layer.weight.detach().clone(), (layer.scale_a.detach(), layer.scale_w)
    with torch.autograd.graph.saved_tensors_hooks(torch.clone, lambda tensor: tensor):
        y = BinaryLinearForward.apply(x, codes, *args, 3, True)
    y.square().sum().backward()
    assert codes.grad is not None


@every_integer
def test_frozen_scales_do_not_stop_the_weight(kind):
    layer, x = kind.trained(), kind.batch(1)
    layer(x).square().sum().backward()
    wanted = layer.weight.grad.clone()
    layer.zero_grad()
    for name in ("scale_a", "bias_a"):
        getattr(layer, name).requires_grad_(False)
    layer(x).square().sum().backward()
    assert torch.equal(layer.weight.grad, wanted) and layer.scale_a.grad is None


@every_kind
@pytest.mark.parametrize("before", [False, True])
def test_freezing_a_model_freezes_every_weight(kind, before):
    layer = kind.make() if before else kind.trained()
    layer.requires_grad_(False)
    x = kind.batch(1).requires_grad_()
    layer(x).sum().backward()
    assert layer.weight.grad is None and not layer.weight_trainable
    layer.set_weight_data(torch.randn(layer._weight_shape))
    assert not layer.weight_trainable
    layer.requires_grad_(True)
    layer(x).sum().backward()
    assert layer.weight.grad is not None
    layer.eval()
    layer.generate_quantized_weight(qweight_only=True)
    layer.requires_grad_(True)
    assert not layer.qweight.requires_grad


@every_integer
def test_silent_where_the_weight_is_not_asked_for(kind):
    layer, x = kind.trained(), kind.batch(1).requires_grad_()
    (grad,) = torch.autograd.grad(layer(x).sum(), [x])
    assert grad.shape == x.shape and layer.weight.grad is None
    layer.weight_trainable = False
    layer(x).sum().backward()
    assert layer.weight.grad is None
    layer.weight_trainable = True
    with torch.no_grad():
        assert not layer(x).requires_grad
    with torch.inference_mode():
        layer(x)
    layer(x).sum().backward()
    assert layer.weight.grad is not None


def test_one_feature_of_frozen_4_bit_codes_computes_what_evaluation_does():
    """Codes of one feature fit the packed form too, where nothing says what they are."""
    layer, x = Q4Linear(1, 3, latent=False), torch.randn(5, 1)
    layer(x).sum().backward()
    wanted = layer(x).detach()
    with torch.no_grad():
        assert torch.equal(layer(x), wanted)
    layer.requires_grad_(False)
    assert torch.equal(layer(x), wanted)
    assert torch.equal(layer.eval()(x), wanted)


@every_integer
def test_micro_batches_add_up_in_the_wide_accumulator(kind):
    layer = kind.trained()
    x = torch.randn(6, *kind.shape[1:])
    wide_gradients(layer)
    layer(x).square().sum().backward()
    whole = layer.weight.grad.clone()
    layer.zero_grad()
    for part in x.split(2):
        layer(part).square().sum().backward()
    assert layer.weight.grad.dtype == torch.float32
    formulas.close(layer.weight.grad, whole)
    nn.utils.clip_grad_norm_(integer_parameters(layer), 1.0)
    assert float(layer.weight.grad.norm()) == pytest.approx(1.0, rel=1e-4)
    wide_gradients(layer, None)
    layer(x).sum().backward()
    assert layer.weight.grad.dtype == torch.int8


@every_kind
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_autocast(kind, dtype):
    """Inside autocast a layer takes what comes: 16 bits after a linear layer, and gives them back."""
    torch.manual_seed(0)
    layer, x = kind.trained(), kind.batch(1)
    first = nn.Linear(x.shape[-1], x.shape[-1])
    with torch.autocast("cpu", dtype):
        middle = first(x)
        y = layer(middle)
        loss = y.float().square().mean()
    assert middle.dtype == dtype
    assert y.dtype == (torch.float32 if kind.plain else dtype)
    loss.backward()
    assert first.weight.grad is not None and torch.isfinite(first.weight.grad).all()
    assert layer.weight.grad is not None
    with torch.autocast("cpu", dtype):
        assert torch.equal(layer.eval()(middle), y)


@pytest.mark.parametrize("skipped", [False, True])
def test_grad_scaler(skipped):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(9, 33), BinaryLinear(33, 17), nn.BatchNorm1d(17), Q4Linear(17, 3))
    x = torch.randn(16, 9)
    model(x)
    wide_gradients(model)
    optimizer = DiodeMix(model.parameters(), lr=0.05, betas=(0.9, 0.9))
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
    before = model[1].weight.clone()
    with torch.autocast("cpu", torch.bfloat16):
        loss = model(x).float().square().mean()
    scaler.scale(loss).backward()
    if skipped:
        model[1].weight.grad[0, 0] = float("inf")
    scaler.unscale_(optimizer)
    norm = nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    scaler.step(optimizer)
    scaler.update()
    assert bool(torch.isfinite(norm)) != skipped
    assert torch.equal(model[1].weight, before) == skipped
    assert scaler.get_scale() == (512.0 if skipped else 1024.0)


@every_kind
def test_backward_hooks_of_float_parameters_and_detection_of_changes(kind):
    layer, x = kind.trained(), kind.batch(1)
    seen = []
    if layer.bias_a is not None:
        layer.bias_a.register_hook(lambda grad: seen.append(grad.shape))
    y = layer(x.requires_grad_()).sum()
    with torch.no_grad():
        layer.weight.zero_()
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.backward()
    layer(x).sum().backward()
    assert len(seen) == (layer.bias_a is not None)


@every_kind
def test_double_backward_is_refused(kind):
    x = kind.batch().requires_grad_()
    with pytest.raises(RuntimeError, match="no second derivative"):
        torch.autograd.grad(kind.trained()(x).sum(), x, create_graph=True)


@every_kind
def test_retained_graphs_and_two_calls_of_one_layer(kind):
    layer, x = kind.trained(), kind.batch(1)
    loss = (layer(x) + layer(-x)).square().sum()
    loss.backward(retain_graph=True)
    loss.backward()
    assert layer.weight.grad is not None


# The Function classes.

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


@pytest.mark.parametrize("layer", [Q8Linear, Q4Linear])
def test_the_gradient_mode_reaches_the_operator(layer):
    torch.manual_seed(0)
    x = torch.randn(20, 9)
    grads = {}
    for mode in ("exact", "reference"):
        torch.manual_seed(0)
        module = layer(9, 4, grad_mode=mode)
        module(x).square().sum().backward()
        grads[mode] = module.scale_a.grad
    assert not torch.equal(grads["exact"], grads["reference"])


def test_steps_while_another_thread_makes_layers():
    """The sets of what is alive grow meanwhile."""
    interval, stop = sys.getswitchinterval(), threading.Event()

    def make():
        while not stop.is_set():
            layers = [Q8Linear(4, 4) for _ in range(20)]
            for layer in layers:
                layer(torch.ones(1, 4))

    layer, kept = Q8Linear(4, 4, latent=False), [Q8Linear(4, 4) for _ in range(300)]
    for other in (layer, *kept):
        other(torch.ones(1, 4))
    thread = threading.Thread(target=make)
    sys.setswitchinterval(1e-6)
    thread.start()
    try:
        for _ in range(30):
            optimizer = DiodeMix(layer.parameters(), lr=0.1)
            layer(torch.ones(1, 4)).sum().backward()
            optimizer.step()
    finally:
        stop.set()
        thread.join()
        sys.setswitchinterval(interval)
