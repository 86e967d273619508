"""How torch.utils.flop_counter counts the operators: two operations a multiply-add, whatever the width."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from torch import Tensor
from torch.utils.flop_counter import register_flop_formula

from bie._operators import ops


def _conv_macs(out: Tensor, x: Tensor, kernel: Sequence[int], groups: int) -> int:
    return out.numel() * (x.shape[1] // groups) * math.prod(kernel)


def _kernel(weight: Tensor, kernel_size: Sequence[int] | None) -> Sequence[int]:
    return weight.shape[2:] if kernel_size is None else kernel_size


def _linear(x: Tensor, weight: Tensor, *args: Any, in_features: int | None = None, out_val: Tensor, **_: Any) -> int:
    return 2 * out_val.numel() * (in_features or x.shape[-1])


def _linear_backward(g: Tensor, x: Tensor, *args: Any, weight_grad: Any = None, out_val: Any = None, **_: Any) -> int:
    return 2 * g.numel() * x.shape[-1] * (1 + (weight_grad is not None))


def _conv2d(x: Tensor, weight: Tensor, *args: Any, groups: int = 1, out_val: Tensor, **options: Any) -> int:
    return 2 * _conv_macs(out_val, x, _kernel(weight, options.get("kernel_size")), groups)


def _conv2d_backward(
    g: Tensor, x: Tensor, weight: Tensor, *args: Any, groups: int = 1, weight_grad: Any = None, **options: Any
) -> int:
    return 2 * _conv_macs(g, x, _kernel(weight, options.get("kernel_size")), groups) * (1 + (weight_grad is not None))


def _matmul(x: Tensor, y: Tensor, *args: Any, out_val: Tensor, **_: Any) -> int:
    return 2 * out_val.numel() * x.shape[-1]


def _matmul_backward(g: Tensor, x: Tensor, *args: Any, want_x: bool, want_y: bool, **_: Any) -> int:
    return 2 * g.numel() * x.shape[-1] * (want_x + want_y)


def _weight_only_backward(
    g: Tensor, x: Tensor, *args: Any, want_x: bool = True, want_weight: bool = True, **_: Any
) -> int:
    return 2 * g.numel() * x.shape[-1] * (want_x + want_weight)


_FORMULAS = {
    _linear: ("binary_linear", "q8_linear", "q4_linear", "weight_only_linear"),
    _linear_backward: ("binary_linear_backward", "q8_linear_backward", "q4_linear_backward"),
    _conv2d: ("binary_conv2d", "q8_conv2d", "q4_conv2d"),
    _conv2d_backward: ("binary_conv2d_backward", "q8_conv2d_backward", "q4_conv2d_backward"),
    _matmul: ("binary_matmul", "q8_matmul", "q4_matmul"),
    _matmul_backward: ("binary_matmul_backward", "q8_matmul_backward", "q4_matmul_backward"),
    _weight_only_backward: ("weight_only_linear_backward",),
}

for _formula, _names in _FORMULAS.items():
    register_flop_formula([getattr(ops, _name) for _name in _names], get_raw=True)(_formula)
