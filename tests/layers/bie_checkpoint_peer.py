"""Checkpoints as BITorch Engine 0.2.6 lays them out, saved by the real torch.save: FOLDER/NAME.pt.

The bytes are packed here bit by bit from the shapes of the specification; bie_checkpoint_test.cpp holds the weights.
"""

import sys
from pathlib import Path

import torch

FOLDER = Path(sys.argv[1])
State = dict[str, torch.Tensor]


def value(row: int, column: int, count: int) -> int:
    """The weight's number of `count` at a place: the same in the test."""
    return ((row * 40503 + column * 30011 + row * column * 7) * 2654435761 % 2**32 >> 13) % count


def signs(n: int, k: int) -> list[list[int]]:
    return [[value(r, c, 2) for c in range(k)] for r in range(n)]


def codes(n: int, k: int, bits: int) -> torch.Tensor:
    half = 1 << (bits - 1)
    return torch.tensor([[value(r, c, 2 * half) - half for c in range(k)] for r in range(n)], dtype=torch.int8)


def place_bits(n: int, k: int, shape: tuple[int, ...], index: object, *, most_significant_first: bool) -> torch.Tensor:
    stored = torch.zeros(shape, dtype=torch.uint8)
    for r, row in enumerate(signs(n, k)):
        for c, bit in enumerate(row):
            stored[index(r, c)] |= bit << (7 - c % 8 if most_significant_first else c % 8)
    return stored


def cutlass(n: int, k: int) -> torch.Tensor:
    return place_bits(n, k, (n, (k + 7) // 8), lambda r, c: (r, c // 8), most_significant_first=False)


def btc(n: int, k: int) -> torch.Tensor:
    shape = (n // 8, k // 128, 8, 16)
    return place_bits(
        n, k, shape, lambda r, c: (r // 8, c // 128, r % 8, c % 128 // 8), most_significant_first=True
    ).flatten()


def bstc(n: int, k: int) -> torch.Tensor:
    shape = (k // 32, (n + 31) // 32 * 32, 4)
    whole = place_bits(n, k, shape, lambda r, c: (c // 32, r, c % 32 // 8), most_significant_first=True)
    return whole.flatten()[: k * n // 8].clone()


def columns(n: int, k: int) -> torch.Tensor:
    return place_bits(n, k, (k // 8, n), lambda r, c: (c // 8, r), most_significant_first=False).flatten()


def nibbles(q: torch.Tensor) -> torch.Tensor:
    """Two codes a byte, the even one high."""
    rows = []
    for row in q.tolist():
        row = [v & 15 for v in row] + [0] * (len(row) % 2)
        rows.append([row[i] << 4 | row[i + 1] for i in range(0, len(row), 2)])
    return torch.tensor(rows, dtype=torch.uint8).view(torch.int8)


def binary(qweight: torch.Tensor, k: int) -> State:
    return {
        "bias_a": torch.arange(k) % 5 * 0.25 - 0.5,
        "scale_a": torch.tensor(0.75),
        "scale_w": torch.tensor(0.125),
        "qweight": qweight,
    }


def nbit(weight: torch.Tensor, features: int, key: str = "qweight") -> State:
    return {
        "bias_a": torch.arange(features) % 5 * 0.25 - 0.5,
        "scale_a": torch.tensor(0.046875),
        "scale_w": torch.tensor(0.125),
        "eps": torch.tensor(2.0**-10),
        key: weight,
    }


def save(name: str, state: object) -> None:
    torch.save(state, FOLDER / f"{name}.pt")


save("binary_cutlass_33_7", binary(cutlass(7, 33), 33))
save("binary_btc_128_16", binary(btc(16, 128), 128))
save("binary_btc_256_24", binary(btc(24, 256), 256))
save("binary_bstc_96_32", binary(bstc(32, 96), 96))
save("binary_bstc_64_64", binary(bstc(64, 64), 64))
save("binary_bstc_128_32_is_btc", binary(btc(32, 128), 128))
save("binary_columns_40_13", {"qweight": columns(13, 40)})
save("binary_columns_128_16", {"qweight": columns(16, 128)})
save("binary_float_40_13", {"weight": (torch.tensor(signs(13, 40)) * 2 - 1) * 0.25})
save("binary_int8_33_7", binary(torch.zeros(0), 33) | {"weight": codes(7, 33, 8)})
save("binary_cut_32_33", binary(bstc(33, 32), 32))
save("q8_packed", nbit(codes(7, 33, 8), 33))
save("q8_float", nbit(codes(7, 33, 8).float() * 0.01, 33, "weight"))
save("q4_packed", nbit(nibbles(codes(7, 33, 4)), 33))
save("q4_float", nbit(codes(7, 33, 4).float() * 0.125, 33, "weight"))
even, odd = codes(5, 4 * 6, 4), codes(5, 3 * 6, 4)
save("conv_label", nbit(nibbles(even).reshape(5, 3, 2, 2), 4))
save("conv_rows", nbit(nibbles(even), 4))
save("conv_flat", nbit(nibbles(even).flatten(), 4))
save("conv_odd", nbit(nibbles(odd), 3))
save("conv_point", nbit(nibbles(codes(5, 4, 4)).reshape(5, 1, 1, 2), 4))
save("conv_float", nbit(even.float().reshape(5, 4, 3, 2) * 0.125, 4, "weight"))

net = {f"first.{key}": tensor for key, tensor in binary(cutlass(7, 33), 33).items()}
net |= {f"second.{key}": tensor for key, tensor in nbit(nibbles(codes(3, 7, 4)), 7).items()}
net |= {"head.weight": torch.arange(6.0).reshape(2, 3) * 0.5, "head.bias": torch.tensor([1.0, -1.0])}
save("net", net)
save("net_checkpoint", {"epoch": 3, "state_dict": net, "best": 0.5})
save("net_half", {key: tensor.half() if tensor.is_floating_point() else tensor for key, tensor in net.items()})
save("net_parameters", {key: torch.nn.Parameter(tensor, requires_grad=False) for key, tensor in net.items()})

# Checkpoints that are refused.
save("missing", {key: tensor for key, tensor in net.items() if key != "second.scale_a"})
save("no_weight", {key: tensor for key, tensor in net.items() if key != "first.qweight"})
save("extra", net | {"third.qweight": torch.zeros(3)})
save("extra_of_a_layer", net | {"first.zeros": torch.zeros(3)})
save("renamed", {key.replace("second.qweight", "second.packed"): tensor for key, tensor in net.items()})
save("wrong_size", net | {"second.qweight": torch.zeros(3, 5, dtype=torch.int8)})
save("wrong_dtype", net | {"first.qweight": torch.zeros(7, 5, dtype=torch.int32)})
save("wrong_bias", net | {"head.bias": torch.zeros(3)})
save("nan_scale", net | {"second.scale_w": torch.tensor(float("nan"))})
