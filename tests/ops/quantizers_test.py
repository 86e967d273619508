"""The quantizers of docs/spec/quantizers.md against their formulas, at their edges, and their refusals."""

import formulas
import pytest
import torch
from formulas import Q4, Q8

NAN, INF = float("nan"), float("inf")
FLOATS = [torch.float32, torch.bfloat16, torch.float16]
WIDTHS = pytest.mark.parametrize("width", [Q8, Q4], ids=["q8", "q4"])


def op(operators, width):
    return operators.q8_quantize if width is Q8 else operators.q4_quantize


@WIDTHS
@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("shape", [(1,), (3, 7), (2, 3, 5), (16385,), (3, 16384)])
def test_codes_and_scale(operators, shape, dtype, width):
    x = torch.randn(shape, generator=torch.Generator().manual_seed(1)).to(dtype)
    q, scale = op(operators, width)(x)
    mean = x.double().abs().mean().float()
    assert scale.dtype == torch.float32 and scale.shape == ()
    assert float(scale) == float((mean.double() * (2 / width.constant)).float())
    assert q.dtype == torch.int8
    assert torch.equal(q.float(), formulas.codes(x, float(scale), width))
    given = torch.tensor(0.05)
    q, scale = op(operators, width)(x, given)
    assert float(scale) == float(given)
    assert torch.equal(q.float(), formulas.codes(x, float(given), width))


@WIDTHS
def test_ties_go_to_even_and_ends_clamp(operators, width):
    x = torch.tensor([0.5, 1.5, 2.5, -0.5, -1.5, -2.5, 1e30, -1e30, 3e38, -0.0])
    q, _ = op(operators, width)(x, torch.tensor(1.0))
    assert q.tolist() == [0, 2, 2, 0, -2, -2, width.hi, width.lo, width.hi, 0]


@WIDTHS
def test_zeros_and_empty(operators, width):
    q, scale = op(operators, width)(torch.zeros(3, 5))
    assert float(scale) == 0 and not q.any()
    q, scale = op(operators, width)(torch.zeros(0, 5))
    assert q.shape == (0, 5) and float(scale) == 0


@WIDTHS
def test_refusals(operators, width):
    call = op(operators, width)
    with pytest.raises(TypeError, match="x: expected float32, bfloat16 or float16, got Double"):
        call(torch.ones(3).double())
    for poison in (NAN, INF):
        with pytest.raises(ValueError, match="NaN or infinity"):
            call(torch.tensor([1.0, poison]))
        with pytest.raises(ValueError, match="NaN or infinity"):
            call(torch.tensor([1.0, poison]), torch.tensor(1.0))
    with pytest.raises(ValueError, match="scale: expected a finite number, got nan"):
        call(torch.ones(3), torch.tensor(NAN))
    with pytest.raises(ValueError, match="one element"):
        call(torch.ones(3), torch.ones(2))
    with pytest.raises(ValueError, match="eps: expected a positive number, got -1"):
        call(torch.ones(3), eps=-1.0)


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("bits", [2, 4, 8])
@pytest.mark.parametrize("narrow", [True, False])
def test_amax_quantize_signed(operators, dtype, bits, narrow):
    x = torch.randn(5, 9, generator=torch.Generator().manual_seed(2)).to(dtype)
    q, scale = operators.amax_quantize(x, num_bits=bits, narrow_range=narrow)
    bound = 2 ** (bits - 1) - 1
    wanted_scale = torch.tensor(float(bound)) / x.float().max()
    assert scale.shape == (1, 1) and float(scale) == float(wanted_scale)
    assert q.dtype == dtype
    wanted = torch.clamp(torch.round(x.float() * wanted_scale), -bound if narrow else -bound - 1, bound)
    assert torch.equal(q.float(), wanted)


def test_amax_quantize_edges(operators):
    call = operators.amax_quantize
    q, scale = call(torch.zeros(4))
    assert not q.any() and float(scale) == 1
    tiny = torch.tensor([2.0**-25, -(2.0**-26)])
    q, scale = call(tiny)
    assert q.tolist() == [127, -64] and float(scale) == 1
    q, scale = call(torch.tensor([0.0, 1.0, 2.0]), unsigned=True)
    assert q.tolist() == [0, 128, 255] and float(scale) == 127.5
    q, _ = call(torch.tensor([1.0, 5.0]), torch.tensor(2.0))
    assert q.tolist() == [64, 127]
    assert call(torch.ones(2, 3), torch.full((1, 1), 2.0))[0].shape == (2, 3)


@pytest.mark.parametrize("amax", [1e-36, 3.7e-37, 3e-37, 1e-38, 127e-45, 1.4e-45])
def test_an_amax_next_to_nothing_gives_the_usual_codes(operators, amax):
    """bound / amax is beyond float32 there; shares that are no ties round the same in float32 and in float64."""
    x = torch.tensor([amax, 0.31 * amax, 0.0, -0.71 * amax, -amax, -3.0])
    share = x.double() / x.double().max()
    wanted = torch.clamp(torch.round(share * 127), -127, 127)
    q, scale = operators.amax_quantize(x)
    assert torch.equal(q.double(), wanted) and float(scale) == 1
    assert torch.equal(operators.int8_grad(x).double(), wanted)
    wide, _ = operators.amax_quantize(x.abs(), torch.tensor(amax), num_bits=16, unsigned=True)
    assert torch.equal(wide.double(), torch.clamp(torch.round(share.abs() * 65535), 0, 65535))
    signs, scale_w = operators.binary_init(torch.tensor([amax, -amax]))
    assert signs.tolist() == [127, -127] and float(scale_w) == float(torch.tensor(amax))


