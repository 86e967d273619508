"""Step sizes from data: what moves and what does not, the rules, codes of weights, folded BatchNorms, reports."""

import copy

import pytest
import torch
from sklearn.datasets import load_digits
from torch import nn

import bie


@pytest.fixture(autouse=True)
def seed():
    torch.manual_seed(0)


def net():
    """With statistics, dropout and a layer of every kind that is calibrated."""
    body = (nn.Conv2d(1, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(), nn.Conv2d(16, 16, 3), nn.ReLU())
    return nn.Sequential(*body, nn.Flatten(2), nn.Conv1d(16, 8, 3), nn.Flatten(), nn.Dropout(0.5), nn.Linear(272, 5))


def images(count=6):
    return [torch.randn(4, 1, 8, 8) for _ in range(count)]


@pytest.mark.parametrize("training", [True, False])
def test_nothing_but_step_sizes_moves(training):
    model = bie.convert(net(), "q8").model.train(training)
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    report = bie.calibrate(model, images())
    assert [layer.name for layer in report.layers] == ["0", "3", "6", "9"]
    moved = [name for name, tensor in model.state_dict().items() if not torch.equal(tensor, before[name])]
    assert moved == ["0.scale_a", "3.scale_a", "6.scale_a", "9.scale_a"]
    assert all(module.training == training for module in model.modules())
    assert all("forward" not in vars(module) for module in model.modules())


def test_rules():
    model = bie.convert(nn.Sequential(nn.Linear(8, 4)), "q4").model
    x = torch.randn(512, 8)
    x[0, 0] = 50.0
    scales = {}
    for method, percentile in (("minmax", 99.9), ("percentile", 100.0), ("percentile", 90.0), ("mse", 99.9)):
        report = bie.calibrate(model, [x], method=method, percentile=percentile)
        scales[method, percentile] = float(model[0].scale_a.detach())
        assert report.layers[0].scale_a == scales[method, percentile]
    assert scales["minmax", 99.9] == scales["percentile", 100.0] == pytest.approx(50 / 7)
    sizes = x.abs().flatten().sort().values
    assert scales["percentile", 90.0] == pytest.approx(float(sizes[round(0.9 * (len(sizes) - 1))]) / 7)
    step = scales["mse", 99.9]

    def changed(by):
        return float(((x / by).round().clamp(-8, 7) * by - x).square().sum())

    assert all(changed(step) <= changed(step * factor) for factor in (0.9, 1.1))


@pytest.mark.parametrize("channel_scale", [True, False])
@pytest.mark.parametrize("target", ["q8", "q4"])
def test_codes_of_weights(target, channel_scale):
    theirs = nn.Sequential(nn.Linear(24, 6)).eval()
    theirs[0].weight.data *= torch.linspace(0.1, 3, 6).unsqueeze(1)
    model, x = bie.convert(theirs, target, inplace=False, channel_scale=channel_scale).model, torch.randn(400, 24)
    report = bie.calibrate(model, x.split(100), codes=True)
    layer = model[0]
    assert layer.weight.dtype == torch.int8
    low, high = (-128, 127) if target == "q8" else (-8, 7)
    assert int(layer.weight.min()) >= low and int(layer.weight.max()) <= high
    opened = layer.weight * layer.scale_w * (layer.channel_scale.unsqueeze(1) if channel_scale else 1)
    bound = {("q8", True): 0.01, ("q8", False): 0.02, ("q4", True): 0.15, ("q4", False): 0.25}[target, channel_scale]
    assert float((opened - theirs[0].weight).norm() / theirs[0].weight.norm()) < bound
    with torch.no_grad():
        shift = (model(x) - theirs(x)).mean(0)
        assert float(shift.abs().max()) < 1e-5, "the mean error of each channel is taken off the bias"
        error = float((model(x) - theirs(x)).norm() / theirs(x).norm())
    assert report.layers[0].error == pytest.approx(error, rel=1e-3)


def test_a_packed_layer_is_calibrated_by_its_codes():
    for make in (bie.nn.Q8Linear, bie.nn.Q4Linear):
        model, x = nn.Sequential(make(9, 4)), torch.randn(64, 9)
        model(x)
        before = model.eval()(x)
        bie.pack(model)
        report = bie.calibrate(model, [x])
        assert float((model(x) - before).norm() / before.norm()) < 0.2 and report.layers[0].error < 0.2


def test_products_of_activations():
    attention = bie.nn.BinaryAttention(16, 2, scores_matmul=bie.nn.Q8MatMul, context_matmul=bie.nn.Q8MatMul)
    report = bie.calibrate(attention, [torch.randn(2, 5, 16)])
    errors = {layer.name: layer.error for layer in report.layers if layer.kind == "Q8MatMul"}
    assert errors.keys() == {"scores_matmul", "context_matmul"} and max(errors.values()) < 0.05


def test_batches_are_tensors_tuples_or_dictionaries():
    class Named(nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = nn.Linear(3, 2)

        def forward(self, pixels):
            return self.linear(pixels)

    x, scales = torch.randn(8, 3), []
    for batch in (x, (x, torch.zeros(8)), [x, 1], {"pixels": x}):
        model = bie.convert(Named(), "q8").model
        bie.calibrate(model, [batch])
        scales.append(float(model.linear.scale_a.detach()))
    assert len(set(scales)) == 1


def test_refusals():
    model = bie.convert(nn.Sequential(nn.Linear(3, 2), nn.Linear(2, 2)), "q8").model
    with pytest.raises(ValueError, match="method: expected 'mse', 'percentile' or 'minmax', got 'best'"):
        bie.calibrate(model, [], method="best")
    with pytest.raises(ValueError, match="percentile: expected a number above 0 and up to 100, got 0"):
        bie.calibrate(model, [], method="percentile", percentile=0)
    with pytest.raises(ValueError, match="the loader has no batch"):
        bie.calibrate(model, [])
    with pytest.raises(ValueError, match="NaN or infinite"):
        bie.calibrate(model, [torch.full((2, 3), float("nan"))])
    assert all("forward" not in vars(module) for module in model.modules())
    model.forward = model[0].forward
    assert bie.calibrate(model, [torch.randn(2, 3)]).skipped[0].reason == "no batch reaches it"


def test_batch_norms_are_folded():
    class Branches(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv, self.norm = nn.Conv2d(2, 4, 3, bias=False), nn.BatchNorm2d(4)
            self.twice, self.after = nn.Conv2d(4, 4, 1), nn.BatchNorm2d(4)
            self.linear, self.last = nn.Linear(4, 3), nn.BatchNorm1d(3)

        def forward(self, x):
            x = self.norm(self.conv(x))
            y = self.twice(x)
            return self.last(self.linear((self.after(y) + y).mean((2, 3))))

    model = Branches()
    for _ in range(3):
        model(torch.randn(8, 2, 5, 5))
    x = torch.randn(3, 2, 5, 5)
    with pytest.raises(ValueError, match="in training"):
        bie.fold_batch_norms(model, x)
    wanted = model.eval()(x)
    assert bie.fold_batch_norms(model, x) == ["conv", "linear"]
    assert isinstance(model.after, nn.BatchNorm2d), "its input has another user"
    torch.testing.assert_close(model(x), wanted, rtol=1e-4, atol=1e-5)


@pytest.fixture(scope="module")
def digits():
    """A float net on digits, its test rows and what it gets right."""
    torch.manual_seed(0)
    data = load_digits()
    x, y = torch.tensor(data.images, dtype=torch.float32).unsqueeze(1) / 16, torch.tensor(data.target)
    order = torch.randperm(len(x))
    train, test = order[:1400], order[1400:]
    body = (nn.Conv2d(1, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(), nn.Conv2d(16, 16, 3), nn.BatchNorm2d(16))
    model = nn.Sequential(*body, nn.ReLU(), nn.Flatten(), nn.Linear(576, 64), nn.ReLU(), nn.Linear(64, 10))
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    for _ in range(6):
        for rows in train.split(100):
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(x[rows]), y[rows]).backward()
            optimizer.step()
    return model.eval(), x[train], x[test], y[test]


def score(model, x, y):
    with torch.no_grad():
        return float((model(x).argmax(1) == y).float().mean())


@pytest.mark.parametrize("method", ["mse", "percentile", "minmax"])
@pytest.mark.parametrize("target", ["q8", "q4"])
def test_post_training_keeps_the_score(digits, target, method):
    model, train, x, y = digits
    before = copy.deepcopy(model.state_dict())
    report = bie.post_training(model, train.split(100), target, method=method, filter=lambda name, _: name != "9")
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert [layer.name for layer in report.layers] == ["0", "3", "7"] and report.skipped[0].name == "9"
    assert not any(isinstance(module, nn.BatchNorm2d) for module in report.model)
    least = score(model, x, y) - (0.01 if target == "q8" else 0.06)
    assert score(report.model, x, y) >= least
    bie.pack(report.model)
    assert score(report.model, x, y) >= least
    assert "3 calibrated, 1 unchanged" in str(report) and "<td>Q" in report._repr_html_()


def test_qat_begins_where_calibration_ends(digits):
    model, train, x, y = digits
    student = bie.prepare_qat(copy.deepcopy(model), "q4", loader=train.split(100))
    assert all(layer.weight_form == "float" for _, layer in bie.nn.quant_layers(student))
    assert score(student, x, y) > 0.7
    assert not student.training


def test_the_loss_of_a_student():
    logits, teacher = torch.randn(4, 3, requires_grad=True), torch.randn(4, 3, requires_grad=True)
    target = torch.tensor([0, 2, 1, 1])
    cross_entropy = nn.functional.cross_entropy(logits, target)
    assert torch.allclose(bie.distillation_loss(logits, teacher, target, alpha=0.0), cross_entropy)
    soft, hard = (logits / 3).log_softmax(-1), (teacher / 3).softmax(-1)
    wanted = 0.25 * cross_entropy + 0.75 * 9 * (hard * (hard.log() - soft)).sum(-1).mean()
    loss = bie.distillation_loss(logits, teacher, target, alpha=0.75, temperature=3.0)
    torch.testing.assert_close(loss, wanted)
    loss.backward()
    assert logits.grad is not None and teacher.grad is None
    with pytest.raises(bie.ShapeError, match=r"logits are \[4, 3\], the teacher's \[2, 3\]"):
        bie.distillation_loss(logits, teacher[:2], target)
    with pytest.raises(ValueError, match=r"alpha and temperature: expected .*, got 2 and 2"):
        bie.distillation_loss(logits, teacher, target, alpha=2)


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize(
    ("make", "shape"),
    [
        (lambda: bie.nn.BinaryLinear(24, 10, bias=True), (64, 24)),
        (lambda: bie.nn.BinaryConv2d(6, 5, 3), (8, 6, 9, 9)),
        (lambda: bie.nn.BinaryConv2d(6, 5, 3, padding=1, padding_value=0), (8, 6, 9, 9)),
    ],
)
def test_layers_of_signs_get_the_scale_that_brings_them_nearest_to_floats(make, shape, packed):
    torch.manual_seed(3)
    layer = make()
    x = torch.randn(shape)
    layer(x)  # prepared
    weight = layer.weight.detach().sign() * layer.scale_w.detach()
    if packed:
        bie.pack(layer)
    plain = torch.nn.functional.linear if weight.dim() == 2 else torch.nn.functional.conv2d
    padding = {} if weight.dim() == 2 else {"padding": layer.padding}
    wanted = plain(x, weight, layer.bias, **padding).detach()
    report = bie.calibrate(layer, [x])
    assert [(entry.kind, entry.clipped) for entry in report.layers] == [(type(layer).__name__, 0.0)]
    with torch.no_grad():
        errors = []
        best = float(layer.scale_a)
        for factor in (0.9, 1.0, 1.1):
            layer.scale_a.fill_(best * factor)
            errors.append(float((layer.eval()(x) - wanted).square().mean()))
    assert errors[1] < min(errors[0], errors[2])
    assert report.layers[0].error == pytest.approx((errors[1] / float(wanted.square().mean())) ** 0.5, rel=0.01)


def test_a_model_of_signs_is_calibrated_past_its_first_batch():
    torch.manual_seed(0)
    model = bie.convert(
        torch.nn.Sequential(torch.nn.Linear(16, 16), torch.nn.ReLU(), torch.nn.Linear(16, 4)), "binary"
    ).model
    small, usual = 0.01 * torch.randn(64, 16), torch.randn(64, 16)
    bie.calibrate(model, [small, usual, usual, usual])
    first = float(model[0].scale_a.detach())
    assert 0.3 < first < 3, "of the usual batches, and not of the first"


@pytest.mark.parametrize("target", ["q8", "q4"])
def test_a_calibrated_student_trains_in_a_graph_at_once(target):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 4))
    x = torch.randn(16, 8)
    student = bie.prepare_qat(model, target, loader=[x]).train()
    twin = copy.deepcopy(student)
    torch.compile(student, fullgraph=True, backend="aot_eager")(x).square().mean().backward()
    twin(x).square().mean().backward()
    torch.testing.assert_close(student[0].weight.grad, twin[0].weight.grad)
