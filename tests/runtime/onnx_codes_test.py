"""Operators on codes, QLinearConv and its like, beside onnxruntime; refusals by name."""

import numpy as np
import pytest

onnx = pytest.importorskip("onnx", reason="there is no onnx (pip install onnx)")
onnxruntime = pytest.importorskip("onnxruntime", reason="there is no onnxruntime (pip install onnxruntime)")

from onnx import helper  # noqa: E402
from onnx_models import Maker, exact_session  # noqa: E402

STEP, OUT = np.float32(0.03), np.float32(0.05)


def model_of(m: Maker, *outputs: str) -> onnx.ModelProto:
    model = m.model(*outputs)
    model.opset_import.append(helper.make_opsetid("com.microsoft", 1))
    return model


def coded(m: Maker, x: str, dtype, zero: int) -> str:
    return m.node("QuantizeLinear", x, m.constant(STEP), m.constant(dtype(zero)))


def opened(m: Maker, y: str, step, dtype, zero: int) -> str:
    return m.node("DequantizeLinear", y, m.constant(step), m.constant(dtype(zero)))


def weight(m: Maker, *sizes: int, count: int) -> list[str]:
    """Codes, a step for each of `count` outputs, and zeros."""
    steps = m.rng.uniform(0.002, 0.004, count).astype(np.float32)
    codes = m.rng.integers(-127, 128, sizes).astype(np.int8)
    return [m.constant(codes), m.constant(steps), m.constant(np.zeros(count, np.int8))]


