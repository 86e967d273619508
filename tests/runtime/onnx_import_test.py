"""bie import: every operator beside onnx's own evaluator, codes beside the arithmetic of QuantizeLinear, refusals."""

from __future__ import annotations

import numpy as np
import pytest

onnx = pytest.importorskip("onnx", reason="there is no onnx (pip install onnx)")

from onnx import TensorProto, helper, numpy_helper  # noqa: E402
from onnx.reference import ReferenceEvaluator  # noqa: E402
from onnx_models import Maker, seeds, small_net  # noqa: E402

SIZES = ((48, 16), (16, 16), (16, 4))


@pytest.fixture
def imported(command, bie_runtime, tmp_path):
    """The net that bie import makes of a model."""

    def run(model, *options):
        path, net = tmp_path / "model.onnx", tmp_path / "model.net.bie"
        onnx.save(model, path)
        process = command("import", path, "-o", net, *options)
        assert process.returncode == 0, process.stderr
        return bie_runtime.Net(net, max_batch=4)

    return run


def samples(model, count: int = 3, size: float = 1) -> np.ndarray:
    sizes = [d.dim_value for d in model.graph.input[0].type.tensor_type.shape.dim][1:]
    return (np.random.default_rng(2).standard_normal((count, *sizes)) * size).astype(np.float32)


def wanted(model, x: np.ndarray) -> np.ndarray:
    y = ReferenceEvaluator(model).run(None, {"x": x})[0]
    return y.reshape(len(x), -1)


def assert_close(y: np.ndarray, to: np.ndarray, bound: float = 1e-5) -> None:
    """Within 1e-5 of the largest output: sums of floats in two orders."""
    assert y.shape == to.shape
    assert np.isfinite(to).all()
    assert np.abs(y - to).max() <= bound * max(1, np.abs(to).max())


def image(op: str, *constants, sizes=(4, 6, 7), opset: int = 19, **attributes):
    """One node over an image."""
    m = Maker(*sizes, opset=opset)
    return m.model(m.node(op, "x", *(m.constant(c) for c in constants), **attributes))


def features(op: str, *constants, count: int = 7, opset: int = 19, **attributes):
    return image(op, *constants, sizes=(count,), opset=opset, **attributes)


def conv(*, sizes=(4, 9, 8), out=6, kernel=3, groups=1, bias=True, **attributes):
    m = Maker(*sizes)
    return m.model(m.conv("x", sizes[0], out, kernel, groups, bias, **attributes))


def mat_mul():
    m = Maker(9)
    return m.model(m.node("Add", m.node("MatMul", "x", m.random(9, 5)), m.random(5)))


def gemm(**attributes):
    m = Maker(9)
    sizes = (5, 9) if attributes.get("transB") else (9, 5)
    return m.model(m.node("Gemm", "x", m.random(*sizes), m.random(5), **attributes))


def two_branches(join: str, **attributes):
    m = Maker(4, 6, 6)
    return m.model(m.node(join, m.conv("x", 4, 5, pads=[1] * 4), m.node("Relu", m.conv("x", 4, 5, 1)), **attributes))


def squeeze_and_excite():
    m = Maker(4, 6, 6)
    means = m.node("GlobalAveragePool", "x")
    gates = m.node("Sigmoid", m.conv(m.node("Relu", m.conv(means, 4, 3, 1)), 3, 4, 1))
    return m.model(
        m.node("Mul", "x", gates),
    )


def transposed_flatten():
    """As nets of channels-last frameworks end."""
    m = Maker(4, 3, 5)
    x = m.node("Transpose", m.conv("x", 4, 6, 1), perm=[0, 2, 3, 1])
    return m.model(m.gemm(m.node("Reshape", x, m.constant(np.array([-1, 90]))), 90, 3))


def reshape_by_shape():
    """x.view(x.size(0), -1) as older exporters write it."""
    m = Maker(4, 3, 5)
    first = m.node("Gather", m.node("Shape", "x"), m.constant(np.array(0)), axis=0)
    sizes = m.node("Concat", m.node("Unsqueeze", first, m.constant(np.array([0]))), m.constant(np.array([-1])), axis=0)
    return m.model(m.gemm(m.node("Reshape", "x", sizes), 60, 3))


def folded_norm():
    m = Maker(4, 6, 6)
    return m.model(m.norm(m.conv("x", 4, 5, bias=False), 5))


