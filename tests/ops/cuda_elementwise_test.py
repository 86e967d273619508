"""Everything elementwise on CUDA against the CPU: quantizers, packing, layouts, gradients of scales, steps of DiodeMix.

Results are compared to the bit. So are means here: the values are multiples of 2^-10, small enough that a float64 sum
of them is exact in any order, except where a test says otherwise.
"""

import math
import random

import pytest
import torch

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")

NAN, INF = float("nan"), float("inf")
F32, F16, BF16 = torch.float32, torch.float16, torch.bfloat16
FLOATS = pytest.mark.parametrize("dtype", [F32, F16, BF16], ids=["f32", "f16", "bf16"])
SIZES = pytest.mark.parametrize("size", [1, 7, 31, 33, 1000, 4097, 1_000_003])
SPECIAL = [0.0, -0.0, 1e-45, -1e-45, 3e-39, -3e-39, 1e-30, 1.0, -1.0, 3e38, -3e38]


def numbers(*shape, dtype=F32, seed=0):
    """Multiples of 2^-10 in (-8, 8), rounded to `dtype` (which keeps them multiples of 2^-10)."""
    x = torch.randn(shape, generator=torch.Generator().manual_seed(seed)).clamp(-7.9, 7.9)
    return (torch.round(x * 1024) / 1024).to(dtype)


def codes(*shape, bits=8, seed=0):
    half = 2 ** (bits - 1)
    return torch.randint(-half, half, shape, generator=torch.Generator().manual_seed(seed)).to(torch.int8)


def bytes_of(*shape, seed=0):
    return torch.randint(0, 256, shape, generator=torch.Generator().manual_seed(seed)).to(torch.uint8)


def moved(value, device="cuda"):
    """Tensors on the device, with their strides and their place in their storage; lists of them too."""
    if isinstance(value, torch.Tensor):
        whole = torch.empty(0, dtype=value.dtype, device=value.device).set_(value.untyped_storage())
        return whole.to(device, copy=True).as_strided(value.size(), value.stride(), value.storage_offset())
    return [moved(v, device) for v in value] if isinstance(value, (list, tuple)) else value


def same(ours, cpu):
    """One tensor to the bit, all NaNs being alike; or several."""
    if isinstance(cpu, (list, tuple)):
        assert len(ours) == len(cpu)
        for pair in zip(ours, cpu, strict=True):
            same(*pair)
        return
    if not isinstance(cpu, torch.Tensor):
        assert ours == cpu
        return
    assert ours.is_cuda
    ours = ours.cpu()
    assert (ours.dtype, ours.shape) == (cpu.dtype, cpu.shape)
    if cpu.is_floating_point():
        assert torch.equal(ours.isnan(), cpu.isnan())
        kind = {4: torch.int32, 2: torch.int16}[cpu.element_size()]
        ours, cpu = (t.contiguous().view(kind).masked_fill(t.isnan(), 0) for t in (ours, cpu))
    assert torch.equal(ours, cpu)


def both(op, *args, **kwargs):
    """Runs the operator on the CPU and on CUDA: results and, for what is written in place, arguments are the same."""
    on_cuda = [moved(a) for a in args]
    ours, cpu = op(*on_cuda, **kwargs), op(*args, **kwargs)
    if cpu is not None:
        same(ours, cpu)
    same(on_cuda, list(args))
    return ours, cpu


def forms(x):
    """x as it is, and the same numbers with rows apart, turned round, and from an odd address on."""
    yield x
    if x.dim() == 2:
        yield torch.cat([x, x], dim=1)[:, : x.size(1)]
        yield x.t().contiguous().t()
    yield torch.cat([x.flatten()[:1], x.flatten()])[1:].view(x.shape)


def shaped(size):
    return {33: (3, 11), 1000: (40, 25)}.get(size, (size,))


# Quantizers.


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
    with pytest.raises(ValueError, match="amax is -1"):
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


# Packing.

