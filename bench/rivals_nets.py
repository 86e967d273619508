"""Whole nets beside other runtimes, one pinned core: LeNet, VGG-small, ResNet-20 at 3x32x32, ResNet-18 at 3x224x224.

Usage: PYTHONPATH=python/bie-runtime:python rivals_nets.py --bie PROGRAM --runtime LIBRARY --nets FOLDER
       [--only NET,NET] [--batches 1,32] [--core 0] [--columns bie,openvino] [--first]

FOLDER holds NAME1.net.bie of `bie export` (lenet1, vgg-small1, resnet201). The others are made here: 8 and 4 bits by
`bie import` of the file that the rivals read, all layers, ResNet-18 of 1 bit by `bie.export` with BIE_OPS_LIBRARY. The
rivals run the same layers, BatchNorms folded: onnxruntime, OpenVINO and LiteRT in int8 (static, per channel, calibrated
on random images), onnxruntime, OpenVINO, ncnn and torch in float32. Wants torch and bench/rivals/nets.txt in an
environment of its own. Prints a table in Markdown: microseconds an image of the process's own time, which other work on
the core does not lengthen, the median of five medians; of some runtimes with --columns. --first prints another one
instead, of batch 1: milliseconds of its own until the first answer of a process that has loaded the library, megabytes
that the process takes for it, bytes of the library and of the model.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
from rivals.net_runtimes import RUNTIMES, library_bytes

RNG = np.random.default_rng(1)


def images(count: int, size: int) -> np.ndarray:
    return RNG.random((count, 3, size, size), dtype=np.float32)


def silent(*words) -> None:
    done = subprocess.run([str(word) for word in words], capture_output=True, text=True)
    if done.returncode != 0:
        raise RuntimeError(f"{words[0]}: {done.stderr[-2000:]}")


class Files:
    """A net in the form of each runtime. A form that cannot be made is told once and left out."""

    def __init__(self, folder: Path, name: str, a: argparse.Namespace):
        import torch
        from rivals.nets import NETS

        self.folder, self.name, self.a = folder, name, a
        build, self.size = NETS[name]
        torch.manual_seed(0)
        self.module = build().eval()
        self.onnx = folder / f"{name}.onnx"
        torch.onnx.export(
            *(self.module, (torch.rand(1, 3, self.size, self.size),), str(self.onnx)),
            input_names=["x"], dynamic_axes={"x": {0: "n"}}, opset_version=17, dynamo=False,
        )  # fmt: skip

    def ours(self, bits: int) -> Path:
        path = self.a.nets / f"{self.name}{bits}.net.bie"
        if self.name != "resnet18" and bits == 1:
            return path
        path = self.folder / path.name
        if path.exists():
            return path
        if bits == 1:
            self.export_signs(path)
        else:
            samples = self.folder / "samples.npy"
            np.save(samples, images(8, self.size))
            words = ["--bits", bits, "--first", bits, "--last", bits, "--calib", samples]
            silent(self.a.bie, "import", self.onnx, "-o", path, *words)
        return path

    def export_signs(self, path: Path) -> None:
        import torch
        from rivals.nets import resnet18

        import bie

        def inner(cin: int, cout: int, size: int = 3, stride: int = 1):
            return bie.nn.BinaryConv2d(cin, cout, size, stride=stride, padding=size // 2)

        module = resnet18(inner)
        example = torch.rand(2, 3, self.size, self.size)
        module(example)
        bie.export(module.eval(), example, path)

    def onnx_codes(self) -> Path:
        from onnxruntime import quantization

        size = self.size

        class Images(quantization.CalibrationDataReader):
            def __init__(self):
                self.left = [{"x": images(1, size)} for _ in range(8)]

            def get_next(self):
                return self.left.pop() if self.left else None

        to = self.onnx.with_suffix(".int8.onnx")
        quantization.quantize_static(
            *(str(self.onnx), str(to), Images()),
            quant_format=quantization.QuantFormat.QDQ, per_channel=True,
            activation_type=quantization.QuantType.QUInt8, weight_type=quantization.QuantType.QInt8,
        )  # fmt: skip
        return to

    def litert_codes(self, batch: int) -> Path:
        import litert_torch
        import torch
        from ai_edge_quantizer import quantizer, recipe

        floats, to = self.folder / f"{self.name}.tflite", self.folder / f"{self.name}{batch}.int8.tflite"
        module = litert_torch.to_channel_last_io(self.module, args=[0]).eval()
        litert_torch.convert(module, (torch.rand(batch, self.size, self.size, 3),)).export(str(floats))
        made = quantizer.Quantizer(str(floats), recipe.static_wi8_ai8())
        samples = [{"args_0": images(batch, self.size).transpose(0, 2, 3, 1)} for _ in range(4)]
        codes = made.quantize(made.calibrate({"serving_default": samples}))
        codes.export_model(str(to), overwrite=True)
        return to

    def ncnn_floats(self) -> Path:
        import torch

        script = self.folder / f"{self.name.replace('-', '_')}.pt"
        example = torch.rand(1, 3, self.size, self.size)
        torch.jit.trace(self.module, example).save(str(script))
        program = Path(sys.executable).parent / "pnnx"
        silent(program, script, f"inputshape=[1,3,{self.size},{self.size}]", "fp16=0")
        return script.with_suffix(".ncnn.param")


def columns(files: Files, batch: int) -> list[tuple[str, str, object]]:
    """What is timed: a heading, a runtime and how to make its file."""
    made = [
        *((f"bie {bits} bit", "bie", lambda bits=bits: files.ours(bits)) for bits in (1, 4, 8)),
        ("onnxruntime int8", "onnxruntime", files.onnx_codes),
        ("OpenVINO int8", "openvino", files.onnx_codes),
        ("LiteRT int8", "litert", lambda: files.litert_codes(batch)),
        ("onnxruntime float32", "onnxruntime", lambda: files.onnx),
        ("OpenVINO float32", "openvino", lambda: files.onnx),
        ("ncnn float32", "ncnn", files.ncnn_floats),
    ]
    return [column for column in made if column[1] in files.a.columns]


def microseconds(run, x: np.ndarray, seconds: float = 0.3) -> float:
    medians = []
    for _ in range(5):
        run(x)
        times, end = [], time.process_time() + seconds
        while time.process_time() < end or len(times) < 3:
            start = time.process_time()
            run(x)
            times.append(time.process_time() - start)
        medians.append(statistics.median(times))
    return 1e6 * statistics.median(medians) / len(x)


def torch_run(files: Files):
    import torch

    torch.set_num_threads(1)

    def run(x: np.ndarray) -> None:
        with torch.inference_mode():
            files.module(torch.from_numpy(x))

    return run


def megabytes(key: str) -> float:
    """Of memory that this process has, VmRSS, or had at most, VmHWM."""
    (line,) = (line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith(key))
    return int(line.split()[1]) / 1024


def probe(runtime: str, path: str, size: int) -> None:
    """Of this process: the first answer, and what it took."""
    module = {"bie": "bie_runtime", "litert": "ai_edge_litert.interpreter"}.get(runtime, runtime)
    __import__(module)
    x = images(1, size)
    before = megabytes("VmRSS")
    start = time.process_time()
    RUNTIMES[runtime](Path(path), 1, size)(x)
    seconds = time.process_time() - start
    print(json.dumps({"ms": 1e3 * seconds, "mb": megabytes("VmHWM") - before}))


def first_row(name: str, files: Files) -> list[str]:
    cells = []
    for _, runtime, make in columns(files, 1):
        try:
            path = make()
            said = []
            for _ in range(5):
                words = [sys.executable, __file__, "--probe", runtime, str(path), str(files.size)]
                done = subprocess.run(words, capture_output=True, text=True, check=True)
                said.append(json.loads(done.stdout.splitlines()[-1]))
            ms, mb = (statistics.median(one[key] for one in said) for key in ("ms", "mb"))
            model = sum(p.stat().st_size for p in {path, path.with_suffix(".bin")} if p.exists())
            cells.append(f"{ms:.1f}, {mb:.0f}, {model / 1e6:.2f}")
        except Exception as reason:
            print(f"{name}, {runtime}: {reason}", file=sys.stderr)
            cells.append("none")
    return cells


def time_row(name: str, files: Files, batch: int) -> list[str]:
    x, cells = images(batch, files.size), []
    for _, runtime, make in columns(files, batch):
        try:
            cells.append(f"{microseconds(RUNTIMES[runtime](make(), batch, files.size), x):.0f}")
        except Exception as reason:
            print(f"{name}, {runtime}: {reason}", file=sys.stderr)
            cells.append("none")
    return [*cells, *(f"{microseconds(torch_run(files), x):.0f}" for _ in range("torch" in files.a.columns))]


def main() -> None:
    if sys.argv[1:2] == ["--probe"]:
        return probe(sys.argv[2], sys.argv[3], int(sys.argv[4]))
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--bie", type=Path, required=True)
    parser.add_argument("--runtime", type=Path, required=True)
    parser.add_argument("--nets", type=Path, required=True)
    parser.add_argument("--only", default="lenet,vgg-small,resnet20,resnet18")
    parser.add_argument("--batches", default="1,32")
    parser.add_argument("--core", type=int, default=0)
    parser.add_argument("--columns", type=lambda words: words.split(","), default=[*RUNTIMES, "torch"])
    parser.add_argument("--first", action="store_true")
    a = parser.parse_args()
    os.environ["BIE_RUNTIME_LIBRARY"] = str(a.runtime)
    os.sched_setaffinity(0, {a.core})
    with tempfile.TemporaryDirectory() as folder:
        for number, name in enumerate(a.only.split(",")):
            files = Files(Path(folder), name, a)
            if number == 0:
                heads = [head for head, _, _ in columns(files, 1)] + (
                    ["torch float32"] if "torch" in a.columns and not a.first else []
                )
                print("| net | batch | " + " | ".join(heads) + " |")
                print("| --- " * (2 + len(heads)) + "|")
            if a.first:
                print(f"| {name} | 1 | " + " | ".join(first_row(name, files)) + " |", flush=True)
                continue
            for batch in map(int, a.batches.split(",")):
                print(f"| {name} | {batch} | " + " | ".join(time_row(name, files, batch)) + " |", flush=True)
        if a.first:
            sizes = ", ".join(f"{name} {library_bytes(name) / 1e6:.2f}" for name in RUNTIMES)
            print(f"\nMegabytes of the libraries: {sizes}")


if __name__ == "__main__":
    main()
