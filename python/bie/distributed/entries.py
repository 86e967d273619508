"""What a group reduces of one weight, by the kind of its gradient: codes, floats, rows of a table."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor, nn

from bie._operators import ops
from bie.distributed import exchange
from bie.weights.parameters import (
    AnchoredParameter,
    CodeRowsParameter,
    EmbeddingParameter,
    SignsParameter,
    WeightOnlyParameter,
)


class Entry:
    """A weight's place in a pass: its part, once it is ready, and what it had before."""

    kind = ""
    together = True  # whether entries of the kind are reduced by common collectives

    def __init__(self, name: str, weight: nn.Parameter) -> None:
        self.name, self.weight = name, weight
        self.ready = False
        self.part: Tensor | None = None

    @property
    def size(self) -> int:
        return self.weight.numel()

    def take(self) -> None:
        """Takes the gradient that the backward pass left."""
        self.ready, grad = True, self.weight.grad
        if grad is not None:
            self.part = grad.detach().reshape(-1).float()

    def give(self, reduced: Tensor, anywhere: bool) -> None:
        """Takes the group's gradient; ``anywhere``: whether any rank had one."""
        if anywhere:
            self.weight.grad = reduced.view(self.weight.shape).to(self.weight.dtype)

    def forget(self) -> None:
        self.ready, self.part = False, None

    def delivered(self) -> None:
        """Called at the end of a backward pass that is not reduced."""

    def between_passes(self) -> None:
        """Called before a forward pass, outside of every backward pass."""

    def abandon(self) -> None:
        """Called after a backward pass that raised: its gradients are nobody's."""
        self.forget()

    @classmethod
    def reduce(cls, entries: list[Entry], group: exchange.Group, device: torch.device) -> list[Tensor]:
        sizes = [entry.size for entry in entries]
        return exchange.mean_floats([entry.part for entry in entries], sizes, group, device)


class FloatEntry(Entry):
    """A float parameter: the mean."""

    kind = "floats"

    def give(self, reduced: Tensor, anywhere: bool) -> None:
        if anywhere:
            weight = self.weight
            dtype = weight.dtype if weight.is_floating_point() else weight.grad_dtype
            weight.grad = torch.empty_like(weight.detach(), dtype=dtype).copy_(reduced.view(weight.shape))


class _WithAnchor(Entry):
    """An int8 weight, whose gradient an operator writes."""

    def __init__(self, name: str, weight: nn.Parameter) -> None:
        super().__init__(name, weight)
        with torch.inference_mode(False), torch.enable_grad():
            # Its own: autograd visits it once per pass, when every use of the weight has delivered.
            self.anchor = torch.empty(0, device=weight.device, requires_grad=True)
            self.node = torch.autograd.graph.get_gradient_edge(self.anchor).node  # has the hook, and is kept for it

    def keep(self) -> None:
        """Called before an operator of the weight delivers."""


class WideEntry(_WithAnchor, FloatEntry):
    """An int8 weight with wide gradients: the mean."""


class CodesEntry(_WithAnchor):
    """An int8 weight: ``int8_grad`` of the sum of the ranks' codes."""

    kind = "codes"

    def __init__(self, name: str, weight: nn.Parameter) -> None:
        super().__init__(name, weight)
        if weight.grad_dtype == torch.int8:
            if weight.grad is not None and weight.grad.dtype != torch.int8:
                weight.grad = None
            weight.grad_dtype = None  # float32 parts come in, int8 codes are given back
        self.kept: Tensor | None = None  # a reduced gradient that nobody took, to which the next one is added
        self._delivered: int | None = None  # the version of the float part that stands for it between two passes

    def keep(self) -> None:
        """Makes room for a float part."""
        self._give_up_discarded()
        self._delivered = None
        grad = self.weight.grad
        if grad is not None and grad.dtype == torch.int8 and self.weight.grad_dtype is None:
            self.kept, self.weight.grad = grad, None

    def delivered(self) -> None:
        grad = self.weight.grad
        self._delivered = None if grad is None else grad._version

    def between_passes(self) -> None:
        if self.weight.grad is None:
            self.kept = None
        self._give_up_discarded()

    def abandon(self) -> None:
        super().abandon()
        self.kept = self._delivered = None

    def _give_up_discarded(self) -> None:
        """Gives up what was kept where ``zero_grad`` of any kind discarded the float part that stands for it."""
        if self.kept is None or self._delivered is None:
            return
        grad = self.weight.grad
        if grad is None or (grad._version != self._delivered and not bool(grad.any())):
            self.kept = None

    def take(self) -> None:
        self.ready, grad = True, self.weight.grad
        if grad is not None:
            self.part = grad.reshape(-1)
            self.weight.grad = None

    def give(self, reduced: Tensor, anywhere: bool) -> None:
        weight = self.weight
        self._give_up_discarded()  # of a weight that the pass did not use
        self._delivered = None
        if self.kept is None and weight.grad is not None and weight.grad.dtype == torch.int8:
            self.kept = weight.grad  # of a rank that did not use the weight
        codes = None
        if anywhere:
            codes = torch.empty_like(weight.detach(), dtype=torch.int8).copy_(reduced.view(weight.shape))
        if self.kept is not None:
            both = self.kept if codes is None else (self.kept.short() + codes).clamp_(-128, 127).to(torch.int8)
            codes, self.kept = both, None
        weight.grad = codes

    @classmethod
    def reduce(cls, entries: list[Entry], group: exchange.Group, device: torch.device) -> list[Tensor]:
        sizes = [entry.size for entry in entries]
        return exchange.sum_codes([entry.part for entry in entries], sizes, group, device)


