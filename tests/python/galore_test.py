"""GaLoreProjector against numpy's singular value decomposition, and in DiodeMix."""

import copy
import io

import numpy as np
import pytest
import torch
from torch import nn

from bie import ShapeError
from bie.optim import DiodeMix, GaLoreProjector

SHAPES = [(7, 5), (5, 7), (6, 6), (33, 3), (1, 9)]
SIDES = {
    ("std", True): "right",
    ("std", False): "left",
    ("reverse_std", True): "left",
    ("reverse_std", False): "right",
}


def gradient(m, n, seed=0, dtype=torch.float64):
    return torch.randn(m, n, dtype=torch.float64, generator=torch.Generator().manual_seed(seed + m + 31 * n)).to(dtype)


def side_of(kind, m, n):
    return SIDES.get((kind, m >= n), kind)


def truncated(grad, rank, side):
    """What project and project_back make of a matrix: it is unique, the singular vectors' signs are not."""
    u, s, vh = np.linalg.svd(grad.numpy(), full_matrices=False)
    r = min(rank, len(s))
    left, right = u[:, :r] @ u[:, :r].T, vh[:r].T @ vh[:r]
    full = grad.numpy()
    return (left @ full if side != "right" else full) @ (right if side != "left" else np.eye(full.shape[1]))


@pytest.mark.parametrize("kind", ["std", "reverse_std", "right", "left", "full"])
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("rank", [1, 3, 99])
def test_projection_there_and_back(shape, kind, rank):
    m, n = shape
    grad = gradient(m, n)
    projector = GaLoreProjector(rank, scale=0.25, proj_type=kind)
    low = projector.project(grad, 0)
    side, r = side_of(kind, m, n), min(rank, m, n)
    assert low.shape == {"right": (m, r), "left": (r, n), "full": (r, r)}[side]
    assert low.dtype == grad.dtype
    assert np.allclose(projector.project_back(low).numpy(), 0.25 * truncated(grad, rank, side), atol=1e-12)
    singular = np.linalg.svd(low.numpy(), compute_uv=False)
    assert np.allclose(singular[:r], np.linalg.svd(grad.numpy(), compute_uv=False)[:r])


def test_a_later_gradient_is_projected_on_the_kept_vectors():
    first, second = gradient(8, 4, 1), gradient(8, 4, 2)
    projector = GaLoreProjector(2, update_proj_gap=3)
    projector.project(first, 1)
    kept = projector.ortho_matrix.clone()
    for step in (2, 4, 5):
        assert torch.equal(projector.project(second, step), second @ kept.mT)
    projector.project(second, 6)
    assert not torch.equal(projector.ortho_matrix, kept)
    assert np.allclose(projector.project_back(projector.project(second, 7)).numpy(), truncated(second, 2, "right"))


@pytest.mark.parametrize("kind", ["right", "left", "full"])
def test_orthogonal_matrices(kind):
    projector = GaLoreProjector(1)
    found = projector.get_orthogonal_matrix(gradient(6, 5), 3, kind)
    matrices = found if kind == "full" else [found]
    shapes = {"right": [(3, 5)], "left": [(6, 3)], "full": [(6, 3), (3, 5)]}[kind]
    assert [tuple(matrix.shape) for matrix in matrices] == shapes
    for matrix in matrices:
        product = matrix @ matrix.mT if matrix.size(0) == 3 else matrix.mT @ matrix
        assert torch.allclose(product, torch.eye(3, dtype=torch.float64))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_other_dtypes(dtype):
    grad = gradient(9, 4, dtype=dtype)
    projector = GaLoreProjector(4)
    low = projector.project(grad, 0)
    assert low.dtype == dtype
    error = (projector.project_back(low).double() - grad.double()).abs().max()
    assert error <= 8 * torch.finfo(dtype).eps * grad.double().abs().max()


def test_attributes_and_copies():
    projector = GaLoreProjector(3, True, 50, 0.5, "left")
    assert (projector.rank, projector.verbose, projector.update_proj_gap) == (3, True, 50)
    assert (projector.scale, projector.proj_type, projector.ortho_matrix) == (0.5, "left", None)
    low = projector.project(gradient(4, 6), 0)
    assert torch.equal(copy.deepcopy(projector).project_back(low), projector.project_back(low))


