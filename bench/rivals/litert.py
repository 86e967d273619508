"""Layers of LiteRT: int8 linear and int8 convolution of its XNNPACK delegate, one thread.

A model is a flatbuffer built here, without TensorFlow. A run is Interpreter.invoke: x lies in the input tensor and the
result stays in the output tensor. Activations are rows or NHWC. The delegate is the interpreter's default one and must
take the whole model. On a CPU with AVX-512 VNNI its kernels, seen with perf, are xnn_qd8_f32_qc8w_gemm of that
instruction set, after a search for each row's range and a conversion to int8, and xnn_qs8_qc8w_igemm or _gemm.
"""

from __future__ import annotations

import flatbuffers
import numpy as np
from ai_edge_litert import schema_py_generated as schema
from ai_edge_litert.interpreter import Interpreter
from rivals.layer import Layer

X_ZERO, Y_ZERO = 5, -9  # zero points that are not 0, so that a padding with 0 would be seen
TENSOR_TYPES = {
    np.float32: schema.TensorType.FLOAT32,
    np.int8: schema.TensorType.INT8,
    np.int32: schema.TensorType.INT32,
}


def scales(values: np.ndarray | float, zero: int = 0) -> schema.QuantizationParametersT:
    """One scale, or one for each index of the first axis."""
    scale = np.atleast_1d(np.asarray(values, np.float32))
    return schema.QuantizationParametersT(scale=scale, zeroPoint=np.full(len(scale), zero, np.int64))


class Model:
    """A model of one graph; a tensor is its index."""

    def __init__(self) -> None:
        self.buffers = [schema.BufferT()]  # the first one is empty by definition
        self.tensors: list[schema.TensorT] = []
        self.operators: list[schema.OperatorT] = []
        self.codes: list[schema.OperatorCodeT] = []

    def tensor(self, shape: tuple[int, ...], kind: type, quantization=None, buffer: int = 0) -> int:
        self.tensors.append(
            schema.TensorT(
                shape=list(shape),
                type=TENSOR_TYPES[kind],
                buffer=buffer,
                name=f"tensor{len(self.tensors)}",
                quantization=quantization,
            )
        )
        return len(self.tensors) - 1

    def constant(self, value: np.ndarray, quantization=None) -> int:
        self.buffers.append(schema.BufferT(data=value.reshape(-1).view(np.uint8)))
        return self.tensor(value.shape, value.dtype.type, quantization, len(self.buffers) - 1)

    def operator(self, code: int, version: int, inputs: list[int], output: int, options) -> None:
        self.codes.append(schema.OperatorCodeT(deprecatedBuiltinCode=code, builtinCode=code, version=version))
        options_type = getattr(schema.BuiltinOptions, type(options).__name__.removesuffix("T"))
        self.operators.append(
            schema.OperatorT(
                opcodeIndex=len(self.codes) - 1,
                inputs=inputs,
                outputs=[output],
                builtinOptionsType=options_type,
                builtinOptions=options,
            )
        )

    def run(self, x: int, y: int, value: np.ndarray) -> tuple[Interpreter, np.ndarray]:
        """An interpreter whose tensor x has the value, and its tensor y after a run."""
        graph = schema.SubGraphT(tensors=self.tensors, inputs=[x], outputs=[y], operators=self.operators)
        model = schema.ModelT(version=3, operatorCodes=self.codes, subgraphs=[graph], buffers=self.buffers)
        builder = flatbuffers.Builder()
        builder.Finish(model.Pack(builder), b"TFL3")
        interpreter = Interpreter(model_content=bytes(builder.Output()), num_threads=1)
        interpreter.allocate_tensors()
        # A delegate's node stands behind those of the model, which stay in the list but are not run.
        last = interpreter._get_ops_details()[-1]
        if last["op_name"] != "DELEGATE" or x not in last["inputs"] or y not in last["outputs"]:
            raise SystemExit("LiteRT: the XNNPACK delegate does not take the whole model")
        interpreter.set_tensor(x, value)
        interpreter.invoke()
        return interpreter, interpreter.get_tensor(y)


