"""How the elementwise operators run on CUDA: without waits, in graphs, on other streams and devices; and refusals."""

import pytest
import torch
from both_devices import ADAM, F32, STEP, bytes_of, codes, moved, numbers, same, state

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")


def samples(o):
    """(operator, arguments, keywords) on the CPU, every elementwise operator."""
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


def test_nothing_waits_for_the_device(sample):
    op, args, kwargs = sample
    on_cuda = moved(args)
    torch.cuda.synchronize()
    torch.cuda.set_sync_debug_mode("error")
    try:
        ours = op(*on_cuda, **kwargs)
    finally:
        torch.cuda.set_sync_debug_mode("default")
    cpu = op(*args, **kwargs)
    if cpu is not None:
        same(ours, cpu)
    same(on_cuda, args)


def test_graphs(sample):
    """A captured operator computes on what its arguments hold when the graph is played."""
    op, args, kwargs = sample
    on_cuda = moved(args)
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
            assert torch.equal(now, then), "recording a graph runs nothing"
    graph.replay()
    cpu = op(*args, **kwargs)
    if cpu is not None:
        same(ours, cpu)
    same(on_cuda, args)


def test_another_stream_and_the_same_bits_again(sample):
    op, args, kwargs = sample
    side = torch.cuda.Stream()
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


@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two CUDA devices")
def test_another_device(sample):
    op, args, kwargs = sample
    on_cuda = moved(args, "cuda:1")
    ours, cpu = op(*on_cuda, **kwargs), op(*args, **kwargs)
    assert torch.cuda.current_device() == 0
    if cpu is not None:
        same(ours, cpu)
    same(on_cuda, args)


def tensors_in(args):
    """All tensors of the arguments."""
    return [t for a in args for t in (a if isinstance(a, list) else [a]) if isinstance(t, torch.Tensor)]


def test_tensors_on_two_devices_are_refused(operators, sample):
    op, args, kwargs = sample
    for odd in range(len(args)):
        for mixed in (
            [copied(a) if i == odd else moved(a) for i, a in enumerate(args)],
            [moved(a) if i == odd else copied(a) for i, a in enumerate(args)],
        ):
            tensors = tensors_in(mixed)
            on_cpu = [t for t in tensors if not t.is_cuda]
            if len(on_cpu) in (0, len(tensors)):
                continue
            scale_is_written = op is operators.init_scale_ or "renew_scale" in kwargs
            if not scale_is_written and all(t.dim() == 0 for t in on_cpu):
                op(*mixed, **kwargs)  # a scale that is only read may stay on the CPU
                continue
            with pytest.raises(ValueError, match=r"(is|are) on"):
                op(*mixed, **kwargs)


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
