"""Gradients of every kind against the formulas, and every way in which torch users train."""

import formulas
import pytest
import torch
from kinds import CONV, INTEGER, KINDS, along, binary_options
from torch import nn
from torch.utils.checkpoint import checkpoint

from bie.nn import BinaryLinear, Q4Linear, Q8Linear
from bie.optim import DiodeMix, integer_parameters, wide_gradients

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
