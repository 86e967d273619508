"""The backward operators as called by anybody: shapes that do not fit, random ones, and a scale_a that is still 0."""

import itertools
import subprocess
import sys

import formulas
import pytest
import torch

SA, SW, ZERO = torch.tensor(0.1), torch.tensor(0.2), torch.tensor(0.0)
LINEAR = ("binary_linear", "q8_linear", "q4_linear")
CONV = ("binary_conv2d", "q8_conv2d", "q4_conv2d")
BINARY = ("binary_linear", "binary_conv2d")
every_layer = pytest.mark.parametrize("name", [*LINEAR, *CONV])


def options(name, reference=False):
    chosen = {"weight_grad": torch.float32}
    if name not in BINARY:
        chosen |= {"eps": 1e-5, "reference_grad": reference}
    if name in ("q8_linear", "q4_linear"):
        chosen |= {"plain_codes": False}
    if name in CONV:
        chosen |= {"stride": (2, 1), "padding": (1, 0), "dilation": 1, "groups": 1, "kernel_size": (3, 2)}
    if name == "binary_conv2d":
        chosen |= {"padding_value": -1}
    return chosen


def tensors(name):
    """(g, x, float weight, bias) that fit."""
    r = torch.Generator().manual_seed(len(name))
    shapes = [(2, 5, 4, 6), (2, 3, 8, 7), (5, 3, 3, 2), (3,)] if name in CONV else [(2, 3, 5), (2, 3, 7), (5, 7), (7,)]
    return [torch.randn(shape, generator=r) for shape in shapes]


def call(operators, name, g, x, weight, scale_a=SA, scale_w=SW, bias=None, device="cpu", **changes):
    given = [t if t is None else t.to(device) for t in (g, x, weight, scale_a, scale_w, bias)]
    return getattr(operators, f"{name}_backward")(*given, **(options(name) | changes))


@every_layer
@pytest.mark.parametrize("device", ["cpu", "meta"])
def test_refusals(operators, name, device):
    g, x, weight, bias = tensors(name)

    def refused(error, words, g=g, x=x, weight=weight, **more):
        with pytest.raises(error, match=words) as caught:
            call(operators, name, g, x, weight, device=device, **more)
        assert str(caught.value).startswith(f"{name}: ")

    call(operators, name, g, x, weight, bias=bias, device=device)
    wrong_g = r"g is \[.*\], x is \[.*\], the weight is \[.*\], for which g is \["
    for axis in range(g.dim()):  # every size by one, and none at all
        refused(ValueError, wrong_g, g=torch.cat([g, g.narrow(axis, 0, 1)], axis))
        refused(ValueError, wrong_g, g=g.narrow(axis, 0, 0))
    for shape in [(), (1,), (g.numel(),), (1, *g.shape)]:
        refused(ValueError, wrong_g, g=torch.ones(shape))
    refused(ValueError, wrong_g, x=x[:1])
    refused(ValueError, wrong_g, weight=weight[:4])
    flat = r"x: expected .*, got \[5760000\]" if name in CONV else r"x is \[5760000\], the weight is"
    refused(ValueError, flat, x=torch.ones(5760000))
    refused(ValueError, r"x: expected .*, got", x=torch.tensor(1.0))
    refused(ValueError, "x is .*, the weight is", x=torch.cat([x, x], 1 if name in CONV else -1))
    axes = "four" if name in CONV else "two"
    refused(ValueError, f"the weight: expected {axes} axes, got", weight=weight[0])
    refused(ValueError, f"the weight: expected {axes} axes, got", weight=weight[None])
    refused(ValueError, "the weight is", weight=weight[:, :2])
    refused(ValueError, r"expected .*, got", x=x.narrow(1 if name in CONV else -1, 0, 0), weight=weight[:, :0])
    refused(TypeError, r"g: expected .*, got Double", g=g.double())
    refused(TypeError, r"g: expected .*, got Char", g=g.to(torch.int8))
    refused(TypeError, r"x: expected .*, got Double", x=x.double())
    refused(TypeError, r"the weight: expected .*, got Int", weight=weight.int())
    refused(TypeError, "weight_grad: expected a float type, int8 or None, got Int", weight_grad=torch.int32)
    if name in CONV:
        refused(ValueError, "kernel_size is", kernel_size=(2, 3))
        refused(ValueError, "at least one output channel", g=g[:, :0], weight=weight[:0])
        for option, value in (("stride", (0, 1)), ("padding", (0, -1)), ("dilation", (1, 1 << 62))):
            refused(ValueError, f"{option}: expected two numbers from", **{option: value})
    if device == "cpu":
        refused(ValueError, r"bias_a: expected .*, got \[2\]", bias=bias[:2])
        refused(TypeError, r"bias_a: expected .*, got Double", bias=bias.double())
        refused(ValueError, r"scale_a: expected one element, got \[2\]", scale_a=torch.ones(2))
        refused(ValueError, "scale_w: expected a finite number, got inf", scale_w=torch.tensor(float("inf")))
        if name not in BINARY:
            refused(ValueError, "eps: expected a positive number, got nan", eps=float("nan"))


