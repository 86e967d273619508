"""The optimizer steps of weight-only weights and of binary embeddings against numpy."""

import math

import numpy as np
import pytest
import torch
from mpq_cases import generator, make_layer

from bie import ShapeError
from bie.optim import GaLoreProjector
from bitorch_engine.layers.qembedding import BinaryEmbeddingParameter
from bitorch_engine.layers.qlinear.nbit import MPQWeightParameter
from bitorch_engine.layers.qlinear.nbit.cuda.utils import unpack_qweight
from bitorch_engine.utils.model_helper import qweight_update_fn, update_zeros
from bitorch_engine.utils.quant_operators import gptq_style_unpacking

# Weight-only


def adam(grad, first, s, t, lr, b1, b2, eps, correct):
    first, s = b1 * first + (1 - b1) * grad, b2 * s + (1 - b2) * grad**2
    size = lr * math.sqrt(1 - b2**t) / (1 - b1**t) if correct else lr
    return first, s, size, first / (np.sqrt(s) + eps)


@pytest.mark.parametrize("correct", [True, False])
@pytest.mark.parametrize("asym", [True, False])
def test_update_is_adam_on_the_float_weight(asym, correct):
    layer = make_layer(8, asym=asym, k=32, n=32, seed=3)
    first = s = np.zeros((32, 32))
    exp_l, exp_s = torch.zeros(32, 32), torch.zeros(32, 32)
    for t in range(1, 5):
        grad = torch.randn(32, 32, generator=generator(t))
        before, zeros = (v.double().numpy() for v in gptq_style_unpacking(layer.qweight))
        layer.qweight.privileged_grad = grad
        qweight_update_fn(
            layer.qweight,
            exp_s,
            exp_l,
            torch.tensor([t]),
            lr=0.3,
            weight_decay=0.1,
            correct_bias=correct,
            dtype=torch.float32,
        )
        first, s, size, step = adam(grad.double().numpy(), first, s, t, 0.3, 0.99, 0.9999, 1e-6, correct)
        moved = before - size * step
        moved -= 0.3 * 0.1 * moved
        group = layer.g_idx.numpy()
        scale, zero = layer.scales.double().numpy()[group], zeros[group]
        real = moved / scale + zero if asym else (moved + zero) / scale
        found = gptq_style_unpacking(layer.qweight)[0].double().numpy()
        codes = found / scale + zero if asym else (found + zero) / scale
        codes, inside = np.rint(codes), (real > 1) & (real < 254)
        assert (np.abs(codes - np.clip(real, 0, 255)) < 1 + 1e-3).all()  # one of the two codes beside it
        assert not np.array_equal(before, found)
        # A code is the upper one as often as it is near: over so many, four standard deviations of the mean.
        error, count = (codes - real)[inside], inside.sum()
        assert count > 300 and abs(error.mean()) < 4 * np.sqrt(0.25 / count) and np.abs(error).max() > 0.5
    assert np.allclose(exp_l.numpy(), first, atol=1e-6) and np.allclose(exp_s.numpy(), s, atol=1e-6)


def test_update_goes_back_through_a_projector():
    layer = make_layer(8, asym=False, k=64, n=32)
    grad = torch.randn(64, 32, generator=generator(0))
    projector = GaLoreProjector(4)
    low = projector.project(grad, 0)
    before = unpack_qweight(layer.qweight)
    layer.scales.fill_(1e-3)
    before = unpack_qweight(layer.qweight)
    MPQWeightParameter.update(
        layer.qweight,
        torch.zeros_like(low),
        torch.zeros_like(low),
        torch.tensor([1]),
        lr=0.05,
        dtype=torch.float32,
        projector=projector,
        grad=low,
    )
    direction = projector.project_back(0.01 * low / ((1e-4 * low**2).sqrt() + 1e-6))
    inside = (before + layer.zeros > 0.06) & (before + layer.zeros < 0.19)
    assert (unpack_qweight(layer.qweight) - (before - 0.05 * direction))[
        inside & (direction.abs() < 1)
    ].abs().max() < 1.1e-3  # a code, rounded at random


@pytest.mark.parametrize("asym", [True, False])
def test_zeros_move_with_the_mean_of_the_group(asym):
    layer = make_layer(8, asym=asym, k=64, n=32, group_size=16)
    layer.scales.fill_(0.02)
    direction = torch.randn(64, 32, generator=generator(1))
    zeros = gptq_style_unpacking(layer.qweight)[1].clone()
    found = update_zeros(layer.qweight, direction, 0.5)
    for group in range(layer.scales.size(0)):
        rows = layer.g_idx == group
        change = 0.5 * direction[rows].mean(0) if rows.any() else torch.zeros(32)
        if asym:
            wanted = (zeros[group] + change / 0.02).clamp(1, 256)
            assert (found[group] - wanted).abs().max() <= 0.5 + 1e-4 and (found[group] == found[group].round()).all()
        else:
            assert torch.allclose(found[group], zeros[group] + change, atol=1e-6)
    assert torch.equal(gptq_style_unpacking(layer.qweight)[1].float(), found)
    with pytest.raises(ShapeError, match="norm_grad"):
        update_zeros(layer.qweight, direction[:3], 0.5)


