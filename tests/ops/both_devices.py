"""What the tests of the elementwise operators on CUDA share: operands, and a call compared with the CPU's to the bit.

So are means compared: the numbers are multiples of 2^-10, small enough that a float64 sum of them is exact in any
order, except where a test says otherwise.
"""

import pytest
import torch

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


STEP = {"lr": 0.1, "beta1": 0.9, "beta2": 0.99}
ADAM = STEP | {"eps": 1e-6, "weight_decay": 0.01}


def state(param, dtype, seed=0):
    """(exp_avg_l, exp_avg_s) in the parameter's order of memory."""
    g = torch.Generator().manual_seed(seed)
    first, second = torch.randn(param.shape, generator=g), torch.rand(param.shape, generator=g)
    return [torch.empty_like(param, dtype=dtype).copy_(t * 1e-3) for t in (first, second)]