@every_layer
@pytest.mark.parametrize("reference", [False, True], ids=["exact", "reference"])
def test_the_weights_gradient_in_every_dtype(operators, name, reference):
    g, x, weight, bias = tensors(name)
    given = options(name, reference)
    wanted = call(operators, name, g, x, weight, bias=bias, **given)[1]
    assert wanted.abs().max() > 0
    for dtype in (torch.bfloat16, torch.float16):
        assert torch.equal(
            call(operators, name, g, x, weight, bias=bias, **given | {"weight_grad": dtype})[1], wanted.to(dtype)
        )
    codes = call(operators, name, g, x, weight, bias=bias, **given | {"weight_grad": torch.int8})[1]
    assert torch.equal(codes, operators.int8_grad(wanted))


@pytest.mark.parametrize(
    ("name", "shape", "dtype"),
    [
        ("binary_linear", (5, 1), torch.uint8),
        ("q4_linear", (5, 4), torch.int8),
        ("q4_conv2d", (5, 9), torch.int8),
        ("binary_conv2d", (5, 3), torch.uint8),
    ],
)
def test_packed_weights_hand_gradients_on_but_take_none(operators, name, shape, dtype):
    g, x, *_ = tensors(name)
    packed = torch.zeros(shape, dtype=dtype)
    grad_x, grad_w, _, _ = call(operators, name, g, x, packed, weight_grad=None)
    assert grad_x.shape == x.shape and grad_w is None
    for device in ("cpu", "meta"):
        with pytest.raises(ValueError, match="cannot be trained"):
            call(operators, name, g, x, packed, device=device)


FUZZ = """
import random, sys, torch
torch.ops.load_library(sys.argv[1])
torch.set_num_threads(1)
r, counts = random.Random(int(sys.argv[2])), {True: 0, False: 0}
sizes, types = (0, 1, 2, 3, 4, 7, 8, 9), (torch.float32, torch.bfloat16, torch.float64, torch.int8, torch.uint8)
def tensor(shape):
    if r.random() < 0.2: shape = [r.choice(sizes) for _ in range(r.choice((0, 1, 2, 3, 4)))]
    elif shape and r.random() < 0.2: shape[r.randrange(len(shape))] = r.choice((*sizes, 5000))
    return torch.ones(shape, dtype=r.choice(types) if r.random() < 0.2 else torch.float32)
for _ in range(3000):
    name = r.choice(("binary_linear", "q8_linear", "q4_linear", "binary_conv2d", "q8_conv2d", "q4_conv2d"))
    m, n, k = (r.choice(sizes) for _ in range(3))
    more = {"weight_grad": r.choice((None, torch.float32, torch.bfloat16, torch.int8))}
    if not name.startswith("binary"): more |= {"eps": 1e-5, "reference_grad": r.random() < 0.5}
    if name == "binary_conv2d": more |= {"padding_value": r.choice((-1, 0))}
    if name.endswith("conv2d"):
        h, w, kh, kw = (r.choice((1, 2, 3)) for _ in range(4))
        stride, padding = (r.choice((1, 2)), 1), (r.choice((0, 1)), 0)
        h, w = h + kh, w + kw
        out = [(h + 2 * padding[0] - kh) // stride[0] + 1, w - kw + 1]
        g, x, weight = tensor([m, n, *out]), tensor([m, k, h, w]), tensor([n, k, kh, kw])
        groups = r.choice((1, 1, 1, 2, 0))
        more |= {"stride": stride, "padding": padding, "dilation": 1, "groups": groups, "kernel_size": (kh, kw)}
    else:
        g, x, weight = tensor([m, n]), tensor([m, k]), tensor([n, k])
        if not name.startswith("binary"): more |= {"plain_codes": r.random() < 0.5}
    if r.random() < 0.05: more |= {"weight_grad": torch.int32}
    bias = tensor([k]) if r.random() < 0.3 else None
    try:
        getattr(torch.ops.bie, name + "_backward")(g, x, weight, torch.tensor(0.5), torch.tensor(0.5), bias, **more)
        counts[True] += 1
    except (ValueError, TypeError) as refusal:
        assert str(refusal).startswith(name + ": "), refusal
        counts[False] += 1
print(counts[True], counts[False])
"""


