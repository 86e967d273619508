"""bie import honours every attribute of a node or refuses it by name; constants are folded before all else."""

import re

import numpy as np
import pytest

onnx = pytest.importorskip("onnx", reason="there is no onnx (pip install onnx)")
onnxruntime = pytest.importorskip("onnxruntime", reason="there is no onnxruntime (pip install onnxruntime)")

from onnx import helper  # noqa: E402
from onnx_models import Maker  # noqa: E402


@pytest.fixture
def both(command, bie_runtime, tmp_path):
    """The outputs of bie and of onnxruntime, which calls no optimiser."""

    def run(model, count: int = 3, size: float = 1):
        path, net = tmp_path / "model.onnx", tmp_path / "model.net.bie"
        onnx.save(model, path)
        done = command("import", path, "-o", net)
        assert done.returncode == 0, done.stderr
        options = onnxruntime.SessionOptions()
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
        session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
        sizes = [d.dim_value for d in model.graph.input[0].type.tensor_type.shape.dim][1:]
        x = (np.random.default_rng(2).standard_normal((count, *sizes)) * size).astype(np.float32)
        wanted = session.run(None, {"x": x})[0].reshape(count, -1)
        return bie_runtime.Net(net, max_batch=2).run(x).reshape(count, -1), wanted

    return run


@pytest.fixture
def refusal(command, tmp_path):
    def run(model) -> str:
        path = tmp_path / "model.onnx"
        onnx.save(model, path)
        done = command("import", path, "-o", tmp_path / "net.bie")
        assert done.returncode == 3 and not (tmp_path / "net.bie").exists(), done
        return done.stderr

    return run


def close(pair, bound: float = 1e-5) -> None:
    found, wanted = pair
    assert found.shape == wanted.shape
    assert np.abs(found - wanted).max() <= bound * max(1, np.abs(wanted).max())


def one(op, *constants, sizes=(4, 6, 7), opset=19, **attributes):
    m = Maker(*sizes, opset=opset)
    return m.model(m.node(op, "x", *(m.constant(c) for c in constants), **attributes))


def f32(*values):
    return np.array(values, np.float32)


ONES = [np.ones(4, np.float32)] * 4
OPERATORS = {
    **{"Relu": [], "Sigmoid": [], "LeakyRelu": [], "Softmax": [], "GlobalAveragePool": [], "GlobalMaxPool": []},
    **{"Identity": [], "Flatten": [], "Clip": [], "Dropout": [], "Transpose": []},
    **{"Add": [f32(1)], "Sub": [f32(1)], "Mul": [f32(2)], "Div": [f32(2)], "PRelu": [f32(0.5)]},
    **{"BatchNormalization": ONES, "QuantizeLinear": [np.float32(0.1)], "ReduceMean": [np.array([2, 3])]},
    **{"Pad": [np.array([0, 0, 1, 1, 0, 0, 1, 1])], "Reshape": [np.array([0, -1])]},
}


@pytest.mark.parametrize("op", OPERATORS)
def test_an_unknown_attribute_is_refused_by_name(refusal, op):
    sizes = (5,) if op == "Softmax" else (4, 6, 7)
    said = refusal(one(op, *OPERATORS[op], sizes=sizes, surprise=3))
    assert 'has the attribute "surprise"' in said and op in said


@pytest.mark.parametrize(
    ("op", "attributes"),
    [("Clip", {"min": 0.0}), ("Pad", {"pads": [0] * 8}), ("Squeeze", {"axes": [2]}), ("ReduceMean", {"axes": [2, 3]})],
)
def test_an_attribute_of_older_versions_is_refused_in_newer_ones(refusal, op, attributes):
    assert f'has the attribute "{next(iter(attributes))}"' in refusal(one(op, **attributes, sizes=(4, 1, 6)))


