"""Steps of codes that keep their place: CUDA has the bits of the CPU."""

from __future__ import annotations

import pytest
import torch

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")

WIDTHS = [1, 2, 3, 4, 5, 6, 8]


def _state(bits, k, n, group, small, rest, learns, offset, dtype):
    generator = torch.Generator().manual_seed(bits * 1000 + k)

    def random(*shape):
        return torch.rand(*shape, generator=generator)

    groups = -(-k // group)
    codes = torch.randint(0, 2**bits, (k, n), generator=generator, dtype=torch.int32)
    scales = (random(groups, n) * 0.1 + 0.02).to(dtype)
    zeros = None
    if offset == "value":
        zeros = (random(groups, n) * 0.1).to(dtype)
    elif offset == "zero":
        whole = torch.randint(1, 2**bits + 1, (groups, n), generator=generator, dtype=torch.int32)
        zeros = torch.ops.bie.pack_words(whole - 1, bits, 1)
    state = {
        "qweight": torch.ops.bie.pack_words(codes, bits, 0),
        "scales": scales,
        "zeros": zeros,
        "grad": torch.randn(k, n, generator=generator) * 1e-3,
        "exp_avg_l": torch.randn(k, n, generator=generator) * 1e-4,
        "exp_avg_s": random(k, n) * 1e-6,
        "largest": None,
        "rest": torch.randint(-128, 128, (k, n), generator=generator).to(torch.int8) if rest else None,
        "scale_moments": random(2, groups, n) * 1e-3 if learns else None,
    }
    if small:
        state["exp_avg_l"] = torch.randint(-127, 128, (k, n), generator=generator).to(torch.int8)
        state["exp_avg_s"] = torch.randint(0, 256, (k, n), generator=generator).to(torch.uint8)
        state["largest"] = random(2, k, -(-n // 256)) * 1e-3
    return state


def _step(operators, state, **numbers):
    """The step of one weight."""
    lists = {"bits": "bits", "tops": "top", "group_sizes": "group_size", "steps": "step", "streams": "stream"}
    own = {many: [numbers.pop(one)] for many, one in lists.items()}
    operators.diode_mix_places_many_(*(None if t is None else [t] for t in state.values()), **own, **numbers)


@pytest.mark.parametrize("bits", WIDTHS)
@pytest.mark.parametrize("small", [False, True])
@pytest.mark.parametrize("rest", [False, True])
def test_the_bits_of_the_cpu(operators, bits, small, rest):
    for offset in ("none", "value", "zero"):
        for k, n, group, dtype in (
            (96, 300, 32, torch.float16),
            (70, 1, 5, torch.float32),
            (33, 256, 64, torch.bfloat16),
        ):
            state = _state(bits, k, n, group, small, rest, offset != "none", offset, dtype)
            there = {name: None if t is None else t.cuda() for name, t in state.items()}
            options = {
                "bits": bits,
                "top": -1,
                "group_size": group,
                "lr": 1e-3,
                "beta1": 0.9,
                "beta2": 0.95,
                "eps": 1e-10,
            }
            options |= {"scale_lr": 1e-2 if offset != "none" else 0.0, "weight_decay": 0.1, "seed": 3, "stream": 4}
            for step in (1, 2, 3):
                _step(operators, state, step=step, **options)
                _step(operators, there, step=step, **options)
            for name, tensor in state.items():
                if tensor is not None:
                    assert torch.equal(tensor, there[name].cpu()), (name, offset, k, n)


def test_many_weights_have_the_step_of_each(operators):
    """In one call: more than a launch holds, of several shapes and groups, one of them without rows."""
    states, groups = [], []
    for i in range(40):
        k, n, group = ((96, 300, 32), (70, 1, 5), (128, 256, 64), (0, 3, 32))[i % 4]
        states.append(_state(2, k, n, group, True, True, True, "value", torch.float16))
        groups.append(group)
    there = [{name: t.cuda() for name, t in state.items()} for state in states]
    shared = {"lr": 1e-3, "scale_lr": 1e-2, "beta1": 0.9, "beta2": 0.95, "eps": 1e-10, "seed": 3}
    for i, state in enumerate(states):
        _step(operators, state, bits=2, top=3, group_size=groups[i], step=i + 1, stream=i, **shared)
    operators.diode_mix_places_many_(
        *([state[name] for state in there] for name in there[0]),
        bits=[2] * 40,
        tops=[3] * 40,
        group_sizes=groups,
        steps=range(1, 41),
        streams=range(40),
        **shared,
    )
    for state, found in zip(states, there, strict=True):
        for name, tensor in state.items():
            assert torch.equal(tensor, found[name].cpu()), name
