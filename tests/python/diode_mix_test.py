"""DiodeMix against its formulas in float64, and as a torch optimizer: groups, states, schedulers, refusals."""

import copy
import io
import math
import warnings

import pytest
import torch
from mpq_cases import make_layer
from torch import nn

from bie.nn import BinaryLinear, Q4Linear, Q8Linear
from bie.optim import DiodeMix, integer_parameters
from bie.weights.parameters import SignsParameter
from bitorch_engine.layers.qembedding.binary import BinaryEmbeddingParameter

F64 = torch.float64


def adam(p, grads, lr=1e-2, b1=0.9, b2=0.99, eps=1e-6, decay=0.0, correct=True):
    p, first, second = p.to(F64), torch.zeros_like(p, dtype=F64), torch.zeros_like(p, dtype=F64)
    for t, g in enumerate(grads, 1):
        g = g.to(F64)
        first, second = b1 * first + (1 - b1) * g, b2 * second + (1 - b2) * g * g
        size = lr * (math.sqrt(1 - b2**t) / (1 - b1**t) if correct else 1)
        p = p - size * first / (second.sqrt() + eps)
        p = p - lr * decay * p
    return p


def gradients(shape, count=5):
    return [torch.randn(shape, generator=torch.Generator().manual_seed(i)) for i in range(count)]


