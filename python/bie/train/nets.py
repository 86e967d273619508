"""The nets of ``bie train`` as modules: include/bie/models/classifier.h says what each computes.

Names and shapes of their tensors are those of the C++ models, so that the command reads what is trained here.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor, nn

from bie.nn import BinaryConv2d, BinaryLinear, Q4Conv2d, Q4Linear, Q8Conv2d, Q8Linear
from bie.train.config import NetConfig, PlannedLayer, plan
from bie.train.tails import fused_tail

_LINEAR = {1: BinaryLinear, 4: Q4Linear, 8: Q8Linear, 32: nn.Linear}
_CONV = {1: BinaryConv2d, 4: Q4Conv2d, 8: Q8Conv2d, 32: nn.Conv2d}
_IDENTITY = nn.Identity()


def _product(c: NetConfig, layer: PlannedLayer, bias: bool) -> nn.Module:
    more: dict[str, Any] = {} if layer.bits == 32 else {"latent": c.is_latent(layer.bits)}
    if not layer.is_conv:
        return _LINEAR[layer.bits](layer.inputs, layer.outputs, bias=bias, **more)
    sizes = (layer.inputs, layer.outputs, layer.kernel, layer.stride, layer.padding)
    return _CONV[layer.bits](*sizes, bias=bias, **more)


class Block(nn.Module):
    """A product, then a BatchNorm, a shortcut, an activation and a pool, as far as they are there."""

    def __init__(self, c: NetConfig, layer: PlannedLayer, act: type[nn.Module]) -> None:
        super().__init__()
        self.product = _product(c, layer, bias=not c.norm)
        # A ReLU or a pool leaves a binary convolution no signs.
        centred = c.norm and layer.is_conv and layer.bits == 1
        self.signs_norm = nn.BatchNorm2d(layer.inputs, affine=False) if centred else nn.Identity()
        norm = nn.BatchNorm2d if layer.is_conv else nn.BatchNorm1d
        self.norm = norm(layer.outputs) if c.norm else nn.Identity()
        self.act = act()

    def forward(self, x: Tensor, shortcut: Tensor | None = None, pool: int = 1) -> Tensor:
        signs = fused_tail(self.signs_norm, _IDENTITY, x, None, 1)
        y = self.product(self.signs_norm(x) if signs is None else signs)
        fused = fused_tail(self.norm, self.act, y, shortcut, pool)
        if fused is not None:
            return fused
        y = self.norm(y)
        y = self.act(y if shortcut is None else y + shortcut)
        return y if pool == 1 else nn.functional.max_pool2d(y, pool)


class Net(nn.Module):
    """[batch, channels, height, width] to [batch, classes] logits. Subclasses compute ``features`` of the image."""

    def __init__(self, config: NetConfig) -> None:
        super().__init__()
        self.config = config
        *body, head = self.plan = plan(config)
        first, own = body[0], config.architecture
        affine = not own.deep and (config.quantise_first or first.bits < 32)
        self.input_norm: nn.Module = nn.Identity()
        if config.normalise or own.deep or affine:
            linear = self._begins_with_linear()
            sizes = (nn.BatchNorm1d, first.inputs) if linear else (nn.BatchNorm2d, config.image[0])
            self.input_norm = sizes[0](sizes[1], affine=affine)
        self._add_body(body)
        self.head = _product(config, head, bias=True)

    def _begins_with_linear(self) -> bool:
        return not self.plan[0].is_conv

    def _add_body(self, body: list[PlannedLayer]) -> None:
        raise NotImplementedError

    def features(self, x: Tensor) -> Tensor:
        raise NotImplementedError

    def forward(self, images: Tensor) -> Tensor:
        return self.head(self.features(images))

    def products(self) -> dict[str, nn.Module]:
        """The linears and convolutions by the names of the plan."""
        modules = dict(self.named_modules())
        return {x.name: modules[x.name if x.name == "head" else f"{x.name}.product"] for x in self.plan}


class Mlp(Net):
    def _add_body(self, body: list[PlannedLayer]) -> None:
        self._blocks = [layer.name for layer in body]
        for layer in body:
            self.add_module(layer.name, Block(self.config, layer, nn.PReLU))

    def features(self, x: Tensor) -> Tensor:
        x = self.input_norm(x.flatten(1))
        for name in self._blocks:
            x = self.get_submodule(name)(x)
        return x


class ConvNet(Net):
    """Convolutions, then the inner linear where there is one."""

    def _add_body(self, body: list[PlannedLayer]) -> None:
        self.inner_norm: nn.Module = nn.Identity()
        self.inner: nn.Module = nn.Identity()
        self._convs = [layer for layer in body if layer.is_conv]
        self._add_convs(self._convs)
        last = body[-1]
        if not last.is_conv:
            if last.bits == 1 and self.config.norm:
                self.inner_norm = nn.BatchNorm1d(last.inputs, affine=False)
            self.inner = Block(self.config, last, nn.PReLU)

    def _add_convs(self, convs: list[PlannedLayer]) -> None:
        raise NotImplementedError

    def convolved(self, x: Tensor) -> Tensor:
        """[batch, features]."""
        raise NotImplementedError

    def features(self, x: Tensor) -> Tensor:
        return self.inner(self.inner_norm(self.convolved(self.input_norm(x))))


class LeNet(ConvNet):
    def _add_convs(self, convs: list[PlannedLayer]) -> None:
        self.conv1, self.conv2 = (Block(self.config, layer, nn.PReLU) for layer in convs)

    def convolved(self, x: Tensor) -> Tensor:
        return self.conv2(self.conv1(x, pool=2), pool=2).flatten(1)


class VggSmall(ConvNet):
    def _add_convs(self, convs: list[PlannedLayer]) -> None:
        for layer in convs:
            self.add_module(layer.name, Block(self.config, layer, nn.ReLU))

    def convolved(self, x: Tensor) -> Tensor:
        stage = len(self._convs) // 3
        for i, layer in enumerate(self._convs, 1):
            x = self.get_submodule(layer.name)(x, pool=2 if i % stage == 0 else 1)
        return x.flatten(1)


class Residual(nn.Module):
    """Two convolutions; where both are binary, a shortcut around each (Liu et al. 2018), else one around both."""

    def __init__(self, c: NetConfig, first: PlannedLayer, second: PlannedLayer) -> None:
        super().__init__()
        self.each = first.bits == second.bits == 1
        act = nn.PReLU if self.each else nn.ReLU
        self.conv1, self.conv2 = Block(c, first, act), Block(c, second, act)
        self.stride, self.more = first.stride, first.outputs - first.inputs

    def forward(self, x: Tensor) -> Tensor:
        past = x
        if self.more:  # every other pixel and channels of zeros (He et al. 2016, option A)
            past = nn.functional.pad(x[:, :, :: self.stride, :: self.stride], (0, 0, 0, 0, 0, self.more))
        y = self.conv1(x, past if self.each else None)
        return self.conv2(y, y if self.each else past)


class ResNet20(ConvNet):
    def _add_convs(self, convs: list[PlannedLayer]) -> None:
        first, *rest = convs
        self.conv = Block(self.config, first, nn.ReLU)
        pairs = zip(rest[::2], rest[1::2], strict=True)
        self._blocks = [one.name.partition(".")[0] for one in rest[::2]]
        for name, pair in zip(self._blocks, pairs, strict=True):
            self.add_module(name, Residual(self.config, *pair))

    def convolved(self, x: Tensor) -> Tensor:
        x = self.conv(x)
        for name in self._blocks:
            x = self.get_submodule(name)(x)
        return x.mean((2, 3))


_ACTIVATIONS = {"none": nn.Identity, "relu": nn.ReLU, "prelu": nn.PReLU}


class CustomNet(Net):
    """The layers of a description, one after the other."""

    def _begins_with_linear(self) -> bool:
        return self.config.layers[0]["type"] == "linear"

    def _add_body(self, body: list[PlannedLayer]) -> None:
        for layer in body:
            spec = self.config.layers[int(layer.name.removeprefix("layer"))]
            self.add_module(layer.name, Block(self.config, layer, _ACTIVATIONS[spec["activation"]]))

    def features(self, x: Tensor) -> Tensor:
        specs = self.config.layers
        x = self.input_norm(x.flatten(1) if self._begins_with_linear() else x)
        for i, spec in enumerate(specs):
            if spec["type"] == "pool":
                x = nn.functional.max_pool2d(x, spec["size"])
            else:
                x = self.get_submodule(f"layer{i}")(x.flatten(1) if spec["type"] == "linear" else x)
        return x.flatten(1)


_NETS: dict[str, type[Net]] = {
    "mlp": Mlp,
    "lenet": LeNet,
    "vgg-small": VggSmall,
    "resnet20": ResNet20,
    "custom": CustomNet,
}


def build(config: NetConfig) -> Net:
    """The net, its layers not yet prepared."""
    net = _NETS[config.arch](config)
    if not config.norm:  # weights in +-sqrt(6 / ((1 + 0.25^2) * k)) keep a signal through a PReLU (He et al. 2015)
        with torch.no_grad():
            for name, weight in net.named_parameters():
                if name.endswith("product.weight"):
                    weight.mul_(math.sqrt(6 / 1.0625))
    return net
