"""What the gradient of an int8 weight costs inside a graph of torch.compile, beside a step of the layer outside of one.

python bench/integer_gradients.py [--backend inductor]

An int8 tensor never requires grad, so a graph has no output for its gradient. Two ways remain: a float leaf of the
weight's shape whose gradient it becomes, and a buffer that the backward graph writes to. Each row is a forward and a
backward pass of a linear with int8 weights, written in torch's operators; the fastest of rounds, and the bytes held for
the gradient.
"""

from __future__ import annotations

import argparse
import time

import torch
from torch import Tensor


def _backward(g: Tensor, x: Tensor, weight: Tensor, scale: Tensor) -> tuple[Tensor, Tensor]:
    """Of x, and of the weight as int8."""
    grad = g.T @ x
    codes = (grad * (127 / grad.abs().max().clamp_min(1e-30))).round().clamp(-127, 127).to(torch.int8)
    return (g @ weight.to(g.dtype)) * scale, codes


class _FloatLeaf(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, leaf, weight, scale):
        ctx.save_for_backward(x, weight, scale)
        return (x @ weight.to(x.dtype).T) * scale

    @staticmethod
    def backward(ctx, g):
        gx, codes = _backward(g, *ctx.saved_tensors)
        return gx, codes.to(torch.float32), None, None


class _WrittenBuffer(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, anchor, weight, scale, buffer):
        ctx.save_for_backward(x, weight, scale)
        ctx.buffer = buffer
        return (x @ weight.to(x.dtype).T) * scale

    @staticmethod
    def backward(ctx, g):
        gx, codes = _backward(g, *ctx.saved_tensors)
        ctx.buffer.copy_(codes)
        return gx, torch.zeros(()), None, None, None


def _fastest(step, rounds: int) -> float:
    for _ in range(3):
        step()
    times = []
    for _ in range(rounds):
        start = time.perf_counter()
        step()
        times.append(time.perf_counter() - start)
    return 1e3 * min(times)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--backend", default="inductor")
    parser.add_argument("--size", type=int, default=2048)
    parser.add_argument("--rows", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=15)
    a = parser.parse_args()
    torch.manual_seed(0)
    n, x = a.size, torch.randn(a.rows, a.size, requires_grad=True)
    weight, scale = torch.randint(-127, 128, (n, n), dtype=torch.int8), torch.tensor(1e-3)
    print(
        f"torch {torch.__version__}, {torch.get_num_threads()} threads, {a.rows} rows of {n}, {n} outputs, {a.backend}"
    )

    leaf = torch.zeros(n, n, requires_grad=True)
    float_leaf = torch.compile(lambda x: _FloatLeaf.apply(x, leaf, weight, scale), fullgraph=True, backend=a.backend)
    buffer, anchor = torch.zeros(n, n, dtype=torch.int8), torch.zeros((), requires_grad=True)
    written = torch.compile(
        lambda x: _WrittenBuffer.apply(x, anchor, weight, scale, buffer), fullgraph=True, backend=a.backend
    )

    def run(call, *leaves):
        def step():
            for tensor in (x, *leaves):
                tensor.grad = None
            call(x).sum().backward()

        return step

    def eager(x):
        return _FloatLeaf.apply(x, leaf, weight, scale)

    def eager_buffer(x):
        return _WrittenBuffer.apply(x, anchor, weight, scale, buffer)

    torch.manual_seed(1)
    x.grad = None
    (written(x).sum() + written(x).sum()).backward()
    once = buffer.clone()
    written(x).sum().backward()
    print(f"a buffer after two backward passes and after one: {'the same' if torch.equal(once, buffer) else 'a sum'}")
    for name, step, held in (
        ("eager, float leaf", run(eager, leaf), 4 * n * n),
        ("eager, buffer", run(eager_buffer, anchor), n * n),
        ("graph, float leaf", run(float_leaf, leaf), 4 * n * n),
        ("graph, buffer", run(written, anchor), n * n),
    ):
        try:
            print(f"{name:24} {_fastest(step, a.rounds):8.2f} ms   {held >> 20} MiB for the gradient")
        except Exception as error:
            print(f"{name:24} refused: {str(error).strip().splitlines()[0]}")


if __name__ == "__main__":
    main()
