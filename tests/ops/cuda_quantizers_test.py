"""Quantizers, integer gradients and first scales on CUDA: the CPU's integers and floats to the bit."""

import pytest
import torch
from both_devices import BF16, FLOATS, INF, NAN, SIZES, SPECIAL, both, forms, moved, numbers, same, shaped

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")


@pytest.mark.parametrize("name", ["q8_quantize", "q4_quantize"])
@FLOATS
@SIZES
def test_codes(operators, name, size, dtype):
    op = getattr(operators, name)
    for x in forms(numbers(*shaped(size), dtype=dtype)):
        both(op, x)
        both(op, x, torch.tensor(0.037))
        both(op, x, torch.tensor([1e-9]), 1e-3)
        given = op(moved(x), torch.tensor(0.037, dtype=BF16))  # a number on the CPU is read there
        same(given, op(x, torch.tensor(0.037, dtype=BF16)))


@pytest.mark.parametrize("name", ["q8_quantize", "q4_quantize"])
def test_codes_at_the_edges(operators, name):
    op = getattr(operators, name)
    ties = torch.tensor([0.5, 1.5, 2.5, -0.5, -1.5, -2.5, 1e30, -1e30, 3e38, -0.0])
    both(op, ties, torch.tensor(1.0))
    both(op, torch.tensor(SPECIAL), torch.tensor(1e-20))
    both(op, torch.zeros(3, 5))
    both(op, torch.zeros(0, 5))
    for poison in (NAN, INF, -INF):
        x = torch.ones(4097).index_fill_(0, torch.tensor([4000]), poison).cuda()
        assert op(x)[1].isnan()
        assert op(x, torch.tensor(1.0).cuda())[1].isnan()
    assert op(torch.ones(5).cuda(), torch.tensor(NAN).cuda())[1].isnan()


@FLOATS
def test_a_mean_is_the_cpus_but_for_its_last_bit(operators, dtype):
    for size in (1, 1000, 999_999):
        x = torch.randn(size, generator=torch.Generator().manual_seed(size)).to(dtype)
        q, scale = operators.q8_quantize(x.cuda())
        wanted = float(operators.q8_quantize(x)[1])
        assert abs(float(scale) - wanted) <= wanted * 2**-22
        same(q, operators.q8_quantize(x, scale.cpu())[0])


@FLOATS
@SIZES
def test_amax_quantize(operators, size, dtype):
    for x in forms(numbers(*shaped(size), dtype=dtype)):
        x.flatten(0, -1)[0] = 5  # a maximum above 0
        x = x if x.max() > 0 else -x
        for bits in (2, 4, 8, 16):
            both(operators.amax_quantize, x, None, bits)
        both(operators.amax_quantize, x, torch.tensor(2.0))
        both(operators.amax_quantize, x, torch.full((1,) * x.dim(), 2.0), narrow_range=False)
        both(operators.amax_quantize, x.abs(), unsigned=True)
    same(operators.amax_quantize(moved(x), torch.tensor(2.0)), operators.amax_quantize(x, torch.tensor(2.0)))


def test_amax_quantize_at_the_edges(operators):
    op = operators.amax_quantize
    both(op, torch.zeros(4))
    both(op, torch.tensor([-1.0, -0.0, 1.0]), torch.tensor(0.0))
    both(op, torch.tensor([2.0**-25, -(2.0**-26)]))
    both(op, torch.tensor(3.0))
    for x, keywords in (
        (torch.tensor([1.0, NAN]), {}),
        (torch.tensor([1.0, INF]), {}),
        (torch.tensor([-1.0, -2.0]), {}),
        (torch.tensor([-1.0, 2.0]), {"unsigned": True}),
        (torch.ones(2), {"amax": torch.tensor(-1.0).cuda()}),
        (torch.ones(2), {"amax": torch.tensor(NAN).cuda()}),
    ):
        q, scale = op(x.cuda(), **keywords)
        assert q.isnan().all() and scale.isnan().all()
    with pytest.raises(ValueError, match="amax: expected a finite number >= 0, got -1"):
        op(torch.ones(2).cuda(), torch.tensor(-1.0))
    with pytest.raises(ValueError, match="at least one element"):
        op(torch.ones(0).cuda())


@FLOATS
@SIZES
def test_int8_grad(operators, size, dtype):
    g = torch.randn(size, generator=torch.Generator().manual_seed(4)).to(dtype)
    poisoned = [g.index_fill(0, torch.tensor([size // 2]), v) for v in (NAN, INF, -INF)]
    zeros = torch.zeros_like(g)
    for case in (*forms(g.view(shaped(size))), -g.abs() - 0.1, zeros, -zeros, g.where(g < 0, 1e-45), *poisoned):
        both(operators.int8_grad, case)
    both(operators.int8_grad, g[:0])
    both(operators.int8_grad, (g * 1e-38).to(dtype))


def test_int8_grad_of_more_elements_than_a_grid_has_threads_for(operators):
    both(operators.int8_grad, torch.randn(2_100_003, generator=torch.Generator().manual_seed(5)))


def test_int8_grad_of_special_numbers(operators):
    both(operators.int8_grad, torch.tensor(SPECIAL))
    both(operators.int8_grad, torch.tensor([1e-45, -1e-45, 0.0]))
    both(operators.int8_grad, torch.tensor([-1e-45, 0.0]))


@FLOATS
@SIZES
def test_binary_init(operators, size, dtype):
    for w in forms(numbers(*shaped(size), dtype=dtype, seed=6)):
        both(operators.binary_init, w)
    both(operators.binary_init, torch.full((3, 3), 0.5, dtype=dtype))
    assert operators.binary_init(torch.tensor([1.0, NAN, 2.0], dtype=dtype).cuda())[1].isnan()


@FLOATS
@SIZES
def test_init_scale(operators, size, dtype):
    for x in forms(numbers(*shaped(size), dtype=dtype, seed=7)):
        both(operators.init_scale_, torch.tensor(0.0), x, 2.0)
        both(operators.init_scale_, torch.tensor([0.0]), x, 0.5)
        both(operators.init_scale_, torch.tensor(0.25), x, 2.0)
    both(operators.init_scale_, torch.tensor(0.0), x[:0], 2.0)
    scale = torch.tensor(0.0).cuda()
    version = scale._version
    for bad in (NAN, INF):  # leaves it to the next batch
        operators.init_scale_(scale, torch.tensor([bad], dtype=dtype).cuda(), 2.0)
        assert scale == 0 and scale._version > version
