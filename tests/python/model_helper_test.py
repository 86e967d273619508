"""The small helpers of BITorch Engine: shapes, padding, first integers of a binary weight."""

import numpy as np
import pytest
import torch
from torch import nn

from bie import ShapeError
from bie.weights.parameters import SignsParameter
from bitorch_engine.utils.model_helper import (
    binary_matmul_forward_post_processing,
    flatten_x,
    init_weight,
    pad_embedding_dim,
    pad_last_2_dims_to_multiple_of_128,
    unflatten_x,
)

# Prepare and pack


# Save and load


# Shapes


@pytest.mark.parametrize("shape", [(3,), (2, 5), (2, 3, 4), (2, 3, 4, 5), (0, 3), (2, 0)])
def test_flatten_and_back(shape):
    x = torch.randn(*shape)
    flat, leading = flatten_x(x)
    assert flat.shape == (int(np.prod(shape[:-1], dtype=int)), shape[-1]) and leading == list(shape[:-1])
    assert torch.equal(unflatten_x(flat, leading), x)
    strided = torch.randn(4, 3, 2).transpose(0, 2)
    assert torch.equal(flatten_x(strided)[0], strided.reshape(6, 4))


def test_flatten_refusals():
    with pytest.raises(ShapeError, match="at least one axis"):
        flatten_x(torch.tensor(1.0))
    with pytest.raises(ShapeError, match=r"x: expected \[4, n\] for \[2, 2\], got \[6, 2\]"):
        unflatten_x(torch.ones(6, 2), [2, 2])
    with pytest.raises(ShapeError):
        unflatten_x(torch.ones(6), [2, 3])


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int8])
@pytest.mark.parametrize("width", [1, 7, 8, 9, 24])
def test_pad_embedding_dim(width, dtype):
    weight = torch.ones(3, width, dtype=dtype)
    padded = pad_embedding_dim(weight)
    assert padded.shape == (3, 8 * -(-width // 8)) and padded.dtype == dtype
    assert (padded[:, :width] == 1).all() and (padded[:, width:] == -1).all()
    with pytest.raises(ShapeError):
        pad_embedding_dim(weight[0])
    images = torch.ones(2, 16, 4, dtype=dtype)
    assert pad_embedding_dim(images) is images
    with pytest.raises(ShapeError):
        pad_embedding_dim(images[:, :15])


@pytest.mark.parametrize("shape", [(1, 1), (128, 128), (3, 127, 129), (2, 3, 256, 5)])
def test_pad_to_128(shape):
    x = torch.randn(*shape)
    padded, rows = pad_last_2_dims_to_multiple_of_128(x)
    assert padded.shape == (*shape[:-2], 128 * -(-shape[-2] // 128), 128 * -(-shape[-1] // 128))
    assert rows == padded.size(-2) - shape[-2]
    assert torch.equal(padded[..., : shape[-2], : shape[-1]], x) and padded.double().sum() == pytest.approx(
        x.double().sum().item(), abs=1e-9
    )
    with pytest.raises(ShapeError):
        pad_last_2_dims_to_multiple_of_128(torch.ones(3))


def test_post_processing_of_matmul():
    counts = torch.randint(0, 40, (6, 8, 7)).float()
    y = binary_matmul_forward_post_processing(counts, [2, 3], 3, 2, 40)
    assert torch.equal(y, (40 - 2 * counts[:, :5, :5]).view(2, 3, 5, 5))
    assert torch.equal(binary_matmul_forward_post_processing(counts, [6], 0, 0, 1), 1 - 2 * counts)
    for bad in [([2, 2], 0, 0), ([6], 9, 0), ([6], 0, 8), ([6], -1, 0)]:
        with pytest.raises(ShapeError):
            binary_matmul_forward_post_processing(counts, *bad, 40)
    with pytest.raises(ShapeError):
        binary_matmul_forward_post_processing(counts[0], [8], 0, 0, 40)


# init_weight


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("shape", [(1, 1), (5, 7), (4, 3, 3, 3)])
def test_init_weight_is_the_formula(shape, dtype):
    weight = torch.randn(*shape, generator=torch.Generator().manual_seed(2)).to(dtype)
    q, scale = init_weight(weight, SignsParameter)
    w = weight.float().numpy().astype(np.float64)
    assert type(q) is SignsParameter and q.dtype == torch.int8 and not q.requires_grad
    assert scale.item() == pytest.approx(np.abs(w).mean(), rel=1e-6) and scale.dim() == 0
    centred = (w - w.mean()).astype(np.float32)
    top = max(centred.max(), 0)
    wanted = np.clip(np.rint(centred * (np.float32(127) / top)), -127, 127) if top else np.zeros_like(centred)
    wanted = np.where(wanted == 0, np.sign(centred), wanted)
    wanted = np.where(wanted == 0, 1, wanted)
    assert np.abs(q.detach().numpy() - wanted).max() <= 1  # the mean's last bit
    assert (np.sign(q.detach().numpy()) == np.sign(wanted))[np.abs(centred) > 1e-6].all() and q.all()


def test_init_weight_classes_and_refusals():
    assert type(init_weight(torch.ones(2, 2))[0]) is nn.Parameter
    assert (init_weight(torch.full((2, 2), 0.3))[0] == 1).all()
    with pytest.raises(ValueError, match="NaN or infinity"):
        init_weight(torch.tensor([[float("inf"), 1.0]]))
    with pytest.raises(ValueError, match="at least one element"):
        init_weight(torch.empty(0, 3))
    with pytest.raises(TypeError):
        init_weight(torch.ones(2, 2, dtype=torch.int8))