def conv(dtype, zero: int, bias: bool = True, **attributes) -> onnx.ModelProto:
    m = Maker(4, 7, 6)
    groups = attributes.get("group", 1)
    inputs = [coded(m, "x", dtype, zero), m.constant(STEP), m.constant(dtype(zero))]
    inputs += [*weight(m, 6, 4 // groups, 3, 3, count=6), m.constant(OUT), m.constant(dtype(zero + 3))]
    inputs += [m.constant(m.rng.integers(-9000, 9000, 6).astype(np.int32))] if bias else []
    y = m.node("QLinearConv", *inputs, **attributes)
    y = m.node("MaxPool", y, kernel_shape=[2, 2], strides=[2, 2]) if dtype is np.uint8 else y
    return model_of(m, opened(m, m.node("Flatten", y), OUT, dtype, zero + 3))


def mat_mul(dtype, zero: int) -> onnx.ModelProto:
    m = Maker(12)
    inputs = [coded(m, "x", dtype, zero), m.constant(STEP), m.constant(dtype(zero)), *weight(m, 12, 5, count=5)]
    y = m.node("QLinearMatMul", *inputs, m.constant(OUT), m.constant(dtype(zero)))
    return model_of(m, opened(m, y, OUT, dtype, zero))


def gemm(floats: bool, turned: int) -> onnx.ModelProto:
    m = Maker(12)
    inputs = [coded(m, "x", np.uint8, 120), m.constant(STEP), m.constant(np.uint8(120))]
    inputs += weight(m, *((5, 12) if turned else (12, 5)), count=5)
    inputs += [m.constant(m.rng.integers(-9000, 9000, 5).astype(np.int32))]
    inputs += [] if floats else [m.constant(OUT), m.constant(np.uint8(7))]
    y = m.node("QGemm", *inputs, domain="com.microsoft", transB=turned)
    return model_of(m, y if floats else opened(m, y, OUT, np.uint8, 7))


def two(op: str, **attributes) -> onnx.ModelProto:
    m = Maker(4, 5, 5)
    x = [coded(m, "x", np.uint8, 128), m.constant(STEP), m.constant(np.uint8(128))]
    out = [m.constant(OUT), m.constant(np.uint8(100))]
    y = m.node(op, *(out + x + x if op == "QLinearConcat" else x + x + out), domain="com.microsoft", **attributes)
    return model_of(m, opened(m, y, OUT, np.uint8, 100))


def one(op: str, **attributes) -> onnx.ModelProto:
    m = Maker(4, 5, 5)
    x = [coded(m, "x", np.uint8, 128), m.constant(STEP), m.constant(np.uint8(128))]
    y = m.node(op, *x, m.constant(OUT), m.constant(np.uint8(100)), domain="com.microsoft", **attributes)
    return model_of(m, opened(m, y, OUT, np.uint8, 100))


CASES = {
    "conv": conv(np.uint8, 0),
    "conv with a zero": conv(np.uint8, 117, pads=[1, 1, 1, 1]),
    "conv of int8": conv(np.int8, -5, strides=[2, 1], pads=[1, 0, 0, 1]),
    "conv in groups, no bias": conv(np.uint8, 60, bias=False, group=2, dilations=[2, 1]),
    "matmul": mat_mul(np.uint8, 128),
    "matmul of int8": mat_mul(np.int8, 4),
    "gemm to floats": gemm(True, 1),
    "gemm to codes": gemm(False, 0),
    "add": two("QLinearAdd"),
    "multiply": two("QLinearMul"),
    "join": two("QLinearConcat", axis=1),
    "sigmoid": one("QLinearSigmoid"),
    "leaky relu": one("QLinearLeakyRelu", alpha=0.2),
    "average pool": one("QLinearAveragePool", kernel_shape=[2, 2], strides=[2, 2]),
    "means": one("QLinearGlobalAveragePool", channels_last=0),
}


@pytest.mark.parametrize("name", CASES)
def test_codes_are_within_a_step_of_onnxruntime(command, bie_runtime, tmp_path, name):
    model = CASES[name]
    onnx.save(model, tmp_path / "model.onnx")
    done = command("import", tmp_path / "model.onnx", "-o", tmp_path / "net.bie")
    assert done.returncode == 0, done.stderr
    sizes = [d.dim_value for d in model.graph.input[0].type.tensor_type.shape.dim][1:]
    x = np.random.default_rng(4).standard_normal((8, *sizes)).astype(np.float32)
    content = model.SerializeToString()
    has_int8 = name.endswith("of int8")
    session = onnxruntime.InferenceSession(content) if has_int8 else exact_session(content)
    found = bie_runtime.Net(tmp_path / "net.bie", max_batch=8).run(x)
    wanted = session.run(None, {"x": x})[0].reshape(found.shape)
    assert len(np.unique(wanted)) > 5
    if name == "gemm to floats":
        assert np.abs(found - wanted).max() <= 1e-5 * np.abs(wanted).max()
        return
    steps = np.rint((found - wanted) / OUT)
    assert np.abs(steps).max() <= 1 and (steps != 0).mean() <= 0.03


def wrong_kind(op: str, **attributes) -> onnx.ModelProto:
    m = Maker(4, 5, 5)
    weights = [m.random(4, 4, 2, 2)] if op == "Conv" else []
    return m.model(m.node(op, "x", *weights, **attributes))


def slice_to_the_batch() -> onnx.ModelProto:
    m = Maker(7)
    batch = m.node("Gather", m.node("Shape", "x"), m.constant(np.array([0])))
    return m.model(m.node("Slice", "x", m.constant(np.array([0])), batch, m.constant(np.array([1]))))


REFUSED = {
    "is the size of the batch, which is not fixed": slice_to_the_batch(),
    'node 1 ("com.microsoft" "QLinearSoftmax"): a net has no such operator': one("QLinearSoftmax", axis=1),
    "node 1 (\"com.microsoft\" \"QLinearGlobalAveragePool\"): has the attribute \"channels_last\"":
        one("QLinearGlobalAveragePool", channels_last=1),
    'node 1 ("QLinearConv"): has an auto_pad of "SOME"': conv(np.uint8, 0, auto_pad="SOME"),
    "auto_pad is no text": wrong_kind("Conv", auto_pad=3),
    "pads is no list of integers": wrong_kind("Conv", pads=[1.0, 1.0, 1.0, 1.0]),
    "alpha is no number": wrong_kind("LeakyRelu", alpha="0.5"),
    "axis is no integer": wrong_kind("Flatten", axis=[1, 2]),
}  # fmt: skip


@pytest.mark.parametrize("reason", REFUSED)
def test_what_is_refused_is_named(command, tmp_path, reason):
    model = REFUSED[reason]
    for node in model.graph.node:
        node.name = ""
    onnx.save(model, tmp_path / "model.onnx")
    done = command("import", tmp_path / "model.onnx", "-o", tmp_path / "net.bie")
    assert done.returncode == 3 and not (tmp_path / "net.bie").exists()
    assert reason in done.stderr and len(done.stderr.splitlines()) == 1, done.stderr
