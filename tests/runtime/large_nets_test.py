"""Nets of thousands of nodes, from an ONNX file to an answer."""

import numpy as np
import onnx
from onnx import TensorProto, helper


def test_a_chain_of_thousands_of_operators(command, answer, tmp_path):
    count = 6000
    nodes = [
        helper.make_node("Relu", [f"v{i}"], [f"v{i + 1}"])
        if i % 2 == 0
        else helper.make_node("Add", [f"v{i}", f"c{i % 4}"], [f"v{i + 1}"])
        for i in range(count)
    ]
    constants = [helper.make_tensor(f"c{i}", TensorProto.FLOAT, [3], [i - 2.0, 0.25, 2.0 - i]) for i in (1, 3)]
    graph = helper.make_graph(
        nodes,
        "chain",
        [helper.make_tensor_value_info("v0", TensorProto.FLOAT, ["n", 3])],
        [helper.make_tensor_value_info(f"v{count}", TensorProto.FLOAT, ["n", 3])],
        constants,
    )
    model, net, table = (tmp_path / name for name in ("chain.onnx", "chain.net.bie", "x.npy"))
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]), model)
    x = np.array([[1, -2, 3], [0.5, 0, -1]], np.float32)
    np.save(table, x)
    imported = command("import", model, "-o", net)
    assert imported.returncode == 0, imported.stderr
    wanted = x.copy()
    for i in range(count):
        wanted = np.maximum(wanted, 0) if i % 2 == 0 else wanted + np.array([i % 4 - 2, 0.25, 2 - i % 4], np.float32)
    assert answer("run", net, "--input", table)["logits"] == wanted.tolist()
