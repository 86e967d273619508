"""DiodeMix on lists of parameters: each goes where it would go alone, and lists that do not fit are refused."""

import pytest
import torch

STEP = {"lr": 0.1, "beta1": 0.9, "beta2": 0.99, "seed": 3}
ADAM = STEP | {"eps": 1e-6, "weight_decay": 0.01}
SHAPES = [(1,), (0,), (33, 7), (2, 3, 5), (4097,)]
STEPS, STREAMS = [1, 2, 3, 4, 5], [9, 8, 7, 6, 5]


def random_state(dtypes):
    """(exp_avg_l, exp_avg_s) of all shapes."""
    g = torch.Generator().manual_seed(1)
    return [[(torch.rand(s, generator=g) * 1e-3).to(d) for s, d in zip(SHAPES, dtypes, strict=True)] for _ in range(2)]


def check(many, one, arguments, numbers, each=()):
    """`each`: the keywords that are lists, as (name of the list, name of its elements, values)."""
    alone = [[t.clone() for t in tensors] for tensors in arguments]
    many(*arguments, steps=STEPS, streams=STREAMS, **numbers, **{name: values for name, _, values in each})
    for i, tensors in enumerate(zip(*alone, strict=True)):
        own = {name: values[i] for _, name, values in each}
        one(*tensors, step=STEPS[i], stream=STREAMS[i], **numbers, **own)
    for ours, wanted in zip(arguments, alone, strict=True):
        assert all(map(torch.equal, ours, wanted))


def test_many_are_each_alone(operators):
    g = torch.Generator().manual_seed(0)
    moments = [torch.float32, torch.bfloat16, torch.float32, torch.bfloat16, torch.bfloat16]
    kinds = [torch.float32, torch.bfloat16, torch.float16, torch.float32, torch.bfloat16]
    floats = [torch.randn(s, generator=g).to(k) for s, k in zip(SHAPES, kinds, strict=True)]
    grads = [torch.randn(s, generator=g) for s in SHAPES]
    o = operators
    check(o.diode_mix_float_many_, o.diode_mix_float_, [floats, grads, *random_state(moments)], ADAM)
    signs = [torch.randint(-127, 128, s, generator=g).to(torch.int8) for s in SHAPES]
    check(o.diode_mix_signs_many_, o.diode_mix_signs_, [signs, grads, *random_state(moments)], STEP)
    codes = [torch.randint(-8, 8, s, generator=g).to(torch.int8) for s in SHAPES]
    scales = [torch.tensor(0.1 * (i + 1)) for i in range(len(SHAPES))]
    each = [("bits", "bits", [4, 8, 4, 8, 4]), ("renew_scale", "renew_scale", [True, False, True, True, False])]
    check(o.diode_mix_codes_many_, o.diode_mix_codes_, [codes, grads, *random_state(moments), scales], ADAM, each)


def test_refusals(operators):
    op = operators.diode_mix_float_many_
    p, m = torch.ones(3), torch.zeros(3)
    numbers = ADAM | {"steps": [1, 1], "streams": [0, 1]}
    with pytest.raises(ValueError, match="one list holds 1, that of the parameters 2"):
        op([p, p.clone()], [p], [m, m.clone()], [m, m.clone()], **numbers)
    with pytest.raises(ValueError, match="step is 0"):
        op([p], [p], [m], [m], **(numbers | {"steps": [0], "streams": [0]}))
    # The second is refused, so the first has not moved.
    first = torch.ones(3)
    with pytest.raises(ValueError, match=r"the parameter is \[3\], its gradient \[2\]"):
        op([first, p], [p, p[:2]], [m, m.clone()], [m.clone(), m.clone()], **numbers)
    assert torch.equal(first, torch.ones(3))