@pytest.mark.parametrize("decay", [0.0, 0.1])
@pytest.mark.parametrize("correct", [True, False])
def test_float_parameters_are_adam(decay, correct):
    start = torch.randn(7, 5)
    p = nn.Parameter(start.clone())
    optimizer = DiodeMix([p], lr=1e-2, betas=(0.9, 0.99), weight_decay=decay, correct_bias=correct)
    for g in gradients((7, 5)):
        p.grad = g
        optimizer.step()
    wanted = adam(start, gradients((7, 5)), decay=decay, correct=correct)
    torch.testing.assert_close(p.detach().double(), wanted, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("layout", ["transposed", "channels_last"])
def test_parameters_in_another_order_of_memory(layout):
    shape = (6, 4) if layout == "transposed" else (2, 3, 4, 5)
    start = torch.randn(shape)
    p = nn.Parameter(start.T.contiguous().T if layout == "transposed" else start.to(memory_format=torch.channels_last))
    optimizer = DiodeMix([p], lr=1e-2, betas=(0.9, 0.99))
    for g in gradients(shape):
        p.grad = g
        optimizer.step()
    torch.testing.assert_close(p.detach().double(), adam(start, gradients(shape)), rtol=1e-5, atol=1e-6)


def signs_by_formula(w, moment, grads, lr, b1, b2):
    w, votes, s = w.to(F64), torch.zeros(w.shape, dtype=F64), moment.to(F64)
    for g in grads:
        votes = votes + (1 - b1) * (g.to(F64) - votes)
        s = s + (1 - b2) * (lr * torch.sign(votes) - s)
        u = torch.where(s > 0, -1.0, 1.0)
        w = torch.where(torch.sign(w) != u, -w, w)
    return w


@pytest.mark.parametrize("dtype", [torch.int8, torch.float32])
def test_signs(dtype):
    layer = BinaryLinear(33, 21)
    layer.prepare_params()
    start = layer.weight.clone()
    optimizer = DiodeMix([layer.weight], lr=1e-2, betas=(0.9, 0.99), seed=5)
    moment = torch.ops.bie.diode_mix_first_moment(start, torch.float32, seed=5, stream=0)
    inside = (moment * start < 0) & (moment.abs() <= 1e-3)
    assert bool(inside.all())
    grads = [(20 * g).to(dtype) for g in gradients((21, 33), 20)]
    layer.weight.grad_dtype = dtype
    for g in grads:
        layer.weight.grad = g
        optimizer.step()
    wanted = signs_by_formula(start, moment, grads, 1e-2, 0.9, 0.99)
    assert not torch.equal(wanted, start.double())
    assert torch.equal(layer.weight.double(), wanted)


@pytest.mark.parametrize(("kind", "low", "high"), [(Q8Linear, -128, 127), (Q4Linear, -8, 7)])
def test_codes(kind, low, high):
    """Adam on code * scale_w within one code of the formula, right in the mean, in the layer's range."""
    torch.manual_seed(0)
    layer = kind(65, 40, latent=False)
    layer.prepare_params()
    start, scale = layer.weight.clone(), float(layer.scale_w)
    grad = torch.randn(40, 65)
    optimizer = DiodeMix([layer.weight], lr=0.4 * scale, betas=(0.9, 0.99))
    layer.weight.grad_dtype = torch.float32
    layer.weight.grad = grad
    optimizer.step()
    wanted = (adam(start.double() * scale, [grad], lr=0.4 * scale) / scale).clamp(low, high)
    off = layer.weight.double() - wanted
    assert float(off.abs().max()) < 1 + 1e-4
    assert abs(float(off.mean())) < 4 * 0.5 / math.sqrt(off.numel())
    assert float(layer.scale_w) == scale


def test_codes_renew_their_scale():
    layer = Q4Linear(65, 40, latent=False)
    layer.prepare_params()
    before = float(layer.scale_w)
    optimizer = DiodeMix([layer.weight], lr=0.0, renew_scale_every=2)
    scales = []
    for _ in range(2):
        layer.weight.grad = torch.ones(40, 65, dtype=torch.int8)
        mean = float(layer.weight.double().abs().mean()) * before
        optimizer.step()
        scales.append(float(layer.scale_w))
    assert scales[0] == before
    assert scales[1] == pytest.approx(2 * mean / 5.6345, rel=1e-5)


def model_and_batch(seed=0):
    torch.manual_seed(seed)
    model = nn.Sequential(nn.Linear(9, 33), BinaryLinear(33, 17), nn.BatchNorm1d(17), Q4Linear(17, 5, latent=False))
    x = torch.randn(16, 9)
    model(x)
    return model, x


def run(model, x, optimizer, steps):
    for _ in range(steps):
        optimizer.zero_grad()
        model(x).square().mean().backward()
        optimizer.step()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("half", [False, True])
def test_a_restored_state_goes_on_to_the_bit(dtype, half):
    model, x = model_and_batch()
    if half:
        model.bfloat16()
        x = x.bfloat16()
    groups = [{"params": model[0].parameters(), "lr": 3e-3}, {"params": model[1:].parameters(), "weight_decay": 0.1}]
    optimizer = DiodeMix(groups, lr=1e-2, betas=(0.9, 0.99), dtype=dtype, seed=7)
    run(model, x, optimizer, 4)
    twin = copy.deepcopy(model)
    file = io.BytesIO()
    torch.save(optimizer.state_dict(), file)
    file.seek(0)
    again = DiodeMix([{"params": twin[0].parameters()}, {"params": twin[1:].parameters()}], dtype=dtype)
    again.load_state_dict(torch.load(file, weights_only=True))
    assert again.seed == 7 and again.param_groups[0]["lr"] == 3e-3
    run(model, x, optimizer, 4)
    run(twin, x, again, 4)
    for a, b in zip(model.state_dict().values(), twin.state_dict().values(), strict=True):
        assert torch.equal(a, b)
    for a, b in zip(optimizer.state.values(), again.state.values(), strict=True):
        assert (
            a["exp_avg_l"].dtype
            == b["exp_avg_l"].dtype
            == (torch.float32 if dtype == torch.float32 else torch.bfloat16)
        )
        assert a["step"].shape == (1,) and torch.equal(a["step"], b["step"])


def test_a_pickled_optimizer_and_a_copied_pair():
    model, x = model_and_batch()
    optimizer = DiodeMix(model.parameters(), lr=1e-2, betas=(0.9, 0.99))
    run(model, x, optimizer, 2)
    twin, again = copy.deepcopy((model, optimizer))
    run(model, x, optimizer, 3)
    run(twin, x, again, 3)
    assert torch.equal(model[1].weight, twin[1].weight)


def test_states_that_do_not_fit_are_refused():
    model, x = model_and_batch()
    optimizer = DiodeMix(model.parameters())
    run(model, x, optimizer, 1)
    state = optimizer.state_dict()
    bad = copy.deepcopy(state)
    bad["state"][0]["exp_avg_l"] = torch.zeros(3)
    with pytest.raises(ValueError, match=r"exp_avg_l is \[3\]"):
        optimizer.load_state_dict(bad)
    with pytest.raises(ValueError, match="parameter group"):
        DiodeMix([nn.Parameter(torch.zeros(2))]).load_state_dict(state)


def test_schedulers_change_the_rate():
    p = nn.Parameter(torch.zeros(3))
    optimizer = DiodeMix([p], lr=1.0, betas=(0.0, 0.0), eps=0.0)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, step_size=1, gamma=0.1)
    for _ in range(3):
        p.grad = torch.ones(3)
        optimizer.step()
        scheduler.step()
    torch.testing.assert_close(p.detach(), torch.full((3,), -1.11))
    cosine = torch.optim.lr_scheduler.CosineAnnealingLR(DiodeMix([p], lr=1e-3), 10)
    cosine.optimizer.step()
    cosine.step()
    assert cosine.get_last_lr()[0] < 1e-3


