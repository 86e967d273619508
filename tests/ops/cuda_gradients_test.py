"""What the backward passes do to each element on CUDA.

With one output feature, and gradients that bfloat16 holds, the product is exact, so all else shows.
"""

import math

import pytest
import torch
from both_devices import BF16, FLOATS, codes, moved, numbers

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")


@pytest.mark.parametrize("k", [1, 7, 33, 4097])
@pytest.mark.parametrize("scale_a", [0.25, 0.0], ids=["scaled", "zero"])
@pytest.mark.parametrize("layer", ["binary", "q8", "q8_reference", "q4", "q4_reference"])
@FLOATS
def test_gradients(operators, layer, dtype, scale_a, k):
    x = numbers(5, k, dtype=dtype, seed=1)
    if scale_a == 0:
        x.zero_()
    for weight, is_codes in ((numbers(1, k, dtype=dtype, seed=2), False), (codes(1, k, bits=4, seed=3), True)):
        g = numbers(5, 1, seed=4).bfloat16().float()
        arguments = [g, x, weight, torch.tensor(scale_a), torch.tensor(0.5), None]
        keywords = {"want_weight": True}
        if layer != "binary":
            keywords |= {"eps": 1e-5, "reference_grad": layer.endswith("reference"), "plain_codes": is_codes}
        op = getattr(operators, layer.split("_")[0] + "_linear_backward")
        ours = op(*[moved(a) for a in arguments], **keywords)
        cpu = op(*arguments, **keywords)
        assert torch.equal(ours[0].cpu(), cpu[0])  # but for the sign of a zero, which the product before it decides
        torch.testing.assert_close(ours[1].cpu(), cpu[1], rtol=1e-2 if dtype == BF16 else 1e-3, atol=1e-4)
        assert math.isclose(float(ours[2]), float(cpu[2]), rel_tol=2**-22, abs_tol=1e-9)
