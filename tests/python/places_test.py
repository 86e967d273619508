"""Places between codes: training of weight-only layers with an 8-bit rest, 8-bit moments and scales that learn."""

from __future__ import annotations

import copy
import math

import pytest
import torch

import bie

ADAM = {"lr": 2e-3, "betas": (0.9, 0.95), "eps": 1e-10}


def layer(k=96, n=40, bits=2, group=32, rest=torch.int8, levels=None, seed=0):
    torch.manual_seed(seed)
    made = bie.nn.MPQLinear(
        k, n, w_bit=bits, group_size=group, dtype=torch.float32, master=rest, levels=levels, use_gba_quant=True
    )
    made.set_weight_data(torch.randn(n, k) * 0.05)
    return made.train()


def codes(made):
    return torch.ops.bie.unpack_words(made.qweight.detach(), made.w_bit, made.in_channels, 0)


def opened(made):
    rows = made.g_idx.long()
    return made.scales[rows] * codes(made) - made.zeros[rows]


def fit(made, steps=300, scale_lr=0.0, dtype=torch.float32, fused=False, lr=2e-3):
    """Mean squared error of x . W against another weight's after so many steps."""
    torch.manual_seed(1)
    wanted, x = torch.randn(made.out_channels, made.in_channels) * 0.05, torch.randn(256, made.in_channels)
    optimizer = bie.optim.DiodeMix(made.parameters(), **(ADAM | {"lr": lr}), scale_lr=scale_lr, dtype=dtype)
    optimizer.step_in_backward(fused)
    rates = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)
    for _ in range(steps):
        optimizer.zero_grad()
        loss = (made(x) - x @ wanted.T).square().mean()
        loss.backward()
        assert (made.qweight.grad is None) == fused
        optimizer.step()
        rates.step()
    return loss.item() / (x @ wanted.T).square().mean().item(), optimizer


def test_a_step_is_the_formula():
    made = layer()
    k, n = made.in_channels, made.out_channels
    place, scales, zeros = 256 * codes(made).double() + made.rest, made.scales.clone(), made.zeros.clone()
    optimizer = bie.optim.DiodeMix([made.qweight], **ADAM, scale_lr=1e-2)
    x, g = torch.randn(7, k), torch.randn(7, n)
    made(x).backward(g)
    grad = (x.double().T @ g.double()).float().double()
    optimizer.step()
    rows = made.g_idx.long()
    u = grad / (grad.abs() + ADAM["eps"] / math.sqrt(1 - 0.95))
    moved = place - 256 * ADAM["lr"] * u / scales[rows]
    found = 256 * codes(made).double() + made.rest
    assert ((found - moved.clamp(-128, 3 * 256 + 127)).abs() <= 1.001).all()
    sums = torch.zeros(scales.shape, dtype=torch.float64).index_add_(
        0, rows, grad * ((place + 128).div(256, rounding_mode="floor") - (zeros / scales)[rows])
    )
    torch.testing.assert_close(made.scales, (scales - 1e-2 * scales.abs() * sums.sign()).float(), rtol=1e-4, atol=0)
    torch.testing.assert_close(made.zeros / made.scales, zeros / scales)


def test_rounding_at_random_has_no_bias():
    start = layer(k=32, n=1, group=32, bits=4)
    start.rest.zero_()
    before, total, runs = 256 * codes(start).double(), 0.0, 400
    for seed in range(runs):
        made = copy.deepcopy(start)
        optimizer = bie.optim.DiodeMix([made.qweight], lr=1e-5, betas=(0.9, 0.95), eps=1e-10, seed=seed)
        made.qweight.privileged_grad = torch.ones(32, 1)
        optimizer.step()
        total = total + (256 * codes(made).double() + made.rest - before)
    wanted = -256 * 1e-5 / made.scales.item()
    assert abs((total / runs).mean().item() - wanted) < 0.05 * abs(wanted) + 0.02


@pytest.mark.parametrize("bits", [1, 2, 3, 4, 8])
def test_a_rest_learns_what_codes_alone_do_not(bits):
    with_rest, _ = fit(layer(bits=bits), scale_lr=5e-3)
    frozen = fit(layer(bits=bits), lr=0.0)[0]
    assert with_rest < (0.6 if bits == 1 else 0.2) * frozen
    if bits < 8:
        assert with_rest < fit(layer(bits=bits, rest=False), scale_lr=5e-3)[0]


