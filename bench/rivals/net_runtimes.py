"""Runtimes of whole nets under one interface: a file and a batch in, a function of images [batch, 3, h, w] out."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import numpy as np

Run = Callable[[np.ndarray], object]


def bie(path: Path, batch: int, size: int) -> Run:
    import bie_runtime

    return bie_runtime.Net(path, max_batch=batch).run


def onnxruntime(path: Path, batch: int, size: int) -> Run:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    return lambda x: session.run(None, {"x": x})


def openvino(path: Path, batch: int, size: int) -> Run:
    import openvino

    core = openvino.Core()
    model = core.read_model(str(path))
    model.reshape([batch, 3, size, size])
    hints = {"INFERENCE_NUM_THREADS": 1, "NUM_STREAMS": 1, "INFERENCE_PRECISION_HINT": "f32"}
    request = core.compile_model(model, "CPU", hints).create_infer_request()
    return lambda x: request.infer({0: x})


def litert(path: Path, batch: int, size: int) -> Run:
    """Of bytes, channels last, as the converted model takes them; what turns the images is not timed."""
    from ai_edge_litert.interpreter import Interpreter

    interpreter = Interpreter(str(path), num_threads=1)
    interpreter.allocate_tensors()
    place = interpreter.get_input_details()[0]
    images = np.zeros(place["shape"], place["dtype"])

    def run(_: np.ndarray) -> None:
        interpreter.set_tensor(place["index"], images)
        interpreter.invoke()

    return run


def ncnn(path: Path, batch: int, size: int) -> Run:
    """An image at a time, which is all that it takes."""
    import ncnn

    net = ncnn.Net()
    net.opt.num_threads = 1
    if net.load_param(str(path)) != 0 or net.load_model(str(path.with_suffix(".bin"))) != 0:
        raise RuntimeError(f"ncnn does not load {path}")

    def run(x: np.ndarray) -> None:
        for image in x:
            extractor = net.create_extractor()
            extractor.input("in0", ncnn.Mat(image))
            extractor.extract("out0")

    return run


RUNTIMES = {f.__name__: f for f in (bie, onnxruntime, openvino, litert, ncnn)}
# The shared libraries that a run loads.
LIBRARIES = {
    "onnxruntime": ("onnxruntime/capi", "*.so"),
    "openvino": (
        "openvino/libs",
        "lib*openvino.so*",
        "lib*openvino_intel_cpu_plugin.so*",
        "libtbb.so*",
        "*_onnx_frontend.so*",
    ),
    "litert": ("ai_edge_litert", "*.so"),
    "ncnn": ("ncnn", "*.so"),
}


def library_bytes(name: str) -> int:
    """Of what a program would ship, without Python's own parts."""
    import importlib

    if name == "bie":
        return Path(os.environ["BIE_RUNTIME_LIBRARY"]).stat().st_size
    folder, *patterns = LIBRARIES[name]
    packages = Path(importlib.import_module(folder.split("/")[0]).__file__).parent.parent
    files = {file.resolve() for pattern in patterns for file in (packages / folder).glob(pattern)}
    return sum(file.stat().st_size for file in files)
