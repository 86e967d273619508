"""What a net of ``bie train`` is made of, as its model file says it: src/models/model_config.cpp."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from typing import Any, NamedTuple

BITS = (32, 8, 4, 1)


@dataclasses.dataclass
class NetConfig:
    """The fields of a model file's configuration; ``depth`` and ``width`` are None where the architecture's serve."""

    arch: str = "mlp"
    bits: int = 32
    image: tuple[int, int, int] = (1, 8, 8)
    classes: int = 10
    hidden: int = 1024
    depth: int | None = None
    width: int | None = None
    norm: bool = True
    quantise_first: bool = False
    weights: str = "usual"
    linear_bits: int = 0
    bits_of: dict[str, int] = dataclasses.field(default_factory=dict)
    normalise: bool = False
    layers: list[dict[str, Any]] = dataclasses.field(default_factory=list)  # of arch custom
    class_names: list[str] = dataclasses.field(default_factory=list)
    fit: str | None = None  # how pictures of other sizes are brought to the net's

    @property
    def architecture(self) -> Architecture:
        return ARCHITECTURES[self.arch]

    @property
    def own_depth(self) -> int:
        return self.depth or self.architecture.depth

    @property
    def own_width(self) -> int:
        return self.width or self.architecture.width

    def is_latent(self, bits: int) -> bool:
        """Whether weights of so many bits train as floats."""
        return self.weights == "float" or (self.weights == "usual" and bits > 1)

    def json(self) -> dict[str, Any]:
        """The object of a model file's entry ``bie``."""
        fields = dataclasses.asdict(self) | {"depth": max(self.own_depth, 1), "width": self.own_width}
        for name in ("layers", "class_names", "fit"):
            if not fields[name]:
                del fields[name]
        return {"format_version": 5, "channel_scales": False, **fields}

    def text(self) -> str:
        return json.dumps(self.json(), ensure_ascii=False, separators=(",", ":"), sort_keys=True)


@dataclasses.dataclass
class PlannedLayer:
    """A linear (``kernel`` is 0) or a square convolution."""

    name: str
    inputs: int
    outputs: int
    bits: int
    kernel: int = 0
    stride: int = 1
    padding: int = 0

    @property
    def is_conv(self) -> bool:
        return self.kernel > 0

    @property
    def weights(self) -> int:
        return self.inputs * self.outputs * max(self.kernel, 1) ** 2


Plan = list[PlannedLayer]


class Architecture(NamedTuple):
    """``layers`` adds all layers but the inner linear and the head, and returns how many features they leave."""

    layers: Callable[[NetConfig, Plan], int]
    depth: int = 0
    width: int = 0
    inner: str = "never"  # "always": an inner linear; "given": where linear_bits is
    deep: bool = False  # normalises its input, trains with BatchNorm alone
    narrow: bool = False  # few weights, whose signs have to flip sooner


def _mlp(c: NetConfig, plan: Plan) -> int:
    inputs = c.image[0] * c.image[1] * c.image[2]
    for i in range(c.own_depth + 1):
        plan.append(PlannedLayer(f"block{i}", inputs, c.hidden, c.bits))
        inputs = c.hidden
    return c.hidden