def test_refusals():
    for kwargs, words in [
        ({"rank": 0}, "rank and update_proj_gap: expected 1 or more, got 0"),
        ({"rank": 2, "update_proj_gap": 0}, "rank and update_proj_gap: expected 1 or more, got 2 and 0"),
        ({"rank": 2, "proj_type": "diagonal"}, "'diagonal'"),
    ]:
        with pytest.raises(ValueError, match=words):
            GaLoreProjector(**kwargs)
    projector = GaLoreProjector(2)
    with pytest.raises(RuntimeError, match="the vectors that project makes"):
        projector.project_back(gradient(4, 2))
    for bad in (torch.ones(3), torch.ones(2, 3, 4), torch.ones(0, 3), torch.ones(2, 3, dtype=torch.int8)):
        with pytest.raises(ShapeError, match="expected a float matrix, got"):
            projector.project(bad, 0)
    for poison in (float("nan"), float("inf")):
        with pytest.raises(ValueError, match="NaN or infinity"):
            projector.project(torch.full((2, 3), poison), 0)
    projector.project(gradient(6, 4), 0)
    with pytest.raises(ShapeError, match=r"the gradient is \[6, 5\]"):
        projector.project(gradient(6, 5), 1)
    with pytest.raises(ShapeError, match=r"low_rank_grad: expected the rank of the vectors, got \[6, 4\]"):
        projector.project_back(gradient(6, 4))
    with pytest.raises(ValueError, match="type: expected right, left or full, got 'std'"):
        projector.get_orthogonal_matrix(gradient(3, 3), 1, "std")


def test_low_rank_groups():
    """A GaLore group learns a low-rank map; its moments have the projector's shape."""
    torch.manual_seed(0)
    target = torch.randn(12, 2) @ torch.randn(2, 20)
    p, vector = nn.Parameter(torch.zeros(12, 20)), nn.Parameter(torch.zeros(20))
    group = {"params": [p, vector], "rank": 3, "update_proj_gap": 10, "scale": 1.0, "proj_type": "std"}
    optimizer = DiodeMix([group], lr=0.05, betas=(0.9, 0.99))
    for _ in range(200):
        optimizer.zero_grad()
        loss = (p + vector - target).square().mean()
        loss.backward()
        optimizer.step()
    assert float(loss) < 0.1 * float(target.square().mean())
    assert optimizer.state[p]["exp_avg_l"].numel() == 3 * 20
    assert optimizer.state[vector]["exp_avg_l"].shape == (20,)
    with pytest.raises(ValueError, match="update_proj_gap"):
        DiodeMix([{"params": [nn.Parameter(torch.zeros(2, 2))], "rank": 1}])


@pytest.mark.parametrize("kind", ["std", "reverse_std", "left", "right", "full"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("old_file", [False, True])
def test_a_galore_state_is_plain_and_goes_on_to_the_bit(kind, dtype, old_file):
    def make():
        p = nn.Parameter(torch.randn(6, 4, generator=torch.Generator().manual_seed(1)).to(dtype))
        group = {"params": [p], "rank": 2, "update_proj_gap": 4, "scale": 0.5, "proj_type": kind}
        return p, DiodeMix([group], lr=1e-2)

    def train(p, optimizer, numbers):
        for number in numbers:
            p.grad = torch.randn(p.shape, generator=torch.Generator().manual_seed(number)).to(dtype)
            optimizer.step()

    p, optimizer = make()
    train(p, optimizer, range(3))
    state = optimizer.state_dict()
    if old_file:  # which held the projector itself
        state["state"][0] = state["state"][0] | {"projector": optimizer.state[p]["projector"]}
    file = io.BytesIO()
    torch.save({"p": p.detach(), "optimizer": state}, file)
    file.seek(0)
    saved = torch.load(file, weights_only=not old_file)
    other, twin = make()
    with torch.no_grad():
        other.copy_(saved["p"])
    twin.load_state_dict(saved["optimizer"])
    train(p, optimizer, range(3, 8))
    train(other, twin, range(3, 8))
    assert torch.equal(p, other)
    assert optimizer.state_dict()["state"][0]["projector"].keys() == twin.state_dict()["state"][0]["projector"].keys()
