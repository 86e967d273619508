"""Nets as torch's exporters of today write them, both ways, beside onnxruntime; nets of onnxruntime's quantiser."""

import numpy as np
import pytest

onnx = pytest.importorskip("onnx", reason="there is no onnx (pip install onnx)")
onnxruntime = pytest.importorskip("onnxruntime", reason="there is no onnxruntime (pip install onnxruntime)")
torch = pytest.importorskip("torch", reason="there is no torch")
pytest.importorskip("onnxscript", reason="there is no onnxscript (pip install onnxscript)")

from onnx_models import exact_session  # noqa: E402
from torch import nn  # noqa: E402


def conv(cin, cout, kernel=3, stride=1, groups=1, act=nn.ReLU):
    layers = [nn.Conv2d(cin, cout, kernel, stride, kernel // 2, groups=groups, bias=False), nn.BatchNorm2d(cout)]
    return nn.Sequential(*layers, *([act()] if act else []))


def head(channels, classes=5):
    return nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, classes))


class Residual(nn.Module):
    def __init__(self, body, shortcut=None, act=None):
        super().__init__()
        self.body, self.shortcut, self.act = body, shortcut or nn.Identity(), act or nn.Identity()

    def forward(self, x):
        return self.act(self.body(x) + self.shortcut(x))


class Dense(nn.Module):
    def __init__(self, body):
        super().__init__()
        self.body = body

    def forward(self, x):
        return torch.cat([x, self.body(x)], 1)


class SqueezeExcite(nn.Module):
    def __init__(self, channels, act, gate):
        super().__init__()
        self.gate = nn.Sequential(
            nn.AdaptiveAvgPool2d(1), nn.Conv2d(channels, 4, 1), act(), nn.Conv2d(4, channels, 1), gate()
        )

    def forward(self, x):
        return x * self.gate(x)


class Halves(nn.Module):
    """Both halves of the channels, one of them through a gate: chunk and slices."""

    def forward(self, x):
        one, two = x.chunk(2, 1)
        return one * torch.sigmoid(two[:, :, 0:, :])


class Largest(nn.Module):
    def forward(self, x):
        return x.amax((2, 3))


def inverted(cin, cout, act, stride=1, excite=None):
    wide = 3 * cin
    body = [conv(cin, wide, 1, act=act), conv(wide, wide, 3, stride, wide, act)]
    body = nn.Sequential(*body, *([excite(wide)] if excite else []), conv(wide, cout, 1, act=None))
    return Residual(body) if cin == cout and stride == 1 else body


NETS = {
    "MLP": ((20,), lambda: nn.Sequential(nn.Linear(20, 32), nn.BatchNorm1d(32), nn.ReLU(), nn.Linear(32, 5))),
    "LeNet": ((1, 12, 12), lambda: nn.Sequential(
        nn.Conv2d(1, 6, 5, padding=2), nn.Tanh(), nn.AvgPool2d(2), nn.Conv2d(6, 8, 3), nn.Tanh(), nn.Flatten(),
        nn.Linear(8 * 16, 16), nn.Tanh(), nn.Dropout(), nn.Linear(16, 5), nn.Softmax(1))),
    "VGG": ((3, 16, 16), lambda: nn.Sequential(
        conv(3, 8), conv(8, 8), nn.MaxPool2d(2), conv(8, 16), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(256, 5))),
    "ResNet": ((3, 16, 16), lambda: nn.Sequential(
        conv(3, 8, 7, 2), nn.MaxPool2d(3, 2, 1),
        Residual(nn.Sequential(conv(8, 8), conv(8, 8, act=None)), act=nn.ReLU()),
        Residual(nn.Sequential(conv(8, 16, 3, 2), conv(16, 16, act=None)), conv(8, 16, 1, 2, act=None), nn.ReLU()),
        head(16))),
    "MobileNetV2": ((3, 16, 16), lambda: nn.Sequential(
        conv(3, 8, act=nn.ReLU6), inverted(8, 8, nn.ReLU6), inverted(8, 12, nn.ReLU6, 2), head(12))),
    "MobileNetV3": ((3, 16, 16), lambda: nn.Sequential(
        conv(3, 8, act=nn.Hardswish),
        inverted(8, 8, nn.Hardswish, excite=lambda c: SqueezeExcite(c, nn.ReLU, nn.Hardsigmoid)), head(8))),
    "EfficientNet": ((3, 16, 16), lambda: nn.Sequential(
        conv(3, 8, act=nn.SiLU), inverted(8, 8, nn.SiLU, excite=lambda c: SqueezeExcite(c, nn.SiLU, nn.Sigmoid)),
        head(8))),
    "DenseNet": ((3, 16, 16), lambda: nn.Sequential(
        conv(3, 8), Dense(conv(8, 4)), Dense(conv(12, 4)), nn.AvgPool2d(2), conv(16, 8, 1), head(8))),
    "table": ((20,), lambda: nn.Sequential(
        nn.Linear(20, 32), nn.LayerNorm(32), nn.GELU(), nn.Linear(32, 16), nn.ELU(), nn.Linear(16, 8), nn.Tanh(),
        nn.LayerNorm(8), nn.GELU(approximate="tanh"), nn.Linear(8, 5))),
    "curves": ((4, 6, 5), lambda: nn.Sequential(
        conv(4, 8, act=nn.Softplus), conv(8, 8, act=nn.Softplus),
        nn.LayerNorm(5), nn.LayerNorm([6, 5]), head(8))),
    "gated": ((4, 8, 8), lambda: nn.Sequential(conv(4, 16), Halves(), nn.PReLU(8), Largest(), nn.Linear(8, 5))),
}  # fmt: skip


