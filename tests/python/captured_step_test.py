"""``bie.CapturedStep`` trains as a loop written out does, on the CPU and, from a graph, on CUDA."""

import copy

import pytest
import torch
from torch import nn

import bie

DEVICES = [
    "cpu",
    pytest.param("cuda", marks=pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")),
]


def net():
    torch.manual_seed(3)
    return nn.Sequential(
        bie.nn.BinaryConv2d(3, 16, 3, padding=1),
        nn.BatchNorm2d(16),
        nn.PReLU(),
        bie.nn.Q8Conv2d(16, 8, 3, padding=1),
        nn.ReLU(),
        nn.Flatten(),
        bie.nn.Q4Linear(8 * 36, 24),
        nn.ReLU(),
        bie.nn.BinaryLinear(24, 5),
    )


def batches(count, device):
    torch.manual_seed(4)
    sizes = [12] * (count - 1) + [7]
    return [(torch.randn(n, 3, 6, 6).to(device), torch.randint(0, 5, (n,)).to(device)) for n in sizes]


def optimizer_of(model):
    return bie.optim.DiodeMix(model.parameters(), lr=1e-2, betas=(0.9, 0.99))


@pytest.mark.parametrize("device", DEVICES)
def test_it_trains_as_the_loop_does(device):
    plain = net().to(device)
    captured = copy.deepcopy(plain)
    optimizers = [optimizer_of(model) for model in (plain, captured)]
    schedulers = [torch.optim.lr_scheduler.StepLR(optimizer, 2, 0.5) for optimizer in optimizers]
    step = bie.CapturedStep(lambda x, y: nn.functional.cross_entropy(captured(x), y), optimizers[1])
    epoch = batches(6, device)
    for x, y in epoch + epoch:
        optimizers[0].zero_grad()
        wanted = nn.functional.cross_entropy(plain(x), y)
        wanted.backward()
        optimizers[0].step()
        loss = step(x, y)
        assert not loss.requires_grad
        torch.testing.assert_close(loss, wanted.detach())
        for scheduler in schedulers:
            scheduler.step()
    for (name, theirs), ours in zip(plain.state_dict().items(), captured.state_dict().values(), strict=True):
        if not isinstance(theirs, torch.Tensor):
            continue
        if theirs.is_floating_point():
            torch.testing.assert_close(ours, theirs, msg=name)
        else:
            assert torch.equal(ours, theirs), name
    assert {float(state["step"]) for state in optimizers[1].state.values()} == {12.0}


@pytest.mark.parametrize("device", DEVICES)
def test_a_cleared_gradient_does_not_matter(device):
    model = net().to(device)
    optimizer = optimizer_of(model)
    step = bie.CapturedStep(lambda x, y: nn.functional.cross_entropy(model(x), y), optimizer)
    (x, y), *_ = batches(2, device)
    before = {name: p.detach().clone() for name, p in model.named_parameters()}
    for _ in range(6):
        loss = step(x, y)
        optimizer.zero_grad()
    assert loss.isfinite()
    assert all(not torch.equal(p, before[name]) for name, p in model.named_parameters() if p.dtype != torch.int8)


def test_arguments_are_tensors():
    model = net()
    step = bie.CapturedStep(lambda batch: model(batch["x"]).sum(), optimizer_of(model))
    with pytest.raises(TypeError, match="expected arguments that are tensors, got a dict"):
        step({"x": torch.zeros(1, 3, 6, 6)})


class PretendsToBeThere(torch.Tensor):
    is_cuda = True


def test_the_batch_that_is_captured_is_one_of_the_size_before(monkeypatch):
    """Not a last batch of few, which would leave all others eager."""
    done = []
    step = bie.CapturedStep(None, torch.optim.SGD([nn.Parameter(torch.zeros(1))]))
    monkeypatch.setattr(step, "_beside", lambda inputs: done.append("eager"))

    def capture(inputs):
        done.append(f"captures {len(inputs[0])}")
        raise KeyboardInterrupt

    monkeypatch.setattr(step, "_capture", capture)
    for size in (8, 8, 8, 3, 8):
        step(torch.zeros(size).as_subclass(PretendsToBeThere))
    with pytest.raises(KeyboardInterrupt):
        step(torch.zeros(8).as_subclass(PretendsToBeThere))
    assert done == ["eager"] * 5 + ["captures 8"]


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_what_is_trained_may_not_change():
    model = net().cuda()
    step = bie.CapturedStep(lambda x, y: nn.functional.cross_entropy(model(x), y), optimizer_of(model))
    (x, y), *_ = batches(2, "cuda")
    for _ in range(5):
        step(x, y)
    model[1].weight.requires_grad_(False)
    with pytest.raises(RuntimeError, match="make a new one"):
        step(x, y)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_a_loss_that_waits_is_refused():
    model = net().cuda()
    step = bie.CapturedStep(lambda x, y: nn.functional.cross_entropy(model(x), y) * float(x.sum()), optimizer_of(model))
    (x, y), *_ = batches(2, "cuda")
    for _ in range(3):
        step(x, y)
    with pytest.raises(RuntimeError):
        step(x, y)
