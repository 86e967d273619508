"""Nets of a hundred thousand nodes, from an ONNX file to an answer, in seconds."""

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

COUNT = 100_000


def affine(i, constants, x):
    if i % 2 == 0:
        return helper.make_node("Relu", [f"v{i}"], [f"v{i + 1}"]), np.maximum(x, 0)
    name = f"c{i % 4}"
    constants[name] = np.array([i % 4 - 2, 0.25, 2 - i % 4], np.float32)
    return helper.make_node("Add", [f"v{i}", name], [f"v{i + 1}"]), x + constants[name]


def windows(i, constants, x):
    """Products that look for a BatchNormalization behind them, and values that are made flat."""
    by = {"half": np.float32(0.5), "twice": np.float32(2)}
    constants.update({name: value.reshape(1, 1, 1, 1) for name, value in by.items()})
    constants.update(flat=np.array([-1, 3]), image=np.array([-1, 1, 1, 3]))
    op, *inputs = [("Conv", "half"), ("Reshape", "flat"), ("Relu",), ("Reshape", "image"), ("Conv", "twice")][i % 5]
    y = np.maximum(x, 0) if op == "Relu" else x if op == "Reshape" else x * by[inputs[0]]
    return helper.make_node(op, [f"v{i}", *inputs], [f"v{i + 1}"]), y


@pytest.mark.parametrize("sizes, make", [((3,), affine), ((1, 1, 3), windows)])
def test_a_chain_of_a_hundred_thousand_operators(command, answer, tmp_path, sizes, make):
    x = np.array([[1, -2, 3], [0.5, 0, -1]], np.float32)
    nodes, constants, wanted = [], {}, x
    for i in range(COUNT):
        node, wanted = make(i, constants, wanted)
        nodes.append(node)
    graph = helper.make_graph(
        nodes,
        "chain",
        [helper.make_tensor_value_info("v0", TensorProto.FLOAT, ["n", *sizes])],
        [helper.make_tensor_value_info(f"v{COUNT}", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(value, name) for name, value in constants.items()],
    )
    model, net, table = (tmp_path / name for name in ("chain.onnx", "chain.net.bie", "x.npy"))
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]), model)
    np.save(table, x.reshape(2, *sizes))
    imported = command("import", model, "-o", net)
    assert imported.returncode == 0, imported.stderr
    assert answer("run", net, "--input", table)["logits"] == wanted.tolist()
