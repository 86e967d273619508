"""Steps of DiodeMix on CUDA, one parameter or a list at a time: the CPU's to the bit."""

import pytest
import torch
from both_devices import ADAM, BF16, F16, F32, FLOATS, INF, NAN, SIZES, STEP, both, codes, forms, numbers, state

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")

MOMENTS = pytest.mark.parametrize("moments", [F32, BF16], ids=["m32", "m16"])


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
    poisoned = torch.ones(2, 4097).cuda()
    poisoned[:, 4000] = torch.tensor([NAN, INF])
    for grad in (*poisoned, operators.int8_grad(poisoned[0])):
        for op, param, more, numbers_ in (
            (operators.diode_mix_signs_, signs, [], STEP),
            (operators.diode_mix_codes_, q, [scale], ADAM | {"bits": 4, "renew_scale": True}),
        ):
            arguments = [param.clone(), grad, *state(param, F32), *(s.clone() for s in more)]
            before = [a.clone() for a in arguments]
            op(*arguments, step=1, **numbers_)
            for now, then in zip(arguments, before, strict=True):
                assert torch.equal(now.nan_to_num(), then.nan_to_num())


def test_an_int8_gradient_with_one_code_is_a_step(operators):
    signs = codes(4097).cuda()
    for place in (0, 4000, 4096):
        grad = torch.zeros(4097, dtype=torch.int8).cuda()
        grad[place] = 1
        moments = state(signs, F32)
        before = moments[0].clone()
        operators.diode_mix_signs_(signs.clone(), grad, *moments, step=1, **STEP)
        assert not torch.equal(moments[0], before)


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
