"""Models of our layers and common torch modules as nets that run without torch."""

from __future__ import annotations

import json
import math
import operator
import os
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor, nn

from bie._operators import ops
from bie._output_files import replacing

_NONE, _RELU, _PRELU = range(3)
_INPUT_RANGES = ("unit", "bytes", "any", "numbers")
_UNTRAINED = "a layer has no step size yet: the model was not trained"


class _Value(int):
    """A value that depends on the input: its number in the net."""

    shape: torch.Size  # of the example


class _Graph:
    """The lists of `torch.ops.bie.net_bytes`."""

    def __init__(self, example: Tensor):
        self.batch = example.shape[0]
        self.input_sizes = list(example.shape[1:])
        self.ops: list[str] = []
        self.inputs: list[int] = []
        self.ints: list[int] = []
        self.floats: list[float] = []
        self.blobs: list[Tensor | None] = []
        self.counts: list[int] = []

    def add(
        self,
        op: str,
        *inputs: _Value,
        ints: Iterable[int] = (),
        floats: Iterable[float] = (),
        blobs: Iterable[Tensor | None] = (),
    ) -> _Value:
        lists = (self.inputs, self.ints, self.floats, self.blobs)
        for own, given in zip(lists, (list(inputs), list(ints), list(floats), list(blobs)), strict=True):
            own.extend(given)
            self.counts.append(len(given))
        self.ops.append(op)
        return _Value(len(self.ops))

    def bytes(self, outputs: list[_Value], metadata: dict[str, str]) -> bytes:
        data = ops.net_bytes(
            *(self.ops, self.inputs, self.ints, self.floats, self.blobs, self.counts, self.input_sizes),
            *(list(outputs), list(metadata), list(metadata.values())),
        )
        return data.numpy().tobytes()


class _Refused(Exception):
    """Why a node of the exported program has none in a net."""


def _pair(value: int | list[int]) -> list[int]:
    return [value, value] if isinstance(value, int) else [*value, *value][:2]


def _wants(holds: bool, what: str) -> None:
    if not holds:
        raise _Refused(what)


