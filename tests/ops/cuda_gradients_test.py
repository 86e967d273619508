"""What the backward passes do to each element on CUDA.

With one output feature, and gradients that bfloat16 holds, the product is exact, so all else shows.
"""

import math

import pytest
import torch
from both_devices import BF16, FLOATS, codes, moved, numbers

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")


def backward_of(operators, layer):
    """The operator of a parametrised name, and the keywords that it wants."""
    keywords = {"weight_grad": torch.float32}
    if layer != "binary":
        keywords |= {"eps": 1e-5, "reference_grad": layer.endswith("reference"), "plain_codes": False}
    return getattr(operators, layer.split("_")[0] + "_linear_backward"), keywords


LAYERS = pytest.mark.parametrize("layer", ["binary", "q8", "q8_reference", "q4", "q4_reference"])


@pytest.mark.parametrize(("rows", "k"), [(5, 1), (5, 7), (613, 33), (5, 4097), (300, 260)])
@pytest.mark.parametrize("scale_a", [0.25, 0.0], ids=["scaled", "zero"])
@LAYERS
@FLOATS
def test_gradients(operators, layer, dtype, scale_a, rows, k):
    op, keywords = backward_of(operators, layer)
    x = numbers(rows, k, dtype=dtype, seed=1)
    bias = None
    for weight, is_codes in ((numbers(1, k, dtype=dtype, seed=2), False), (codes(1, k, bits=4, seed=3), True)):
        if scale_a == 0:
            x, bias = torch.zeros_like(x), None
        if layer != "binary":
            keywords["plain_codes"] = is_codes
        g = numbers(rows, 1, seed=4).bfloat16().float()
        arguments = [g, x, weight, torch.tensor(scale_a), torch.tensor(0.5), bias]
        wide = moved(torch.cat([x, x], 1))[:, :k]  # rows that are not dense
        ours = op(moved(g), wide, *[moved(a) for a in arguments[2:]], **keywords)
        cpu = op(*arguments, **keywords)
        assert torch.equal(ours[0].cpu(), cpu[0])  # but for the sign of a zero, which the product before it decides
        torch.testing.assert_close(ours[1].cpu(), cpu[1], rtol=1e-2 if dtype == BF16 else 1e-3, atol=1e-4)
        assert math.isclose(float(ours[2]), float(cpu[2]), rel_tol=2**-20, abs_tol=1e-9)
        if bias is not None:
            torch.testing.assert_close(ours[3].cpu(), cpu[3], rtol=1e-5, atol=1e-5)
        bias = numbers(k, seed=5)  # from the next turn on


@LAYERS
@FLOATS
def test_the_weights_gradient_in_every_dtype(operators, layer, dtype):
    op, keywords = backward_of(operators, layer)
    x, g, weight = (
        numbers(*size, dtype=dtype, seed=seed).cuda() for seed, size in enumerate([(70, 33), (70, 9), (9, 33)])
    )
    arguments = [g, x, weight, torch.tensor(0.3).cuda(), torch.tensor(0.5).cuda(), numbers(33, seed=4).cuda()]
    wanted = op(*arguments, **keywords)[1]
    assert wanted.abs().max() > 0
    codes_of = op(*arguments, **keywords | {"weight_grad": torch.int8})[1]
    assert torch.equal(codes_of, operators.int8_grad(wanted))
    halves = op(*arguments, **keywords | {"weight_grad": BF16})[1]
    assert torch.equal(halves, wanted.to(BF16))
    assert op(*arguments, **keywords | {"weight_grad": None})[1] is None
