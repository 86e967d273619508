"""Functions of numbers, norms of rows, and parts of values, beside onnxruntime, in float32 and on hard numbers."""

import numpy as np
import pytest

onnx = pytest.importorskip("onnx", reason="there is no onnx (pip install onnx)")
onnxruntime = pytest.importorskip("onnxruntime", reason="there is no onnxruntime (pip install onnxruntime)")

from onnx_models import Maker  # noqa: E402

F32 = np.float32


@pytest.fixture
def both(command, bie_runtime, tmp_path):
    def run(model, x):
        path, net = tmp_path / "model.onnx", tmp_path / "model.net.bie"
        onnx.save(model, path)
        done = command("import", path, "-o", net)
        assert done.returncode == 0, done.stderr
        wanted = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"]).run(None, {"x": x})
        found = bie_runtime.Net(net, max_batch=2).run(x)
        found = found if isinstance(found, list) else [found]
        return [(f.reshape(len(x), -1), w.reshape(len(x), -1)) for f, w in zip(found, wanted, strict=True)]

    return run


FUNCTIONS = {
    "HardSwish": ({}, np.float64),
    "HardSigmoid": ({"alpha": 0.3, "beta": 0.4}, None),
    "Tanh": ({}, np.tanh),
    "Elu": ({"alpha": 0.7}, None),
    "Gelu": ({}, None),
    "Gelu tanh": ({"approximate": "tanh"}, None),
    "Softplus": ({}, lambda x: np.logaddexp(0, x)),
    "Erf": ({}, None),
    "Sigmoid": ({}, lambda x: 1 / (1 + np.exp(-x))),
}


@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize("sizes", [(33,), (3, 5, 7)])
def test_a_function(both, name, sizes):
    attributes, exact = FUNCTIONS[name]
    m = Maker(*sizes, opset=20)
    model = m.model(m.node(name.split()[0], "x", **attributes))
    rng = np.random.default_rng(4)
    x = np.concatenate([rng.standard_normal((4, *sizes)) * size for size in (1e-3, 1, 5, 40)]).astype(F32)
    x.reshape(-1)[:4] = [0, -0.0, 88, -88]
    ((found, wanted),) = both(model, x)
    assert np.abs(found - wanted).max() <= 2e-6 * max(1, np.abs(wanted).max())
    if exact not in (None, np.float64):
        truth = exact(x.astype(np.float64)).reshape(found.shape)
        np.testing.assert_allclose(found, truth, rtol=3e-7 if name == "Sigmoid" else 1.2e-7, atol=2e-45)


@pytest.mark.parametrize("exponent", [2, 0.5, 3, -1])
@pytest.mark.parametrize("dtype", [F32, np.int64])
def test_powers(both, exponent, dtype):
    if dtype is np.int64 and exponent == 0.5:
        exponent = 4
    m = Maker(9)
    x = np.abs(np.random.default_rng(1).standard_normal((3, 9))).astype(F32) + F32(0.1)
    ((found, wanted),) = both(m.model(m.node("Pow", "x", m.constant(dtype(exponent)))), x)
    np.testing.assert_allclose(found, wanted, rtol=1e-6)


@pytest.mark.parametrize("has_shift", [True, False])
@pytest.mark.parametrize("offset", [0, 1000])
def test_layer_norm(both, has_shift, offset):
    m = Maker(37)
    extra = [m.random(37)] if has_shift else []
    model = m.model(m.node("LayerNormalization", "x", m.random(37), *extra, axis=-1, epsilon=1e-4))
    x = (np.random.default_rng(1).standard_normal((5, 37)) + offset).astype(F32)
    ((found, wanted),) = both(model, x)
    assert np.abs(found - wanted).max() <= (1e-5 if offset == 0 else 1e-3) * np.abs(wanted).max()


@pytest.mark.parametrize("axis", [1, 2, 3, -1, -2, -3])
@pytest.mark.parametrize("has_shift", [True, False])
def test_layer_norm_along_the_last_axes(both, axis, has_shift):
    sizes = (5, 3, 7)
    m = Maker(*sizes, opset=17)
    normed = sizes[axis - 1 if axis > 0 else axis :]
    extra = [m.random(*normed)] if has_shift else []
    model = m.model(m.node("LayerNormalization", "x", m.random(*normed), *extra, axis=axis, epsilon=1e-3))
    x = np.random.default_rng(1).standard_normal((4, *sizes)).astype(F32)
    ((found, wanted),) = both(model, x)
    assert np.abs(found - wanted).max() <= 1e-5 * np.abs(wanted).max()


@pytest.mark.parametrize("op", ["Greater", "GreaterOrEqual", "Less", "LessOrEqual", "Equal"])
@pytest.mark.parametrize("number_first", [False, True])
def test_where_a_value_compares_with_a_number(both, op, number_first):
    m = Maker(4, 5, 7, opset=16)
    limit = m.constant(F32(0.5))
    compared = m.node(op, *((limit, "x") if number_first else ("x", limit)))
    y = m.node("Where", compared, m.node("Tanh", "x"), m.constant(F32(-3)))
    y = m.node("Where", m.node("Less", y, m.constant(F32([-2]))), m.constant(F32(7)), y)
    x = np.random.default_rng(1).integers(-3, 4, (3, 4, 5, 7)).astype(F32) / 4
    ((found, wanted),) = both(m.model(y), x)
    assert len(np.unique(wanted)) > 1
    np.testing.assert_allclose(found, wanted, rtol=2e-6)