def _border(kernel: list[int], a: dict[str, Any]) -> list[int]:
    if not isinstance(a["padding"], str):
        return _pair(a["padding"])
    if a["padding"] == "valid":
        return [0, 0]
    both = [d * (k - 1) for d, k in zip(_pair(a["dilation"]), kernel, strict=True)]
    _wants(all(rows % 2 == 0 for rows in both), "a convolution has a border of another width on each side")
    return [rows // 2 for rows in both]


def _window(weight: Tensor, kernel: list[int], a: dict[str, Any]) -> list[int]:
    movement = [*_pair(a["stride"]), *_border(kernel, a), *_pair(a["dilation"]), a["groups"]]
    return [weight.shape[0], *kernel, *movement]


def _features(x: _Value) -> None:
    _wants(len(x.shape) == 2, f"a linear layer: expected [batch, features], got {list(x.shape)}")


def _scales(a: dict[str, Any], bits: int) -> list[float]:
    """The step of the quantiser and the factor of the product, as the operators take them."""
    step = a["scale_a"].detach().float()
    _wants(float(step) != 0, _UNTRAINED)
    return [1.0 if bits == 1 else max(float(step), a["eps"]), float(step * a["scale_w"].detach().float())]


def _coded_linear(bits: int) -> Callable:
    def node(graph: _Graph, a: dict[str, Any]) -> _Value:
        weight = a["weight"]
        _features(a["x"])
        return graph.add(
            "linear", a["x"], ints=[bits, weight.shape[0]], floats=_scales(a, bits), blobs=[weight, a["bias_a"]]
        )

    return node


def _coded_conv2d(bits: int) -> Callable:
    def node(graph: _Graph, a: dict[str, Any]) -> _Value:
        weight = a["weight"]
        kernel = _pair(a["kernel_size"]) if a.get("kernel_size") else list(weight.shape[2:])
        ints = [bits, *_window(weight, kernel, a), a.get("padding_value", 0)]
        return graph.add("conv2d", a["x"], ints=ints, floats=_scales(a, bits), blobs=[weight, a["bias_a"]])

    return node


def _linear(graph: _Graph, a: dict[str, Any]) -> _Value:
    _features(a["input"])
    return graph.add("float_linear", a["input"], ints=[a["weight"].shape[0]], blobs=[a["weight"], a["bias"]])


def _conv2d(graph: _Graph, a: dict[str, Any]) -> _Value:
    weight = a["weight"]
    window = _window(weight, list(weight.shape[2:]), a)
    return graph.add("float_conv2d", a["input"], ints=window, blobs=[weight, a["bias"]])


def _batch_norm(graph: _Graph, a: dict[str, Any]) -> _Value:
    _wants(not a["training"] and a["running_mean"] is not None, "a batch norm is in training or has no running mean")
    numbers = [a["running_mean"], a["running_var"], a["weight"], a["bias"]]
    return graph.add("batch_norm", a["input"], floats=[a["eps"]], blobs=numbers)


def _bent(graph: _Graph, x: _Value, kind: int, slope: float) -> _Value:
    return graph.add("activation", x, ints=[kind], floats=[slope])


def _prelu(graph: _Graph, a: dict[str, Any]) -> _Value:
    _wants(a["weight"].numel() == 1, "a PReLU: expected one slope, got one for each channel")
    return _bent(graph, a["self"], _PRELU, float(a["weight"]))


def _max_pool2d(graph: _Graph, a: dict[str, Any]) -> _Value:
    size = _pair(a["kernel_size"])
    _wants(_pair(a["dilation"]) == [1, 1] and not a["ceil_mode"], "a max pool has a dilation or rounds its sizes up")
    stride, border = _pair(a["stride"]) if a["stride"] else size, _pair(a["padding"])
    if size[0] == size[1] and size[0] <= 16 and stride == size and border == [0, 0]:
        return graph.add("pool", a["self"], ints=[size[0]])
    return graph.add("max_pool", a["self"], ints=[*size, *stride, *border])


def _mean(graph: _Graph, a: dict[str, Any]) -> _Value:
    _wants(sorted(axis % 4 for axis in a["dim"] or []) == [2, 3], "a mean is not that of each channel")
    return graph.add("plane_means", a["self"])


def _adaptive_mean(graph: _Graph, a: dict[str, Any]) -> _Value:
    _wants(_pair(a["output_size"]) == [1, 1], "an adaptive pool leaves more than a number a channel")
    return graph.add("plane_means", a["self"])


def _along_channels(x: _Value, tensor: Tensor) -> Tensor:
    """The vector of channels that a constant is where it is broadcast to x, whose channels are its second axis."""
    sizes = [1] * (len(x.shape) - tensor.dim()) + list(tensor.shape)
    channels = sizes[1:2] + [size for axis, size in enumerate(sizes) if axis != 1]
    _wants(
        len(sizes) == len(x.shape) and sizes[1] in (1, x.shape[1]) and all(size == 1 for size in channels[1:]),
        f"a constant of sizes {list(tensor.shape)} is not one of the channels of {list(x.shape)}",
    )
    return tensor.reshape(-1).expand(x.shape[1]).contiguous()


def _add(graph: _Graph, a: dict[str, Any]) -> _Value:
    _wants(a["alpha"] == 1, "a sum has a factor")
    x, y = a["self"], a["other"]
    if isinstance(x, _Value) and isinstance(y, _Value):
        _wants(x.shape == y.shape, f"values of {list(x.shape)} and {list(y.shape)} are added")
        return graph.add("add", x, y)
    x, y = (x, y) if isinstance(x, _Value) else (y, x)
    _wants(isinstance(y, Tensor), "a number is added")
    return graph.add("affine", x, blobs=[None, _along_channels(x, y)])


def _mul(graph: _Graph, a: dict[str, Any]) -> _Value:
    x, y = a["self"], a["other"]
    _wants(not (isinstance(x, _Value) and isinstance(y, _Value)), "two values are multiplied")
    x, y = (x, y) if isinstance(x, _Value) else (y, x)
    _wants(isinstance(y, Tensor), "a number is multiplied")
    return graph.add("affine", x, blobs=[_along_channels(x, y), None])


def _flatten(graph: _Graph, a: dict[str, Any]) -> _Value:
    _wants(a["start_dim"] == 1 and a["end_dim"] == -1, "a flatten leaves more than features")
    return graph.add("flatten", a["self"])


def _reshape(graph: _Graph, a: dict[str, Any]) -> _Value:
    sizes, shape = a.get("size", a.get("shape")), a["self"].shape
    per_image = math.prod(shape[1:])
    _wants(
        len(sizes) == 2
        and sizes[0] in (graph.batch, -1)
        and sizes[1] in (per_image, -1 if sizes[0] != -1 else per_image),
        f"a reshape of {list(shape)} to {list(sizes)} leaves other than the features of each image",
    )
    return graph.add("flatten", a["self"])


def _softmax(graph: _Graph, a: dict[str, Any]) -> _Value:
    shape = a["self"].shape
    _wants(
        a["dim"] % len(shape) == 1 and math.prod(shape[2:]) == 1, f"a softmax of {list(shape)} is not of the features"
    )
    return graph.add("softmax", a["self"])


def _untrained(_: _Graph, __: dict[str, Any]) -> _Value:
    """A layer whose first batch is still to come takes its step size from it."""
    raise _Refused(_UNTRAINED)


def _dropout(_: _Graph, a: dict[str, Any]) -> _Value:
    _wants(not a["train"] or a["p"] == 0, "a dropout drops in evaluation too (training=True)")
    return a["input"]


def _same(name: str) -> Callable:
    return lambda graph, a: a[name]


_NODES: dict[str, Callable[[_Graph, dict[str, Any]], _Value]] = {
    "bie.binary_linear": _coded_linear(1),
    "bie.q4_linear": _coded_linear(4),
    "bie.q8_linear": _coded_linear(8),
    "bie.binary_conv2d": _coded_conv2d(1),
    "bie.q4_conv2d": _coded_conv2d(4),
    "bie.q8_conv2d": _coded_conv2d(8),
    "bie.init_scale_": _untrained,
    "aten.linear": _linear,
    "aten.conv2d": _conv2d,
    "aten.batch_norm": _batch_norm,
    "aten.relu": lambda graph, a: _bent(graph, a["self"], _RELU, 0.0),
    "aten.relu_": lambda graph, a: _bent(graph, a["self"], _RELU, 0.0),
    "aten.leaky_relu": lambda graph, a: _bent(graph, a["self"], _PRELU, float(a["negative_slope"])),
    "aten.prelu": _prelu,
    "aten.max_pool2d": _max_pool2d,
    "aten.mean": _mean,
    "aten.adaptive_avg_pool2d": _adaptive_mean,
    "aten.add": _add,
    "aten.add_": _add,
    "aten.mul": _mul,
    "aten.flatten": _flatten,
    "aten.view": _reshape,
    "aten.reshape": _reshape,
    "aten.softmax": _softmax,
    "aten.dropout": _dropout,
    "aten.detach": _same("self"),
    "aten.contiguous": _same("self"),
    "aten.clone": _same("self"),
}


def _arguments(target: Any, args: tuple, kwargs: dict[str, Any]) -> dict[str, Any]:
    """By name, those left out with their defaults."""
    given = dict(zip((a.name for a in target._schema.arguments), args, strict=False)) | kwargs
    return {a.name: given.get(a.name, a.default_value) for a in target._schema.arguments}


def _constants(program: torch.export.ExportedProgram) -> dict[str, Any]:
    """What the placeholders but the input are."""
    signature, state = program.graph_signature, {**program.state_dict, **program.constants}
    names = {**signature.inputs_to_parameters, **signature.inputs_to_buffers}
    names |= dict(getattr(signature, "inputs_to_lifted_tensor_constants", {}))
    return {place: state[name] for place, name in names.items()}


#: Nodes whose value may be that of their first argument in another form.
_VIEWS = ("aten.view", "aten.reshape", "aten.flatten", "aten.detach", "aten.contiguous", "aten.dropout")


def _name(node: torch.fx.Node) -> str:
    return str(node.target).rsplit(".", 1)[0]


def _shares(node: torch.fx.Node) -> bool:
    """Whether a node's value shares its memory with that of its first argument."""
    return node.op == "call_function" and (_name(node) in _VIEWS or _name(node).endswith("_"))


def _read_later(node: torch.fx.Node) -> bool:
    """Whether what a node changes in place is read after it through a view of it, or through what it is a view of."""
    places = {other: place for place, other in enumerate(node.graph.nodes)}
    changed = node.args[0]
    shared, waiting = {changed}, [changed]
    while waiting:
        one = waiting.pop()
        near = [user for user in one.users if _shares(user) and user.args[0] is one]
        if _shares(one):
            near.append(one.args[0])
        waiting += [other for other in near if other not in shared and places[other] < places[node]]
        shared.update(near)
    readers = (user for other in shared - {changed, node} for user in other.users)
    return any(places[user] > places[node] for user in readers)


def _run(program: torch.export.ExportedProgram, graph: _Graph) -> list[_Value]:
    known, values = _constants(program), {}
    for node in program.graph.nodes:
        if node.op == "placeholder":
            values[node] = known.get(node.name, _Value(0))
            if isinstance(values[node], _Value):
                values[node].shape = node.meta["val"].shape
            continue
        args, kwargs = torch.fx.node.map_arg((node.args, node.kwargs), lambda n: values[n])
        if node.op == "output":
            return list(args[0])
        flat = torch.utils._pytree.tree_leaves((args, kwargs))
        if not any(isinstance(value, _Value) for value in flat) or node.target is operator.getitem:
            values[node] = node.target(*args, **kwargs)  # of constants alone
            continue
        name = str(node.target).rsplit(".", 1)[0]
        try:
            _wants(name in _NODES, "there is no such node in a net")
            made = _Value(_NODES[name](graph, _arguments(node.target, args, kwargs)))
            made.shape = node.meta["val"].shape
            values[node] = made
            if name.endswith("_"):
                _wants(not _read_later(node), "it changes a value in place that is read under another name")
                values[node.args[0]] = made
        except _Refused as reason:
            raise ValueError(f"bie.export: {node.name} ({name}): {reason}") from None
    return []


@torch.no_grad()
def export(
    module: nn.Module,
    example: Tensor,
    path: str | os.PathLike | None = None,
    *,
    class_names: Iterable[str] = (),
    input_range: str | None = None,
) -> bytes:
    """The net (``.net.bie``) that computes what the module does in evaluation, for ``bie run``, ``bie-runtime`` and
    ``libbie_runtime.so``. The module's forward goes through :func:`torch.export.export` with the example, a batch of
    float32 [batch, features] or [batch, channels, height, width]; the net takes batches of any size.

    Our linear and convolution layers, ``nn.Linear``, ``nn.Conv2d``, BatchNorm, ReLU, LeakyReLU, PReLU, MaxPool2d,
    AdaptiveAvgPool2d(1), sums, Flatten, Softmax and Dropout have nodes; another one is a ValueError that names
    it, and nothing is written. Integers are those of the module; where torch rounds a BatchNorm or a sum otherwise, a
    code may differ by one step (docs/spec/nets.md).

    ``input_range`` is what ``bie run`` makes of files: with ``"unit"`` (0 to 1) bytes of pictures are divided by 255,
    with ``"bytes"`` (0 to 255) they stay, ``"any"``, the default for images, divides them too and takes any other
    numbers, ``"numbers"``, the default for features, leaves all as they are.

    >>> net = torch.nn.Sequential(bie.nn.Q4Linear(8, 4), torch.nn.ReLU())
    >>> _ = net(torch.randn(16, 8))  # the first batch of a training
    >>> bie.export(net.eval(), torch.randn(1, 8))[1:7]
    b'BIENET'
    """
    if not isinstance(example, Tensor) or example.dtype != torch.float32 or example.dim() not in (2, 4):
        raise ValueError(
            "bie.export: the example: expected float32 [batch, features] or images, got "
            + (f"{list(example.shape)} of {example.dtype}" if isinstance(example, Tensor) else "no tensor")
        )
    if input_range is None:
        input_range = "any" if example.dim() == 4 else "numbers"
    if input_range not in _INPUT_RANGES:
        raise ValueError(f"bie.export: expected input_range {', '.join(_INPUT_RANGES)}, got {input_range!r}")
    if module.training:
        raise ValueError("bie.export: the module is in training, call eval() first")
    graph = _Graph(example)
    program = torch.export.export(module, (example,))
    outputs = _run(program, graph)
    if not outputs or not all(isinstance(value, _Value) for value in outputs):
        raise ValueError("bie.export: an output of the module does not depend on its input")
    sizes = [1] * (3 - len(graph.input_sizes)) + graph.input_sizes
    names = list(class_names)
    lines = "\n".join(name.replace("\n", " ") for name in names)
    metadata = {"classes": lines, "image": ",".join(map(str, sizes)), "input": input_range}
    if any(not name or "\n" in name for name in names):  # which a list of lines cannot hold
        metadata["class_names"] = json.dumps(names)
    data = graph.bytes(outputs, metadata)
    if path is not None:
        with replacing(path) as file:
            file.write(data)
    return data
