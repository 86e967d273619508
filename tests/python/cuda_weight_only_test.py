"""Weight-only layers and embeddings on a GPU against the CPU: outputs, gradients, steps."""

import copy

import pytest
import torch
from mpq_cases import EXL2, generator, mixed, mpq

import bie
from bie.nn import BinaryEmbedding, BinaryEmbeddingBag, WeightOnlyEmbedding

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")


def linears():
    for bits in (1, 2, 3, 4, 5, 6, 8):
        for form in ("gptq", "gba", "gba_asym"):
            yield f"{form}-{bits}", lambda bits=bits, form=form: mpq(100, 45, bits, 24, form, bits, disable_bias=False)
    yield "exl2", lambda: mixed(EXL2, 24)[0]


@pytest.mark.parametrize("make", [pytest.param(make, id=name) for name, make in linears()])
def test_a_linear_is_that_of_the_cpu(make):
    cpu = make()
    gpu = copy.deepcopy(cpu).cuda()
    x = torch.randn(3, 5, cpu.in_channels, generator=generator(1)).to(cpu.dtype)
    here, there = x.clone().requires_grad_(), x.cuda().requires_grad_()
    y, z = cpu(here), gpu(there)
    size = float(y.detach().abs().max()) + 1
    room = 2e-2 * size if cpu.dtype == torch.float16 else 2e-5 * size
    assert z.is_cuda and float((z.cpu() - y).abs().max()) <= room
    g = torch.randn(y.shape, generator=generator(2)).to(y.dtype)
    y.backward(g)
    z.backward(g.cuda())
    for a, b in [(here.grad, there.grad), (cpu.qweight.grad, gpu.qweight.grad)]:
        assert b.is_cuda
        assert float((a - b.cpu()).abs().max()) <= 2e-3 * (float(a.abs().max()) + 1)
    cpu.eval()
    gpu.eval()
    assert float((gpu(x.cuda()).cpu() - cpu(x)).abs().max()) <= room
    half = torch.randn(2, cpu.in_channels, generator=generator(3)).bfloat16()
    assert float((gpu(half.cuda()).cpu() - cpu(half)).float().abs().max()) <= 2e-2 * size


@pytest.mark.parametrize("form", ["gptq", "gba"])
def test_steps_of_diode_mix_on_codes(form):
    cpu = mpq(64, 40, 4, 32, form)
    cpu.prepare_params()
    gpu = copy.deepcopy(cpu).cuda()
    layers = [cpu, gpu]
    optimizers = [bie.optim.DiodeMix(layer.parameters(), lr=1e-2, betas=(0.9, 0.999), seed=3) for layer in layers]
    for step in range(6):
        grad = torch.randn(64, 40, generator=generator(step))
        for layer, optimizer in zip(layers, optimizers, strict=True):
            layer.qweight.privileged_grad = grad.to(layer.qweight.device)
            optimizer.step()
    codes = [torch.ops.bie.unpack_words(layer.qweight.detach().cpu(), 4, 64, 0) for layer in layers]
    assert (codes[0] - codes[1]).abs().max() <= 1  # a float's last bit may round a code another way
    assert float((codes[0] != codes[1]).double().mean()) < 0.01


@pytest.mark.parametrize("padding", [None, 3])
def test_embeddings_are_those_of_the_cpu(padding):
    torch.manual_seed(0)
    indices = torch.tensor([[0, 3, 6], [6, 3, 1]])
    signs = BinaryEmbedding(7, 13, padding)
    signs.prepare_params()
    for cpu in (signs, BinaryEmbeddingBag(7, 13, padding)):
        gpu = copy.deepcopy(cpu).cuda()
        y, z = cpu(indices), gpu(indices.cuda())
        assert torch.equal(y, z.cpu())
        g = torch.randn(y.shape)
        y.backward(g)
        z.backward(g.cuda())
        table, other = cpu._table().grad, gpu._table().grad
        assert other.is_sparse and torch.allclose(table.to_dense(), other.to_dense().cpu(), rtol=1e-5, atol=1e-6)
        for layer in (cpu, gpu):
            bie.optim.DiodeMix(layer.parameters(), lr=1.0, betas=(0.9, 0.9), seed=1).step()
        assert torch.equal(cpu._table(), gpu._table().cpu())
    codes = WeightOnlyEmbedding(7, 24, 4, 8, padding)
    codes.set_weight_data(torch.randn(7, 24))
    gpu = copy.deepcopy(codes).cuda()
    assert torch.allclose(gpu(indices.cuda()).cpu(), codes(indices), rtol=1e-6, atol=1e-6)
    x = torch.randn(3, 24)
    assert torch.allclose(gpu.head()(x.cuda()).cpu(), codes.head()(x), rtol=1e-4, atol=1e-4)


def test_a_table_of_codes_trains_as_on_the_cpu():
    torch.manual_seed(0)
    cpu = WeightOnlyEmbedding(11, 24, 4, 8)
    cpu.set_weight_data(torch.randn(11, 24))
    gpu = copy.deepcopy(cpu).cuda()
    gpu.set_weight_data(torch.randn(11, 24).cuda())
    gpu.load_state_dict(cpu.state_dict())
    index, g, h, up = torch.tensor([[2, 7], [2, 0]]), torch.randn(2, 2, 24), torch.randn(5, 24), torch.randn(5, 11)
    for layer, device in ((cpu, "cpu"), (gpu, "cuda")):
        optimizer = bie.optim.DiodeMix(layer.parameters(), lr=1e-2, seed=3)
        for step in range(6):
            optimizer.zero_grad()
            layer(index.to(device)).backward(g.to(device))
            assert layer.qweight.grad.is_sparse
            if step % 2:  # and dense ones
                layer.head()(h.to(device)).backward(up.to(device))
            optimizer.step()
    codes = [torch.ops.bie.unpack_words(layer.qweight.detach().cpu(), 4, 24, 1) for layer in (cpu, gpu)]
    assert (codes[0] - codes[1]).abs().max() <= 1  # a float's last bit may round a code another way
    assert float((codes[0] != codes[1]).double().mean()) < 0.02
    assert torch.allclose(cpu.zeros, gpu.zeros.cpu(), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("whole_zeros", [False, True])
def test_gptq_is_that_of_the_cpu(whole_zeros):
    torch.manual_seed(0)
    weight, x = torch.randn(16, 64), torch.randn(256, 20) @ torch.randn(20, 64)
    found = []
    for device in ("cpu", "cuda"):
        hessian = bie.quantization.Hessian(64, device)
        hessian.add(x.to(device))
        options = {"bits": 4, "group_size": 16, "whole_zeros": whole_zeros}
        found.append(bie.quantization.gptq(weight.to(device), hessian.matrix(), **options).values().cpu())
    same = (found[0] - found[1]).abs().amax(1) < 1e-4  # a tie may be broken another way, and all that follows
    assert same.double().mean() > 0.7
    model = torch.nn.Sequential(torch.nn.Linear(64, 16), torch.nn.ReLU(), torch.nn.Linear(16, 8)).cuda()
    report = bie.quantization.quantize(model, [x.cuda()], group_size=16, whole_zeros=whole_zeros)
    assert all(layer.error < layer.nearest_error for layer in report.layers) and model(x.cuda()).is_cuda
