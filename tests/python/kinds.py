"""Every quantised layer that computes, at sizes that are multiples of nothing, and what it must compute in float64."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import formulas
import torch

from bie import nn
from bie.weights.parameters import CodesParameter, SignsParameter
from bitorch_engine.layers.qconv.binary import BinaryConvParameter
from bitorch_engine.layers.qconv.binary.cpp import BinaryConv2dCPP
from bitorch_engine.layers.qconv.binary.cutlass import BinaryConv2dCutlass
from bitorch_engine.layers.qconv.nbit.cutlass import Q4Conv2dCutlass, Q8Conv2d
from bitorch_engine.layers.qlinear.binary import BinaryLinearParameter
from bitorch_engine.layers.qlinear.binary.cpp import BinaryLinearCPP
from bitorch_engine.layers.qlinear.binary.cuda import BinaryLinearCuda
from bitorch_engine.layers.qlinear.binary.cutlass import BinaryLinearCutlass
from bitorch_engine.layers.qlinear.nbit import nBitLinearParameter
from bitorch_engine.layers.qlinear.nbit.cutlass import Q4LinearCutlass, Q8LinearCutlass

CONV = {"stride": (2, 1), "padding": (1, 0), "dilation": (1, 2)}
CHANNELS = {"channel_scale": True}
GROUPED = CONV | {"groups": 3, "padding_value": 0}


def binary_options(layer):
    """How the window of a binary convolution of KINDS moves; nothing for a linear layer."""
    return CONV | {"groups": layer.groups, "padding_value": layer.padding_value} if layer._feature_axis == 1 else {}


def formula(layer, x):
    """What the layer computes of x with its weight and scales as they are, in training or evaluation."""
    weight, scale_a, scale_w = layer.weight.detach(), layer.scale_a, layer.scale_w
    if layer._bits == 1:
        forward = formulas.binary_conv_forward if weight.dim() == 4 else formulas.binary_forward
        options = binary_options(layer)
        if scale_a is None:
            y = forward(x.float(), weight, torch.tensor(1.0), torch.tensor(1.0), None, **options)
        else:
            if weight.is_floating_point():
                scale_w = weight.double().abs().mean().float()
            y = forward(x, weight, scale_a, scale_w, layer.bias_a, **options)
    else:
        width = formulas.Q8 if layer._bits == 8 else formulas.Q4
        if not weight.is_floating_point():
            # Codes divided by a step of scale_w are themselves.
            weight = weight.double() * scale_w.double()
        elif layer._bits == 8 or not layer._prepared:
            scale_w = None
        if weight.dim() == 4:
            moves = CONV | {"groups": layer.groups}
            y = formulas.conv_forward(x, weight, scale_a, scale_w, layer.bias_a, width, **moves)
        else:
            y = formulas.nbit_forward(x, weight, scale_a, scale_w, layer.bias_a, width)
    if layer.channel_scale is not None:
        y = y * along(layer.channel_scale, weight).to(y.dtype)
    return y if layer.bias is None else y + along(layer.bias, weight).to(y.dtype)


def along(channels, weight):
    """A vector of output channels as it meets an output."""
    return channels.view(-1, 1, 1) if weight.dim() == 4 else channels


@dataclass(frozen=True)
class Kind:
    name: str
    make: Callable[..., torch.nn.Module]
    shape: tuple[int, ...]  # of a batch
    integer: bool  # the weight trains as int8
    packed: tuple[int, ...]  # the shape of qweight

    @property
    def plain(self) -> bool:
        """Whether it has neither a bias of the activation nor scales, and float32 out."""
        return "plain" in self.name

    @property
    def parameter(self) -> type[torch.nn.Parameter]:
        """The class of an integer weight."""
        ours = SignsParameter if self.name.startswith("binary") else CodesParameter
        return {
            "cutlass": BinaryLinearParameter,
            "cuda_rows": BinaryLinearParameter,
            "cuda_bstc": BinaryLinearParameter,
            "cuda_btc": BinaryLinearParameter,
            "cutlass_conv": BinaryConvParameter,
            "q8_cutlass": nBitLinearParameter,
        }.get(self.name, ours)

    def batch(self, seed: int = 0) -> torch.Tensor:
        return torch.randn(self.shape, generator=torch.Generator().manual_seed(seed))

    def trained(self, seed: int = 0) -> torch.nn.Module:
        """A layer whose scales are set and whose bias_a is not zero, in training."""
        torch.manual_seed(seed)
        layer = self.make()
        if layer.channel_scale is not None:  # channels of different sizes, as a trained float net has them
            sizes = torch.linspace(0.2, 3, layer.weight.shape[0])
            layer.set_weight_data(layer.weight.detach() * sizes.view(-1, *[1] * (layer.weight.dim() - 1)))
        layer(self.batch(seed))
        if layer.bias_a is not None:
            with torch.no_grad():
                layer.bias_a.uniform_(-0.1, 0.1)
        return layer

    def __repr__(self) -> str:
        return self.name


KINDS = [
    Kind("binary", lambda **k: nn.BinaryLinear(37, 13, **k), (5, 37), True, (13, 5)),
    Kind("binary_latent", lambda **k: nn.BinaryLinear(65, 3, latent=True, **k), (2, 3, 65), False, (3, 9)),
    Kind("binary_bytes", lambda **k: nn.BinaryLinear(256, 24, **k), (1, 256), True, (24, 32)),
    Kind("plain", lambda **k: nn.PlainBinaryLinear(41, 9, **k), (3, 41), False, (9, 6)),
    Kind("binary_conv", lambda **k: nn.BinaryConv2d(3, 5, (3, 2), **CONV, **k), (2, 3, 9, 8), True, (5, 3)),
    Kind(
        "binary_conv_bytes", lambda **k: nn.BinaryConv2d(16, 7, (1, 3), **CONV, **k), (1, 16, 6, 11), True, (7, 1, 3, 2)
    ),
    Kind("binary_conv_grouped", lambda **k: nn.BinaryConv2d(6, 9, 3, **GROUPED, **k), (2, 6, 7, 8), True, (9, 3)),
    Kind(
        "binary_conv_latent",
        lambda **k: nn.BinaryConv2d(4, 3, 2, latent=True, **CONV, **k),
        (2, 4, 5, 6),
        False,
        (3, 2),
    ),
    Kind("plain_conv", lambda **k: nn.PlainBinaryConv2d(5, 4, (3, 2), **CONV, **k), (2, 5, 6, 7), False, (4, 4)),
    Kind("q8", lambda **k: nn.Q8Linear(37, 13, **k), (2, 3, 37), False, (13, 37)),
    Kind("q8_codes", lambda **k: nn.Q8Linear(31, 5, latent=False, **k), (6, 31), True, (5, 31)),
    Kind("q8_channels", lambda **k: nn.Q8Linear(33, 7, **CHANNELS, **k), (4, 33), False, (7, 33)),
    Kind("q4", lambda **k: nn.Q4Linear(37, 13, **k), (5, 37), False, (13, 19)),
    Kind("q4_codes", lambda **k: nn.Q4Linear(63, 1, latent=False, **k), (5, 63), True, (1, 32)),
    Kind("q4_channels", lambda **k: nn.Q4Linear(37, 5, latent=False, **CHANNELS, **k), (2, 2, 37), True, (5, 19)),
    Kind("q8_conv", lambda **k: nn.Q8Conv2d(3, 5, (3, 2), **CONV, **k), (2, 3, 9, 8), False, (5, 3, 3, 2)),
    Kind(
        "q8_conv_codes",
        lambda **k: nn.Q8Conv2d(4, 6, 3, groups=2, latent=False, **CONV, **k),
        (2, 4, 7, 7),
        True,
        (6, 2, 3, 3),
    ),
    Kind(
        "q8_conv_channels", lambda **k: nn.Q8Conv2d(3, 4, 2, **CONV, **CHANNELS, **k), (2, 3, 6, 5), False, (4, 3, 2, 2)
    ),
    Kind("q4_conv", lambda **k: nn.Q4Conv2d(3, 5, (3, 2), **CONV, **k), (2, 3, 9, 8), False, (5, 9)),
    Kind("q4_conv_even", lambda **k: nn.Q4Conv2d(4, 7, (1, 3), **CONV, **k), (1, 4, 6, 11), False, (7, 1, 3, 2)),
    Kind(
        "q4_conv_grouped",
        lambda **k: nn.Q4Conv2d(6, 9, (2, 3), groups=3, **CONV, **k),
        (2, 6, 5, 9),
        False,
        (9, 2, 3, 1),
    ),
    Kind(
        "q4_conv_channels", lambda **k: nn.Q4Conv2d(4, 5, 3, **CONV, **CHANNELS, **k), (2, 4, 7, 7), False, (5, 3, 3, 2)
    ),
    Kind("q4_conv_codes", lambda **k: nn.Q4Conv2d(3, 2, 3, latent=False, **CONV, **k), (2, 3, 7, 7), True, (2, 14)),
    # BITorch Engine's names: other constructors, other bytes on disk, scale_w as a parameter.
    Kind("cutlass", lambda **k: BinaryLinearCutlass(37, 13, **k), (5, 37), True, (13, 5)),
    Kind("cuda_rows", lambda **k: BinaryLinearCuda(33, 7, **k), (4, 33), True, (7, 5)),
    Kind("cuda_bstc", lambda **k: BinaryLinearCuda(96, 32, **k), (3, 96), True, (384,)),
    Kind("cuda_btc", lambda **k: BinaryLinearCuda(256, 24, **k), (1, 256), True, (768,)),
    Kind("cpp_plain", lambda **k: BinaryLinearCPP(40, 9, **k), (3, 40), False, (45,)),
    Kind("cpp_plain_odd", lambda **k: BinaryLinearCPP(41, 9, **k), (3, 41), False, (9, 6)),
    Kind("cutlass_conv", lambda **k: BinaryConv2dCutlass(3, 5, (3, 2), **CONV, **k), (2, 3, 9, 8), True, (5, 3)),
    Kind("cpp_plain_conv", lambda **k: BinaryConv2dCPP(5, 4, (3, 2), **CONV, **k), (2, 5, 6, 7), False, (16,)),
    Kind("q8_cutlass", lambda **k: Q8LinearCutlass(31, 5, latent=False, **k), (6, 31), True, (5, 31)),
    Kind("q4_cutlass", lambda **k: Q4LinearCutlass(37, 13, **k), (5, 37), False, (13, 19)),
    Kind("q4_cutlass_conv", lambda **k: Q4Conv2dCutlass(3, 5, (3, 2), **CONV, **k), (2, 3, 9, 8), False, (5, 9)),
]
INTEGER = [kind for kind in KINDS if kind.integer]


def as_loaded(kind, layer, x):
    """What a layer that loaded this one's state computes in evaluation."""
    other = kind.make()
    other.load_state_dict(layer.state_dict())
    return other.eval()(x)


