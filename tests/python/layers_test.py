"""Every layer against the formulas: training, evaluation, packed weights, every dtype; and what it refuses."""

import copy
import warnings

import numpy as np
import pytest
import torch
from kinds import INTEGER, KINDS, formula
from torch import nn
from torch.nn.utils import parametrize

import bie
from bie import ShapeError
from bie.nn import BinaryLinear, Q4Conv2d, Q4Linear, Q8Linear
from bitorch_engine.layers.qconv.nbit import cutlass as conv
from bitorch_engine.layers.qlinear.binary.cuda import BMM, BinaryLinearCuda
from bitorch_engine.layers.qlinear.binary.cutlass import BinaryLinearCutlass
from bitorch_engine.layers.qlinear.binary.layer import BinaryLinearBase
from bitorch_engine.layers.qlinear.nbit import MPQLinearBase, nBitLinearBase
from bitorch_engine.layers.qlinear.nbit.cutlass import Q4LinearCutlass, Q8LinearCutlass

every_kind = pytest.mark.parametrize("kind", KINDS, ids=repr)
every_integer = pytest.mark.parametrize("kind", INTEGER, ids=repr)


@every_kind
def test_training_and_evaluation_are_the_formula(kind):
    layer, x = kind.trained(), kind.batch(1)
    wanted = formula(layer, x)
    assert torch.equal(layer(x), wanted)
    layer.eval()
    assert torch.equal(layer(x), wanted)
    layer.generate_quantized_weight()
    assert torch.equal(layer(x), wanted)
    layer.generate_quantized_weight(qweight_only=True)
    assert layer.weight is None
    assert torch.equal(layer(x), wanted)
    assert torch.equal(layer.train()(x), wanted)


@every_kind
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_16_bit_activations(kind, dtype):
    layer, x = kind.trained(), kind.batch(1).to(dtype)
    wanted = formula(layer, x)
    assert layer(x).dtype == (torch.float32 if kind.plain else dtype)
    assert torch.equal(layer(x), wanted)
    assert torch.equal(layer.eval()(x), wanted)


@every_kind
def test_output_bias(kind):
    torch.manual_seed(0)
    layer = kind.make(bias=True)
    x = kind.batch(2)
    layer(x)
    assert torch.equal(layer(x), formula(layer, x))
    y = layer.eval()(x)
    assert torch.equal(y, formula(layer, x))
    layer.train()(x).sum().backward()
    torch.testing.assert_close(layer.bias.grad, torch.full_like(layer.bias, y.numel() / layer.bias.numel()))


@every_kind
def test_evaluation_follows_the_weight(kind):
    """BITorch Engine tests the weights of epoch 1 for ever."""
    layer, x = kind.trained(), kind.batch(1)
    layer.eval()
    first = layer(x)
    with torch.no_grad():
        layer.weight.neg_() if kind.integer and layer._bits == 1 else layer.weight.copy_(layer.weight.flip(0, 1))
    wanted = formula(layer, x)
    assert not torch.equal(first, wanted) or layer.weight.shape[0] == 1
    assert torch.equal(layer(x), wanted)


@every_kind
def test_implicit_packing_leaves_the_state_alone(kind):
    layer, x = kind.trained(), kind.batch(1)
    before = {name: tensor.clone() for name, tensor in layer.state_dict().items()}
    layer.eval()(x)
    after = layer.state_dict()
    assert before.keys() == after.keys()
    assert all(torch.equal(before[name], after[name]) for name in before)


@every_kind
def test_opt_weight(kind):
    layer, x = kind.trained(), kind.batch(1)
    assert layer.opt_weight is layer.weight
    layer.eval()
    packed = layer.opt_weight
    layer(x)
    layer.generate_quantized_weight()
    assert torch.equal(layer.opt_weight, packed)
    assert layer.opt_weight is layer.qweight
    assert tuple(packed.shape) == kind.packed


@every_kind
def test_assigned_weights_are_used(kind):
    layer, x = kind.trained(), kind.batch(1)
    other = kind.trained(seed=9)
    layer.weight = nn.Parameter(torch.randn_like(other.weight, dtype=torch.float32))
    layer.eval()
    assert torch.equal(layer(x), formula(layer, x))
    other.eval()
    other.generate_quantized_weight()
    layer.qweight = other.qweight.detach().clone()
    if layer.scale_w is not None:
        layer.scale_w.data.copy_(other.scale_w)
        layer.scale_a.data.copy_(other.scale_a)
        layer.bias_a.data.copy_(other.bias_a)
    if layer.channel_scale is not None:
        layer.channel_scale.copy_(other.channel_scale)
    assert torch.equal(layer(x), other(x))
    assert isinstance(layer.qweight, nn.Parameter)