def norm_of_two_readers():
    """The convolution's own output is read too, so its norm cannot go into the weight."""
    m = Maker(4, 6, 6)
    y = m.conv("x", 4, 4, pads=[1] * 4)
    return m.model(m.node("Add", m.norm(y, 4), y))


def squeezed():
    m = Maker(4, 6, 6)
    x = m.node("Squeeze", m.node("GlobalMaxPool", "x"), m.constant(np.array([2, 3])))
    return m.model(m.node("Unsqueeze", m.gemm(x, 4, 3), m.constant(np.array([2, 3]))))


def constants_among_nodes():
    m = Maker(4, 6, 6)
    value = numpy_helper.from_array(np.array([1.5, -2, 3, 0.5], np.float32).reshape(1, 4, 1, 1))
    return m.model(m.node("Identity", m.node("Mul", m.node("Constant", value=value), m.node("Dropout", "x"))))


F32 = np.float32
CASES = {
    "conv": conv(pads=[1] * 4),
    "conv of strides, dilations and uneven pads": conv(strides=[2, 1], dilations=[1, 2], pads=[1, 0, 2, 3]),
    "conv in groups": conv(groups=2, bias=False),
    "conv of channels": conv(out=8, groups=4, pads=[1] * 4),
    "conv SAME_UPPER": conv(kernel=3, strides=[2, 2], auto_pad="SAME_UPPER"),
    "conv SAME_LOWER": conv(kernel=2, auto_pad="SAME_LOWER"),
    "conv and norm": folded_norm(),
    "norm beside a reader": norm_of_two_readers(),
    "gemm": gemm(transB=1),
    "gemm with factors": gemm(alpha=0.5, beta=2.0),
    "matmul": mat_mul(),
    "relu": image("Relu"),
    "leaky relu": image("LeakyRelu", alpha=0.2),
    "prelu": image("PRelu", np.array([[[0.3]]], F32)),
    "prelu of channels": image("PRelu", np.array([0.3, -1, 0, 2], F32).reshape(4, 1, 1)),
    "clip": image("Clip", F32(-0.5), F32(0.75)),
    "clip from above": image("Clip", F32(-0.5)),
    "clip of attributes": image("Clip", opset=9, min=0.0, max=6.0),
    "sigmoid": image("Sigmoid"),
    "softmax": features("Softmax"),
    "add a number": image("Add", F32(2)),
    "add channels": image("Add", np.arange(4, dtype=F32).reshape(4, 1, 1)),
    "add features": features("Add", np.arange(7, dtype=F32)),
    "subtract": image("Sub", np.arange(4, dtype=F32).reshape(1, 4, 1, 1)),
    "multiply": image("Mul", np.arange(4, dtype=F32).reshape(4, 1, 1)),
    "divide": image("Div", np.arange(1, 5, dtype=F32).reshape(4, 1, 1)),
    "add two": two_branches("Add"),
    "subtract two": two_branches("Sub"),
    "multiply two": two_branches("Mul"),
    "join two": two_branches("Concat", axis=1),
    "gates": squeeze_and_excite(),
    "max pool": image("MaxPool", kernel_shape=[2, 2], strides=[2, 2]),
    "max pool with pads": image("MaxPool", kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1]),
    "max pool to the ceiling": image("MaxPool", kernel_shape=[3, 2], strides=[2, 2], ceil_mode=1),
    "average pool": image("AveragePool", kernel_shape=[2, 3], strides=[2, 1]),
    "average pool with pads": image("AveragePool", kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1]),
    "average pool that counts pads": image("AveragePool", kernel_shape=[3, 3], pads=[1, 1, 1, 1], count_include_pad=1),
    "global average pool": image("GlobalAveragePool"),
    "mean": image("ReduceMean", opset=17, axes=[2, 3], keepdims=0),
    "mean of axes that are a constant": image("ReduceMean", np.array([-1, -2])),
    "pad": image("Pad", np.array([0, 0, 1, 2, 0, 0, 0, 3]), F32(0.5)),
    "flatten": image("Flatten"),
    "transpose": image("Transpose", perm=[0, 3, 1, 2]),
    "reshape": image("Reshape", np.array([0, 2, -1, 7])),
    "channels last": transposed_flatten(),
    "reshape by shape": reshape_by_shape(),
    "squeeze": squeezed(),
    "constants": constants_among_nodes(),
    "net": small_net(),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_operators_are_those_of_onnx(imported, name):
    model = CASES[name]
    x = samples(model, size=2)
    assert_close(imported(model).run(x), wanted(model, x))


