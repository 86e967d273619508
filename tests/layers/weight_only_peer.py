"""Python's weight-only layers: `write FOLDER` makes the files that C++ reads, `check FOLDER` reads those of C++.

A file holds the layer's state under `state.`, an input `x` and the output `y`. Exit status 77: a package is missing.
"""

import sys
from pathlib import Path

try:
    import torch
    from safetensors.torch import load_file, save_file
except ImportError as missing:
    print(missing)
    sys.exit(77)

import bie

FOLDER = Path(sys.argv[2])


def mpq(**options: object) -> torch.nn.Module:
    return bie.nn.MPQLinear(100, 9, w_bit=4, group_size=32, dtype=torch.float32, disable_bias=False, **options)


LAYERS = {
    "gba": lambda: mpq(),
    "gptq": lambda: mpq(use_gba_quant=False),
    "mbwq": lambda: bie.nn.MBWQLinear(100, 9, w_bit=2, group_size=32, dtype=torch.float32, use_mbw=False),
    "exl2": lambda: bie.nn.MBWQLinear(96, 9, dtype=torch.float32, groups=3, rows_packed=8 + 4 + 2),
    "table": lambda: bie.nn.WeightOnlyEmbedding(11, 20, bits=4, group_size=8, padding_idx=3),
}


def filled(name: str) -> torch.nn.Module:
    layer, g = LAYERS[name](), torch.Generator().manual_seed(len(name))
    for key, tensor in layer.state_dict().items():
        if key == "q_groups":
            tensor.copy_(torch.tensor([8, 0, 4, 8, 2, 12]))
        elif key == "q_perm":
            tensor.copy_(torch.randperm(len(tensor), generator=g))
        elif key == "g_idx":
            tensor.copy_(torch.randint(0, 4, tensor.shape, generator=g))
        elif tensor.dtype == torch.int32 and key != "wf":
            tensor.copy_(torch.randint(-(2**31), 2**31, tensor.shape, generator=g))
        elif tensor.is_floating_point():
            tensor.copy_(0.01 + 0.1 * torch.rand(tensor.shape, generator=g))
    return layer.eval()


def output(name: str, layer: torch.nn.Module, x: torch.Tensor) -> torch.Tensor:
    with torch.no_grad():
        y = layer(x)
        return torch.cat([y, layer.head()(y)], 1) if name == "table" else y


def write() -> None:
    for name in LAYERS:
        layer = filled(name)
        x = torch.arange(11) if name == "table" else torch.randn(3, layer.in_channels)
        y = output(name, layer, x)
        state = {f"state.{key}": value.contiguous() for key, value in layer.state_dict().items()}
        save_file(state | {"x": x, "y": y}, FOLDER / f"{name}.safetensors")


def check() -> None:
    for name, make in LAYERS.items():
        tensors = load_file(FOLDER / f"{name}.cpp.safetensors")
        layer = make().eval()
        layer.load_state_dict({key[6:]: value for key, value in tensors.items() if key.startswith("state.")})
        assert torch.equal(output(name, layer, tensors["x"]), tensors["y"]), name


{"write": write, "check": check}[sys.argv[1]]()