@pytest.mark.parametrize("seed", range(3))
def test_random_shapes_are_taken_or_refused_and_never_crash(library, seed):
    command = [sys.executable, "-c", FUZZ, library, str(seed)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]
    assert all(int(count) > 300 for count in done.stdout.split()), done.stdout


def values(weight, width):
    step = formulas.weight_step(weight, SW, width)[1]
    return formulas.codes(weight, step, width).double() * SW.double()


def zero_scale_case(operators, name, rows, reference=False, bias=None):
    """(gradients of x, weight, scale_a and bias_a, the gradient that xs would get from an unbounded range)."""
    g, x, weight, _ = tensors(name)
    g, x = g[:rows], torch.zeros_like(x[:rows])
    given = call(operators, name, g, x, weight, ZERO, bias=bias, **options(name, reference))
    if name == "binary_conv2d":
        up = formulas.binary_conv_up(x.shape, weight, g, (1, 0), stride=(2, 1)) * SW.double()
    elif name in CONV:
        width = formulas.Q8 if name == "q8_conv2d" else formulas.Q4
        geometry = {"stride": (2, 1), "padding": (1, 0)}
        up = torch.nn.grad.conv2d_input(x.shape, values(weight, width), g.double(), **geometry)
    elif name == "binary_linear":
        up = g.double() @ torch.sign(weight.double()) * SW.double()
    else:
        up = g.double() @ values(weight, formulas.Q8 if name == "q8_linear" else formulas.Q4)
    # The 8-bit layers' reference mode multiplies by scale_a.
    return given, up * 0 if reference and name.startswith("q8") else up


@every_layer
@pytest.mark.parametrize("rows", [2, 0], ids=["zeros", "empty"])
def test_a_scale_of_zero_after_a_batch_without_activity(operators, name, rows):
    for reference in (False,) if name in BINARY else (False, True):
        bias = torch.zeros(tensors(name)[3].shape)
        (grad_x, grad_w, grad_scale, grad_bias), up = zero_scale_case(operators, name, rows, reference, bias)
        if rows:
            formulas.close(grad_x, up)
            formulas.close(grad_bias, up.sum((0, 2, 3) if name in CONV else (0, 1)))
        assert grad_x.shape == up.shape
        assert grad_scale.item() == 0
        assert not grad_w.any() and grad_w.shape == tensors(name)[2].shape


@every_layer
def test_a_bias_beside_a_scale_of_zero_is_outside(operators, name):
    bias = torch.zeros(tensors(name)[3].shape)
    bias[1:] = torch.tensor([1e-3, -2.0]).repeat(3)[: bias.numel() - 1]
    axis = 1 if name in CONV else -1
    (grad_x, grad_w, grad_scale, grad_bias), up = zero_scale_case(operators, name, 2, bias=bias)
    formulas.close(grad_x.select(axis, 0), up.select(axis, 0))
    assert not grad_x.narrow(axis, 1, bias.numel() - 1).any()
    assert grad_scale.item() == 0 and not grad_w.any() and not grad_bias[1:].any()


@every_layer
def test_a_scale_of_zero_with_activity_is_refused(operators, name):
    g, x, weight, bias = tensors(name)
    once = torch.zeros_like(x)
    once.view(-1)[-1] = 1e-30
    lost = torch.full_like(x, float("nan"))
    for active, b in itertools.product((x, once, lost), (None, bias)):
        with pytest.raises(ValueError, match=f"{name}: scale_a is 0, training wants it initialised"):
            call(operators, name, g, active, weight, ZERO, bias=b)


@every_layer
def test_a_dead_first_batch_trains_what_is_below(operators, name):
    """Forward and backward through autograd, as after a ReLU that lets nothing pass."""
    _, x, weight, _ = tensors(name)
    leaves = [torch.zeros_like(x), weight, ZERO.clone()]
    for leaf in leaves:
        leaf.requires_grad_()
    y = getattr(operators, name)(leaves[0], leaves[1], leaves[2], SW)
    y.backward(torch.ones_like(y))
    assert leaves[0].grad.any() and not leaves[1].grad.any() and leaves[2].grad.item() == 0
