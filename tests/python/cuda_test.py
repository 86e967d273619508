"""The Python layers and DiodeMix on a GPU: what they compute there is what they compute on the CPU."""

import copy

import pytest
import torch
from kinds import KINDS

from bie.optim import DiodeMix

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
every_kind = pytest.mark.parametrize("kind", KINDS, ids=repr)


def equal(ours, cpu):
    assert ours.is_cuda and torch.equal(ours.cpu(), cpu)


@every_kind
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_evaluation_is_the_cpus(kind, dtype):
    layer = kind.trained().eval()
    x = kind.batch(1).to(dtype)
    with torch.no_grad():
        wanted = layer(x)
        moved = copy.deepcopy(layer).cuda()
        equal(moved(x.cuda()), wanted)
        equal(moved(x.cuda()), wanted)  # from panels that are there by now
        assert torch.equal(moved.cpu()(x), wanted)  # and back
        there = copy.deepcopy(layer)
        there.generate_quantized_weight(qweight_only=True)
        equal(there.cuda()(x.cuda()), wanted)


@every_kind
def test_a_layer_made_on_the_gpu(kind):
    layer = kind.make(device="cuda")
    y = layer(kind.batch().cuda())
    assert y.is_cuda and y.isfinite().all()
    assert all(t.is_cuda for t in layer.state_dict().values() if isinstance(t, torch.Tensor))
    y.sum().backward()


@every_kind
def test_training_forward_is_the_cpus_and_gradients_are_near(kind):
    ours, theirs = kind.trained(), kind.trained().cuda()
    x = kind.batch(2)
    grads = []
    for layer, batch in ((ours, x), (theirs, x.cuda())):
        batch = batch.requires_grad_()
        y = layer(batch)
        (y * torch.linspace(-1, 1, y.numel(), device=y.device).view(y.shape)).sum().backward()
        found = {"x": batch.grad} | {name: p.grad for name, p in layer.named_parameters() if p.grad is not None}
        grads.append((y.detach(), found))
    equal(grads[1][0], grads[0][0])
    assert grads[0][1].keys() == grads[1][1].keys()
    for name, wanted in grads[0][1].items():
        found = grads[1][1][name].cpu()
        if wanted.dtype == torch.int8:
            assert (found.int() - wanted.int()).abs().max() <= 1, name
        else:
            torch.testing.assert_close(found, wanted, rtol=1e-5, atol=1e-5 * float(wanted.abs().max()) + 1e-12)


@every_kind
def test_diode_mix_trains_it(kind):
    layer = kind.trained().cuda()
    optimizer = DiodeMix(layer.parameters(), lr=1e-2)
    before = {name: p.detach().clone() for name, p in layer.named_parameters()}
    x = kind.batch(3).cuda()
    for _ in range(3):
        optimizer.zero_grad()
        layer(x).square().sum().backward()
        optimizer.step()
    moved = [name for name, p in layer.named_parameters() if not torch.equal(p, before[name])]
    assert moved or not kind.integer
    moments = [t for state in optimizer.state.values() for key, t in state.items() if key.startswith("exp_avg")]
    assert moments and all(t.is_cuda for t in moments)


@every_kind
def test_steps_are_the_cpus(kind):
    """Given gradients, every parameter and moment moves as it does on the CPU, to the bit."""
    ours, theirs = kind.trained(), kind.trained().cuda()
    optimizers = [DiodeMix(layer.parameters(), lr=1e-2) for layer in (ours, theirs)]
    for step in range(3):
        for index, (p, q) in enumerate(zip(ours.parameters(), theirs.parameters(), strict=True)):
            r = torch.Generator().manual_seed(100 * step + index)
            if p.is_floating_point():
                grad = torch.randn(p.shape, generator=r).to(p.dtype)
            else:
                grad = torch.randint(-127, 128, p.shape, generator=r).to(torch.int8)
            p.grad, q.grad = grad, grad.cuda()
        for optimizer in optimizers:
            optimizer.step()
    for (name, p), q in zip(ours.named_parameters(), theirs.parameters(), strict=True):
        assert torch.equal(q.cpu(), p.detach()), name


@every_kind
def test_evaluation_compiles_and_is_captured(kind):
    layer = kind.trained().cuda().eval()
    x = kind.batch(4).cuda()
    with torch.no_grad():
        wanted = layer(x)
        assert torch.equal(torch.compile(layer)(x), wanted)
        side = torch.cuda.Stream()
        with torch.cuda.stream(side):
            layer(x)
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            y = layer(x)
        y.zero_()
        graph.replay()
        torch.cuda.synchronize()
        assert torch.equal(y, wanted)


@every_kind
def test_training_does_not_wait_for_the_device(kind):
    layer = kind.trained().cuda()
    x, y = kind.batch(5).cuda(), None

    def step():
        nonlocal y
        for p in layer.parameters():
            p.grad = None
        y = layer(x)
        y.backward(torch.ones_like(y))

    for _ in range(2):
        step()
    torch.cuda.synchronize()
    torch.cuda.set_sync_debug_mode("error")
    try:
        step()
    finally:
        torch.cuda.set_sync_debug_mode("default")


@every_kind
def test_autocast_hands_16_bits_on(kind):
    layer = kind.trained().cuda().eval()
    with torch.autocast("cuda", dtype=torch.bfloat16), torch.no_grad():
        x = (
            (kind.batch(6).cuda() @ torch.eye(kind.shape[-1], device="cuda"))
            if len(kind.shape) < 4
            else kind.batch(6).cuda()
        )
        y = layer(x)
    assert y.dtype == (x.dtype if layer.scale_a is not None else torch.float32)


def test_two_devices_are_a_sentence():
    kind = next(k for k in KINDS if k.name == "q8")
    layer = kind.trained()
    with pytest.raises(ValueError, match="cuda:0"):
        layer.eval()(kind.batch().cuda())
