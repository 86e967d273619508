"""The gradient rule for integer weights: anchor, grad_dtype, refused double backward, in every way torch runs it."""

import threading

import formulas
import pytest
import torch
from torch.utils.checkpoint import checkpoint

M, K, N = 9, 37, 13


def make(seed=0):
    g = torch.Generator().manual_seed(seed)
    x = torch.randn(M, K, generator=g)
    weight = torch.randint(-127, 128, (N, K), generator=g).to(torch.int8)
    weight[weight == 0] = 1
    return x, weight


def anchor():
    return torch.empty(0, requires_grad=True)


SA, SW = torch.tensor(0.9), torch.tensor(0.031)


def wanted_grad(x, weight):
    """Float gradient of the weight for the loss (y^2).sum()."""
    y = formulas.binary_forward(x, weight, SA, SW, None)
    return formulas.binary_backward(x, weight, SA, SW, None, 2 * y)[1]


def loss_of(operators, x, weight, a, scale_a=SA):
    return operators.binary_linear(x, weight, scale_a, SW, anchor=a).square().sum()


def test_eager_gradient_is_the_formula(operators):
    x, weight = make()
    loss_of(operators, x, weight, anchor()).backward()  # every scale and x frozen: the anchor alone carries it
    assert weight.grad.dtype == torch.int8
    assert torch.equal(weight.grad, formulas.int8_grad(wanted_grad(x, weight)))