def test_a_net_of_all_operators(imported):
    """What the fuzzer starts from; one of the two rounds, and its codes may differ by a step."""
    for name, model in seeds().items():
        x = samples(model, 8)
        y, to = imported(model).run(x), wanted(model, x)
        assert_close(y[0] if isinstance(y, list) else y, to, 1e-5 if name == "convolutions" else 0.02)


def test_a_softmax_before_version_13_is_that_of_all(imported):
    model = image("Softmax", opset=11)
    x = samples(model)
    powers = np.exp(x.reshape(len(x), -1))
    assert_close(imported(model).run(x), powers / powers.sum(axis=1, keepdims=True))


@pytest.mark.parametrize("dtype, zero", [(np.int8, 0), (np.int8, -20), (np.uint8, 0), (np.uint8, 131)])
def test_rounded_values_are_those_of_onnx(imported, dtype, zero):
    m = Maker(4, 5, 6)
    model = m.model(m.node("Relu", m.round("x", 0.03, zero, dtype)))
    x = samples(model, size=3)
    assert np.array_equal(imported(model).run(x), wanted(model, x))


def coded_net(zero: int, dtype) -> onnx.ModelProto:
    """Convolutions, a shortcut, a pool and a linear with QuantizeLinear and DequantizeLinear around the products."""
    m = Maker(3, 10, 9)
    middle = zero + (128 if dtype is np.uint8 else 0)
    low = -128 if dtype is np.int8 else 0
    x = m.round("x", 0.03, middle, dtype)
    x = m.node("Relu", m.node("Conv", x, m.coded(8, 3, 3, 3, size=0.4), m.random(8, size=0.1), pads=[1] * 4))
    x = m.round(x, 0.015, low, dtype)
    y = m.node("Conv", x, m.coded(8, 8, 3, 3, size=0.25, dtype=dtype), m.random(8, size=0.1), pads=[1] * 4)
    y = m.round(y, 0.0237, middle, dtype)  # whose multiples lie in the middle of no others
    x = m.round(m.node("Relu", m.node("Add", x, y)), 0.02, low, dtype)
    x = m.node("MaxPool", x, kernel_shape=[3, 3], strides=[2, 2], pads=[1] * 4)
    x = m.round(m.node("Flatten", m.round(x, 0.02, low, dtype)), 0.02, low, dtype)
    y = m.node("Gemm", x, m.coded(5, 8 * 25, size=0.1), m.random(5), transB=1)
    return m.model(m.round(y, 0.05, middle, dtype))


@pytest.mark.parametrize("dtype, zero", [(np.int8, 0), (np.int8, 7), (np.uint8, 0), (np.uint8, -9)])
def test_codes_are_within_a_step_of_onnx(imported, command, tmp_path, dtype, zero):
    model = coded_net(zero, dtype)
    x = samples(model, 64)
    y, to = imported(model).run(x), wanted(model, x)
    nodes = command("inspect", tmp_path / "model.net.bie").stdout
    assert nodes.count("conv2d of 8 bits") == 2 and nodes.count("linear of 8 bits") == 1, nodes
    assert len(np.unique(to)) > 20
    steps = np.rint((y - to) / np.float32(0.05))
    assert np.abs(steps).max() <= 1
    # Two roundings of a value next to the middle of two codes differ, and seldom.
    assert (steps != 0).mean() <= 0.02


@pytest.mark.parametrize("bits, bound", [(8, 0.03), (4, 0.35)])
def test_calibrated_codes_come_near_the_floats(imported, tmp_path, bits, bound):
    model = small_net()
    np.save(tmp_path / "samples.npy", samples(model, 40))
    x = samples(model, 100)
    to = wanted(model, x)

    def error(*options) -> float:
        net = imported(model, "--bits", bits, "--calib", tmp_path / "samples.npy", *options)
        return float(np.sqrt(np.mean((net.run(x) - to) ** 2)) / to.std())

    inner, all_of_them = error(), error("--first", bits, "--last", bits)
    assert 0 < inner < all_of_them < bound


def test_a_net_without_inner_products_wants_to_know_what_to_quantise(command, imported, tmp_path):
    model = mat_mul()
    np.save(tmp_path / "samples.npy", samples(model, 40))
    calib = ["--bits", 8, "--calib", tmp_path / "samples.npy"]
    said = refusal(command, tmp_path, model, *calib)
    assert "no products but the first and the last" in said
    x = samples(model, 8)
    assert_close(imported(model, *calib, "--first", 8, "--last", 8).run(x), wanted(model, x), 0.03)


