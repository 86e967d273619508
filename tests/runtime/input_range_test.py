"""What a net of an ONNX file makes of pictures, by what bie import was told of its input."""

import json

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper
from PIL import Image


@pytest.fixture
def model(tmp_path):
    """Means of three channels after a convolution with a border, so that what comes first is seen at the edges."""
    rng = np.random.default_rng(3)
    weight = rng.standard_normal((4, 3, 3, 3)).astype(np.float32)
    graph = helper.make_graph(
        [
            helper.make_node("Conv", ["x", "w"], ["c"], pads=[1, 1, 1, 1]),
            helper.make_node("GlobalAveragePool", ["c"], ["m"]),
            helper.make_node("Flatten", ["m"], ["y"]),
        ],
        "net",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 3, 6, 5])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n", 4])],
        [numpy_helper.from_array(weight, "w")],
    )
    path = tmp_path / "model.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    return path


@pytest.fixture
def picture(tmp_path):
    pixels = np.random.default_rng(5).integers(0, 256, (6, 5, 3), dtype=np.uint8)
    path = tmp_path / "picture.png"
    Image.fromarray(pixels).save(path)
    return path, pixels.transpose(2, 0, 1)[None].astype(np.float32)


MEAN, STD = [0.485, 0.456, 0.406], [0.229, 0.224, 0.225]


@pytest.mark.parametrize(
    ("options", "kind", "values"),
    [
        ([], "any", lambda x: x / 255),
        (["--input-range", "unit"], "unit", lambda x: x / 255),
        (["--input-range", "bytes"], "bytes", lambda x: x),
        (["--mean", "0.485,0.456,0.406", "--std", "0.229,0.224,0.225"], "unit",
         lambda x: (x / 255 - np.array(MEAN)[:, None, None]) / np.array(STD)[:, None, None]),
        (["--input-range", "bytes", "--mean", "127.5", "--std", "64"], "bytes", lambda x: (x - 127.5) / 64),
    ],
)  # fmt: skip
def test_pixels_become_what_the_model_takes(command, answer, tmp_path, model, picture, options, kind, values):
    path, pixels = picture
    net = tmp_path / "net.bie"
    assert answer("import", model, "-o", net, *options)["input_range"] == kind
    assert answer("inspect", net)["input_range"] == kind
    session = onnxruntime.InferenceSession(str(model), providers=["CPUExecutionProvider"])
    (wanted,) = session.run(None, {"x": values(pixels).astype(np.float32)})
    np.testing.assert_allclose(answer("run", net, "--input", path)["logits"], wanted, rtol=1e-4, atol=1e-4)
    guesses = json.loads(command("predict", net, path, "--json", "--top", "1").stdout)["predictions"][0]["guesses"]
    assert guesses[0]["class"] == str(int(wanted.argmax()))


@pytest.mark.parametrize("range_", ["unit", "bytes"])
def test_calibration_sees_the_same_values(answer, tmp_path, model, picture, range_):
    path, pixels = picture
    net = tmp_path / "net.bie"
    answer("import", model, "-o", net, "--input-range", range_, "--bits", 8, "--first", 8, "--last", 8, "--calib", path)
    session = onnxruntime.InferenceSession(str(model), providers=["CPUExecutionProvider"])
    (wanted,) = session.run(None, {"x": pixels / (255 if range_ == "unit" else 1)})
    found = np.array(answer("run", net, "--input", path)["logits"])
    assert np.abs(found - wanted).max() < 0.05 * np.abs(wanted).max()


@pytest.mark.parametrize(
    ("options", "code", "sentence"),
    [
        (["--input-range", "raw"], 2, "--input-range"),
        (["--mean", "1,2"], 3, "expected 1 or 3 numbers of mean, one per channel, got 2"),
        (["--std", "1,0,1"], 3, "expected a std above 0, got 0"),
        (["--std", "nan"], 3, "not finite"),
    ],
)
def test_what_cannot_be_is_told(command, tmp_path, model, options, code, sentence):
    done = command("import", model, "-o", tmp_path / "net.bie", *options)
    assert done.returncode == code and sentence in done.stderr, done
    assert not (tmp_path / "net.bie").exists()