@pytest.mark.parametrize(
    ("op", "attributes", "opset"),
    [
        *(("MaxPool", {"kernel_shape": [2, 2], "ceil_mode": 1}, 9), ("AveragePool", {"dilations": [1, 1]}, 18)),
        *(
            ("Shape", {"start": 1}, 14),
            ("Reshape", {"allowzero": 0}, 13),
            ("BatchNormalization", {"training_mode": 0}, 9),
        ),
    ],
)
def test_an_attribute_of_newer_versions_is_refused_in_older_ones(refusal, op, attributes, opset):
    said = refusal(one(op, *OPERATORS.get(op, []), opset=opset, **attributes))
    assert f'has the attribute "{list(attributes)[-1]}"' in said and f"in version {opset}" in said


def test_every_attribute_is_known_in_the_versions_whose_schema_has_it(root):
    table = (root / "src/onnx/operators.cpp").read_text()
    found = re.findall(r'\{"(\w+)", lower_\w+, "([^"]*)"', table)
    assert len(found) > 40
    for op, attributes in found:
        schemas = sorted(
            (s.since_version, s) for s in onnx.defs.get_all_schemas_with_history() if (s.name, s.domain) == (op, "")
        )
        for entry in attributes.split():
            name, sign, limit = re.fullmatch(r"(\w+)(?:(<|>=)(\d+))?", entry).groups()
            for version in range(max(7, schemas[0][0]), onnx.defs.onnx_opset_version() + 1):
                has = name in [s for since, s in schemas if since <= version][-1].attributes
                knows = sign is None or (version < int(limit) if sign == "<" else version >= int(limit))
                assert has == knows, f"{op}: {entry} in version {version}"


@pytest.mark.parametrize("zero", [None, np.int8(0), np.int8(5)])
@pytest.mark.parametrize("output", [None, onnx.TensorProto.INT8])
def test_quantize_linear_makes_the_type_that_it_names(both, output, zero):
    if zero is None and output is None:
        zero_inputs, attributes = [], {}
    else:
        zero_inputs = [] if zero is None else [zero]
        attributes = {} if output is None else {"output_dtype": output}
    m = Maker(40, opset=21)
    step = m.constant(np.float32(0.05))
    zeros = [m.constant(z) for z in zero_inputs]
    codes = m.node("QuantizeLinear", "x", step, *zeros, **attributes)
    back = zeros if zeros or output is None else [m.constant(np.int8(0))]
    found, wanted = both(m.model(m.node("DequantizeLinear", codes, step, *back)), size=4)
    assert (wanted < 0).any() == (output is not None or zero is not None)
    np.testing.assert_allclose(found, wanted, rtol=0, atol=1e-6)


def test_types_of_codes_that_no_net_has_are_refused(refusal):
    model = one("QuantizeLinear", np.float32(0.1), opset=21, sizes=(4,), output_dtype=onnx.TensorProto.INT16)
    assert "expected codes of type uint8 (2) or int8 (3), got type 5" in refusal(model)


