"""Exported nets written by hand, from docs/spec/nets.md and not from our writer."""

from __future__ import annotations

import struct
from dataclasses import dataclass, field

NONE = 0xFFFFFFFF
F32, S8, S32, BITS = range(4)
LINEAR, CONV2D, FLOAT_LINEAR, FLOAT_CONV2D, TAIL, THRESHOLD, PLANE_MEANS, STRIDED_PLANES, SOFTMAX = range(1, 10)
MAX_POOL, AVERAGE_POOL, CLIP, SIGMOID, MULTIPLY, CONCAT, TRANSPOSE, RESHAPE, ROUND, CHANNEL_PRELU, BORDER = range(
    10, 21
)
FUNCTION, LAYER_NORM, CROP = range(21, 24)


def crc32c(data: bytes) -> int:
    rest = 0xFFFFFFFF
    for byte in data:
        rest ^= byte
        for _ in range(8):
            rest = rest >> 1 ^ (0x82F63B78 if rest & 1 else 0)
    return rest ^ 0xFFFFFFFF


def numbers(code: str, values) -> bytes:
    values = list(values)
    return struct.pack(f"<I{len(values)}{code}", len(values), *values)


def text(value: str) -> bytes:
    return struct.pack("<I", len(value.encode())) + value.encode()


@dataclass
class Net:
    values: list = field(default_factory=list)  # (element, sizes)
    nodes: list = field(default_factory=list)  # (op, inputs, output, ints, floats, blobs)
    blobs: list = field(default_factory=list)  # bytes
    inputs: list = field(default_factory=list)
    outputs: list = field(default_factory=list)
    metadata: dict = field(default_factory=dict)

    def value(self, element: int, *sizes: int) -> int:
        self.values.append((element, sizes))
        return len(self.values) - 1

    def blob(self, data: bytes) -> int:
        self.blobs.append(data)
        return len(self.blobs) - 1

    def floats(self, *values: float) -> int:
        return self.blob(struct.pack(f"<{len(values)}f", *values))

    def node(self, op, inputs, output, ints=(), floats=(), blobs=()) -> int:
        self.nodes.append((op, inputs, output, ints, floats, blobs))
        return output

    def bytes(self) -> bytes:
        graph = struct.pack("<I", len(self.metadata))
        graph += b"".join(text(key) + text(value) for key, value in sorted(self.metadata.items()))
        graph += struct.pack("<I", len(self.values))
        graph += b"".join(struct.pack("<I", element) + numbers("q", sizes) for element, sizes in self.values)
        data, table = b"", struct.pack("<I", len(self.blobs))
        for blob in self.blobs:
            table += struct.pack("<QQ", len(data), len(blob))
            data += blob + bytes(-len(blob) % 64)
        graph += table + struct.pack("<I", len(self.nodes))
        for op, inputs, output, ints, floats, blobs in self.nodes:
            graph += struct.pack("<I", op) + numbers("I", inputs) + struct.pack("<I", output)
            graph += numbers("q", ints) + numbers("f", floats) + numbers("I", blobs)
        graph += numbers("I", self.inputs) + numbers("I", self.outputs)
        begin = 64 + len(graph) + -len(graph) % 64
        rest = struct.pack("<QQQ", begin + len(data), len(graph), begin)
        rest += bytes(64 - 16 - len(rest)) + graph + bytes(begin - 64 - len(graph)) + data
        return b"\x93BIENET\n" + struct.pack("<II", 1, crc32c(rest)) + rest


def float_net(rows: list[list[float]], bias: list[float], **metadata: str) -> Net:
    """y = W x + b."""
    net = Net(metadata=metadata)
    x, y = net.value(F32, len(rows[0])), net.value(F32, len(rows))
    weight, added = net.floats(*(value for row in rows for value in row)), net.floats(*bias)
    net.node(FLOAT_LINEAR, [x], y, ints=[len(rows)], blobs=[weight, added])
    net.inputs, net.outputs = [x], [y]
    return net


def coded_net(bits: int) -> Net:
    """Images of 2 x 4 x 4, two convolutions of codes, what lies between them, a linear and the mean."""
    net = Net(metadata={"bits": str(bits)})
    depth = 2 * 9 if bits == 8 else (2 * 9 + 1) // 2 if bits == 4 else (2 * 9 + 7) // 8
    weight = net.blob(bytes(range(2 * depth)))
    pad = -1 if bits == 1 else 0
    conv = [bits, 2, 3, 3, 1, 1, 1, 1, 1, 1, 1, pad]
    x, first = net.value(F32, 2, 4, 4), net.value(S32 if bits == 1 else F32, 2, 4, 4)
    codes, second = net.value(S8, 2, 2, 2), net.value(F32, 2, 2, 2)
    net.node(CONV2D, [x], first, conv, [0.1, 0.01], [weight, net.floats(0.5, -0.5)])
    if bits == 1:
        blobs = [net.blob(struct.pack("<2i", 1, -3)), net.blob(b"\x00\x01")]
        net.node(THRESHOLD, [first], codes, [2], [], blobs)
    else:
        net.node(TAIL, [first], codes, [2, 2, bits], [0.25, 0.1], [net.floats(1, 2), net.floats(0, 1), NONE])
    net.node(CONV2D, [codes], second, conv, [0.1, 0.01], [weight, NONE])
    means, y, shares = net.value(F32, 2), net.value(F32, 3), net.value(F32, 3)
    net.node(PLANE_MEANS, [second], means)
    row = (2 * bits + 7) // 8
    net.node(LINEAR, [means], y, [bits, 3], [0.1, 0.01], [net.blob(bytes(range(3 * row))), NONE])
    net.node(SOFTMAX, [y], shares)
    net.inputs, net.outputs = [x], [shares]
    return net


def plain_net() -> Net:
    """Images of 2 x 4 x 4 through every node that is one plain loop of floats."""
    net = Net()
    x = net.value(F32, 2, 4, 4)

    def node(op, sizes, *inputs, ints=(), floats=(), blobs=()):
        return net.node(op, list(inputs), net.value(F32, *sizes), ints, floats, blobs)

    largest = node(MAX_POOL, (2, 2, 2), x, ints=[3, 3, 2, 2, 1, 1, 1, 1])
    means = node(AVERAGE_POOL, (2, 2, 2), x, ints=[2, 2, 2, 2, 0, 0, 0, 0, 1])
    both = node(CONCAT, (4, 2, 2), node(CLIP, (2, 2, 2), largest, floats=[-1, 1]), means)
    gates = node(SIGMOID, (4,), node(PLANE_MEANS, (4,), both))
    y = node(MULTIPLY, (4, 2, 2), node(CHANNEL_PRELU, (4, 2, 2), both, blobs=[net.floats(1, 0.5, -1, 0)]), gates)
    y = node(TRANSPOSE, (3, 4, 4), node(BORDER, (4, 4, 3), y, ints=[1, 0, 1, 1], floats=[0.5]), ints=[2, 0, 1])
    y = node(RESHAPE, (48,), node(ROUND, (3, 4, 4), y, ints=[3, -128, 127], floats=[0.1]))
    y = node(LAYER_NORM, (48,), node(FUNCTION, (48,), y, ints=[2], floats=[0, 0]), floats=[1e-5], blobs=[NONE, NONE])
    y = node(CROP, (40,), y, ints=[8, 0, 0])
    net.inputs, net.outputs = [x], [y]
    return net
