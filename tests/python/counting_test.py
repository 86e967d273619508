"""FlopCounterMode and summaries count our layers as the float layers of the same sizes."""

import subprocess
import sys
import textwrap

import pytest
import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

import bie


def flops(call, backward=False):
    with FlopCounterMode(display=False) as counter:
        y = call()
        if backward:
            y.sum().backward()
    return counter.get_total_flops()


LINEARS = [bie.nn.BinaryLinear, bie.nn.Q8Linear, bie.nn.Q4Linear, bie.nn.PlainBinaryLinear]
CONVS = [bie.nn.BinaryConv2d, bie.nn.Q8Conv2d, bie.nn.Q4Conv2d]


@pytest.mark.parametrize("make", LINEARS)
def test_linears(make):
    layer, twin, x = make(24, 10), nn.Linear(24, 10), torch.randn(3, 5, 24, requires_grad=True)
    layer(x)
    assert flops(lambda: layer(x)) == flops(lambda: twin(x)) == 2 * 15 * 24 * 10
    assert flops(lambda: layer(x), backward=True) == flops(lambda: twin(x), backward=True)
    layer.eval()
    assert flops(lambda: layer(x)) == 2 * 15 * 24 * 10


@pytest.mark.parametrize("make", CONVS)
@pytest.mark.parametrize("groups", [1, 2])
def test_convolutions(make, groups):
    sizes = (4, 6, (3, 2), 2, 1, 1, groups)
    layer, twin, x = make(*sizes), nn.Conv2d(*sizes), torch.randn(2, 4, 9, 8, requires_grad=True)
    layer(x)
    assert flops(lambda: layer(x)) == flops(lambda: twin(x))
    # The gradients of image and filter cost one forward pass each. The twin's backward is no measure: torch counts
    # every group's gradients for each group.
    assert flops(lambda: layer(x), backward=True) == 3 * flops(lambda: twin(x))
    bie.pack(layer.eval())
    assert flops(lambda: layer(x)) == flops(lambda: twin(x))


def test_weights_alone():
    twin, x = nn.Linear(64, 10), torch.randn(3, 64, requires_grad=True)
    layer = bie.convert(nn.Linear(64, 10), "w4").model
    assert flops(lambda: layer(x), backward=True) == flops(lambda: twin(x), backward=True)


@pytest.mark.parametrize("make", [bie.nn.BinaryMatMul, bie.nn.Q8MatMul, bie.nn.Q4MatMul])
def test_products_of_activations(make):
    layer, x, y = make(), torch.randn(2, 3, 8, requires_grad=True), torch.randn(2, 5, 8, requires_grad=True)
    layer(x, y)
    assert flops(lambda: layer(x, y), backward=True) == flops(lambda: x @ y.mT, backward=True)


def run(code):
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(code)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_importing_the_package_imports_no_compiler_and_no_counter():
    run("""
        import sys, torch
        import bie
        assert not {"torch._dynamo", "torch.utils.flop_counter"} & set(sys.modules)
    """)


@pytest.mark.parametrize("first", ["bie", "torch.utils.flop_counter"])
def test_the_counter_may_be_imported_before_the_package_or_behind_it(first):
    run(f"""
        import torch, {first}
        import bie
        from torch.utils.flop_counter import FlopCounterMode
        with FlopCounterMode(display=False) as counter:
            bie.nn.Q8Linear(24, 10)(torch.randn(3, 24))
        assert counter.get_total_flops() == 2 * 3 * 24 * 10
    """)