@pytest.mark.parametrize("axis", [0, 1, -1])
@pytest.mark.parametrize("block", [8, 5, 24])
@pytest.mark.parametrize("dtype", [np.int8, np.uint8])
def test_weights_are_opened_in_blocks(both, axis, block, dtype):
    m = Maker(24, opset=21)
    sizes = [24, 16]
    sizes[axis] = -(-sizes[axis] // block)
    low, high = (-128, 128) if dtype is np.int8 else (0, 256)
    codes = m.constant(m.rng.integers(low, high, (24, 16)).astype(dtype))
    scales = m.constant((m.rng.uniform(0.5, 1, sizes) / 128).astype(np.float32))
    zeros = m.constant(m.rng.integers(low // 8, high // 8, sizes).astype(dtype))
    weight = m.node("DequantizeLinear", codes, scales, zeros, axis=axis, block_size=block)
    close(both(m.model(m.node("MatMul", "x", weight))))


@pytest.mark.parametrize("axis", [0, 1])
def test_weights_are_opened_along_an_axis(both, axis):
    m = Maker(24, opset=21)
    close(both(m.model(m.node("MatMul", "x", m.coded(24, 16, axis=axis)))))


@pytest.mark.parametrize("added", [(16,), (1,), (1, 16), (1, 1), ()])
@pytest.mark.parametrize("numbers", [{}, {"alpha": 0.5, "beta": 2.0}])
def test_gemm_adds_one_number_an_output(both, added, numbers):
    m = Maker(9)
    c = m.constant(m.rng.standard_normal(added).astype(np.float32))
    close(both(m.model(m.node("Gemm", "x", m.random(16, 9), c, transB=1, **numbers))))


def test_gemm_refuses_a_constant_a_row(refusal):
    m = Maker(9, batch=16)
    assert "one number per output to be added, got one of [16, 1]" in refusal(
        m.model(m.node("Gemm", "x", m.random(9, 16), m.random(16, 1)))
    )


@pytest.mark.parametrize("opset", [11, 13, 19])
@pytest.mark.parametrize("axis", [None, 1, -1])
def test_softmax_by_version(both, opset, axis):
    attributes = {} if axis is None else {"axis": axis}
    close(both(one("Softmax", sizes=(7,), opset=opset, **attributes)))


POOLS = [
    {"kernel_shape": [3, 2], "strides": [2, 1]},
    {"kernel_shape": [3, 3], "strides": [2, 2], "ceil_mode": 1},
    {"kernel_shape": [3, 3], "pads": [1, 0, 1, 2]},
    {"kernel_shape": [3, 2], "auto_pad": "SAME_UPPER", "strides": [2, 2]},
    {"kernel_shape": [3, 2], "auto_pad": "SAME_LOWER", "strides": [2, 2]},
    {"kernel_shape": [2, 2], "auto_pad": "VALID"},
]


@pytest.mark.parametrize("attributes", POOLS)
@pytest.mark.parametrize("op", ["MaxPool", "AveragePool"])
def test_pools(both, op, attributes):
    close(both(one(op, **attributes)))


def test_an_average_counts_its_pads_where_it_says_so(both):
    close(both(one("AveragePool", kernel_shape=[3, 3], pads=[1, 1, 1, 1], count_include_pad=1)))


@pytest.mark.parametrize("op", ["MaxPool", "AveragePool"])
def test_dilated_pools_are_refused(refusal, op):
    assert "expected dilations of 1, got others" in refusal(one(op, kernel_shape=[2, 2], dilations=[2, 2]))


def norm_numbers(m, form: str) -> list[str]:
    """Scale, shift, mean and variance of four channels, each behind a node that makes it of a constant."""
    names = []
    for i in range(4):
        values = (m.rng.standard_normal(4) * 0.3 + (1 if i in (0, 3) else 0)).astype(np.float32)
        values = np.abs(values) + 0.2 if i == 3 else values
        if form == "Constant":
            name = f"k{i}"
            m.nodes.append(helper.make_node("Constant", [], [name], value=onnx.numpy_helper.from_array(values)))
        elif form == "Identity":
            name = m.node("Identity", m.constant(values))
        elif form == "Reshape":
            name = m.node("Reshape", m.constant(values.reshape(2, 2)), m.constant(np.array([-1])))
        elif form == "chain":
            wide = m.node("Unsqueeze", m.constant(values), m.constant(np.array([0, 2])))
            turned = m.node("Transpose", m.node("Cast", wide, to=1), perm=[2, 1, 0])
            name = m.node("Squeeze", m.node("Identity", turned))
        names.append(name)
    return names


@pytest.mark.parametrize("form", ["Constant", "Identity", "Reshape", "chain"])
def test_constants_are_folded_before_a_norm_is_looked_at(both, form):
    m = Maker(3, 6, 5)
    product = m.conv("x", 3, 4, pads=[1] * 4, bias=False)
    close(both(m.model(m.node("BatchNormalization", product, *norm_numbers(m, form), epsilon=1e-3))))