@pytest.mark.parametrize("to_none", [True, False])
def test_zero_grad(to_none):
    model, x = model_and_batch()
    optimizer = DiodeMix(model.parameters())
    model(x).sum().backward()
    assert model[1].weight.grad.any()
    optimizer.zero_grad(set_to_none=to_none)
    for weight in integer_parameters(model):
        assert weight.grad is None if to_none else not weight.grad.any()


def test_closures():
    p = nn.Parameter(torch.tensor([2.0]))
    optimizer = DiodeMix([p], lr=0.1)

    def closure():
        optimizer.zero_grad()
        loss = p.square().sum()
        loss.backward()
        return loss

    assert float(optimizer.step(closure)) == 4.0
    assert float(p.detach()) < 2


def test_weights_that_are_not_given_are_warned_about():
    model, _ = model_and_batch()
    with pytest.warns(UserWarning, match="does not require grad"):
        DiodeMix([p for p in model.parameters() if p.requires_grad])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        DiodeMix(model.parameters())
        DiodeMix([*[p for p in model.parameters() if p.requires_grad], *integer_parameters(model)])
        DiodeMix(model[0].parameters())
        model[1].weight_trainable = model[3].weight_trainable = False
        DiodeMix([p for p in model.parameters() if p.requires_grad])


def test_integer_parameters_lists_what_trains():
    model, _ = model_and_batch()
    assert [id(p) for p in integer_parameters(model)] == [id(model[1].weight), id(model[3].weight)]
    model[1].eval()
    model[1].generate_quantized_weight(qweight_only=True)
    assert [id(p) for p in integer_parameters(model)] == [id(model[3].weight)]
    assert list(integer_parameters(nn.Linear(2, 2))) == []


def test_a_lost_integer_gradient_is_an_error():
    model, x = model_and_batch()
    optimizer = DiodeMix(model.parameters())
    model(x).sum().backward()
    model[1].weight.grad = None
    before = model[0].weight.clone()
    with pytest.raises(RuntimeError, match="has no gradient"):
        optimizer.step()
    assert torch.equal(model[0].weight, before)


def test_a_layer_that_did_not_run_is_skipped():
    model, x = model_and_batch()
    other = BinaryLinear(4, 4)
    other.prepare_params()
    optimizer = DiodeMix([*model.parameters(), *other.parameters()])
    run(model, x, optimizer, 2)


def test_gradients_that_are_not_finite_leave_integers_alone():
    layer = BinaryLinear(9, 4)
    layer.prepare_params()
    before = layer.weight.clone()
    optimizer = DiodeMix([layer.weight], lr=1.0, betas=(0.0, 0.0))
    layer.weight.grad_dtype = torch.float32
    layer.weight.grad = torch.full((4, 9), float("nan"))
    optimizer.step()
    assert torch.equal(layer.weight, before) and not optimizer.state[layer.weight]
    layer.weight.grad = -torch.sign(layer.weight.float())
    optimizer.step()
    assert optimizer.state[layer.weight]["step"].item() == 1