def test_what_compares_is_read_by_where_alone(command, tmp_path):
    def refusal(build):
        m = Maker(4, 6, 7, opset=16)
        onnx.save(m.model(build(m, m.node("Greater", "x", m.constant(F32(1))))), tmp_path / "m.onnx")
        done = command("import", tmp_path / "m.onnx", "-o", tmp_path / "net.bie")
        assert done.returncode == 3, done
        return done.stderr

    one = F32(1)
    assert "expected floats, got truth values" in refusal(lambda m, c: c)
    assert "reads truth values" in refusal(lambda m, c: m.node("Identity", c))
    assert "chooses truth values" in refusal(lambda m, c: m.node("Where", c, c, m.constant(one)))
    assert "got floats" in refusal(lambda m, c: m.node("Where", "x", "x", m.constant(one)))
    assert "got a constant" in refusal(lambda m, c: m.node("Where", m.constant(np.array(True)), "x", "x"))
    assert "got 4 numbers" in refusal(lambda m, c: m.node("Where", c, m.random(4, 1, 1), "x"))
    assert "expected one number to compare with, got 2" in refusal(lambda m, c: m.node("Less", "x", m.random(2)))
    assert "expected a comparison with a number" in refusal(lambda m, c: m.node("Less", "x", "x"))


def test_the_largest_of_each_channel(both):
    for keepdims in (0, 1):
        m = Maker(4, 5, 6, opset=13)
        x = np.random.default_rng(1).standard_normal((3, 4, 5, 6)).astype(F32)
        ((found, wanted),) = both(m.model(m.node("ReduceMax", "x", axes=[-1, 2], keepdims=keepdims)), x)
        assert np.array_equal(found, wanted)


@pytest.mark.parametrize(
    ("starts", "ends", "axes"),
    [
        ([1], [3], [1]),
        ([0, 1], [3, 1000], [1, 3]),
        ([-3], [-1], [2]),
        ([-100, 2], [2, -1], [-1, 2]),
        ([0], [2**63 - 1], [1]),
    ],
)
def test_slices(both, starts, ends, axes):
    m = Maker(4, 6, 7)
    numbers = [m.constant(np.array(values, np.int64)) for values in (starts, ends, axes)]
    x = np.random.default_rng(1).standard_normal((3, 4, 6, 7)).astype(F32)
    sliced = m.node("Slice", "x", *numbers)
    ((found, wanted),) = both(m.model(m.node("Relu", sliced)), x)
    assert np.array_equal(found, wanted)


@pytest.mark.parametrize(("axis", "parts"), [(1, None), (1, [3, 1, 2]), (2, [2, 4]), (-1, [1, 5])])
def test_splits(both, axis, parts):
    m = Maker(6, 6, 6, opset=13)
    count = 2 if parts is None else len(parts)
    inputs = [] if parts is None else [m.constant(np.array(parts, np.int64))]
    names = [f"part{i}" for i in range(count)]
    m.nodes.append(onnx.helper.make_node("Split", ["x", *inputs], names, axis=axis))
    ends = [m.node("Relu", name) for name in names]
    x = np.random.default_rng(1).standard_normal((3, 6, 6, 6)).astype(F32)
    for found, wanted in both(m.model(*ends), x):
        assert np.array_equal(found, wanted)


@pytest.mark.parametrize(
    ("op", "constants", "attributes", "sentence"),
    [
        ("Slice", [[0], [3], [0]], {}, "takes the batch apart"),
        ("Slice", [[0], [6], [2], [2]], {}, "expected steps of 1, got 2"),
        ("Slice", [[2], [2], [1]], {}, "leaves nothing of axis 1"),
        ("Slice", [[0, 0], [1, 1], [1, 1]], {}, "names axis 1 twice"),
        ("LayerNormalization", [np.ones(6, F32)], {"axis": -1}, "expected numbers of [7], got [6]"),
        ("Gelu", [], {"approximate": "cubic"}, 'expected an approximate of "none" or "tanh"'),
        ("Pow", [np.ones(7, F32)], {}, "expected one exponent, got 7"),
        ("Resize", [], {}, "a net has no such operator"),
        ("ConvTranspose", [], {}, "a net has no such operator"),
        ("MatMulInteger", [], {}, "a net has no such operator"),
    ],
)
def test_what_a_net_does_not_have_is_refused(command, tmp_path, op, constants, attributes, sentence):
    m = Maker(4, 6, 7, opset=20)
    path = tmp_path / "model.onnx"
    onnx.save(m.model(m.node(op, "x", *(m.constant(np.asarray(c)) for c in constants), **attributes)), path)
    done = command("import", path, "-o", tmp_path / "net.bie")
    assert done.returncode == 3 and sentence in done.stderr and op in done.stderr, done
