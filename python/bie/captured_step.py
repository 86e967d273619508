"""``CapturedStep``: a training step whose forward and backward passes are one CUDA graph."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from bie.weights.update_rules import gradient_of

_EAGER_CALLS = 3  # a layer's first training batches set its scales, and CUDA's libraries make their workspaces


class CapturedStep:
    """Forward, loss, backward and optimizer in one call, the first three as one CUDA graph.

    A small net on a fast GPU waits for the Python that queues its kernels; a graph is queued at once. The first three
    calls run as they are written, the next one whose arguments have the shapes and dtypes of the call before is
    captured, and from then on the graph is replayed on copies of the arguments. Arguments of other shapes or dtypes, as
    a last batch of few, run as they are written. So does every call where an argument is not on CUDA.

    Args:
        loss_of: of tensors, the loss: ``lambda x, y: cross_entropy(model(x), y)``, ``torch.autocast`` inside of it.
            It must do the same in every call and must not read values back (``item()``, ``if tensor:``).
        optimizer: holds every parameter that is trained. It steps outside of the graph, so step numbers, learning rates
            of a scheduler and random numbers go on.

    A call takes what ``loss_of`` takes and returns the loss, detached; the next call overwrites it. The step clears
    gradients itself; they stay in ``.grad`` until the next call. Models in several processes want a step of their own:
    reductions are not captured.

    Raises:
        TypeError: an argument of a call is no tensor.
        RuntimeError: ``loss_of`` waits for the device while it is captured; or other parameters are trained since.

    Source: "CUDA Graphs" in torch's notes on CUDA semantics.

    Example::

        >>> model = torch.nn.Sequential(bie.nn.BinaryLinear(8, 4))
        >>> optimizer = bie.optim.DiodeMix(model.parameters(), lr=1e-2)
        >>> step = bie.CapturedStep(lambda x: model(x).square().mean(), optimizer)
        >>> losses = [float(step(torch.randn(3, 8))) for _ in range(5)]
    """

    def __init__(self, loss_of: Callable[..., Tensor], optimizer: torch.optim.Optimizer) -> None:
        self.loss_of, self.optimizer = loss_of, optimizer
        self._eager_calls = 0
        self._graph: torch.cuda.CUDAGraph | None = None
        self._forms: list[tuple[torch.Size, torch.dtype]] = []  # of the last call, then of the captured one
        self._inputs: list[Tensor] = []
        self._grads: list[tuple[Tensor, Tensor]] = []
        self._captured: list[tuple[int, bool]] = []
        self._loss: Tensor | None = None

    def _params(self) -> list[Tensor]:
        return [param for group in self.optimizer.param_groups for param in group["params"]]

    def _trained(self) -> list[tuple[int, bool]]:
        return [(id(param), param.requires_grad) for param in self._params()]

    def __call__(self, *inputs: Tensor) -> Tensor:
        for x in inputs:
            if not isinstance(x, Tensor):
                raise TypeError(f"CapturedStep: expected arguments that are tensors, got a {type(x).__name__}")
        if not all(x.is_cuda for x in inputs):
            return self._eager(inputs)
        forms = [(x.shape, x.dtype) for x in inputs]
        if self._graph is None:
            before, self._forms = self._forms, forms
            if self._eager_calls < _EAGER_CALLS or forms != before:
                self._eager_calls += 1
                return self._beside(inputs)
            self._capture(inputs)
        if forms != self._forms:
            return self._eager(inputs)
        assert self._graph is not None and self._loss is not None
        if self._trained() != self._captured:
            raise RuntimeError("CapturedStep: other parameters are trained than when it was captured; make a new one")
        for own, given in zip(self._inputs, inputs, strict=True):
            own.copy_(given)
        for param, grad in self._grads:
            param.grad = grad  # others may have cleared it
        self._graph.replay()
        self.optimizer.step()
        return self._loss

    def _passes(self, inputs: tuple[Tensor, ...] | list[Tensor]) -> Tensor:
        loss = self.loss_of(*inputs)
        loss.backward()
        return loss.detach()

    def _eager(self, inputs: tuple[Tensor, ...]) -> Tensor:
        self.optimizer.zero_grad(set_to_none=True)
        loss = self._passes(inputs)
        self.optimizer.step()
        return loss

    def _beside(self, inputs: tuple[Tensor, ...]) -> Tensor:
        """An eager call on a stream of its own, which capturing wants of what came before."""
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            loss = self._eager(inputs)
        torch.cuda.current_stream().wait_stream(stream)
        return loss

    def _capture(self, inputs: tuple[Tensor, ...]) -> None:
        self._inputs = [x.detach().clone() for x in inputs]
        self.optimizer.zero_grad(set_to_none=True)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            self._loss = self._passes(self._inputs)
        params = self._params()
        for param in params:
            if gradient_of(param) is not None and param.grad is None:
                raise RuntimeError(
                    f"CapturedStep: the gradient of a packed weight of shape {list(param.shape)} is not captured; "
                    "train such a model without it"
                )
        self._grads = [(param, param.grad) for param in params if param.grad is not None]
        self._captured = self._trained()
        self._graph = graph
