"""Layers of ONNX Runtime: int8 linear, int8 convolution and 4 bit linear, one thread.

A run is InferenceSession.run: it allocates the result. Activations are rows or NCHW.
"""

from __future__ import annotations

import numpy as np
import onnxruntime as ort
from onnx import NodeProto, TensorProto, helper, numpy_helper
from rivals.layer import Layer

BLOCK = 128


def layer_of(
    nodes: list[NodeProto], weights: dict[str, np.ndarray], x: np.ndarray, y_type: int
) -> tuple[ort.InferenceSession, np.ndarray]:
    """The session of the nodes, from x to y, and its y."""
    graph = helper.make_graph(
        nodes,
        "layer",
        [helper.make_tensor_value_info("x", helper.np_dtype_to_tensor_dtype(x.dtype), None)],
        [helper.make_tensor_value_info("y", y_type, None)],
        [numpy_helper.from_array(value, name) for name, value in weights.items()],
    )
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=8)
    options = ort.SessionOptions()
    options.intra_op_num_threads = 1
    session = ort.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return session, session.run(None, {"x": x})[0]


def int8_linear(m: int, k: int, n: int, rng: np.random.Generator) -> Layer:
    """DynamicQuantizeLinear, MatMulInteger and the scale; 8 rows against the product of codes, relative to its largest.

    float32 in and out, the nodes as quantize_dynamic writes them.
    """
    x = rng.standard_normal((m, k), dtype=np.float32)
    w = rng.integers(-127, 128, (k, n), dtype=np.int8)
    nodes = [
        helper.make_node("DynamicQuantizeLinear", ["x"], ["q", "step", "zero"]),
        helper.make_node("MatMulInteger", ["q", "w", "zero"], ["acc"]),
        helper.make_node("Cast", ["acc"], ["wide"], to=TensorProto.FLOAT),
        helper.make_node("Mul", ["step", "scale"], ["both"]),
        helper.make_node("Mul", ["wide", "both"], ["y"]),
    ]
    session, y = layer_of(nodes, {"w": w, "scale": np.array(0.01, np.float32)}, x, TensorProto.FLOAT)
    lo, hi = min(x.min(), 0), max(x.max(), 0)
    step = np.float32((hi - lo) / 255)
    zero = np.rint(-lo / step)
    codes = np.clip(np.rint(x[:8] / step) + zero, 0, 255) - zero
    expected = codes @ w.astype(np.float64) * float(step) * 0.01
    return Layer(lambda: session.run(None, {"x": x}), np.abs(y[:8] - expected).max() / np.abs(expected).max(), 1e-4)


def nbits_linear(m: int, k: int, n: int, rng: np.random.Generator) -> Layer | None:
    """MatMulNBits: float32 in and out, 4 bit weights with a scale for 128 of a row; none where 128 does not divide k.

    accuracy_level 4 quantises 128 of a row of x at a time, symmetrically, to int8. 8 rows are compared with the sum of
    the blocks' products of codes, relative to the largest: a code of x rounded the other way is below 1e-3, an x that
    is not quantised above 4e-3.
    """
    if k % BLOCK != 0:
        return None
    x = rng.standard_normal((m, k), dtype=np.float32)
    w = rng.integers(0, 16, (n, k), dtype=np.uint8)
    scale = rng.uniform(0.005, 0.015, (n, k // BLOCK)).astype(np.float32)
    packed = (w[:, 0::2] | w[:, 1::2] << 4).reshape(n, k // BLOCK, BLOCK // 2)
    sizes = {"K": k, "N": n, "bits": 4, "block_size": BLOCK, "accuracy_level": 4}
    node = helper.make_node("MatMulNBits", ["x", "w", "scale"], ["y"], domain="com.microsoft", **sizes)
    session, y = layer_of([node], {"w": packed, "scale": scale}, x, TensorProto.FLOAT)
    blocks = x[:8].reshape(-1, k // BLOCK, BLOCK)
    largest = np.abs(blocks).max(2, keepdims=True)
    codes = np.rint(blocks * (np.float32(127) / largest)) * (largest.astype(np.float64) / 127)
    weights = (w.reshape(n, k // BLOCK, BLOCK) - 8.0) * scale[:, :, None]
    expected = codes.reshape(-1, k) @ weights.reshape(n, k).T
    return Layer(lambda: session.run(None, {"x": x}), np.abs(y[:8] - expected).max() / np.abs(expected).max(), 1e-3)


def int8_conv2d(
    c: int, height: int, width: int, out: int, kernel: int, stride: int, pad: int, rng: np.random.Generator
) -> Layer:
    """QLinearConv of batch 1, codes in and out; the pixel in the middle against the formula, in codes."""
    x = rng.integers(0, 256, (1, c, height, width), dtype=np.uint8)
    w = rng.integers(-127, 128, (out, c, kernel, kernel), dtype=np.int8)
    scale = np.float32(1 / (c * kernel * kernel) ** 0.5 / 64)
    names = ["x", "sx", "zx", "w", "sw", "zw", "sy", "zy"]
    node = helper.make_node("QLinearConv", names, ["y"], strides=[stride] * 2, pads=[pad] * 4)
    weights = {
        "sx": np.array(1, np.float32),
        "zx": np.array(128, np.uint8),
        "w": w,
        "sw": np.array(scale, np.float32),
        "zw": np.array(0, np.int8),
        "sy": np.array(1, np.float32),
        "zy": np.array(128, np.uint8),
    }
    session, y = layer_of([node], weights, x, TensorProto.UINT8)
    row, column = y.shape[2] // 2, y.shape[3] // 2
    top, left = row * stride - pad, column * stride - pad
    window = x[0, :, top : top + kernel, left : left + kernel].astype(np.float64) - 128
    expected = np.clip(np.rint((window * w).sum((1, 2, 3)) * float(scale)) + 128, 0, 255)
    return Layer(lambda: session.run(None, {"x": x}), np.abs(y[0, :, row, column] - expected).max(), 1)
