"""What the memory of a rank's training is made of, and what sharding the integer weights' moments frees.

python bench/distributed_memory.py [--ranks 8]

A step of each net on the CPU. Bytes of the int8 weights, of their moments, of their gradients (a float32 part and the
int8 codes), of all that is of float parameters (weights, gradients, moments), and of what the forward pass keeps for
the backward pass (the storages that autograd saves, each once, parameters left out). Sharded over W ranks the moments
take 1/W; the last columns are that saving's share of the sum, with moments in float32 and in bfloat16.
"""

from __future__ import annotations

import argparse
from typing import Any

import torch
from torch import Tensor, nn

import bie
from bie.train.config import NetConfig
from bie.train.nets import build


class Blocks(nn.Module):
    """Blocks of a transformer: 1-bit projections around torch's attention."""

    def __init__(self, width: int, depth: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        sizes = ((width, 3 * width), (width, width), (width, 4 * width), (4 * width, width))
        self.layers = nn.ModuleList(bie.nn.BinaryLinear(*size) for _ in range(depth) for size in sizes)
        self.norms = nn.ModuleList(nn.LayerNorm(size[0]) for _ in range(depth) for size in sizes)

    def forward(self, x: Tensor) -> Tensor:
        batch, length, width = x.shape
        for i in range(0, len(self.layers), 4):
            (one, two, three, four), (a, b, c, d) = self.layers[i : i + 4], self.norms[i : i + 4]
            q, k, v = (t.view(batch, length, self.heads, -1).transpose(1, 2) for t in one(a(x)).chunk(3, -1))
            attended = nn.functional.scaled_dot_product_attention(q, k, v)
            x = x + two(b(attended.transpose(1, 2).reshape(batch, length, width)))
            x = x + four(d(nn.functional.gelu(three(c(x)))))
        return x.mean((1, 2), keepdim=True)[:, :, 0]


def mlp(width: int, depth: int) -> nn.Sequential:
    layers: list[nn.Module] = []
    for _ in range(depth):
        layers += [bie.nn.BinaryLinear(width, width), nn.BatchNorm1d(width), nn.PReLU()]
    return nn.Sequential(*layers)


def cases() -> list[tuple[str, nn.Module, Tensor]]:
    vgg, resnet = (build(NetConfig(arch, 1, (3, 32, 32))) for arch in ("vgg-small", "resnet20"))
    return [
        ("VGG-small, 64 images of 32x32", vgg, torch.randn(64, 3, 32, 32)),
        ("ResNet-20, 64 images of 32x32", resnet, torch.randn(64, 3, 32, 32)),
        ("MLP, 4 of 4096x4096, 256 rows", mlp(4096, 4), torch.randn(256, 4096)),
        ("transformer, 4 blocks of 1024, 4 x 512 tokens", Blocks(1024, 4, 16), torch.randn(4, 512, 1024)),
    ]


def measure(net: nn.Module, x: Tensor) -> dict[str, float]:
    """Bytes by what they are of."""
    bie.prepare(net)
    own = {p.untyped_storage().data_ptr() for p in net.parameters()}
    saved: dict[int, int] = {}

    def keep(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in own:
            saved[storage.data_ptr()] = storage.nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        loss = net(x).square().mean()
    loss.backward()
    integers = sum(p.numel() for p in net.parameters() if not p.is_floating_point())
    floats = sum(p.numel() for p in net.parameters() if p.is_floating_point())
    found: dict[str, float] = {"int8 weights": integers, "moments": 8 * integers, "gradients": 5 * integers}
    return found | {"floats": 16 * floats, "kept for backward": sum(saved.values())}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", type=int, default=8)
    a = parser.parse_args()
    torch.manual_seed(0)
    rows: list[list[Any]] = []
    for name, net, x in cases():
        found = measure(net, x)
        total = sum(found.values())
        freed = found["moments"] * (1 - 1 / a.ranks) / total
        half = found["moments"] / 2 * (1 - 1 / a.ranks) / (total - found["moments"] / 2)
        cells = [f"{value / 1e6:,.1f}" for value in found.values()]
        rows.append([name, *cells, f"{100 * freed:.0f} %", f"{100 * half:.0f} %"])
    head = ["net", "int8 weights", "their moments", "gradients", "floats", "kept for backward"]
    head += [f"freed at {a.ranks} ranks", "of bfloat16 moments"]
    print("| " + " | ".join(head) + " |\n" + "| --- " * len(head) + "|")
    for row in rows:
        print("| " + " | ".join(row) + " |")


if __name__ == "__main__":
    main()
