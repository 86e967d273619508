"""Layers while another thread writes into them, or makes and drops others."""

import sys
import threading

import pytest
import torch
from kinds import KINDS, as_loaded

from bie.nn import Q8Linear
from bie.optim import DiodeMix

every_kind = pytest.mark.parametrize("kind", KINDS, ids=repr)


def written_while_packing(layer, write):
    """As another thread does: once, between the reading of the weight and the keeping of what was made of it."""
    pack = layer._pack

    def interrupted():
        packed = tuple(None if tensor is None else tensor.clone() for tensor in pack())
        del layer._pack
        with torch.no_grad():
            write()
        return packed

    layer.__dict__["_pack"] = interrupted


@every_kind
@pytest.mark.parametrize("act", ["write", "data", "generate", "beside"])
def test_a_write_while_another_thread_packs(kind, act):
    layer, x = kind.trained().eval(), kind.batch(1)
    flipped = layer.weight.detach().flip(0, 1) if act != "generate" else -layer.weight.detach()

    def write():
        (layer.weight.data if act == "data" else layer.weight).copy_(flipped)
        if act == "data":
            layer.repack()

    if act == "beside":  # a packed weight that is of an earlier one is renewed in evaluation
        layer.generate_quantized_weight()
        with torch.no_grad():
            layer.weight.add_(0)
    written_while_packing(layer, write)
    if act == "generate":
        layer.generate_quantized_weight()
    else:
        layer(x)
    assert torch.equal(layer.weight, flipped)
    assert torch.equal(layer(x), as_loaded(kind, layer, x))


def test_steps_while_another_thread_makes_layers():
    """The sets of what is alive grow meanwhile."""
    interval, stop = sys.getswitchinterval(), threading.Event()

    def make():
        while not stop.is_set():
            layers = [Q8Linear(4, 4) for _ in range(20)]
            for layer in layers:
                layer(torch.ones(1, 4))

    layer, kept = Q8Linear(4, 4, latent=False), [Q8Linear(4, 4) for _ in range(300)]
    for other in (layer, *kept):
        other(torch.ones(1, 4))
    thread = threading.Thread(target=make)
    sys.setswitchinterval(1e-6)
    thread.start()
    try:
        for _ in range(30):
            optimizer = DiodeMix(layer.parameters(), lr=0.1)
            layer(torch.ones(1, 4)).sum().backward()
            optimizer.step()
    finally:
        stop.set()
        thread.join()
        sys.setswitchinterval(interval)