@every_kind
def test_set_quantized_weight_data(kind):
    layer, other, x = kind.trained(), kind.trained(seed=5), kind.batch(1)
    other.eval()
    other.generate_quantized_weight(qweight_only=True)
    layer.load_state_dict(other.state_dict())
    packed = other.qweight.detach().clone()
    layer.set_quantized_weight_data(packed)
    assert torch.equal(layer.eval()(x), other(x))
    with pytest.raises(ShapeError, match=r"expected .*, got"):
        layer.set_quantized_weight_data(packed[:-1])
    with pytest.raises(ShapeError, match=r"expected .*, got"):
        layer.set_quantized_weight_data(packed.float())


def test_packing_leaves_a_graph_its_backward_pass():
    layer = bie.nn.Q4Conv2d(4, 3, 3)
    x = torch.randn(2, 4, 6, 6)
    bie.prepare(layer)
    y = layer(x)
    layer.generate_quantized_weight(qweight_only=True)
    layer.eval()
    assert torch.equal(layer(x), y)
    y.sum().backward()
    assert layer.scale_a.grad is not None


def test_a_layer_without_any_weight_says_so():
    layer = bie.nn.BinaryLinear(8, 3)
    layer(torch.randn(2, 8))
    layer.generate_quantized_weight(qweight_only=True)
    layer.qweight = None
    with pytest.raises(RuntimeError, match="BinaryLinear has neither a weight nor a packed one"):
        layer(torch.randn(2, 8))


@every_kind
def test_refused_activations_leave_nothing_behind(kind):
    layer = kind.make()
    x = kind.batch()
    axis = layer._feature_axis
    wrong = [
        x.double(),
        x.long(),
        x.bool(),
        x.transpose(0, axis).contiguous().narrow(0, 0, x.shape[axis] - 1).transpose(0, axis),
        torch.tensor(1.0),
        torch.empty(0),
    ]
    for training in (True, False):
        layer.train(training)
        for bad in wrong:
            with pytest.raises(ShapeError, match=r"x: expected .*, got"):
                layer(bad)
        assert layer.scale_a is None or float(layer.scale_a) == 0
    layer.train()
    layer(x)
    nan = x.clone()
    nan[0] = float("nan")  # whole: convolutions may skip rows
    with pytest.raises(ValueError, match="NaN"):
        layer(nan)


@every_kind
def test_an_empty_batch_is_one(kind):
    layer = kind.trained()
    y = layer(kind.batch()[:0])
    assert y.shape[0] == 0
    assert layer.eval()(kind.batch()[:0]).shape == y.shape


@every_kind
def test_weight_data_is_checked(kind):
    layer = kind.make()
    good = torch.randn(layer._weight_shape)
    for bad in (good[:-1], good.unsqueeze(0), good.to(torch.int8), torch.tensor(1.0)):
        with pytest.raises(ShapeError, match=r"the weight(: expected .*, got| is of torch\.int8, the layer of)"):
            layer.set_weight_data(bad)
    layer.set_weight_data(good)
    x = kind.batch(3)
    layer(x)
    assert torch.equal(layer(x), formula(layer, x))


def test_a_binary_weight_of_another_dtype_is_refused():
    with pytest.raises(AssertionError, match="float64"):
        BinaryLinear(8, 8).set_weight_data(torch.zeros(8, 8, dtype=torch.float64))


@every_integer
def test_preparing_twice_changes_nothing(kind):
    layer = kind.make()
    layer.prepare_params()
    assert layer.weight_form == "int8" and not layer.weight.requires_grad
    weight, scale = layer.weight.clone(), float(layer.scale_w)
    layer.prepare_params()
    assert torch.equal(layer.weight, weight) and float(layer.scale_w) == scale


@every_integer
def test_preparing_keeps_the_parameter(kind):
    layer = kind.make()
    weight = layer.weight
    layer(kind.batch())
    assert layer.weight is weight and weight.dtype == torch.int8
    assert type(weight) is kind.parameter


def test_packed_activations():
    layer = BinaryLinear(37, 13)
    x = torch.randn(4, 37)
    with pytest.raises(ValueError, match="not initialised"):
        layer.eval()(torch.ops.bie.pack_signs(x))
    layer.train()(x)
    packed = torch.ops.bie.pack_signs(x, layer.bias_a.detach())
    assert torch.equal(layer(packed), layer(x))
    assert torch.equal(layer.eval()(packed), layer(x))
    assert layer(packed).dtype == torch.float32


