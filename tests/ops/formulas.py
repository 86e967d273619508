"""The layers of docs/spec/index.md as formulas in float64: what every operator and its backward pass must equal.

Integers are exact in float64, so forward results are compared for equality: y = fl(float(acc) * S), S in float32.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch

F32, F64 = torch.float32, torch.float64


@dataclass(frozen=True)
class Width:
    lo: int
    hi: int
    constant: float  # step size = 2 * mean|x| / constant


Q8 = Width(-128, 127, 11.269)
Q4 = Width(-8, 7, 5.6345)
EPS = 1e-5


def biased(x, bias, axis=-1):
    """xs = float(x) + float(bias) in float32."""
    if bias is None:
        return x.to(F32)
    shape = [1] * x.dim()
    shape[axis] = -1
    return x.to(F32) + bias.to(F32).view(shape)


def codes(v, step, width):
    """clamp(rint(v / step), lo, hi) with a true float32 division."""
    return torch.clamp(torch.round(v.to(F32) / torch.tensor(step, dtype=F32)), width.lo, width.hi)


def bits(v):
    """+1 where v >= 0, else -1."""
    return torch.where(v >= 0, 1.0, -1.0).to(F64)


def scaled(acc, scale_a, scale_w, dtype):
    """fl(float(acc) * fl(scale_a * scale_w)), then one conversion."""
    s = scale_a.to(F32) * scale_w.to(F32)
    return (acc.to(F32) * s).to(dtype)


def binary_forward(x, weight, scale_a, scale_w, bias):
    acc = bits(biased(x, bias)) @ bits(weight).T
    return scaled(acc, scale_a, scale_w, x.dtype)


def binary_backward(x, weight, scale_a, scale_w, bias, g):
    """Gradients of x, weight (unquantised), scale_a and bias in float64, and the size of the terms of scale_a's sum."""
    xs = biased(x, bias).to(F64)
    k = xs.shape[-1]
    g2, xs2 = g.to(F64).reshape(-1, g.shape[-1]), xs.reshape(-1, k)
    inside = (xs2.to(F32) / scale_a.to(F32)).abs() <= 1
    grad_xs = g2 @ torch.sign(weight.to(F64)) * scale_w.to(F64) * inside
    grad_w = g2.T @ (torch.sign(xs2) * scale_a.to(F64))
    terms = grad_xs * torch.sign(xs2) / math.sqrt(xs2.numel())
    return grad_xs.reshape(x.shape), grad_w, terms.sum(), grad_xs.sum(0), terms.abs().sum()


def weight_step(weight, scale_w, width):
    """(scale_w, the step its codes are made with)."""
    if scale_w is None:
        mean = weight.to(F64).abs().mean().to(F32).to(F64)
        scale_w = (mean * (2 / width.constant)).to(F32)
        if width is Q4:
            scale_w = scale_w.clamp_min(EPS)
    return scale_w, max(float(scale_w), float(torch.tensor(EPS, dtype=F32)))


def activation_step(scale_a):
    return max(float(scale_a.to(F32)), float(torch.tensor(EPS, dtype=F32)))


def nbit_forward(x, weight, scale_a, scale_w, bias, width):
    scale_w, step = weight_step(weight, scale_w, width)
    q_a = codes(biased(x, bias), activation_step(scale_a), width).to(F64)
    return scaled(q_a @ codes(weight, step, width).to(F64).T, scale_a, scale_w, x.dtype)


def step_backward(xs, up, scale_a, width, reference):
    """(grad_xs, grad_scale_a, size of the terms of its sum) of the activation quantiser."""
    scale = scale_a.to(F64)
    v = (xs.to(F32) / scale_a.to(F32)).to(F64)
    inside = (v >= width.lo) & (v <= width.hi)
    term = torch.where(v < width.lo, float(width.lo), torch.where(v > width.hi, float(width.hi), torch.round(v) - v))
    grad_xs = up * inside
    if reference and width is Q8:
        grad_xs = grad_xs * scale
    factor = grad_xs if reference else up
    terms = term * factor / math.sqrt(xs.numel() * width.hi)
    return grad_xs, terms.sum(), terms.abs().sum()


