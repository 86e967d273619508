"""Weight-only layers and embeddings on a GPU against the CPU: outputs, gradients, steps."""

import copy

import pytest
import torch
from weight_only_test import EXL2, generator, mixed, mpq

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
