"""ONNX models made with the onnx package's helper, for the tests of `bie import`."""

from __future__ import annotations

import numpy as np
from onnx import ModelProto, TensorProto, helper, numpy_helper


def exact_session(model: str | bytes):
    """onnxruntime on the CPU, which else saturates sums of codes where the CPU has no VNNI. It has no exact kernels for
    x of int8.
    """
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.add_session_config_entry("session.x64quantprecision", "1")
    return onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])


class Maker:
    """Adds nodes behind each other; `x` is the input."""

    def __init__(self, *sizes: int, batch: int | str = "n", opset: int = 19, seed: int = 1):
        self.rng = np.random.default_rng(seed)
        self.input = helper.make_tensor_value_info("x", TensorProto.FLOAT, [batch, *sizes])
        self.nodes, self.constants, self.opset = [], [], opset

    def constant(self, values) -> str:
        name = f"c{len(self.constants)}"
        self.constants.append(numpy_helper.from_array(np.asarray(values), name))
        return name

    def random(self, *sizes: int, size: float = 1, above: float | None = None) -> str:
        values = self.rng.standard_normal(sizes) * size
        return self.constant((values if above is None else np.abs(values) + above).astype(np.float32))

    def node(self, op: str, *inputs: str, **attributes) -> str:
        name = f"v{len(self.nodes)}"
        self.nodes.append(
            helper.make_node(op, list(inputs), [name], name=f"{op.lower()}{len(self.nodes)}", **attributes)
        )
        return name

    def conv(
        self, x: str, cin: int, cout: int, kernel: int = 3, groups: int = 1, bias: bool = True, **attributes
    ) -> str:
        size = (cin // groups * kernel * kernel) ** -0.5
        weight = self.random(cout, cin // groups, kernel, kernel, size=size)
        extra = [self.random(cout, size=0.1)] if bias else []
        return self.node("Conv", x, weight, *extra, group=groups, **attributes)

    def norm(self, x: str, channels: int) -> str:
        numbers = [self.random(channels), self.random(channels), self.random(channels, size=0.2),
                   self.random(channels, size=0.5, above=0.5)]  # fmt: skip
        return self.node("BatchNormalization", x, *numbers)

    def gemm(self, x: str, inputs: int, outputs: int) -> str:
        weight = self.random(outputs, inputs, size=inputs**-0.5)
        return self.node("Gemm", x, weight, self.random(outputs, size=0.1), transB=1)

    def round(self, x: str, step: float, zero: int = 0, dtype=np.int8) -> str:
        """QuantizeLinear and DequantizeLinear."""
        numbers = [self.constant(np.float32(step)), self.constant(dtype(zero))]
        return self.node("DequantizeLinear", self.node("QuantizeLinear", x, *numbers), *numbers)

    def coded(self, *sizes: int, axis: int = 0, dtype=np.int8, size: float = 1) -> str:
        """A weight of codes with a step a slice."""
        low, high, zero = (-127, 128, 0) if dtype is np.int8 else (1, 256, 128)
        codes = self.constant(self.rng.integers(low, high, sizes).astype(dtype))
        steps = self.constant((self.rng.uniform(0.5, 1, sizes[axis]) * size / 128).astype(np.float32))
        return self.node("DequantizeLinear", codes, steps, self.constant(np.full(sizes[axis], zero, dtype)), axis=axis)

    def model(self, *outputs: str) -> ModelProto:
        ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in outputs]
        graph = helper.make_graph(self.nodes, "net", [self.input], ends, self.constants)
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", self.opset)], ir_version=9)


def small_net(classes: int = 5) -> ModelProto:
    """Convolutions with norms, a shortcut, pools and a linear, as most nets have them."""
    m = Maker(3, 12, 12)
    x = m.node("Relu", m.norm(m.conv("x", 3, 8, pads=[1] * 4, bias=False), 8))
    y = m.node("Relu", m.norm(m.conv(x, 8, 8, pads=[1] * 4, bias=False), 8))
    y = m.norm(m.conv(y, 8, 8, pads=[1] * 4, bias=False), 8)
    x = m.node("Relu", m.node("Add", y, x))
    x = m.node("MaxPool", x, kernel_shape=[2, 2], strides=[2, 2])
    x = m.node("Relu", m.conv(x, 8, 16, pads=[1] * 4, strides=[2, 2]))
    x = m.node("Flatten", m.node("GlobalAveragePool", x))
    return m.model(m.gemm(x, 16, classes))


def seeds() -> dict[str, ModelProto]:
    """Small models that together have every operator that `bie import` knows."""
    m = Maker(2, 6, 6)
    x = m.node("PRelu", m.norm(m.conv("x", 2, 4, pads=[1, 0, 1, 2], strides=[1, 2]), 4), m.random(4, 1, 1))
    y = m.node("Sub", m.conv(x, 4, 4, 1, groups=2), m.node("Mul", x, m.random(4, 1, 1)))
    x = m.node(
        "Concat", m.node("Add", x, y), m.node("Clip", x, m.constant(np.float32(-1)), m.constant(np.float32(1))), axis=1
    )
    pooled = m.node("MaxPool", x, kernel_shape=[3, 3], strides=[2, 2], pads=[1] * 4, ceil_mode=1)
    x = m.node("Mul", pooled, m.node("Sigmoid", m.node("GlobalAveragePool", pooled)))
    x = m.node("Transpose", m.node("Div", m.node("LeakyRelu", x), m.constant(np.float32(3))), perm=[0, 2, 3, 1])
    first = m.node("Gather", m.node("Shape", x), m.constant(np.array(0)))
    sizes = m.node("Concat", m.node("Unsqueeze", first, m.constant(np.array([0]))), m.constant(np.array([-1])), axis=0)
    convs = m.model(m.node("Softmax", m.gemm(m.node("Reshape", x, sizes), 64, 3)))

    m = Maker(2, 5, 5)
    x = m.round("x", 0.03, 3)
    x = m.node("Relu", m.node("Conv", x, m.coded(3, 2, 3, 3), m.random(3), pads=[1] * 4, auto_pad="NOTSET"))
    x = m.node("AveragePool", m.round(x, 0.02, 128, np.uint8), kernel_shape=[2, 2], count_include_pad=1)
    x = m.node("Pad", x, m.constant(np.array([0, 0, 1, 0, 0, 0, 0, 1])))
    x = m.node("Squeeze", m.node("GlobalMaxPool", m.node("Cast", x, to=1)), m.constant(np.array([2, 3])))
    weight = m.node(
        "Transpose", m.node("Constant", value=numpy_helper.from_array(np.ones((4, 3), np.float32))), perm=[1, 0]
    )
    x = m.node("Unsqueeze", m.node("MatMul", x, weight), m.constant(np.array([2, 3])))
    codes = m.model(
        m.node("Flatten", m.node("Identity", m.node("Dropout", x))),
        m.node("ReduceMean", x, m.constant(np.array([2, 3]))),
    )
    return {"convolutions": convs, "codes": codes}
