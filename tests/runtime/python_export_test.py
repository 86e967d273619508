"""bie.export: nets of modules that were made in Python, run by the runtime."""

import os
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn


@pytest.fixture(scope="session")
def bie_package(library, build):
    if not (build / "src/ops").exists():
        pytest.skip("this build has no operators")
    os.environ["BIE_OPS_LIBRARY"] = library
    sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "python"))
    import bie

    return bie


class Residual(nn.Module):
    def __init__(self, conv, channels):
        super().__init__()
        self.conv, self.norm, self.act = conv, nn.BatchNorm2d(channels), nn.ReLU()

    def forward(self, x):
        return self.act(self.norm(self.conv(x)) + x)


def model_of(bie, bits: int) -> nn.Sequential:
    layers = {
        1: (bie.nn.BinaryLinear, bie.nn.BinaryConv2d),
        4: (bie.nn.Q4Linear, bie.nn.Q4Conv2d),
        8: (bie.nn.Q8Linear, bie.nn.Q8Conv2d),
    }
    linear, conv = layers[bits]
    return nn.Sequential(
        nn.Conv2d(2, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(),
        conv(8, 8, 3, padding=1), nn.BatchNorm2d(8), nn.PReLU(), nn.MaxPool2d(2),
        Residual(conv(8, 8, 3, padding=1), 8),
        conv(8, 16, 3, stride=2), nn.BatchNorm2d(16),
        conv(16, 12, 1), nn.LeakyReLU(0.1), nn.Flatten(), nn.Dropout(),
        linear(12 * 16, 20), nn.BatchNorm1d(20), nn.ReLU(), linear(20, 5), nn.Softmax(dim=1),
    )  # fmt: skip


@pytest.fixture(params=[1, 4, 8])
def trained(bie_package, request):
    torch.manual_seed(request.param)
    model = model_of(bie_package, request.param)
    for _ in range(4):
        model(torch.randn(16, 2, 18, 18))
    return model.eval()


def test_a_net_gives_what_its_module_gives(bie_package, bie_runtime, trained, tmp_path):
    x = torch.randn(64, 2, 18, 18)
    data = bie_package.export(trained, x[:3], tmp_path / "net.bie", class_names="abcde")
    assert (tmp_path / "net.bie").read_bytes() == data
    net = bie_runtime.Net(tmp_path / "net.bie")
    assert net.class_names == list("abcde")
    with torch.no_grad():
        wanted = trained(x).numpy()
    # torch's BatchNorm and sums may move a value across the middle between two codes.
    equal = np.isclose(net.run(x.numpy()), wanted, rtol=1e-5, atol=1e-6).all(axis=1)
    assert equal.mean() >= 0.9


def test_names_of_classes_are_what_they_were(bie_package, bie_runtime, tmp_path):
    for names in (["class\na", "b"], ["", "b"], ["a\\n", 'say "b"']):
        bie_package.export(nn.Linear(3, 2).eval(), torch.randn(1, 3), tmp_path / "net.bie", class_names=names)
        assert bie_runtime.Net(tmp_path / "net.bie").class_names == names


def test_nothing_but_integers_is_equal_to_the_bit(bie_package, bie_runtime):
    nn_ = bie_package.nn
    for layers in ([nn_.Q8Linear(33, 17), nn_.Q4Linear(17, 9)], [nn_.BinaryLinear(70, 31), nn_.BinaryLinear(31, 4)]):
        model = nn.Sequential(layers[0], nn.ReLU(), layers[1])
        x = torch.randn(50, layers[0].in_features)
        model(x)
        model.eval()
        net = bie_runtime.Net(bie_package.export(model, x))
        with torch.no_grad():
            assert np.array_equal(net.run(x.numpy()), model(x).numpy())


@pytest.mark.parametrize("numbers", [(3, 2, 1), (2, 1), ((3, 2), (1, 2)), (20,)])
def test_max_pools_of_any_window(bie_package, bie_runtime, numbers):
    pool, x = nn.MaxPool2d(*numbers), torch.randn(3, 4, 22, 21)
    net = bie_runtime.Net(bie_package.export(pool.eval(), x))
    assert np.array_equal(net.run(x.numpy()).reshape(pool(x).shape), pool(x).numpy())


def test_the_passes_between_layers_are_few(bie_package, bie_runtime, trained):
    lines = bie_runtime.Net(bie_package.export(trained, torch.randn(1, 2, 18, 18))).summary.splitlines()
    assert len(lines) <= 14
    if any("of 1 bits" in line for line in lines):
        assert sum("threshold" in line for line in lines) >= 2


@pytest.mark.parametrize(
    ("make", "example", "says"),
    [
        (lambda: nn.Sequential(nn.Linear(4, 4), nn.GELU()), torch.randn(1, 4), "gelu"),
        (lambda: nn.MaxPool2d(3, 2, ceil_mode=True), torch.randn(1, 1, 8, 8), "rounds its sizes up"),
        (lambda: nn.PReLU(3), torch.randn(1, 3, 4, 4), "one slope"),
        (lambda: nn.Linear(4, 4).train(), torch.randn(1, 4), "eval"),
        (lambda: nn.Linear(4, 4), torch.randn(4), "float32"),
        (lambda: nn.Linear(4, 4), "x", "no tensor"),
    ],
)
def test_what_has_no_node_is_named_and_nothing_written(bie_package, tmp_path, make, example, says):
    module = make()
    if "eval" not in says:
        module.eval()
    with pytest.raises(ValueError, match=f"bie.export: .*{says}"):
        bie_package.export(module, example, tmp_path / "net.bie")
    assert not (tmp_path / "net.bie").exists()


def test_a_layer_without_a_step_size_is_refused(bie_package):
    with pytest.raises(ValueError, match="not trained"):
        bie_package.export(bie_package.nn.Q8Linear(4, 4).eval(), torch.randn(1, 4))


@pytest.mark.parametrize("count", [0, 3])
def test_lists_that_are_no_net_are_refused(bie_package, count):
    with pytest.raises(ValueError, match="net_bytes"):
        torch.ops.bie.net_bytes(["linear"], [0], [], [], [], [1, count, 0, 0], [4], [1], [], [])


class Sum(nn.Module):
    """A convolution of 8 channels, and what is done with a constant."""

    def __init__(self, act, shape):
        super().__init__()
        self.conv, self.act = nn.Conv2d(2, 8, 3, padding=1), act
        self.constant = nn.Parameter(torch.randn(shape))

    def forward(self, x):
        return self.act(self.conv(x), self.constant)


class Calls(nn.Module):
    """A function of features or images, with a layer before it."""

    def __init__(self, function, layer):
        super().__init__()
        self.function, self.layer = function, layer

    def forward(self, x):
        return self.function(self.layer(x))


def same_or_refused(bie, runtime, model, example, path, x):
    """Whether the module is lowered, to what it computes; or the refusal's words."""
    try:
        bie.export(model.eval(), example, path)
    except ValueError as error:
        assert "bie.export: " in str(error) and not path.exists()
        return str(error)
    with torch.no_grad():
        wanted = model(x).flatten(1).numpy()
    np.testing.assert_allclose(runtime.Net(path).run(x.numpy()).reshape(len(x), -1), wanted, rtol=1e-4, atol=1e-5)
    return "lowered"


SHAPES = [(8,), (8, 1), (1, 8), (8, 8), (8, 1, 1), (1, 8, 1), (1, 1, 8), (1, 8, 1, 1), (1, 1, 8, 1)]
SHAPES += [(1, 1, 1, 8), (1,), (1, 1), (), (1, 1, 8, 1, 1)]


@pytest.mark.parametrize("act", [torch.add, torch.mul, lambda x, p: p + x, lambda x, p: p * x])
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("batch", [1, 8])
def test_a_constant_is_one_of_the_channels_or_refused(bie_package, bie_runtime, act, shape, batch, tmp_path):
    torch.manual_seed(0)
    x = torch.randn(3, 2, 8, 8)
    found = same_or_refused(bie_package, bie_runtime, Sum(act, shape), torch.randn(batch, 2, 8, 8), tmp_path / "n", x)
    channels = shape in [(8, 1, 1), (1, 8, 1, 1), (1,), (1, 1), ()]
    assert found == "lowered" if channels else "of the channels" in found


F = nn.functional
CALLS = {
    "dropout": (lambda x: F.dropout(x, 0.5, training=True), False),
    "dropout in evaluation": (lambda x: F.dropout(x, 0.5, training=False), True),
    "dropout of nothing": (lambda x: F.dropout(x, 0.0, training=True), True),
    "other rows": (lambda x: x.view(-1, 4), False),
    "the rows": (lambda x: x.view(-1, 8), True),
    "a flat batch": (lambda x: x.reshape(x.shape[0], -1), True),
    "softmax": (lambda x: x.softmax(-1), True),
    "relu in place": (lambda x: (x.relu_(), x)[1], True),
    "added in place": (lambda x: x.add_(torch.ones(8)) + x, True),
    "in place through a view": (lambda x: (x.view(-1, 8).relu_(), x)[1], False),
    "a view of what changes": (lambda x: [x.view(-1, 8), x.relu_()][0], False),
    "sums of other shapes": (lambda x: x.view(-1, 8) + x[:, :1], False),
}


@pytest.mark.parametrize("name", CALLS)
@pytest.mark.parametrize("batch", [1, 2])
def test_calls_on_features_are_lowered_right_or_refused(bie_package, bie_runtime, name, batch, tmp_path):
    torch.manual_seed(0)
    function, lowered = CALLS[name]
    model = Calls(function, nn.Linear(5, 8))
    found = same_or_refused(bie_package, bie_runtime, model, torch.randn(batch, 5), tmp_path / "n", torch.randn(6, 5))
    assert (found == "lowered") == lowered, found


IMAGES = {
    "a linear along rows": (nn.Linear(6, 3), False),
    "softmax of channels": (nn.Softmax(dim=1), False),
    "softmax of rows": (nn.Softmax(dim=-1), False),
    "softmax of means": (nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Softmax(dim=1)), True),
    "softmax of one number": (nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Softmax(dim=-1)), False),
    "a sum with means": (lambda x: x + x.mean((2, 3), keepdim=True), False),
    "same border": (nn.Conv2d(8, 4, 3, padding="same", dilation=2), True),
    "no border": (nn.Conv2d(8, 4, 3, padding="valid"), True),
    "uneven border": (nn.Conv2d(8, 4, 2, padding="same"), False),
    "flat": (nn.Flatten(), True),
    "half flat": (nn.Flatten(2), False),
    "flat by a view": (lambda x: x.view(-1, 8 * 36), True),
    "pixels as rows": (lambda x: x.view(-1, 36), False),
}


@pytest.mark.parametrize("name", IMAGES)
@pytest.mark.parametrize("batch", [1, 2])
def test_calls_on_images_are_lowered_right_or_refused(bie_package, bie_runtime, name, batch, tmp_path):
    torch.manual_seed(0)
    function, lowered = IMAGES[name]
    model = Calls(function, nn.Conv2d(2, 8, 3, padding=1))
    x = torch.randn(3, 2, 6, 6)
    found = same_or_refused(bie_package, bie_runtime, model, torch.randn(batch, 2, 6, 6), tmp_path / "n", x)
    assert (found == "lowered") == lowered, found