SHAPES = [(1,), (7,), (1, 31), (3, 33), (5, 8), (4, 64), (17, 127), (2, 3, 128), (9, 1000), (3, 4097), (1000, 1001)]


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("dtype", [F32, F16, BF16, torch.int8], ids=["f32", "f16", "bf16", "s8"])
def test_pack_signs(operators, shape, dtype):
    for x in forms(codes(*shape) if dtype == torch.int8 else numbers(*shape, dtype=dtype)):
        both(operators.pack_signs, x)
        if dtype.is_floating_point:
            both(operators.pack_signs, x, numbers(shape[-1], seed=1))
            both(operators.pack_signs, x, numbers(shape[-1], dtype=BF16, seed=1))


def test_pack_signs_of_special_numbers(operators):
    x = torch.tensor([*SPECIAL, NAN, -NAN, INF, -INF])
    both(operators.pack_signs, x)
    both(operators.pack_signs, x, torch.zeros(len(x)))
    for dtype in (F16, BF16):
        both(operators.pack_signs, x.to(dtype))
    both(operators.pack_signs, torch.zeros(0, 9))
    both(operators.pack_signs, torch.zeros(3, 0))


def test_one_hot_bits(operators):
    for k in (1, 9, 130, 300):
        both(operators.pack_signs, torch.eye(k).sub(0.5))


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_unpack_signs_and_int4(operators, shape):
    k = shape[-1]
    both(operators.unpack_signs, bytes_of(*shape[:-1], (k + 7) // 8), k)
    both(operators.pack_int4, codes(*shape))
    for c in forms(codes(*shape, bits=4)):
        packed, _ = both(operators.pack_int4, c)
        assert torch.equal(operators.unpack_int4(packed, k).cpu(), c)
    both(operators.unpack_int4, bytes_of(*shape[:-1], (k + 1) // 2).view(torch.int8), k)
    both(operators.unpack_int4, torch.zeros(0, (k + 1) // 2, dtype=torch.int8), k)


@pytest.mark.parametrize(
    ("layout", "n", "k"),
    [("btc", 8, 128), ("btc", 24, 384), ("bstc", 5, 32), ("bstc", 64, 96), ("columns", 3, 8), ("columns", 33, 1000)],
)
def test_layouts(operators, layout, n, k):
    rows = bytes_of(n, k // 8)
    stored, _ = both(operators.signs_to_layout, rows, k, layout)
    assert torch.equal(operators.signs_from_layout(stored, n, k, layout).cpu(), rows)
    both(operators.signs_from_layout, bytes_of(stored.numel(), seed=1), n, k, layout)
    both(operators.signs_to_layout, rows[:0], k, layout)


# What the backward passes do to each element: with one output feature the product is exact, so all else shows.


@pytest.mark.parametrize("k", [1, 7, 33, 4097])
@pytest.mark.parametrize("scale_a", [0.25, 0.0], ids=["scaled", "zero"])
@pytest.mark.parametrize("layer", ["binary", "q8", "q8_reference", "q4", "q4_reference"])
@FLOATS
def test_gradients(operators, layer, dtype, scale_a, k):
    x = numbers(5, k, dtype=dtype, seed=1)
    if scale_a == 0:
        x.zero_()
    for weight, is_codes in ((numbers(1, k, dtype=dtype, seed=2), False), (codes(1, k, bits=4, seed=3), True)):
        arguments = [numbers(5, 1, seed=4), x, weight, torch.tensor(scale_a), torch.tensor(0.5), None]
        keywords = {"want_weight": True}
        if layer != "binary":
            keywords |= {"eps": 1e-5, "reference_grad": layer.endswith("reference"), "plain_codes": is_codes}
        op = getattr(operators, layer.split("_")[0] + "_linear_backward")
        ours = op(*[moved(a) for a in arguments], **keywords)
        cpu = op(*arguments, **keywords)
        assert torch.equal(ours[0].cpu(), cpu[0])  # but for the sign of a zero, which the product before it decides
        torch.testing.assert_close(ours[1].cpu(), cpu[1], rtol=1e-2 if dtype == BF16 else 1e-3, atol=1e-4)
        assert math.isclose(float(ours[2]), float(cpu[2]), rel_tol=2**-22, abs_tol=1e-9)


# DiodeMix.

STEP = {"lr": 0.1, "beta1": 0.9, "beta2": 0.99}
ADAM = STEP | {"eps": 1e-6, "weight_decay": 0.01}
MOMENTS = pytest.mark.parametrize("moments", [F32, BF16], ids=["m32", "m16"])


def state(param, dtype, seed=0):
    """(exp_avg_l, exp_avg_s) in the parameter's order of memory."""
    g = torch.Generator().manual_seed(seed)
    first, second = torch.randn(param.shape, generator=g), torch.rand(param.shape, generator=g)
    return [torch.empty_like(param, dtype=dtype).copy_(t * 1e-3) for t in (first, second)]


@FLOATS
@MOMENTS
@SIZES
def test_steps_of_floats(operators, size, dtype, moments):
    for p in forms(numbers(size, dtype=dtype)):
        arguments = [p, numbers(size, dtype=dtype, seed=1), *state(p, moments)]
        for step in (1, 2, 3):
            both(operators.diode_mix_float_, *arguments, step=step, seed=3, stream=5, **ADAM)
        both(operators.diode_mix_float_, *arguments, step=4, correct_bias=False, **ADAM)


@MOMENTS
@SIZES
@pytest.mark.parametrize("gradient", ["int8", "float", "half"])
def test_steps_of_integers(operators, size, moments, gradient):
    make = {"int8": codes, "float": numbers, "half": lambda n, seed: numbers(n, dtype=F16, seed=seed)}[gradient]
    grad = make(size, seed=1)
    signs = codes(size, seed=2)
    arguments = [signs, grad, *state(signs, moments)]
    for step in (1, 2, 3):
        both(operators.diode_mix_signs_, *arguments, step=step, seed=7, stream=2, **STEP)
    for bits in (4, 8):
        q, scale = codes(size, bits=bits, seed=3), torch.tensor(0.02)
        arguments = [q, grad, *state(q, moments), scale]
        for step in (1, 2, 3):
            both(operators.diode_mix_codes_, *arguments, bits=bits, step=step, seed=7, stream=2, **ADAM)
        both(operators.diode_mix_codes_, *arguments, bits=bits, step=4, renew_scale=True, **ADAM)
        assert size < 31 or float(scale) != float(torch.tensor(0.02))


def test_renewing_the_scale_of_zeros_keeps_it(operators):
    q = torch.zeros(33, dtype=torch.int8)
    numbers_ = ADAM | {"bits": 8, "renew_scale": True, "step": 1}
    both(operators.diode_mix_codes_, q, codes(33), *state(q, F32), torch.tensor(0.5), **numbers_)


def test_an_integer_weight_with_a_poisoned_gradient_is_left_out(operators):
    signs, q, scale = codes(4097).cuda(), codes(4097, bits=4).cuda(), torch.tensor(0.5).cuda()
    for poison in (NAN, INF):
        grad = torch.ones(4097).cuda()
        grad[4000] = poison
        for op, param, more, numbers_ in (
            (operators.diode_mix_signs_, signs, [], STEP),
            (operators.diode_mix_codes_, q, [scale], ADAM | {"bits": 4, "renew_scale": True}),
        ):
            arguments = [param.clone(), grad, *state(param, F32), *(s.clone() for s in more)]
            before = [a.clone() for a in arguments]
            op(*arguments, step=1, **numbers_)
            for now, then in zip(arguments, before, strict=True):
                assert torch.equal(now.nan_to_num(), then.nan_to_num())


@pytest.mark.parametrize("form", ["channels_last", "transposed"])
def test_steps_of_dense_parameters_in_another_order(operators, form):
    p = numbers(4, 3, 5, 7)
    p = p.to(memory_format=torch.channels_last) if form == "channels_last" else p.permute(3, 1, 0, 2)
    both(operators.diode_mix_float_, p.clone(), numbers(*p.shape, seed=1), *state(p, BF16), step=1, **ADAM)
    w = p.mul(8).to(torch.int8)
    grad = codes(*p.shape)
    both(operators.diode_mix_signs_, w, grad, *state(w, F32), step=1, **STEP)
    both(operators.diode_mix_first_moment, w, F32, 1, 2)


@MOMENTS
@SIZES
def test_first_moment(operators, size, moments):
    w = codes(size)
    both(operators.diode_mix_first_moment, w, moments, 11, 3)


SOME = [1, 0, 7, 4096, 4097, 33, 12_289, 1000] * 11  # more than fit one launch


def lists(params, grads, moments, more=()):
    pairs = [state(p, m, seed=i) for i, (p, m) in enumerate(zip(params, moments, strict=True))]
    return [params, grads, [pair[0] for pair in pairs], [pair[1] for pair in pairs], *more]


def test_many_floats_are_each_alone(operators):
    kinds = [(F32, F32), (F16, F32), (BF16, BF16), (F32, BF16)]
    params = [numbers(n, dtype=kinds[i % 4][0], seed=i) for i, n in enumerate(SOME)]
    grads = [numbers(n, dtype=kinds[i % 4][0], seed=99 + i) for i, n in enumerate(SOME)]
    arguments = lists(params, grads, [kinds[i % 4][1] for i in range(len(SOME))])
    alone = [[t.clone() for t in tensors] for tensors in arguments]
    numbers_ = ADAM | {"seed": 3}
    steps, streams = list(range(1, len(SOME) + 1)), list(range(5, len(SOME) + 5))
    both(operators.diode_mix_float_many_, *arguments, steps=steps, streams=streams, **numbers_)
    for one, step, stream in zip(zip(*alone, strict=True), steps, streams, strict=True):
        operators.diode_mix_float_(*one, step=step, stream=stream, **numbers_)
    for ours, wanted in zip(arguments, alone, strict=True):
        assert all(map(torch.equal, ours, wanted))


def test_many_integers_are_each_alone(operators):
    moments = [(F32, BF16)[i % 2] for i in range(len(SOME))]
    grads = [codes(n, seed=i) if i % 3 else numbers(n, seed=i) for i, n in enumerate(SOME)]
    steps, streams = list(range(1, len(SOME) + 1)), list(range(5, len(SOME) + 5))
    rest = {"steps": steps, "streams": streams, "seed": 3}
    signs = lists([codes(n, seed=50 + i) for i, n in enumerate(SOME)], grads, moments)
    both(operators.diode_mix_signs_many_, *signs, **STEP, **rest)
    bits = [(4, 8)[i % 2] for i in range(len(SOME))]
    params = [codes(n, bits=b, seed=i) for i, (n, b) in enumerate(zip(SOME, bits, strict=True))]
    scales = [torch.tensor(0.01 * (i + 1)) for i in range(len(SOME))]
    q = lists(params, grads, moments, [scales])
    renew = [i % 4 == 0 for i in range(len(SOME))]
    both(operators.diode_mix_codes_many_, *q, bits=bits, renew_scale=renew, **ADAM, **rest)


# How the operators run.


def samples(o):
    """(operator, arguments, keywords) on the CPU, every operator of this file."""
    x, c, w = numbers(33, 65), codes(33, 65, bits=4), codes(33, 65)
    pair = state(x, F32)
    step = {"step": 2}
    many = {"steps": [1, 2], "streams": [0, 1]}
    two = [[t.clone(), t.clone()] for t in (x, x, *pair)]
    ints = [[w.clone(), w.clone()], [w, x], *[[t.clone(), t.clone()] for t in pair]]
    return [
        (o.q8_quantize, [x], {}),
        (o.q8_quantize, [x, torch.tensor(0.1)], {}),
        (o.q4_quantize, [x], {}),
        (o.amax_quantize, [x], {}),
        (o.amax_quantize, [x, torch.tensor(2.0)], {}),
        (o.int8_grad, [x], {}),
        (o.binary_init, [x], {}),
        (o.init_scale_, [torch.tensor(0.0), x, 2.0], {}),
        (o.pack_signs, [x, numbers(65)], {}),
        (o.unpack_signs, [bytes_of(33, 9), 65], {}),
        (o.pack_int4, [c], {}),
        (o.unpack_int4, [bytes_of(33, 33).view(torch.int8), 65], {}),
        (o.signs_from_layout, [bytes_of(32 * 8), 5, 64, "bstc"], {}),
        (o.signs_to_layout, [bytes_of(5, 8), 64, "bstc"], {}),
        (o.diode_mix_float_, [x.clone(), x, *(t.clone() for t in pair)], step | ADAM),
        (o.diode_mix_signs_, [w.clone(), w, *(t.clone() for t in pair)], step | STEP),
        (o.diode_mix_signs_, [w.clone(), x, *(t.clone() for t in pair)], step | STEP),
        (
            o.diode_mix_codes_,
            [c.clone(), x, *(t.clone() for t in pair), torch.tensor(0.1)],
            step | ADAM | {"bits": 4, "renew_scale": True},
        ),
        (o.diode_mix_first_moment, [w, F32], {}),
        (o.diode_mix_float_many_, two, many | ADAM),
        (o.diode_mix_signs_many_, ints, many | STEP),
        (
            o.diode_mix_codes_many_,
            [[c.clone(), c.clone()], *[list(t) for t in ints[1:]], [torch.tensor(0.1), torch.tensor(0.2)]],
            many | ADAM | {"bits": [4, 4], "renew_scale": [True, False]},
        ),
    ]


def copied(value):
    if isinstance(value, torch.Tensor):
        return value.clone()
    return [copied(v) for v in value] if isinstance(value, list) else value


def test_nothing_waits_for_the_device(operators):
    for op, args, kwargs in samples(operators):
        on_cuda = moved(args)
        torch.cuda.synchronize()
        torch.cuda.set_sync_debug_mode("error")
        try:
            ours = op(*on_cuda, **kwargs)
        finally:
            torch.cuda.set_sync_debug_mode("default")
        args = copied(args)
        cpu = op(*args, **kwargs)
        if cpu is not None:
            same(ours, cpu)
        same(on_cuda, args)


def test_graphs(operators):
    """A captured operator computes on what its arguments hold when the graph is played."""
    for op, args, kwargs in samples(operators):
        on_cuda, args = moved(args), copied(args)
        start = copied(on_cuda)
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            op(*copied(on_cuda), **kwargs)  # first calls load kernels
        torch.cuda.current_stream().wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            ours = op(*on_cuda, **kwargs)
        for now, then in zip(on_cuda, start, strict=True):
            if isinstance(now, torch.Tensor):
                assert torch.equal(now, then), f"{op}: recording a graph runs nothing"
        graph.replay()
        cpu = op(*args, **kwargs)
        if cpu is not None:
            same(ours, cpu)
        same(on_cuda, args)


def test_another_stream_and_the_same_bits_again(operators):
    side = torch.cuda.Stream()
    for op, args, kwargs in samples(operators):
        first, second = moved(args), moved(args)
        side.wait_stream(torch.cuda.current_stream())
        ours = op(*first, **kwargs)
        with torch.cuda.stream(side):
            again = op(*second, **kwargs)
        torch.cuda.synchronize()
        if ours is not None:
            same(again, [t.cpu() for t in ours] if isinstance(ours, (list, tuple)) else ours.cpu())
        same(second, moved(first, "cpu"))


def test_sums_do_not_change_from_run_to_run(operators):
    x = torch.randn(1_000_003, generator=torch.Generator().manual_seed(9)).cuda()
    assert len({float(operators.q8_quantize(x)[1]) for _ in range(20)}) == 1


def test_another_device(operators):
    if torch.cuda.device_count() < 2:
        pytest.skip("needs two CUDA devices")
    for op, args, kwargs in samples(operators):
        on_cuda, args = moved(args, "cuda:1"), copied(args)
        ours, cpu = op(*on_cuda, **kwargs), op(*args, **kwargs)
        assert torch.cuda.current_device() == 0
        if cpu is not None:
            same(ours, cpu)
        same(on_cuda, args)


def tensors_in(args):
    """All tensors of the arguments."""
    return [t for a in args for t in (a if isinstance(a, list) else [a]) if isinstance(t, torch.Tensor)]


def test_tensors_on_two_devices_are_refused(operators):
    checked = 0
    for op, args, kwargs in samples(operators):
        for odd in range(len(args)):
            for mixed in (
                [copied(a) if i == odd else moved(a) for i, a in enumerate(args)],
                [moved(a) if i == odd else copied(a) for i, a in enumerate(args)],
            ):
                tensors = tensors_in(mixed)
                on_cpu = [t for t in tensors if not t.is_cuda]
                if len(on_cpu) in (0, len(tensors)):
                    continue
                if (
                    op is not operators.init_scale_
                    and "renew_scale" not in kwargs
                    and all(t.dim() == 0 for t in on_cpu)
                ):
                    op(*mixed, **kwargs)  # a scale that is only read may stay on the CPU
                    continue
                with pytest.raises(ValueError, match=r"(is|are) on"):
                    op(*mixed, **kwargs)
                checked += 1
    assert checked > 40


def test_refusals(operators):
    o, x = operators, torch.ones(4, 8).cuda()
    for refusal, call in (
        (TypeError, lambda: o.q8_quantize(x.double())),
        (ValueError, lambda: o.q8_quantize(x, eps=0.0)),
        (ValueError, lambda: o.q8_quantize(x, torch.ones(2).cuda())),
        (TypeError, lambda: o.int8_grad(x.double())),
        (ValueError, lambda: o.binary_init(x[:0])),
        (TypeError, lambda: o.init_scale_(torch.zeros(()).half().cuda(), x, 1.0)),
        (ValueError, lambda: o.init_scale_(torch.zeros(()).cuda(), x, -1.0)),
        (TypeError, lambda: o.pack_signs(x.to(torch.int8), torch.ones(8).cuda())),
        (ValueError, lambda: o.unpack_signs(bytes_of(4, 2).cuda(), 17)),
        (ValueError, lambda: o.signs_from_layout(bytes_of(31).cuda(), 1, 32, "bstc")),
        (ValueError, lambda: o.diode_mix_float_(x, x[:2], x, x, step=1, **ADAM)),
        (ValueError, lambda: o.diode_mix_float_many_([x], [x], [x], [], steps=[1], streams=[0], **ADAM)),
        (ValueError, lambda: o.diode_mix_float_many_([x], [x], [x], [x], steps=[0], streams=[0], **ADAM)),
    ):
        with pytest.raises(refusal):
            call()


def test_random_shapes_and_numbers(operators):
    """A sweep; the seed of a failure is in its message."""
    for seed in range(150):
        r = random.Random(seed)
        shape = [r.randint(0, 9) for _ in range(r.randint(0, 2))]
        shape.append(r.choice([1, 2, 3, 5, 8, 15, 16, 17, 127, 129, 2050]))
        dtype = r.choice([F32, F16, BF16])
        x = numbers(*shape, dtype=dtype, seed=seed) * r.choice([1, 2**-6, 2**-12])
        if x.numel() and dtype != F16 and r.random() < 0.3:
            x.flatten()[r.randrange(x.numel())] = r.choice(SPECIAL)
        x = r.choice(list(forms(x)))
        bits = r.choice([4, 8])
        c = x.float().mul(2**20).remainder(2**bits).sub(2 ** (bits - 1)).nan_to_num().to(torch.int8)
        try:
            both(operators.q8_quantize, x, torch.tensor(r.choice([1e-6, 0.01, 3.0])))
            both(operators.int8_grad, x)
            both(operators.pack_signs, x)
            packed, _ = both(operators.pack_int4, c)
            assert torch.equal(operators.unpack_int4(packed, shape[-1]).cpu(), (c << 4) >> 4)
            step = {"step": r.randint(1, 1000), "seed": r.getrandbits(40), "stream": r.randint(0, 99)}
            moments = r.choice([F32, BF16])
            dense = x.contiguous()
            both(operators.diode_mix_float_, dense.clone(), dense, *state(dense, moments, seed), **step, **ADAM)
            q = c.contiguous()
            both(operators.diode_mix_signs_, q.clone(), dense, *state(q, moments, seed), **step, **STEP)
            arguments = [q, q.clone(), *state(q, moments), torch.tensor(0.1)]
            both(operators.diode_mix_codes_, *arguments, bits=bits, **step, **ADAM)
        except AssertionError as failure:
            raise AssertionError(f"seed {seed}, {shape}, {dtype}") from failure
