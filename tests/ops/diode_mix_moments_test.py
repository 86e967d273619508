"""The first moments of DiodeMix against their formula in float64: 1 - beta must not be rounded before it is used."""

import pytest
import torch


@pytest.mark.parametrize("beta2", [0.99, 0.999, 0.9999])
def test_first_moments_of_floats(operators, beta2):
    g = torch.randn(1000, generator=torch.Generator().manual_seed(0))
    p, first, second = torch.zeros(1000), torch.zeros(1000), torch.zeros(1000)
    operators.diode_mix_float_(p, g, first, second, step=1, lr=0.1, beta1=0.9, beta2=beta2, eps=1e-6)
    # 1 - float32(0.9999) is off by 1.7e-4 of itself, a rounded product by 1.2e-7.
    torch.testing.assert_close(second.double(), (1 - beta2) * g.double() ** 2, rtol=3e-7, atol=0)
    torch.testing.assert_close(first.double(), (1 - 0.9) * g.double(), rtol=3e-7, atol=0)