@dataclass(frozen=True)
class Alias:
    """A class of BITorch Engine's name and the one of ours that it is."""

    theirs: Callable[[], torch.nn.Module]
    ours: Callable[[], torch.nn.Module]
    shape: tuple[int, ...]

    @property
    def name(self) -> str:
        return type(self.theirs()).__name__

    def batch(self) -> torch.Tensor:
        return torch.randn(self.shape, generator=torch.Generator().manual_seed(1))


ALIASES = [
    Alias(lambda: BinaryLinearCutlass(37, 13), lambda: nn.BinaryLinear(37, 13), (5, 37)),
    Alias(lambda: BinaryLinearCuda(256, 24), lambda: nn.BinaryLinear(256, 24), (5, 256)),
    Alias(lambda: BinaryLinearCPP(40, 9), lambda: nn.PlainBinaryLinear(40, 9), (5, 40)),
    Alias(lambda: Q8LinearCutlass(37, 13), lambda: nn.Q8Linear(37, 13), (5, 37)),
    Alias(lambda: Q4LinearCutlass(37, 13), lambda: nn.Q4Linear(37, 13), (5, 37)),
    Alias(lambda: BinaryConv2dCutlass(3, 5, 3), lambda: nn.BinaryConv2d(3, 5, 3), (2, 3, 6, 6)),
    Alias(lambda: BinaryConv2dCPP(3, 5, 3), lambda: nn.PlainBinaryConv2d(3, 5, 3), (2, 3, 6, 6)),
    Alias(lambda: Q4Conv2dCutlass(3, 5, 3), lambda: nn.Q4Conv2d(3, 5, 3), (2, 3, 6, 6)),
    Alias(lambda: Q8Conv2d(3, 5, 3), lambda: nn.Q8Conv2d(3, 5, 3), (2, 3, 6, 6)),
]
