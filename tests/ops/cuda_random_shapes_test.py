"""The elementwise operators on CUDA over random shapes and numbers: the CPU's to the bit."""

import random

import pytest
import torch
from both_devices import ADAM, BF16, F16, F32, SPECIAL, STEP, both, forms, numbers, state

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")


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