def weight_mask(weight, step, width):
    v = (weight.to(F32) / torch.tensor(step, dtype=F32)).to(F64)
    return (v >= width.lo) & (v <= width.hi)


def nbit_backward(x, weight, scale_a, scale_w, bias, g, width, reference):
    scale_w, step = weight_step(weight, scale_w, width)
    xs = biased(x, bias)
    xs2, g2 = xs.reshape(-1, xs.shape[-1]), g.to(F64).reshape(-1, g.shape[-1])
    up = g2 @ (codes(weight, step, width).to(F64) * scale_w.to(F64))
    grad_xs, grad_scale, size = step_backward(xs2, up, scale_a, width, reference)
    q_a = codes(xs2, activation_step(scale_a), width).to(F64)
    grad_w = g2.T @ (q_a * scale_a.to(F64))
    if not reference:
        grad_w = grad_w * weight_mask(weight, step, width)
    return grad_xs.reshape(x.shape), grad_w, grad_scale, grad_xs.sum(0), size


def matmul_codes(v, clip, width):
    """The integers that an operand of a matmul is multiplied as: signs where width is None."""
    return bits(v.to(F32)) if width is None else codes(v, activation_step(clip), width).to(F64)


def matmul_forward(x, y, x_clip, y_clip, width):
    acc = matmul_codes(x, x_clip, width) @ matmul_codes(y, y_clip, width).mT
    return scaled(acc, x_clip, y_clip, x.dtype)


def matmul_backward(x, y, x_clip, y_clip, g, width, reference):
    """(gradient, size of the terms of its sum or None) of x, y, x_clip and y_clip."""

    def side(v, clip, other, other_clip, g):
        """The other operand is the weight of a layer whose input is v."""
        if width is None:
            factors = torch.sign(other.to(F64)) * other_clip.to(F64)
        else:
            factors = matmul_codes(other, other_clip, width) * other_clip.to(F64)
        up = (g.to(F64) @ factors).sum_to_size(v.shape)
        if width is not None:
            return step_backward(v, up, clip, width, reference)
        grad = up * ((v.to(F32) / clip.to(F32)).abs() <= 1)
        terms = grad * torch.sign(v.to(F64)) / math.sqrt(v.numel())
        return grad, terms.sum(), terms.abs().sum()

    (grad_x, grad_x_clip, x_size), (grad_y, grad_y_clip, y_size) = (
        side(x, x_clip, y, y_clip, g),
        side(y, y_clip, x, x_clip, g.mT),
    )
    return (grad_x, None), (grad_y, None), (grad_x_clip, x_size), (grad_y_clip, y_size)


def conv_forward(x, weight, scale_a, scale_w, bias, width, **geometry):
    scale_w, step = weight_step(weight, scale_w, width)
    q_a = codes(biased(x, bias, axis=1), activation_step(scale_a), width).to(F64)
    acc = torch.nn.functional.conv2d(q_a, codes(weight, step, width).to(F64), **geometry)
    return scaled(acc, scale_a, scale_w, x.dtype)


def conv_backward(x, weight, scale_a, scale_w, bias, g, width, reference, **geometry):
    scale_w, step = weight_step(weight, scale_w, width)
    xs = biased(x, bias, axis=1)
    q_w = codes(weight, step, width).to(F64) * scale_w.to(F64)
    q_a = codes(xs, activation_step(scale_a), width).to(F64) * scale_a.to(F64)
    up = torch.nn.grad.conv2d_input(x.shape, q_w, g.to(F64), **geometry)
    grad_xs, grad_scale, size = step_backward(xs, up, scale_a, width, reference)
    grad_w = torch.nn.grad.conv2d_weight(q_a, weight.shape, g.to(F64), **geometry)
    if not reference:
        grad_w = grad_w * weight_mask(weight, step, width)
    return grad_xs, grad_w, grad_scale, grad_xs.sum((0, 2, 3)), size