def test_every_fifth_step_moves_the_zeros():
    layer = make_layer(4, asym=False, k=32, n=32)
    moments = torch.zeros(32, 32), torch.zeros(32, 32)
    for t in range(1, 11):
        before = layer.zeros.clone()
        grad = torch.ones(32, 32)
        MPQWeightParameter.update(layer.qweight, *moments, torch.tensor([t]), lr=0.1, dtype=torch.float32, grad=grad)
        assert torch.equal(before, layer.zeros) == (t % 5 != 0)


def test_update_refusals():
    layer = make_layer(4, asym=False, k=32, n=32)
    before = layer.qweight.clone()
    with pytest.raises(RuntimeError, match=r"the \[4, 32\] weight has no gradient"):
        MPQWeightParameter.update(layer.qweight)
    moments = torch.ones(32, 32), torch.ones(32, 32)
    MPQWeightParameter.update(layer.qweight, *moments, grad=torch.full((32, 32), float("nan")))
    assert torch.equal(before, layer.qweight) and all((moment == 1).all() for moment in moments)
    with pytest.raises(ShapeError, match="exp_avg_s"):
        MPQWeightParameter.update(layer.qweight, torch.zeros(2), torch.zeros(2), grad=torch.ones(32, 32))
    with pytest.raises(ShapeError, match=r"the gradient: expected .*, got \[32, 31\]"):
        MPQWeightParameter.update(layer.qweight, grad=torch.ones(32, 31))
    assert torch.equal(before, layer.qweight)
    with pytest.raises(NotImplementedError, match="Parameter has no update rule"):
        qweight_update_fn(torch.nn.Parameter(torch.ones(2)))


# Embeddings


@pytest.mark.parametrize("packed", [True, False])
def test_embedding_rule(packed):
    g = torch.Generator().manual_seed(7)
    n, width, lr, beta2 = 9, 16, 0.5, 0.9
    signs = torch.where(torch.rand(n, width, generator=g) > 0.5, 1.0, -1.0)
    gradient = torch.where(torch.rand(n, width, generator=g) > 0.5, 1.0, -1.0)

    def stored(values):
        if not packed:
            return values > 0
        return torch.from_numpy(np.packbits(values.numpy() > 0, axis=-1, bitorder="little"))

    weight = BinaryEmbeddingParameter(stored(signs), active_indices=torch.tensor([[1, 4], [4, 7]]))
    s = 0.05 * torch.randn(n, width, generator=g)
    moment, version = s.clone(), weight._version
    weight.update(weight, moment, lr=lr, beta2=beta2, dtype=torch.float32, grad=stored(gradient))
    active = [1, 4, 7]
    s[active] = s[active] + (1 - beta2) * (lr * gradient[active] - s[active])
    wanted = signs.clone()
    wanted[active] = torch.where(s[active] <= 0, 1.0, -1.0)
    assert torch.allclose(moment, s, atol=1e-7)
    assert torch.equal(weight, stored(wanted)) and not torch.equal(wanted, signs)
    assert weight._version > version
    assert torch.equal(weight.active_indices, torch.tensor([[1, 4], [4, 7]]))


def test_a_moment_of_zero_sets_the_bit():
    weight = BinaryEmbeddingParameter(torch.zeros(2, 1, dtype=torch.uint8))
    weight.update(weight, torch.zeros(2, 8), lr=0.0, grad=torch.zeros(2, 1, dtype=torch.uint8))
    assert (weight == 255).all()


def test_embedding_rule_without_rows_state_or_gradient():
    weight = BinaryEmbeddingParameter(torch.zeros(3, 2, dtype=torch.uint8))
    with pytest.raises(RuntimeError, match=r"the \[3, 2\] weight has no gradient"):
        weight.update(weight)
    moment = torch.full((3, 16), 1e-3)  # target -1: the stored bits
    weight.update(weight, moment, lr=1e-4, beta2=0.5, grad=torch.full((3, 2), 255, dtype=torch.uint8))
    assert not weight.any() and (moment > 0).all()
    weight.update(weight, lr=10.0, beta2=0.0, grad=torch.zeros(3, 2, dtype=torch.uint8))
    assert (weight == 255).all()  # every bit against the gradient
    with pytest.raises(ShapeError, match="its gradient"):
        weight.update(weight, moment, grad=torch.ones(3, 2))
    with pytest.raises(ShapeError, match="its gradient"):
        weight.update(weight, moment, grad=torch.ones(2, 2, dtype=torch.uint8))
    with pytest.raises(ShapeError, match="exp_avg_s"):
        weight.update(weight, moment[:2], grad=torch.ones(3, 2, dtype=torch.uint8))


def test_a_first_moment_is_drawn_by_seed_and_stream():
    def after(**kwargs):
        weight = BinaryEmbeddingParameter(torch.zeros(64, 8, dtype=torch.uint8))
        # s = 0.5 * (+U * 1e-3 - 5e-4): the sign, and so the bit, is the draw's.
        weight.update(weight, lr=5e-4, beta2=0.5, grad=torch.zeros(64, 8, dtype=torch.uint8), **kwargs)
        return weight

    assert torch.equal(after(seed=3, stream=1), after(seed=3, stream=1))
    assert not torch.equal(after(seed=3, stream=1), after(seed=3, stream=2))
    assert not torch.equal(after(seed=3), after(seed=4))
    share = np.unpackbits(after().numpy()).mean()
    assert 0.45 < share < 0.55