def test_samples_have_the_shape_of_a_model_that_flattens_first(imported, tmp_path):
    weights = [np.random.default_rng(i).standard_normal(size).astype(np.float32) for i, size in enumerate(SIZES)]
    nodes = [helper.make_node("Flatten", ["x"], ["v0"])]
    for i in range(3):
        nodes.append(helper.make_node("MatMul", [f"v{i}", f"w{i}"], [f"m{i}"]))
        nodes.append(helper.make_node("Relu", [f"m{i}"], [f"v{i + 1}"]))
    graph = helper.make_graph(
        nodes,
        "mlp",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 3, 4, 4])],
        [helper.make_tensor_value_info("v3", TensorProto.FLOAT, ["n", 4])],
        [numpy_helper.from_array(w, f"w{i}") for i, w in enumerate(weights)],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    x = samples(model, 64)
    to = wanted(model, x)
    for shape in (x.shape, (64, 48)):
        np.save(tmp_path / "samples.npy", x.reshape(shape))
        y = imported(model, "--bits", 8, "--calib", tmp_path / "samples.npy").run(x.reshape(64, 48))
        assert 0 < np.sqrt(np.mean((y - to) ** 2)) < 0.03 * to.std(), shape


def test_folders_of_samples_calibrate(imported, tmp_path):
    folder = tmp_path / "folder"
    folder.mkdir()
    model = small_net()
    for i, image_ in enumerate(samples(model, 6)):
        np.save(folder / f"{i}.npy", image_)
    (folder / ".hidden").write_text("no sample")
    np.save(tmp_path / "all.npy", samples(model, 6))
    x = samples(model)
    of_folder = imported(model, "--bits", 8, "--calib", folder).run(x)
    assert np.array_equal(of_folder, imported(model, "--bits", 8, "--calib", tmp_path / "all.npy").run(x))
    fewer = imported(model, "--bits", 8, "--calib", folder, "--calib-samples", 2).run(x)
    np.save(tmp_path / "all.npy", samples(model, 6)[[0, 3]])
    assert np.array_equal(fewer, imported(model, "--bits", 8, "--calib", tmp_path / "all.npy").run(x))


def test_models_of_torch(imported):
    torch = pytest.importorskip("torch", reason="there is no torch")
    pytest.importorskip("onnxscript", reason="there is no onnxscript (pip install onnxscript)")
    from torch import nn

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.first = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.PReLU(8))
            self.second = nn.Sequential(nn.Conv2d(8, 8, 3, padding=1, groups=2), nn.Hardtanh(0, 6))
            self.pool = nn.MaxPool2d(3, 2, 1)
            self.last = nn.Sequential(nn.Linear(16 * 36, 20), nn.LeakyReLU(), nn.Linear(20, 4), nn.Softmax(1))

        def forward(self, x):
            x = self.first(x)
            x = self.pool(torch.cat([x, self.second(x)], 1) * 0.5)
            return self.last(torch.flatten(x, 1))

    torch.manual_seed(1)
    net = Net().eval()
    x = torch.randn(3, 3, 12, 12)
    program = torch.onnx.export(net, (x[:1],), dynamo=True, verbose=False)
    assert_close(imported(program.model_proto).run(x.numpy()), net(x).detach().numpy())


def refusal(command, tmp_path, content, *options) -> str:
    path, net = tmp_path / "model.onnx", tmp_path / "refused.net.bie"
    path.write_bytes(content if isinstance(content, bytes) else content.SerializeToString())
    process = command("import", path, "-o", net, *options)
    assert process.returncode in (2, 3), process
    assert process.stdout == "" and not net.exists()
    lines = process.stderr.splitlines()
    assert process.returncode == 2 or len(lines) == 1, process.stderr
    assert "model.onnx" in lines[0] or process.returncode == 2, lines
    return process.stderr


def changed(change) -> onnx.ModelProto:
    model = small_net()
    change(model)
    return model


def external(model) -> None:
    tensor = model.graph.initializer[0]
    tensor.ClearField("raw_data")
    tensor.data_location = TensorProto.EXTERNAL
    tensor.external_data.add(key="location", value="/etc/passwd")


def huge(model) -> None:
    model.graph.initializer[0].dims[:] = [1 << 40, 1 << 40]


def cycle(model) -> None:
    model.graph.node[0].input[0] = model.graph.node[4].output[0]


def any_height(model) -> None:
    model.graph.input[0].type.tensor_type.shape.dim[2].dim_param = "h"