@pytest.mark.parametrize("grad_dtype", [None, torch.float32])
def test_backward_passes_side_by_side_lose_nothing(operators, grad_dtype):
    scale, x, weight = torch.tensor(1.0), torch.ones(1, 512), torch.ones(512, 512, dtype=torch.int8)
    if grad_dtype:
        weight.grad_dtype = grad_dtype
    output_grad = torch.ones(1, 512)
    output_grad[0, 0] = 127  # the largest, so that int8_grad leaves the ones as they are
    together = threading.Barrier(4)

    def work():
        outputs = [operators.binary_linear(x, weight, scale, scale, anchor=anchor()) for _ in range(25)]
        together.wait()
        for y in outputs:
            y.backward(output_grad)

    for _ in range(5):
        weight.grad = None
        threads = [threading.Thread(target=work) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert weight.grad[1:].eq(100).all()
        assert weight.grad[0].eq(12700 if grad_dtype else 127).all()


def test_weight_keeps_requires_grad_false_and_value(operators):
    x, weight = make()
    before = weight.clone()
    loss_of(operators, x, weight, anchor()).backward()
    assert not weight.requires_grad
    assert torch.equal(weight, before)


@pytest.mark.parametrize("reentrant", [False, True])
def test_checkpointed(operators, reentrant):
    x, weight = make()
    x.requires_grad_()
    a = anchor()
    y = checkpoint(lambda v: operators.binary_linear(v, weight, SA, SW, anchor=a), x, use_reentrant=reentrant)
    y.square().sum().backward()
    assert torch.equal(weight.grad, formulas.int8_grad(wanted_grad(x.detach(), weight)))


def test_compiled_with_a_graph_break(operators):
    x, weight = make()
    a = anchor()

    @torch.compiler.disable
    def layer(v):
        return operators.binary_linear(v, weight, SA, SW, anchor=a)

    @torch.compile(backend="aot_eager")
    def step(v):
        return (layer(v * 1.0) * 1.0).square().sum()

    step(x).backward()
    assert torch.equal(weight.grad, formulas.int8_grad(wanted_grad(x, weight)))


def test_a_whole_training_graph_is_refused(operators):
    x, weight = make()

    @torch.compile(backend="aot_eager", fullgraph=True)
    def step(v, a):
        return loss_of(operators, v, weight, a)

    with pytest.raises(Exception, match="cannot be trained inside a compiled graph"):
        step(x, anchor()).backward()
    assert weight.grad is None


def test_accumulation_saturates_in_int8(operators):
    x, weight = make()
    q = formulas.int8_grad(wanted_grad(x, weight)).to(torch.int32)
    for count in (1, 2, 3):
        loss_of(operators, x, weight, anchor()).backward()
        assert torch.equal(weight.grad.to(torch.int32), (count * q).clamp(-127, 127))


def test_one_weight_used_twice(operators):
    x, weight = make()
    x2, _ = make(1)
    a = anchor()
    (loss_of(operators, x, weight, a) + loss_of(operators, x2, weight, a)).backward()
    q = [formulas.int8_grad(wanted_grad(v, weight)).to(torch.int32) for v in (x, x2)]
    assert torch.equal(weight.grad.to(torch.int32), (q[0] + q[1]).clamp(-127, 127))


def test_grad_dtype_float_takes_the_unquantised_sum(operators):
    x, weight = make()
    x2, _ = make(1)
    weight.grad_dtype = torch.float32
    loss_of(operators, x, weight, anchor()).backward()
    formulas.close(weight.grad, wanted_grad(x, weight))
    loss_of(operators, x2, weight, anchor()).backward()
    formulas.close(weight.grad, wanted_grad(x, weight) + wanted_grad(x2, weight))
    torch.nn.utils.clip_grad_norm_([weight], 1.0)
    assert float(weight.grad.norm()) == pytest.approx(1.0, rel=1e-5)


def test_delivered_gradient_is_not_an_alias(operators):
    """The same float gradient must not be shared between .grad and a temporary that is changed later."""
    x, weight = make()
    weight.grad_dtype = torch.float32
    loss_of(operators, x, weight, anchor()).backward()
    first = weight.grad
    kept = first.clone()
    weight.grad = None
    loss_of(operators, 2 * x, weight, anchor()).backward()
    assert torch.equal(first, kept)


def test_silent_where_the_anchor_is_not_asked_for(operators):
    x, weight = make()
    x.requires_grad_()
    loss = loss_of(operators, x, weight, anchor())
    (grad_x,) = torch.autograd.grad(loss, [x])
    assert weight.grad is None
    assert grad_x.shape == x.shape
    loss_of(operators, x, weight, None).backward()
    assert weight.grad is None
    with torch.no_grad():
        assert not operators.binary_linear(x, weight, SA, SW, anchor=anchor()).requires_grad


def test_frozen_and_learned_scales(operators):
    x, weight = make()
    sa = SA.clone().requires_grad_()
    loss_of(operators, x, weight, anchor(), sa).backward()
    assert torch.equal(weight.grad, formulas.int8_grad(wanted_grad(x, weight)))
    assert sa.grad is not None


def test_double_backward_is_refused(operators):
    x, weight = make()
    x.requires_grad_()
    for call in (
        lambda: operators.binary_linear(x, weight, SA, SW),
        lambda: operators.q8_linear(x, torch.ones(N, K), SA, SW),
        lambda: operators.q4_linear(x, torch.ones(N, K), SA, SW),
        lambda: operators.binary_conv2d(x.view(1, 1, M, K), torch.ones(2, 1, 3, 3), SA, SW),
        lambda: operators.q8_conv2d(x.view(1, 1, M, K), torch.ones(2, 1, 3, 3), SA, SW),
        lambda: operators.q4_conv2d(x.view(1, 1, M, K), torch.ones(2, 1, 3, 3), SA, SW),
    ):
        with pytest.raises(RuntimeError, match="no second derivative"):
            torch.autograd.grad(call().sum(), x, create_graph=True)


def test_a_gradient_with_nan_becomes_zero(operators):
    x, weight = make()
    y = operators.binary_linear(x, weight, SA, SW, anchor=anchor())
    g = torch.ones_like(y)
    g[0, 0] = float("nan")
    y.backward(g)
    assert not weight.grad.any()


def test_int8_codes_of_the_8_bit_layers_train_too(operators):
    x, weight = make()
    image = x.view(1, 1, M, K)
    scale = torch.tensor(0.02)
    operators.q8_linear(x, weight, scale, SW, anchor=anchor()).square().sum().backward()
    y = formulas.nbit_forward(x, weight.float() * SW, scale, SW, None, formulas.Q8)
    q_a = formulas.codes(x, float(scale), formulas.Q8).double()
    assert torch.equal(weight.grad, formulas.int8_grad((2 * y.double()).T @ (q_a * scale.double())))
    kernel = weight[:2, :9].reshape(2, 1, 3, 3).contiguous()
    operators.q8_conv2d(image, kernel, scale, SW, anchor=anchor()).square().sum().backward()
    assert kernel.grad.dtype == torch.int8
    assert kernel.grad.any()


def test_saved_tensors_changed_in_place_are_noticed(operators):
    x, weight = make()
    loss = loss_of(operators, x, weight, anchor())
    weight.neg_()
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()
