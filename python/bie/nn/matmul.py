"""Products of two activations with learned step sizes."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, ClassVar

import torch
from torch import Tensor, nn

from bie._operators import ops
from bie._outside_graphs import outside_graphs
from bie.errors import ShapeError
from bie.nn.state.arguments import NamesItself, shared
from bie.nn.state.step_size import (
    COMPATS,
    EPS,
    GRAD_MODES,
    StepSizeOptions,
    code_factor,
    first_batch,
    guarded,
    kept_dtypes,
    one_of,
    smallest_step,
)
from bie.nn.state.weight_state import StagedState, check_scale, take_entry
from bie.nn.state.whole_load import load_layer
from bie.nn.state.whole_weights import WholeWeights

_CLIPS = ("x_clip", "y_clip")


class MatMulLayer(NamesItself, WholeWeights, StepSizeOptions, nn.Module):
    """``[..., m, k]`` times ``[..., n, k]`` to ``[..., m, n]``; batch axes broadcast as those of ``torch.matmul``.

    State: ``x_clip`` and ``y_clip``, 0-dim float32, learnable, whatever a module is converted to; 0 means that the
    first batch sets them. In training they stay above ``step_size_floor`` of that value; a loaded one has no floor.

    Args:
        dtype: of the operands, kept as an attribute: they may be float32, float16 or bfloat16, both the same.
        device: where the scales are made.

    Raises:
        ShapeError: operands of fewer than three axes, of other dtypes, or that do not fit each other.
    """

    @shared
    def __init__(self, dtype: torch.dtype, device: torch.device | str | None) -> None:
        with torch.inference_mode(False):
            super().__init__()
            self.dtype = dtype
            #: First-batch values of the clips that are set; 0 where there is no floor.
            self._first: dict[str, float] = {}
            for name in _CLIPS:
                self.register_parameter(name, nn.Parameter(torch.zeros((), dtype=torch.float32, device=device)))

    def _operator(self, x: Tensor, y: Tensor) -> Tensor:
        raise NotImplementedError

    def set_activation_scale(self, x: Tensor, y: Tensor) -> None:
        """Sets ``x_clip`` from x and ``y_clip`` from y where they are 0."""
        self._check_forward(x, y)
        for name, v in zip(_CLIPS, (x, y), strict=True):
            if name in self._first:
                continue
            value, fresh = first_batch(self, getattr(self, name), v, self._first_batch_factor())
            if value != 0:
                self._first[name] = value if fresh else 0.0
        guarded.add(self)

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        if not torch.compiler.is_compiling():
            return self._run(x, y)
        in_graph = not self.training or len(self._first) == len(_CLIPS)  # the first batch sets the clips outside of it
        return self._trace(x, y) if in_graph else self._train_outside_the_graph(x, y)

    if TYPE_CHECKING:  # calls have the types of forward, for editors and checkers
        __call__ = forward

    def _run(self, x: Tensor, y: Tensor) -> Tensor:
        if len(self._first) < len(_CLIPS):
            self.set_activation_scale(x, y)
        self._guard_scales()
        try:
            return self._operator(x, y)
        except (AttributeError, RuntimeError, TypeError, ValueError):
            self._check_forward(x, y)
            raise

    @outside_graphs("the first batch sets step sizes outside the graph")
    def _train_outside_the_graph(self, x: Tensor, y: Tensor) -> Tensor:
        return self._run(x, y)

    def _trace(self, x: Tensor, y: Tensor) -> Tensor:
        for name, v in zip(_CLIPS, (x, y), strict=True):
            if name not in self._first:
                with torch.no_grad():
                    ops.init_scale_(getattr(self, name).detach(), v.detach(), self._first_batch_factor())
        return self._operator(x, y)

    def _step_sizes(self) -> Iterable[str]:
        return _CLIPS

    def _take_first_value(self, name: str, value: float) -> None:
        self._first[name] = value

    def _first_values(self) -> Iterable[tuple[Tensor, float]]:
        return [(getattr(self, name), first) for name, first in self._first.items()]

    def _check_forward(self, x: Tensor, y: Tensor) -> None:
        for name, v in (("x", x), ("y", y)):
            if not isinstance(v, Tensor):
                raise TypeError(f"{type(self).__name__}: {name}: expected a tensor, got a {type(v).__name__}")
        fits = x.dim() >= 3 and y.dim() >= 3 and x.shape[-1] == y.shape[-1] > 0
        if not fits or any(1 != a != b != 1 for a, b in zip(x.shape[-3::-1], y.shape[-3::-1], strict=False)):
            raise self._shape_error(x, y, "[..., m, k] and [..., n, k] of at least three axes, k > 0")
        if x.dtype != y.dtype or x.dtype not in (torch.float32, torch.float16, torch.bfloat16):
            raise self._shape_error(x, y, "float32, float16 or bfloat16, the same for both")

    def _shape_error(self, x: Tensor, y: Tensor, wanted: str) -> ShapeError:
        got = f"{list(x.shape)} of {x.dtype} and {list(y.shape)} of {y.dtype}"
        return ShapeError(f"{type(self).__name__}: x and y: expected {wanted}, got {got}")

    # Hooks that torch calls on modules.

    def __setattr__(self, name: str, value: Any) -> None:
        super().__setattr__(name, value)
        if name in _CLIPS:
            self._first.pop(name, None)
        elif name == "eps":
            self._forget()

    def _scales(self) -> list[str]:
        return [name for name in (*_CLIPS, "eps") if getattr(self, name, None) is not None]

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> MatMulLayer:
        with torch.inference_mode(False), kept_dtypes(self, self._scales()):
            super()._apply(fn, recurse)
        self._forget()
        return self

    def _load_from_state_dict(
        self, state_dict: dict[str, Any], prefix: str, local_metadata: dict[str, Any], *lists: Any
    ) -> None:
        scales = self._scales()

        def check(own: dict[str, Any], prefix: str) -> StagedState:
            values = {name: check_scale(prefix + name, name, tensor) for name, tensor in own.items()}
            return StagedState(values, missing=[name for name in scales if name not in values])

        def take(staged: StagedState) -> None:
            for name, value in staged.values.items():
                take_entry(self, name, value, assign=local_metadata.get("assign_to_params_buffers", False))
                self._first.pop(name, None)
            self._forget()

        load_layer(self, scales, check, take, state_dict, prefix, local_metadata, *lists)

    def extra_repr(self) -> str:
        return ", ".join(self._mode_of())


class CodesMatMul(MatMulLayer):
    """What the products of 8- and 4-bit codes share: the smallest step size ``eps``, a buffer, and the gradient mode.

    A write into ``eps`` is seen once it is assigned, loaded or moved.
    """

    _bits: ClassVar[int]

    @shared
    def __init__(
        self,
        dtype: torch.dtype = torch.float,
        device: torch.device | str | None = None,
        *,
        grad_mode: str = "exact",
        compat: str = "none",
    ) -> None:
        with torch.inference_mode(False):
            super().__init__(dtype, device)
            self._grad_mode = one_of("grad_mode", grad_mode, GRAD_MODES)
            self._compat = one_of("compat", compat, COMPATS)
            self.register_buffer("eps", torch.full((), EPS, dtype=torch.float32, device=device))
            self._forget()

    def _forget(self) -> None:
        self._smallest_step = smallest_step(self._buffers.get("eps"))

    def _first_batch_factor(self) -> float:
        return code_factor(self._bits, self._compat)

    def _operator(self, x: Tensor, y: Tensor) -> Tensor:
        op = ops.q8_matmul.default if self._bits == 8 else ops.q4_matmul.default
        reference = self.grad_mode == "reference"
        return op(x, y, self.x_clip, self.y_clip, eps=self._smallest_step, reference_grad=reference)


class BinaryMatMul(MatMulLayer):
    __doc__ = f"""``out = (k - 2*popcount(bit(x) XOR bit(y))) * x_clip * y_clip``: the product of two activations.

    The first batch sets ``x_clip = 2*mean|x|`` and ``y_clip = 2*mean|y|``. BITorch Engine counts the zeros that it pads
    with as bits and scales twice; this is exact.

    Backward, for each side v with the other side u: ``grad_v = (g . sgn(u)) * u_clip`` inside ``|v / v_clip| <= 1``,
    else 0; ``grad_v_clip = sum(grad_v * sgn(v)) / sqrt(numel(v))``.
    Source: docs/spec/binary-linear.md#product-of-two-activations.

    {MatMulLayer.__doc__.rstrip()}

    Example::

        >>> product = bie.nn.BinaryMatMul()
        >>> product(torch.randn(2, 3, 16), torch.randn(2, 5, 16)).shape
        torch.Size([2, 3, 5])
    """

    def __init__(self, dtype: torch.dtype = torch.float, *, device: torch.device | str | None = None) -> None:
        super().__init__(dtype, device)

    def _first_batch_factor(self) -> float:
        return 2.0

    def _operator(self, x: Tensor, y: Tensor) -> Tensor:
        return ops.binary_matmul.default(x, y, self.x_clip, self.y_clip)


class Q8MatMul(CodesMatMul):
    __doc__ = f"""``out = (q_x . q_y^T) * x_clip * y_clip``, exact in int32: the product of two 8-bit activations.

    ``q_x = clamp(rint(x / max(x_clip, eps)), -128, 127)``, ``q_y`` likewise; the first batch sets
    ``x_clip = 2*mean|x| / 11.269`` and ``y_clip`` from y.
    BITorch Engine has none.

    Backward: each side as the activation of :class:`Q8Linear`, the other one being its weight.
    Source: docs/spec/nbit-linear.md#products-of-two-activations.

    {MatMulLayer.__doc__.rstrip()}

    Example::

        >>> product = bie.nn.Q8MatMul()
        >>> product(torch.randn(2, 3, 16), torch.randn(2, 5, 16)).shape
        torch.Size([2, 3, 5])
    """

    _bits = 8


class Q4MatMul(CodesMatMul):
    __doc__ = f"""``out = (q_x . q_y^T) * x_clip * y_clip``, exact in int32: the product of two 4-bit activations.

    ``q_x = clamp(rint(x / max(x_clip, eps)), -8, 7)``, ``q_y`` likewise; the first batch sets
    ``x_clip = 2*mean|x| / 5.6345`` and ``y_clip`` from y.
    BITorch Engine takes ``y_clip`` from x too, clips the gradient at 8 bits and
    quantises it; here it is the float one.

    Backward: each side as the activation of :class:`Q4Linear`, the other one being its weight.
    Source: docs/spec/nbit-linear.md#products-of-two-activations.

    {MatMulLayer.__doc__.rstrip()}

    Example::

        >>> product = bie.nn.Q4MatMul()
        >>> product(torch.randn(2, 3, 16), torch.randn(2, 5, 16)).shape
        torch.Size([2, 3, 5])
    """

    _bits = 4