class MajorityEntry(CodesEntry):
    """An int8 weight of signs: what most ranks vote, at a bit a weight."""

    kind = "majority"

    @classmethod
    def reduce(cls, entries: list[Entry], group: exchange.Group, device: torch.device) -> list[Tensor]:
        sizes = [entry.size for entry in entries]
        return exchange.majority_signs([entry.part for entry in entries], sizes, group, device)


class WeightOnlyEntry(Entry):
    """Packed codes whose gradient is that of the weight as floats: the mean."""

    kind = "floats"

    def __init__(self, name: str, weight: WeightOnlyParameter, shape: tuple[int, int]) -> None:
        super().__init__(name, weight)
        self.shape = shape

    @property
    def size(self) -> int:
        return self.shape[0] * self.shape[1]

    def give(self, reduced: Tensor, anywhere: bool) -> None:
        if anywhere:
            _set_anchor_grad(self.weight, reduced.view(self.shape).clone())


class RowsEntry(Entry):
    """A table, whose gradient is of some rows: those of any rank, reduced by collectives of its own."""

    kind = "rows"
    together = False

    def __init__(self, name: str, weight: AnchoredParameter, shape: tuple[int, int]) -> None:
        super().__init__(name, weight)
        self.shape = shape

    def take(self) -> None:
        self.ready, self.part = True, self.weight.grad

    def give(self, reduced: Tensor, anywhere: bool) -> None:
        if anywhere:
            _set_anchor_grad(self.weight, reduced)

    @classmethod
    def reduce(cls, entries: list[Entry], group: exchange.Group, device: torch.device) -> list[Tensor]:
        return [entry._reduce(group, device) for entry in entries]

    def _reduce(self, group: exchange.Group, device: torch.device) -> Tensor:
        """The sparse gradient of the rows that any rank has."""
        n, width = self.shape
        own, values = torch.empty(0, dtype=torch.int64, device=device), torch.empty(0, width, device=device)
        if self.part is not None and self.part.is_sparse:
            part = self.part.coalesce()
            own, values = part.indices()[0], part.values()
        elif self.part is not None:
            own, values = torch.arange(n, device=device), self.part
        rows = exchange.union_of_rows(own, group)
        reduced = self._reduce_rows(rows, torch.searchsorted(rows, own), values.float(), group)
        return torch.sparse_coo_tensor(rows.unsqueeze(0), reduced, self.shape, is_coalesced=True)

    def _reduce_rows(self, rows: Tensor, at: Tensor, values: Tensor, group: exchange.Group) -> Tensor:
        """The rows' reduced gradient [rows, width]; this rank has ``values`` at ``at``."""
        flat = torch.zeros(rows.numel(), self.shape[1], device=rows.device)
        flat[at] = values
        (mean,) = exchange.mean_floats([flat.view(-1)], [flat.numel()], group, rows.device)
        return mean.view_as(flat)


class VotesEntry(RowsEntry):
    """A table of signs: a rank votes +-1 for an element of a row that it looked up; a tie keeps the element."""

    def _reduce_rows(self, rows: Tensor, at: Tensor, values: Tensor, group: exchange.Group) -> Tensor:
        votes = torch.zeros(rows.numel(), self.shape[1], dtype=torch.int8, device=rows.device)
        votes[at] = torch.where(values < 0, -1, 1).to(torch.int8)
        total = exchange.sum_votes(votes, group)
        table = self.weight.detach()[rows]
        packed = table.dtype == torch.uint8
        signs = ops.unpack_signs(table, self.shape[1]) if packed else torch.where(table, 1, -1)
        # A vote against its sign is what leaves an element as it is.
        return torch.where(total == 0, -signs.to(torch.int8), total).float()


def _set_anchor_grad(weight: AnchoredParameter, grad: Tensor) -> None:
    """Gives the anchor a gradient in place of its own; without an anchor, one is made for it by the next forward."""
    anchor = weight.__dict__.get("_anchor")
    if anchor is None:
        weight.grad = grad
    else:
        anchor.grad = grad


def entries_of(model: nn.Module, majority: bool = False) -> Iterator[Entry]:
    """An entry for each integer weight that training moves, once each, in the order of the model.

    ``majority``: whether the gradients of 1-bit weights are votes.
    """
    seen: set[int] = set()
    for name, module in model.named_modules(remove_duplicate=True):
        weight = _weight_of(module)
        if weight is None or id(weight) in seen or not getattr(weight, "trainable", True):
            continue
        seen.add(id(weight))
        label = name or type(module).__name__
        if isinstance(weight, WeightOnlyParameter):
            yield WeightOnlyEntry(label, weight, (module.in_channels, module.out_channels))
        elif isinstance(weight, EmbeddingParameter):
            yield VotesEntry(label, weight, (module.num_embeddings, module.embedding_dim))
        elif isinstance(weight, CodeRowsParameter):
            yield RowsEntry(label, weight, (module.num_embeddings, module.embedding_dim))
        elif weight.grad_dtype is not None and weight.grad_dtype.is_floating_point:
            yield WideEntry(label, weight)
        elif majority and isinstance(weight, SignsParameter):
            yield MajorityEntry(label, weight)
        else:
            yield CodesEntry(label, weight)


def _weight_of(module: nn.Module) -> nn.Parameter | None:
    """The integer weight of a layer that training moves, in whichever of its parameters it is."""
    for name in ("weight", "qweight"):
        weight = module._parameters.get(name)
        if weight is None or weight.is_floating_point():
            continue
        if name == "weight" or isinstance(weight, AnchoredParameter):
            return weight
    return None