def padded(signs, padding, value):
    return torch.nn.functional.pad(signs, (padding[1], padding[1], padding[0], padding[0]), value=value)


def binary_conv_forward(x, weight, scale_a, scale_w, bias, padding, padding_value=-1, **geometry):
    signs = padded(bits(biased(x, bias, axis=1)), padding, padding_value)
    return scaled(torch.nn.functional.conv2d(signs, bits(weight), **geometry), scale_a, scale_w, x.dtype)


def binary_conv_up(shape, weight, g, padding, **geometry):
    """conv2d_input(sgn(w), g) of an image of `shape`."""
    rim = (*shape[:2], shape[2] + 2 * padding[0], shape[3] + 2 * padding[1])
    up = torch.nn.grad.conv2d_input(rim, torch.sign(weight.to(F64)), g.to(F64), **geometry)
    return up[:, :, padding[0] : padding[0] + shape[2], padding[1] : padding[1] + shape[3]]


def binary_conv_backward(x, weight, scale_a, scale_w, bias, g, padding, padding_value=-1, **geometry):
    """As binary_backward. The weight's gradient sees the padding that the forward pass saw."""
    xs = biased(x, bias, axis=1)
    inside = (xs / scale_a.to(F32)).abs() <= 1
    signs = padded(torch.sign(xs.to(F64)), padding, padding_value)
    grad_xs = binary_conv_up(x.shape, weight, g, padding, **geometry) * scale_w.to(F64) * inside
    grad_w = torch.nn.grad.conv2d_weight(signs * scale_a.to(F64), weight.shape, g.to(F64), **geometry)
    terms = grad_xs * torch.sign(xs.to(F64)) / math.sqrt(xs.numel())
    return grad_xs, grad_w, terms.sum(), grad_xs.sum((0, 2, 3)), terms.abs().sum()


def int8_grad(g):
    """The integer gradient of a weight."""
    g = g.to(F32)
    if not torch.isfinite(g).all() or not g.any():
        return torch.zeros_like(g, dtype=torch.int8)
    amax = g.max() if g.max() > 0 else g.abs().max()
    if amax < 2.0**-100:  # 127 / amax may be beyond float32
        g, amax = g * 2.0**64, amax * 2.0**64
    return torch.clamp(torch.round(g * (torch.tensor(127.0) / amax)), -127, 127).to(torch.int8)


def close(actual, wanted, dtype=F32, size=None):
    """Within the rounding of `dtype` and of a float32 sum, relative to the largest value, or to the summed terms."""
    eps = {F32: 2e-6, torch.bfloat16: 8e-3, torch.float16: 1e-3}[dtype]
    wanted = wanted.to(F64)
    bound = 4 * eps * max(1e-30, float(wanted.abs().max() if size is None else size))
    torch.testing.assert_close(actual.to(F64), wanted, rtol=eps, atol=bound)


def block_tail(x, norm, eps, shortcut, activation, slope, pool):
    """pool(act((x - mean) / sqrt(var + eps) * weight + bias + shortcut)) in float64, square by square."""
    y = x.double()
    if norm:
        column = [-1] + [1] * (x.dim() - 2)
        y = (y - norm["mean"].double().view(column)) / (norm["var"].double() + eps).sqrt().view(column)
        if "weight" in norm:
            y = y * norm["weight"].double().view(column) + norm["bias"].double().view(column)
    y = y if shortcut is None else y + shortcut.double()
    below = {"none": 1.0, "relu": 0.0, "prelu": None if slope is None else slope.item()}[activation]
    y = torch.where(y < 0, y * below, y)
    if pool == 1:
        return y
    height, width = y.shape[2] // pool, y.shape[3] // pool
    squares = y[:, :, : height * pool, : width * pool].reshape(*y.shape[:2], height, pool, width, pool)
    return squares.amax(dim=(3, 5))