def test_an_int8_gradient_of_zeros_is_no_step():
    """int8_grad makes zeros of NaN: the step counts as skipped."""
    layer = BinaryLinear(9, 4)
    layer.prepare_params()
    optimizer = DiodeMix([layer.weight], lr=1.0, betas=(0.0, 0.0))
    for value in (float("nan"), 1.0):
        before = layer.weight.clone()
        optimizer.zero_grad()
        layer(torch.randn(2, 9)).backward(torch.full((2, 4), value))
        assert layer.weight.grad.any() == (value == 1.0)
        optimizer.step()
        assert value == 1.0 or (torch.equal(layer.weight, before) and not optimizer.state[layer.weight])
    assert optimizer.state[layer.weight]["step"].item() == 1


@pytest.mark.parametrize(
    "wrong",
    [
        {"lr": -1e-3},
        {"lr": float("nan")},
        {"betas": (1.0, 0.9)},
        {"betas": (0.9, -0.1)},
        {"eps": -1.0},
        {"weight_decay": -1.0},
        {"renew_scale_every": -1},
        {"dtype": torch.float64},
        {"dtype": torch.int16},
    ],
)
def test_wrong_options(wrong):
    with pytest.raises(ValueError, match=r"expected .*, got"):
        DiodeMix([nn.Parameter(torch.zeros(2))], **wrong)
    if "dtype" not in wrong:
        with pytest.raises(ValueError, match="DiodeMix"):
            DiodeMix([{"params": [nn.Parameter(torch.zeros(2))], **wrong}])


def test_sparse_gradients_and_codes_without_a_meaning():
    p = nn.Parameter(torch.zeros(4, 2))
    p.grad = torch.ones(4, 2).to_sparse()
    with pytest.raises(RuntimeError, match="sparse"):
        DiodeMix([p]).step()
    loose = nn.Parameter(torch.zeros(3, dtype=torch.int8), requires_grad=False)
    loose.grad = torch.ones(3, dtype=torch.int8)
    with pytest.raises(ValueError, match="no layer's weight"):
        DiodeMix([loose]).step()


def test_update_by_hand():
    weight = SignsParameter(torch.tensor([[5, -3, 1]], dtype=torch.int8))
    assert not weight.requires_grad
    weight.grad = torch.tensor([[1, 1, -1]], dtype=torch.int8)
    # With betas 0 the sign follows the gradient at once, and its magnitude stays.
    SignsParameter.update(weight, lr=1.0, beta1=0.0, beta2=0.0)
    assert weight.tolist() == [[-5, -3, 1]]
    with pytest.raises(RuntimeError, match="no gradient"):
        SignsParameter.update(SignsParameter(torch.ones(2, dtype=torch.int8)))