def linear(m: int, k: int, n: int, rng: np.random.Generator) -> Layer:
    """FULLY_CONNECTED, float32 in and out, int8 weights with a scale each output: the dynamic range form.

    The delegate quantises each row of x to int8 with a zero point. 8 rows are compared with the product of codes,
    relative to its largest: a code of x rounded the other way is below 1e-3, an x that is not quantised above 4e-3.
    """
    x = rng.standard_normal((m, k), dtype=np.float32)
    w = rng.integers(-127, 128, (n, k), dtype=np.int8)
    scale = rng.uniform(0.005, 0.015, n).astype(np.float32)
    model = Model()
    tx, ty = model.tensor((m, k), np.float32), model.tensor((m, n), np.float32)
    inputs = [tx, model.constant(w, scales(scale)), -1]
    model.operator(schema.BuiltinOperator.FULLY_CONNECTED, 9, inputs, ty, schema.FullyConnectedOptionsT())
    interpreter, y = model.run(tx, ty, x)
    rows = x[:8]
    lo, hi = np.minimum(rows.min(1, keepdims=True), 0), np.maximum(rows.max(1, keepdims=True), 0)
    inverse = np.float32(255) / (hi - lo)
    zero = np.rint(-128 - lo * inverse)
    codes = np.clip(np.rint(rows * inverse) + zero, -128, 127) - zero
    expected = codes @ w.T.astype(np.float64) * ((hi - lo).astype(np.float64) / 255) * scale
    return Layer(interpreter.invoke, np.abs(y[:8] - expected).max() / np.abs(expected).max(), 1e-3)


def conv2d(
    c: int, height: int, width: int, out: int, kernel: int, stride: int, pad: int, rng: np.random.Generator
) -> Layer:
    """CONV_2D of batch 1, int8 codes in and out, weights with a scale each output.

    SAME pads a stride of 2 on one side only, so the padding is a PAD before a VALID convolution; the delegate folds it
    into the convolution (no padding kernel is seen with perf). The pixels in the middle and in two corners are
    compared with the formula, in codes.
    """
    x = rng.integers(-128, 128, (1, height, width, c), dtype=np.int8)
    w = rng.integers(-127, 128, (out, kernel, kernel, c), dtype=np.int8)
    scale = (rng.uniform(0.5, 1.5, out) / (c * kernel * kernel) ** 0.5 / 64).astype(np.float32)
    last = [(size + 2 * pad - kernel) // stride for size in (height, width)]
    model = Model()
    tx = model.tensor(x.shape, np.int8, scales(1, X_ZERO))
    ty = model.tensor((1, last[0] + 1, last[1] + 1, out), np.int8, scales(1, Y_ZERO))
    padded = tx
    if pad != 0:
        padded = model.tensor((1, height + 2 * pad, width + 2 * pad, c), np.int8, scales(1, X_ZERO))
        sides = model.constant(np.array([[0, 0], [pad, pad], [pad, pad], [0, 0]], np.int32))
        model.operator(schema.BuiltinOperator.PAD, 2, [tx, sides], padded, schema.PadOptionsT())
    bias = model.constant(np.zeros(out, np.int32), scales(scale))  # the operator wants one
    options = schema.Conv2DOptionsT(padding=schema.Padding.VALID, strideW=stride, strideH=stride)
    inputs = [padded, model.constant(w, scales(scale)), bias]
    model.operator(schema.BuiltinOperator.CONV_2D, 3, inputs, ty, options)
    interpreter, y = model.run(tx, ty, x)
    image = np.pad(x[0].astype(np.float64) - X_ZERO, ((pad, pad), (pad, pad), (0, 0)))
    difference = 0.0
    for row, column in ((0, 0), (last[0] // 2, last[1] // 2), last):
        top, left = row * stride, column * stride
        window = image[top : top + kernel, left : left + kernel]
        expected = np.clip(np.rint((window * w).sum((1, 2, 3)) * scale) + Y_ZERO, -128, 127)
        difference = max(difference, np.abs(y[0, row, column] - expected).max())
    return Layer(interpreter.invoke, difference, 1)
