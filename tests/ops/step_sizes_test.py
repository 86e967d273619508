"""step_sizes: the two rules against their formulas, rows, dtypes, refusals."""

import pytest
import torch


@pytest.mark.parametrize("bits", [8, 4])
def test_percentile(operators, bits):
    x = torch.randn(3, 5, 101, generator=torch.Generator().manual_seed(0))
    largest = 127 if bits == 8 else 7
    for percentile in (100.0, 99.0, 50.0):
        sizes = x.flatten(1).abs().sort(1).values
        wanted = sizes[:, round(percentile / 100 * (sizes.shape[1] - 1))] / largest
        found = operators.step_sizes(x, bits, "percentile", percentile)
        torch.testing.assert_close(found, wanted, rtol=1e-6, atol=0)


@pytest.mark.parametrize("bits", [8, 4])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_least_squares(operators, bits, dtype):
    x = torch.randn(2, 500, generator=torch.Generator().manual_seed(0)).to(dtype)
    low, high = (-128, 127) if bits == 8 else (-8, 7)
    values = x.double()
    widest = values.abs().amax(1) / high

    def error(steps):
        return ((values / steps[:, None]).round().clamp(low, high) * steps[:, None] - values).square().sum(1)

    wanted = torch.stack([error(widest * 0.96**i) for i in range(84)]).amin(0)
    torch.testing.assert_close(error(operators.step_sizes(x, bits).double()), wanted, rtol=1e-3, atol=1e-9)


def test_zeros_and_no_rows(operators):
    assert (operators.step_sizes(torch.zeros(2, 3), 8) > 0).all()
    assert operators.step_sizes(torch.zeros(0, 3), 8).shape == (0,)
    assert operators.step_sizes(torch.zeros(4, 3, device="meta"), 8).shape == (4,)


@pytest.mark.parametrize(
    ("args", "words"),
    [
        ((torch.ones(2), 3), "bits: expected 8 or 4, got 3"),
        ((torch.ones(()), 8), "0-dimensional"),
        ((torch.ones(2), 8, "best"), "rule: expected 'mse' or 'percentile', got 'best'"),
        ((torch.ones(2), 8, "percentile", 0.0), "percentile: expected a number above 0 and up to 100, got 0"),
        ((torch.ones(2), 8, "percentile", 101.0), "percentile: expected a number above 0 and up to 100, got 101"),
    ],
)
def test_refusals(operators, args, words):
    with pytest.raises(ValueError, match=words):
        operators.step_sizes(*args)
    with pytest.raises(TypeError):
        operators.step_sizes(torch.ones(2, dtype=torch.int8), 8)