def _lenet(c: NetConfig, plan: Plan) -> int:
    height, width = (((side - 4) // 2 - 4) // 2 for side in c.image[1:])
    if height < 1 or width < 1:
        raise ValueError(f"lenet wants images of at least 16x16, these are {c.image[1]}x{c.image[2]}")
    w = c.own_width
    plan.append(PlannedLayer("conv1", c.image[0], w, c.bits, kernel=5))
    plan.append(PlannedLayer("conv2", w, 2 * w, c.bits, kernel=5))
    return 2 * w * height * width


def _vgg_small(c: NetConfig, plan: Plan) -> int:
    if min(c.image[1:]) < 8:
        raise ValueError(f"vgg-small wants images of at least 8x8, these are {c.image[1]}x{c.image[2]}")
    inputs = c.image[0]
    for outputs in (c.own_width, 2 * c.own_width, 4 * c.own_width):
        for _ in range(c.own_depth):
            plan.append(PlannedLayer(f"conv{len(plan)}", inputs, outputs, c.bits, kernel=3, padding=1))
            inputs = outputs
    return inputs * (c.image[1] // 8) * (c.image[2] // 8)


def _resnet20(c: NetConfig, plan: Plan) -> int:
    inputs, block = c.own_width, 0
    plan.append(PlannedLayer("conv", c.image[0], inputs, c.bits, kernel=3, padding=1))
    for outputs in (c.own_width, 2 * c.own_width, 4 * c.own_width):
        for _ in range(c.own_depth):
            stride = 1 if inputs == outputs else 2
            plan.append(PlannedLayer(f"block{block}.conv1", inputs, outputs, c.bits, 3, stride, 1))
            plan.append(PlannedLayer(f"block{block}.conv2", outputs, outputs, c.bits, 3, 1, 1))
            inputs, block = outputs, block + 1
    return inputs


def _custom(c: NetConfig, plan: Plan) -> int:
    channels, height, width = c.image
    flat = False
    for i, spec in enumerate(c.layers):
        kind, name, bits = spec["type"], f"layer{i}", spec.get("bits") or c.bits
        if kind == "linear":
            plan.append(PlannedLayer(name, channels * height * width, spec["out"], bits))
            channels, height, width, flat = spec["out"], 1, 1, True
            continue
        if flat:
            raise ValueError(f"layers[{i}] is a {kind} behind a linear, which leaves no image")
        size, padding = spec["size" if kind == "pool" else "kernel"], spec.get("padding", 0)
        high, wide = height + 2 * padding, width + 2 * padding
        if size > min(high, wide):
            reaches = f"what reaches it is {height}x{width} with a border of {padding}"
            raise ValueError(f"layers[{i}] takes squares of {size}, {reaches}")
        if kind == "pool":
            height, width = height // size, width // size
            continue
        stride = spec["stride"]
        plan.append(PlannedLayer(name, channels, spec["out"], bits, size, stride, padding))
        channels, height, width = spec["out"], (high - size) // stride + 1, (wide - size) // stride + 1
    if not plan:
        raise ValueError("the net has no layers")
    return channels * height * width


ARCHITECTURES = {
    "mlp": Architecture(_mlp, depth=3),
    "lenet": Architecture(_lenet, width=32, inner="always"),
    "vgg-small": Architecture(_vgg_small, depth=2, width=128, inner="given", deep=True),
    "custom": Architecture(_custom),
    "resnet20": Architecture(_resnet20, depth=3, width=16, inner="given", deep=True, narrow=True),
}


def plan(c: NetConfig) -> Plan:
    """The linears and convolutions in the order of the forward pass, the head last; ``ValueError`` for what cannot be.

    The first layer is float unless ``quantise_first`` or ``bits_of`` says otherwise, the head unless ``bits_of`` does.
    """
    own = c.architecture
    for name, size, has in (("depth", c.depth, own.depth), ("width", c.width, own.width)):
        if size is not None and not has:
            raise ValueError(f"{name} is {size}, but {c.arch} has no {name}")
    if c.linear_bits and own.inner == "never":
        raise ValueError(
            f"linear_bits is {c.linear_bits}, but all layers of an {c.arch} are linear: bits is their width"
        )
    layers: Plan = []
    features = own.layers(c, layers)
    inner = c.linear_bits or (c.bits if own.inner == "always" else 0)
    if inner:
        layers.append(PlannedLayer("inner", features, c.hidden, inner))
        features = c.hidden
    own_bits = bool(c.layers and c.layers[0].get("bits"))
    if not c.quantise_first and not own_bits:
        layers[0].bits = 32
    layers.append(PlannedLayer("head", features, c.classes, 32))
    by_name = {layer.name: layer for layer in layers}
    for name, bits in c.bits_of.items():
        if name not in by_name:
            raise ValueError(f"there is no layer {name!r}; the layers are {', '.join(by_name)}")
        by_name[name].bits = bits
    return layers