def made(name):
    """A net with weights and statistics of a net that was trained, and four inputs."""
    torch.manual_seed(list(NETS).index(name))
    sizes, make = NETS[name]
    net = make()
    with torch.no_grad():
        for _ in range(3):
            net(torch.randn(16, *sizes))
    return net.eval(), torch.randn(4, *sizes)


@pytest.fixture
def imported(command, bie_runtime, tmp_path):
    def run(path, x, *options):
        done = command("import", path, "-o", tmp_path / "net.bie", *options)
        assert done.returncode == 0, done.stderr
        session = exact_session(str(path))
        (wanted,) = session.run(None, {session.get_inputs()[0].name: x.numpy()})
        found = bie_runtime.Net(tmp_path / "net.bie", max_batch=4).run(x.numpy())
        return found, wanted.reshape(found.shape)

    return run


@pytest.mark.parametrize("name", NETS)
@pytest.mark.parametrize("dynamo", [True, False])
@pytest.mark.filterwarnings("ignore")
def test_a_net_as_torch_writes_it(imported, tmp_path, name, dynamo):
    net, x = made(name)
    path = tmp_path / "n.onnx"
    if dynamo:  # as it is: weights in n.onnx.data
        torch.onnx.export(net, (x,), path, verbose=False)
        assert (tmp_path / "n.onnx.data").exists()
    else:
        torch.onnx.export(net, (x,), path, dynamo=False, dynamic_axes={"x": {0: "n"}}, input_names=["x"])
    found, wanted = imported(path, x)
    assert np.abs(found - wanted).max() <= 2e-5 * max(1, np.abs(wanted).max())


@pytest.mark.parametrize("name", ["VGG", "ResNet", "MobileNetV2", "DenseNet", "MLP", "EfficientNet"])
@pytest.mark.parametrize("form", ["QDQ", "QOperator"])
@pytest.mark.filterwarnings("ignore")
def test_a_net_as_onnxruntime_quantises_it(imported, tmp_path, name, form):
    from onnxruntime.quantization import CalibrationDataReader, QuantFormat, QuantType, quantize_static

    net, x = made(name)
    path, coded = tmp_path / "n.onnx", tmp_path / "q.onnx"
    torch.onnx.export(net, (x,), path, dynamo=False, dynamic_axes={"x": {0: "n"}}, input_names=["x"], opset_version=17)

    class Reader(CalibrationDataReader):
        def __init__(self):
            self.batches = iter([{"x": x.numpy()}])

        def get_next(self):
            return next(self.batches, None)

    of_codes = form == "QOperator"
    quantize_static(
        str(path), str(coded), Reader(), quant_format=QuantFormat[form], per_channel=name != "MLP",
        activation_type=QuantType.QUInt8 if of_codes else QuantType.QInt8, weight_type=QuantType.QInt8,
    )  # fmt: skip
    kinds = {node.op_type for node in onnx.load(coded).graph.node}
    assert ("QLinearConv" in kinds or "QGemm" in kinds) == of_codes, kinds
    found, wanted = imported(coded, x)
    assert np.abs(found - wanted).max() <= 0.06 * np.abs(wanted).max(), "a code may differ by one step"
