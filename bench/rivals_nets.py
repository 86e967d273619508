"""Whole nets beside other runtimes, one pinned core: LeNet, VGG-small and ResNet-20 on images of 3x32x32.

Usage: rivals_nets.py --bie PROGRAM --nets FOLDER [--batches 1,32] [--core 0]

FOLDER holds NAMEBITS.net.bie of `bie export` (lenet1, vgg-small4, resnet208 ...). The rivals run the same layers with
weights of their own, BatchNorms folded: onnxruntime in float32 and int8 (QDQ, per channel, calibrated on random
images), OpenVINO on the same two files. Wants numpy, onnx, onnxruntime and openvino, in an environment of their own.
Prints a table in Markdown, microseconds an image, the median of five medians.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

RNG = np.random.default_rng(1)


class Graph:
    """An ONNX graph of the layers that the three nets have."""

    def __init__(self):
        self.nodes, self.weights, self.count = [], [], 0

    def weight(self, *shape: int) -> str:
        self.count += 1
        name = f"w{self.count}"
        scale = 1 / np.sqrt(np.prod(shape[1:])) if len(shape) > 1 else 0.1
        values = (RNG.standard_normal(shape) * scale).astype(np.float32)
        self.weights.append(numpy_helper.from_array(values, name))
        return name

    def node(self, op: str, *inputs: str, **attributes) -> str:
        self.count += 1
        name = f"v{self.count}"
        self.nodes.append(helper.make_node(op, list(inputs), [name], **attributes))
        return name

    def conv(self, x: str, cin: int, cout: int, size: int, stride: int = 1, pad: int = 0) -> str:
        attributes = {"kernel_shape": [size, size], "strides": [stride, stride], "pads": [pad] * 4}
        return self.node("Conv", x, self.weight(cout, cin, size, size), self.weight(cout), **attributes)

    def relu(self, x: str) -> str:
        return self.node("Relu", x)

    def pool(self, x: str) -> str:
        return self.node("MaxPool", x, kernel_shape=[2, 2], strides=[2, 2])

    def linear(self, x: str, cin: int, cout: int) -> str:
        return self.node("Gemm", x, self.weight(cout, cin), self.weight(cout), transB=1)

    def save(self, y: str, path: Path) -> None:
        x = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 3, 32, 32])
        out = helper.make_tensor_value_info(y, TensorProto.FLOAT, ["n", 10])
        graph = helper.make_graph(self.nodes, "net", [x], [out], self.weights)
        onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)


def lenet(g: Graph) -> str:
    x = g.pool(g.relu(g.conv("x", 3, 32, 5)))
    x = g.node("Flatten", g.pool(g.relu(g.conv(x, 32, 64, 5))), axis=1)
    return g.linear(g.relu(g.linear(x, 1600, 1024)), 1024, 10)


def vgg_small(g: Graph) -> str:
    x, cin = "x", 3
    for width in (128, 256, 512):
        for _ in range(2):
            x, cin = g.relu(g.conv(x, cin, width, 3, pad=1)), width
        x = g.pool(x)
    return g.linear(g.node("Flatten", x, axis=1), 512 * 16, 10)


def resnet20(g: Graph) -> str:
    x, cin = g.relu(g.conv("x", 3, 16, 3, pad=1)), 16
    for width in (16, 32, 64):
        for _ in range(3):
            stride = 1 if width == cin else 2
            y = g.conv(g.relu(g.conv(x, cin, width, 3, stride, 1)), width, width, 3, pad=1)
            past = x if stride == 1 else g.conv(x, cin, width, 1, 2)
            x, cin = g.relu(g.node("Add", y, past)), width
    return g.linear(g.node("Flatten", g.node("GlobalAveragePool", x), axis=1), 64, 10)


NETS = {"lenet": lenet, "vgg-small": vgg_small, "resnet20": resnet20}


def quantised(path: Path) -> Path:
    from onnxruntime import quantization

    class Images(quantization.CalibrationDataReader):
        def __init__(self):
            self.left = [{"x": RNG.random((1, 3, 32, 32), dtype=np.float32)} for _ in range(16)]

        def get_next(self):
            return self.left.pop() if self.left else None

    to = path.with_suffix(".int8.onnx")
    quantization.quantize_static(
        *(str(path), str(to), Images()),
        quant_format=quantization.QuantFormat.QDQ, per_channel=True,
        activation_type=quantization.QuantType.QUInt8, weight_type=quantization.QuantType.QInt8,
    )  # fmt: skip
    return to


def by_onnxruntime(path: Path) -> Callable[[np.ndarray], object]:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    return lambda x: session.run(None, {"x": x})


def by_openvino(path: Path, batch: int) -> Callable[[np.ndarray], object]:
    import openvino

    core = openvino.Core()
    model = core.read_model(str(path))
    model.reshape([batch, 3, 32, 32])
    hints = {"INFERENCE_NUM_THREADS": 1, "NUM_STREAMS": 1, "INFERENCE_PRECISION_HINT": "f32"}
    request = core.compile_model(model, "CPU", hints).create_infer_request()
    return lambda x: request.infer({0: x})


def microseconds(run: Callable[[np.ndarray], object], batch: int, seconds: float = 0.3) -> float:
    x = RNG.random((batch, 3, 32, 32), dtype=np.float32)
    medians = []
    for _ in range(5):
        run(x)
        times, end = [], time.perf_counter() + seconds
        while time.perf_counter() < end or len(times) < 3:
            start = time.perf_counter()
            run(x)
            times.append(time.perf_counter() - start)
        medians.append(statistics.median(times))
    return 1e6 * statistics.median(medians) / batch


def ours(bie: Path, nets: list[Path], batches: list[int]) -> dict[str, dict[int, float]]:
    command = [bie, "bench", *nets, "--batch", ",".join(map(str, batches)), "--json"]
    said = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
    return {
        Path(net["model"]).name: {t["batch"]: 1e6 * t["seconds_an_image"] for t in net["times"]}
        for net in said["models"]
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--bie", type=Path, required=True)
    parser.add_argument("--nets", type=Path, required=True)
    parser.add_argument("--batches", default="1,32")
    parser.add_argument("--core", type=int, default=0)
    a = parser.parse_args()
    os.sched_setaffinity(0, {a.core})
    batches = [int(batch) for batch in a.batches.split(",")]
    print("| net | batch | bie 1 bit | 4 bits | 8 bits | onnxruntime int8 | float32 | OpenVINO int8 | float32 |")
    print("| --- | --- | --- | --- | --- | --- | --- | --- | --- |")
    with tempfile.TemporaryDirectory() as folder:
        for name, build in NETS.items():
            path, graph = Path(folder) / f"{name}.onnx", Graph()
            graph.save(build(graph), path)
            codes = quantised(path)
            mine = ours(a.bie, [a.nets / f"{name}{bits}.net.bie" for bits in (1, 4, 8)], batches)
            for batch in batches:
                cells = [mine[f"{name}{bits}.net.bie"][batch] for bits in (1, 4, 8)]
                cells += [microseconds(by_onnxruntime(file), batch) for file in (codes, path)]
                cells += [microseconds(by_openvino(file, batch), batch) for file in (codes, path)]
                print(f"| {name} | {batch} | " + " | ".join(f"{cell:.0f}" for cell in cells) + " |", flush=True)


if __name__ == "__main__":
    main()