BAD = {
    "is empty": b"",
    "is no ONNX file, or is cut or damaged": b"\xff" * 100,
    "has no graph": onnx.ModelProto(ir_version=8),
    'node 0 "lstm0" ("LSTM"): a net has no such operator': features("LSTM", np.ones((1, 4, 7), F32), hidden_size=1),
    "is neither an initialiser nor written before": changed(lambda m: m.graph.initializer.pop(0)),
    "which is there already": changed(lambda m: m.graph.node.append(m.graph.node[0])),
    "expected a file in the model's own folder, got": changed(external),
    "has tensor": changed(huge),
    "reads \"v4\", which is neither": changed(cycle),
    "has a size that is not fixed": changed(any_height),
    "that nothing writes": changed(lambda m: m.graph.output[0].__setattr__("name", "nothing")),
    "has no output": changed(lambda m: m.graph.output.pop()),
    "is not of floats": changed(lambda m: m.graph.input[0].type.tensor_type.__setattr__("elem_type", 11)),
    "expected one input, got 2": changed(lambda m: m.graph.input.append(
        helper.make_tensor_value_info("z", TensorProto.FLOAT, [1, 3]))),
    "has windows larger than its image": conv(sizes=(4, 2, 2), kernel=3),
    "moves the batch": image("Transpose", perm=[1, 0, 2, 3]),
    "the batch is to stay as it is": image("Reshape", np.array([2, -1])),
    "expected a constant of one number or one a channel": image("Add", np.arange(7, dtype=F32)),
    "has a scale that is not above 0": image("QuantizeLinear", F32(0), np.uint8(0)),
    "expected floats, got codes": image("QuantizeLinear", F32(1), np.uint8(0)),
    "expected dilations of 1, got others": image("MaxPool", kernel_shape=[2, 2], dilations=[2, 2]),
    "expected the channels as its axis": two_branches("Concat", axis=2),
    "holds NaN or infinity": image("Add", F32(np.nan)),
    "expected the features of a sample as its axis": image("Softmax", axis=-1),
}  # fmt: skip


@pytest.mark.parametrize("reason", BAD)
def test_what_a_net_does_not_have_is_named(command, tmp_path, reason):
    assert reason in refusal(command, tmp_path, BAD[reason])


def test_options_that_contradict_each_other(command, tmp_path):
    model = small_net()
    np.save(tmp_path / "samples.npy", samples(model, 4))
    np.save(tmp_path / "other.npy", np.zeros((4, 5), F32))
    calib = ["--calib", tmp_path / "samples.npy"]
    (tmp_path / "empty").mkdir()

    def said(*options):
        return refusal(command, tmp_path, model, *options)

    assert "needs --calib" in said("--bits", 8)
    assert "for --bits" in said(*calib)
    assert "for --bits" in said("--first", 8)
    assert "--bits" in said("--bits", 2, *calib)
    assert "--first" in said("--bits", 8, "--first", 16, *calib)
    assert "for --calib" in said("--white", 2)
    path, net = tmp_path / "model.onnx", tmp_path / "refused.net.bie"
    for calibration in ("empty", "other.npy", "absent.npy"):
        process = command("import", path, "-o", net, "--bits", 8, "--calib", tmp_path / calibration)
        assert process.returncode == 3 and calibration in process.stderr and not net.exists()
    samples_file = tmp_path / "samples.npy"
    process = command("import", path, "-o", samples_file, "--bits", 8, *calib)
    assert process.returncode == 3 and "file of samples" in process.stderr
    assert np.load(samples_file).shape == (4, 3, 12, 12)
    process = command("import", path, "-o", path)
    assert process.returncode == 3 and path.read_bytes() == model.SerializeToString()


def test_cut_and_changed_files_are_sentences(command, tmp_path):
    """A fuzzer reads more of them (tests/fuzz/onnx_fuzz.cpp); these go through the whole command."""
    data = small_net().SerializeToString()
    rng = np.random.default_rng(3)
    path, net = tmp_path / "model.onnx", tmp_path / "changed.net.bie"
    for i in range(60):
        changed_ = bytearray(data[: rng.integers(1, len(data))] if i % 2 else data)
        for place in rng.integers(0, len(changed_), 4):
            changed_[place] = rng.integers(0, 256)
        path.write_bytes(changed_)
        process = command("import", path, "-o", net)
        assert process.returncode in (0, 3), process
        assert process.returncode == 0 or len(process.stderr.splitlines()) == 1, process.stderr