def test_amax_quantize_refusals(operators):
    call = operators.amax_quantize
    with pytest.raises(TypeError, match="negative values"):
        call(torch.tensor([-1.0, 1.0]), unsigned=True)
    with pytest.raises(ValueError, match="amax: expected a finite number >= 0, got -1"):
        call(torch.tensor([-1.0, -2.0]))
    with pytest.raises(ValueError, match="amax: expected a finite number >= 0, got -2"):
        call(torch.ones(3), torch.tensor(-2.0))
    with pytest.raises(ValueError, match=r"rank 0 or 2"):
        call(torch.ones(3, 2), torch.ones(1))
    with pytest.raises(ValueError, match="at least one element"):
        call(torch.ones(0))
    with pytest.raises(ValueError, match="NaN or infinity"):
        call(torch.tensor([NAN, 1.0]))
    with pytest.raises(ValueError, match="num_bits: expected 2 to 16, got 1"):
        call(torch.ones(3), num_bits=1)
    with pytest.raises(TypeError, match="x: expected float32, bfloat16 or float16, got Int"):
        call(torch.ones(3, dtype=torch.int32))


@pytest.mark.parametrize("dtype", FLOATS)
def test_int8_grad(operators, dtype):
    g = torch.randn(7, 9, generator=torch.Generator().manual_seed(4)).to(dtype)
    for case in (
        g,
        -g.abs() - 0.1,
        torch.zeros_like(g),
        g.where(g < 0, 1e-45),
        g.where(g < 1, NAN),
        g.where(g < 1, -INF),
        g[:0],
    ):
        q = operators.int8_grad(case)
        assert q.dtype == torch.int8
        wanted = formulas.int8_grad(case) if case.numel() else torch.zeros(0, 9, dtype=torch.int8)
        assert torch.equal(q, wanted)
    assert operators.int8_grad(-g.abs() - 0.1).min() == -127  # BIE raises for an all-negative gradient
    with pytest.raises(TypeError, match="g: expected float32, bfloat16 or float16, got Double"):
        operators.int8_grad(g.double())


def test_binary_init(operators):
    w = torch.randn(33, 17, generator=torch.Generator().manual_seed(6))
    w[0, 0] = w.mean() + 1e-6  # rounds to 0, so its sign is taken
    q, scale = operators.binary_init(w)
    assert q.dtype == torch.int8 and q.ne(0).all()
    assert float(scale) == float(w.double().abs().mean().float())
    centred = w - w.double().mean().float()
    assert torch.equal(q.sign(), torch.where(centred >= 0, 1, -1).to(torch.int8))
    assert q.max() == 127
    wanted = torch.clamp(torch.round(centred * (torch.tensor(127.0) / centred.max())), -127, 127)
    assert torch.equal(q[wanted != 0].float(), wanted[wanted != 0])
    q, scale = operators.binary_init(torch.full((3, 3), 0.5))
    assert q.eq(1).all() and float(scale) == 0.5
    with pytest.raises(ValueError, match="NaN or infinity"):
        operators.binary_init(torch.tensor([[NAN, 1.0]]))
    with pytest.raises(ValueError, match="at least one element"):
        operators.binary_init(torch.ones(0, 3))
    with pytest.raises(TypeError, match="weight: expected float32, bfloat16 or float16, got Char"):
        operators.binary_init(torch.ones(3, 3, dtype=torch.int8))


def test_init_scale(operators):
    x = torch.randn(50, 70, generator=torch.Generator().manual_seed(7)).bfloat16()
    scale = torch.tensor(0.0)
    operators.init_scale_(scale, x, 2.0)
    assert float(scale) == float(2 * x.double().abs().mean().float())
    before = float(scale)
    operators.init_scale_(scale, 10 * x, 2.0)
    assert float(scale) == before
    learned = torch.tensor(0.0, requires_grad=True)
    with torch.no_grad():
        operators.init_scale_(learned, x, 2.0)
    assert float(learned.detach()) == before
    with pytest.raises(TypeError, match="scale_a: expected float32, got Half"):
        operators.init_scale_(torch.tensor(0.0).half(), x, 2.0)
    with pytest.raises(ValueError, match="c: expected a positive number, got 0"):
        operators.init_scale_(torch.tensor(0.0), x, 0.0)
    with pytest.raises(ValueError, match="NaN or infinity"):
        operators.init_scale_(torch.tensor(0.0), torch.tensor([NAN]), 2.0)


def test_mean_does_not_depend_on_threads(operators):
    x = torch.randn(300_001, generator=torch.Generator().manual_seed(8))
    threads = torch.get_num_threads()
    try:
        scales = set()
        for n in (1, 2, 3):
            torch.set_num_threads(n)
            scales.add(float(operators.q8_quantize(x)[1]))
        assert len(scales) == 1
    finally:
        torch.set_num_threads(threads)