def test_the_kernel_is_selected_and_a_hint():
    layer = BinaryLinearCutlass(300, 100)
    assert layer.gemm_kernel_id == 3
    x = torch.randn(10, 300)
    y = layer.eval()(x)
    assert layer.select_gemm_kernel(x) is None
    assert layer.gemm_kernel_id >= 100
    assert "gemm_kernel_id" not in layer.state_dict()
    for kernel in (0, 3, 9, 100, 101, layer.gemm_kernel_id, 10_000):
        layer.gemm_kernel_id = kernel
        layer.repack()
        assert torch.equal(layer(x), y)


@pytest.mark.parametrize("bmm", list(BMM))
@pytest.mark.parametrize(("k", "n"), [(128, 8), (256, 32), (96, 64), (96, 24), (31, 5)])
def test_the_bytes_of_binary_linear_cuda(bmm, k, n):
    """docs/spec/layouts.md#flat-binary-weights, the first two bit by bit; rows where neither holds the shape."""
    weight = torch.randn(n, k)
    packed = BinaryLinearCuda.w_pack(weight, bmm)
    bits = (weight >= 0).to(torch.uint8)
    powers = 2 ** torch.arange(7, -1, -1)
    if k % 128 == 0 and n % 8 == 0 and bmm != BMM.BSTC32:
        wanted = bits.view(n // 8, 8, k // 128, 16, 8).permute(0, 2, 1, 3, 4)
        wanted = (wanted * powers).sum(-1).to(torch.uint8).flatten()
    elif k % 32 == 0 and n % 32 == 0:
        wanted = bits.view(n, k // 32, 4, 8).permute(1, 0, 2, 3)
        wanted = (wanted * powers).sum(-1).to(torch.uint8).flatten()
    else:
        wanted = torch.ops.bie.pack_signs(weight)
    assert torch.equal(packed, wanted)
    layer = BinaryLinearCuda(k, n, bmm_type=bmm)
    layer.set_weight_data(weight)
    assert layer.bmm_type is bmm and layer.device_id == -1
    x = torch.randn(3, k)
    y = layer.eval()(x, BMM.ADAPTIVE)
    layer.generate_quantized_weight(qweight_only=True)
    assert torch.equal(layer(x), y)
    assert layer.qweight.shape == packed.shape


@pytest.mark.parametrize(("symmetric", "factor"), [(True, 2), (False, 4)])
def test_symmetric_is_the_first_batch_factor(symmetric, factor):
    x = torch.randn(6, 20)
    layer = BinaryLinear(20, 4, symmetric=symmetric)
    y = layer.set_activation(x)
    assert torch.equal(y, x)
    assert float(layer.scale_a) == pytest.approx(factor * float(x.double().abs().mean()), rel=1e-6)


def test_an_untrained_layer_in_evaluation_warns_and_works():
    layer = Q4Linear(9, 4).eval()
    with pytest.warns(UserWarning, match="was not trained"):
        layer(torch.randn(3, 9))
    assert float(layer.scale_a) > 0


def test_the_step_size_guard():
    layer = Q8Linear(9, 4)
    x = torch.randn(3, 9)
    layer(x)
    first = float(layer.scale_a)
    layer.scale_a.data.fill_(-1.0)
    layer(x)
    assert float(layer.scale_a) == pytest.approx(0.03 * first)
    layer.step_size_floor = 0
    layer.scale_a.data.fill_(1e-4)
    layer(x)
    assert float(layer.scale_a) == pytest.approx(1e-4)
    loaded = Q8Linear(9, 4)
    loaded.load_state_dict(layer.state_dict())
    loaded(x)
    assert float(loaded.scale_a) == pytest.approx(1e-4)
    for wrong in (-1, 1.5, float("nan")):
        with pytest.raises(ValueError, match="a number in"):
            layer.step_size_floor = wrong


def test_compat_and_grad_mode():
    x = torch.randn(64, 33).to(torch.bfloat16)
    layer = Q4Linear(33, 5, compat="bie-0.2.6")
    layer(x)
    assert layer.grad_mode == "reference"
    assert float(layer.scale_a) == pytest.approx(2 * float(x.double().abs().mean()) / 11.269, rel=1e-6)
    with torch.no_grad():
        layer.bias_a.uniform_(-0.3, 0.3)
    other = Q4Linear(33, 5)
    other.load_state_dict(layer.state_dict())
    rounded = (x + layer.bias_a.to(x.dtype)).detach()
    with torch.no_grad():
        other.bias_a.zero_()
    assert torch.equal(layer(x), other(rounded))
    for name in ("grad_mode", "compat"):
        with pytest.raises(ValueError, match=f"{name}: expected .*, got 'fast'"):
            Q4Linear(3, 3, **{name: "fast"})
        with pytest.raises(ValueError, match=f"{name}: expected .*, got 'fast'"):
            setattr(layer, name, "fast")


@pytest.mark.parametrize("sizes", [(0, 3), (3, 0), (-1, 4)])
@pytest.mark.parametrize("cls", [BinaryLinear, Q8Linear, Q4Linear])
def test_sizes_are_positive(cls, sizes):
    with pytest.raises(ValueError, match=f"{cls.__name__}: .*positive"):
        cls(*sizes)


def test_wrong_constructor_arguments():
    with pytest.raises(ValueError, match=r"dtype: expected float32, float16 or bfloat16, got torch\.float64"):
        Q8Linear(3, 3, dtype=torch.float64)
    for name, value in [("kernel_size", 0), ("stride", (1, 2, 3)), ("padding", -1), ("dilation", 1.5)]:
        with pytest.raises(ValueError, match=f"{name}: expected an integer or a pair of integers >= "):
            Q4Conv2d(3, 3, **({"kernel_size": 1} | {name: value}))


@pytest.mark.parametrize("wrong", [True, False, 4.0, "4", None])
def test_bit_widths_are_ints(wrong):
    """nn.Linear(64, 32, True) asks for a bias, Q8LinearCutlass(64, 32, True) would ask for one bit."""
    calls = [
        lambda: Q8LinearCutlass(64, 32, wrong),
        lambda: Q4LinearCutlass(64, 32, w_bit=wrong),
        lambda: conv.Q4Conv2dCutlass(3, 4, 3, a_bit=wrong),
        lambda: conv.Q8Conv2d(3, 4, 3, w_bit=wrong),
        lambda: MPQLinearBase(32, 32, wrong),
        lambda: MPQLinearBase(32, 32, w_bit=wrong),
    ]
    for call in calls:
        with pytest.raises(TypeError, match=r"_bit: expected an int, got .*bias=True"):
            call()
    assert Q8LinearCutlass(3, 3, np.int64(8)).a_bit == 8


def test_renewing_a_4_bit_scale():
    layer = Q4Linear(33, 5)
    layer.prepare_params()
    before = float(layer.scale_w)
    with torch.no_grad():
        layer.weight.mul_(3)
    layer.renew_weight_scale()
    assert float(layer.scale_w) == pytest.approx(3 * before, rel=1e-5)


@every_kind
def test_printing(kind):
    layer = kind.make(bias=True)
    assert "float weight, bias" in repr(layer)
    assert copy.deepcopy(layer).extra_repr() == layer.extra_repr()


@every_kind
def test_nothing_is_printed_or_warned_in_training(kind, capfd):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        kind.trained()
    out, err = capfd.readouterr()
    assert not out and not err


@every_kind
def test_a_first_batch_of_zeros_or_of_nothing_trains(kind):
    layer, x = kind.make(), kind.batch()
    for first in (torch.zeros_like(x), x[:0]):
        layer(first.requires_grad_()).sum().backward()
        assert layer.scale_a is None or float(layer.scale_a.detach()) == 0
        assert all(p.grad is None or bool(torch.isfinite(p.grad.float()).all()) for p in layer.parameters())
    layer(x)
    assert torch.equal(layer(x), formula(layer, x))


@every_kind
@pytest.mark.parametrize("training", [True, False])
def test_parametrized_weights_are_refused(kind, training):
    layer = kind.trained().train(training)
    if not layer.weight.is_floating_point():
        layer = kind.make().train(training)
    parametrize.register_parametrization(layer, "weight", nn.Identity())
    with pytest.raises(RuntimeError, match="parametrized"):
        layer(kind.batch())


@pytest.mark.parametrize("base", [BinaryLinearBase, nBitLinearBase])
def test_bases_keep_what_they_are_given(base):
    layer = base(16, 4)
    packed = torch.zeros(4, 2, dtype=torch.uint8 if base is BinaryLinearBase else torch.int8)
    layer.set_quantized_weight_data(packed)
    assert torch.equal(layer.qweight, packed) and not layer.qweight.requires_grad
    layer._check_forward(torch.zeros(2, 16))
    with pytest.raises(AssertionError, match=r"x: expected .*, got"):
        layer._check_forward(torch.zeros(2, 15))
    fresh = base(16, 4)
    for call in (fresh.prepare_params, fresh.generate_quantized_weight):
        with pytest.raises(NotImplementedError, match="base class"):
            call()


@every_kind
@pytest.mark.parametrize("wrong", [None, [1.0], "x"])
def test_what_is_no_tensor_is_refused(kind, wrong):
    layer = kind.trained()
    for training in (True, False):
        with pytest.raises(TypeError, match="expected a tensor, got"):
            layer.train(training)(wrong)
    with pytest.raises(TypeError, match="expected a tensor, got"):
        layer.set_weight_data(wrong)