def test_moments_of_8_bits_learn_as_well():
    wide, narrow = fit(layer(), scale_lr=5e-3)[0], fit(layer(), scale_lr=5e-3, dtype=torch.int8)
    assert narrow[0] < 1.1 * wide
    state = narrow[1].state_dict()["state"][0]
    assert state["exp_avg_l"].dtype == torch.int8 and state["exp_avg_s"].dtype == torch.uint8


def test_scales_that_learn_help():
    assert fit(layer(), scale_lr=1e-2)[0] < 0.97 * fit(layer())[0]


def test_scales_below_zero_learn_too():
    """Descent: a step along the gradient makes the loss less, whatever the sign of a scale."""
    for sign in (1, -1):
        made = layer()
        made.set_codes(codes(made), sign * made.scales, sign * made.zeros)
        made.train()
        torch.manual_seed(4)
        x, wanted = torch.randn(64, 96), torch.randn(64, 40)
        optimizer = bie.optim.DiodeMix([made.qweight], lr=0.0, betas=(0.9, 0.95), eps=1e-10, scale_lr=1e-3)
        losses = []
        for _ in range(30):
            optimizer.zero_grad()
            loss = (made(x) - wanted).square().mean()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        assert losses[-1] < losses[0]


def test_ternary_weights_stay_ternary():
    made = bie.nn.MPQLinear(64, 8, w_bit=2, group_size=32, dtype=torch.float16, master=torch.int8, levels=3)
    scales = torch.full((2, 8), 0.05)
    made.set_codes(torch.ones(64, 8, dtype=torch.int32), scales, scales)
    made.train()
    error, _ = fit(made, scale_lr=1e-2)
    assert error < 0.5
    assert codes(made).unique().tolist() == [0, 1, 2]
    assert torch.equal(made.zeros, made.scales)  # which GGUF's types want


@pytest.mark.parametrize("dtype", [torch.float32, torch.int8])
def test_steps_in_backward_are_the_steps(dtype):
    apart, fused = layer(), layer()
    fit(apart, 20, 1e-2, dtype)
    fit(fused, 20, 1e-2, dtype, fused=True)
    for name, tensor in apart.state_dict().items():
        assert torch.equal(tensor, fused.state_dict()[name]), name


@pytest.mark.parametrize("dtype", [torch.float32, torch.int8])
def test_a_state_goes_on_to_the_bit(dtype, tmp_path):
    whole = layer()
    _, optimizer = fit(whole, 5, 1e-2, dtype)
    torch.save({"layer": whole.state_dict(), "optimizer": optimizer.state_dict()}, tmp_path / "state")
    saved = torch.load(tmp_path / "state", weights_only=True)
    again = layer(seed=5)
    again.load_state_dict(saved["layer"])
    other = bie.optim.DiodeMix(again.parameters(), **ADAM, scale_lr=1e-2, dtype=dtype)
    other.load_state_dict(saved["optimizer"])
    for made, step in ((whole, optimizer), (again, other)):
        torch.manual_seed(3)
        for _ in range(3):
            step.zero_grad()
            made(torch.randn(8, 96)).square().sum().backward()
            step.step()
    for name, tensor in whole.state_dict().items():
        assert torch.equal(tensor, again.state_dict()[name]), name


def test_gradients_that_are_not_finite_move_nothing():
    made = layer()
    before = copy.deepcopy(made.state_dict())
    made.qweight.privileged_grad = torch.full((96, 40), math.nan)
    bie.optim.DiodeMix([made.qweight], **ADAM, scale_lr=1e-2).step()
    for name, tensor in made.state_dict().items():
        assert torch.equal(tensor, before[name]), name


def test_what_cannot_be():
    with pytest.raises(ValueError, match=r"levels: expected 2 \.\.\. 4 of 2 bits, got 5"):
        layer(levels=5)
    with pytest.raises(ValueError, match="master: expected"):
        layer(rest=torch.float64)
    with pytest.raises(ValueError, match="scale_lr: expected a number >= 0"):
        bie.optim.DiodeMix(layer().parameters(), scale_lr=-1)
    turned = layer()
    turned.g_idx.copy_(turned.g_idx.flip(0))
    turned.qweight.privileged_grad = torch.ones(96, 40)
    with pytest.raises(ValueError, match="order of their own"):
        bie.optim.DiodeMix([turned.qweight], **ADAM).step()