def test_every_kind_of_operator_refuses_what_does_not_fit():
    p, g, m = torch.zeros(3), torch.ones(3), torch.zeros(3)
    codes = torch.zeros(3, dtype=torch.int8)
    step = {"step": 1, "lr": 1.0, "beta1": 0.9, "beta2": 0.9}
    ops = torch.ops.bie
    wrong = [
        (TypeError, lambda: ops.diode_mix_float_(codes, g, m, m, eps=0.0, **step)),
        (TypeError, lambda: ops.diode_mix_float_(p.double(), g, m, m, eps=0.0, **step)),
        (ValueError, lambda: ops.diode_mix_float_(p, g[:2], m, m, eps=0.0, **step)),
        (ValueError, lambda: ops.diode_mix_float_(p, g, m[:2], m, eps=0.0, **step)),
        (TypeError, lambda: ops.diode_mix_float_(p, g, m.half(), m, eps=0.0, **step)),
        (TypeError, lambda: ops.diode_mix_float_(p, g, m.bfloat16(), m, eps=0.0, **step)),
        (ValueError, lambda: ops.diode_mix_float_(torch.zeros(6)[::2], g, m, m, eps=0.0, **step)),
        (ValueError, lambda: ops.diode_mix_float_(p, g, m, m, eps=-1.0, **step)),
        (ValueError, lambda: ops.diode_mix_float_(p, g, m, m, eps=0.0, **(step | {"step": 0}))),
        (ValueError, lambda: ops.diode_mix_float_(p, g, m, m, eps=0.0, **(step | {"beta1": 1.0}))),
        (TypeError, lambda: ops.diode_mix_signs_(p, g, m, m, **step)),
        (ValueError, lambda: ops.diode_mix_codes_(codes, g, m, m, torch.ones(()), bits=3, eps=0.0, **step)),
        (ValueError, lambda: ops.diode_mix_codes_(codes, g, m, m, torch.ones(2), bits=4, eps=0.0, **step)),
        (TypeError, lambda: ops.diode_mix_first_moment(p, torch.float32)),
        (TypeError, lambda: ops.diode_mix_first_moment(codes, torch.float16)),
    ]
    for error, call in wrong:
        with pytest.raises(error, match="diode_mix"):
            call()
    assert not p.any() and not m.any() and not codes.any()


def test_embeddings_and_weight_only_weights_step_by_their_rules():
    """Their layers are not there yet; the classes choose the rule."""
    signs = torch.randn(6, 20).sign()
    table = BinaryEmbeddingParameter(torch.ops.bie.pack_signs(signs), requires_grad=False)
    weight_only = make_layer(4, asym=False).qweight
    before = weight_only.clone()
    optimizer = DiodeMix([table, weight_only], lr=1.0, betas=(0.0, 0.0))
    table.grad = torch.ops.bie.pack_signs(signs)
    table.active_indices = torch.tensor([0, 2, 2])
    weight_only.privileged_grad = torch.ones(64, 64)
    optimizer.step()
    wanted = signs.clone()
    wanted[[0, 2]] *= -1  # against the gradient, on active rows
    assert torch.equal(torch.ops.bie.unpack_signs(table.detach(), 20).float(), wanted)
    assert not torch.equal(weight_only, before)
    assert "exp_avg_l" not in optimizer.state[table] and optimizer.state[table]["exp_avg_s"].shape == (6, 24)
    again = DiodeMix([table, weight_only])
    again.load_state_dict(optimizer.state_dict())
    assert torch.equal(again.state[weight_only]["exp_avg_l"], optimizer.state[weight_only]["exp_avg_l"])


def test_named_parameters_generators_and_added_groups():
    model, x = model_and_batch()
    run(model, x, DiodeMix(model.named_parameters()), 2)
    optimizer = DiodeMix([{"params": (p for p in model[0].parameters())}])
    optimizer.add_param_group({"params": model[1:].parameters(), "lr": 1e-2})
    with pytest.raises(ValueError, match="lr: expected a number >= 0, got -1"):
        optimizer.add_param_group({"params": [nn.Parameter(torch.zeros(2))], "lr": -1})
    assert len(optimizer.param_groups) == 2
    before = model[1].weight.clone()
    optimizer.param_groups[1]["betas"] = (0.0, 0.0)
    run(model, x, optimizer, 1)
    assert not torch.equal(model[1].weight, before)


def test_moments_follow_the_order_of_memory():
    layer = Q8Linear(4, 4)
    conv = nn.Conv2d(2, 3, 3)
    model = nn.ModuleList([layer, conv])
    optimizer = DiodeMix(model.parameters(), lr=0.1)

    def step():
        (conv(torch.ones(1, 2, 4, 4)).sum() + layer(torch.ones(1, 4)).sum()).backward()
        optimizer.step()

    step()
    model.to(memory_format=torch.channels_last)
    step()
    assert optimizer.state[conv.weight]["exp_avg_l"].stride() == conv.weight.stride()
