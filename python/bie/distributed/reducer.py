"""The reducer of a model's integer gradients: hooks, buckets, the end of a backward pass."""

from __future__ import annotations

import contextlib
import threading
import weakref
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from bie.distributed import exchange
from bie.distributed.agreement import Agreement
from bie.distributed.checks import Checksums, RanksDifferError, check_same_model
from bie.distributed.entries import CodesEntry, Entry, FloatEntry, WideEntry, entries_of
from bie.distributed.hooks import Weakly
from bie.distributed.line import Line
from bie.distributed.plan import buckets_of, kinds_of
from bie.nn.state.step_size import StepSizeOptions, step_size_layers
from bie.weights.membership import Membership
from bie.weights.parameters import QuantParameter

_BINARY = ("codes", "majority")


def _nothing() -> None:
    return None


class IntegerReducer:
    """Reduces the gradients of a model's integer weights over a process group, while the backward pass runs.

    ``DistributedDataParallel(model)`` makes one by itself. Made by hand, it serves a model that is not wrapped: it then
    gives all ranks rank 0's integer weights and buffers, and reduces in each backward pass outside ``no_sync()``.

    * int8 gradients: ``int8_grad(sum over the ranks of rint(g * 127 / A))``, A the group's largest ``|g|``.
    * Wide gradients, those of weight-only weights, and ``floats``: the mean.
    * Binary embeddings: the sum of votes of +-1 for the rows that any rank looked up; a tie keeps the element.
    * First-batch step sizes: those of the group's first batch; DiodeMix's seed: rank 0's.

    The same bits come to every rank. All ranks make their reducers, forward and backward passes in the same order.

    Args:
        model: its integer weights train in this group from here on.
        process_group: the default group by default.
        bucket_elements: gradients are sent in buckets of at least so many elements, the last layers' first.
        check_every: passes between two comparisons of the ranks' weights; 0 for none.
        floats: parameters whose mean gradient nobody else makes.
        binary: ``"codes"``, or ``"majority"``: the int8 gradient of a 1-bit weight is 127 or -127, as most ranks vote,
            at a bit a weight on the wire. May be set later, before a forward pass, on all ranks.

    Raises:
        RanksDifferError: the ranks hold other models; in a backward pass: other weights.
        RuntimeError (in the backward pass): a rank is gone, or does not come within the group's timeout.

    Source: docs/spec/distributed.md.

    Example::

        >>> store = torch.distributed.HashStore()
        >>> torch.distributed.init_process_group("gloo", store=store, rank=0, world_size=1)
        >>> layer = bie.nn.BinaryLinear(8, 4)
        >>> bie.prepare(layer)
        >>> reducer = bie.distributed.IntegerReducer(layer)
        >>> layer(torch.randn(3, 8)).sum().backward()
        >>> layer.weight.grad.dtype
        torch.int8
        >>> torch.distributed.destroy_process_group()
    """

    def __init__(
        self,
        model: nn.Module,
        process_group: dist.ProcessGroup | None = None,
        *,
        bucket_elements: int = 1 << 22,
        check_every: int = 100,
        floats: Iterable[nn.Parameter] = (),
        binary: str = "codes",
    ) -> None:
        self._attach(model, process_group, bucket_elements, check_every, list(floats))
        self.binary = binary
        self._syncs: Callable[[], bool] = lambda: not self._without_sync
        self._handles.append(model.register_forward_pre_hook(Weakly(self._begin)))
        model.__dict__["_integer_reducer"] = self  # lives as long as the model
        self.broadcast()

    def _attach(
        self,
        model: nn.Module,
        process_group: dist.ProcessGroup | None,
        bucket_elements: int,
        check_every: int,
        floats: list[nn.Parameter],
    ) -> None:
        group = dist.group.WORLD if process_group is None else process_group
        self._groups = [exchange.own_group(group)]
        # A group that goes with the interpreter takes the process along: its threads hold tensors of Python's.
        weakref.finalize(self, self._groups.clear)
        self.ranks = dist.get_process_group_ranks(group)
        self.world = len(self.ranks)
        self.bucket_elements, self.check_every = bucket_elements, check_every
        self._model = weakref.ref(model)
        self._floats, self._without_sync, self._binary = floats, False, _BINARY[0]
        self._plan: list[list[Entry]] = []
        self._planned: tuple[Any, ...] = ()
        self._entries: dict[int, Entry] = {}
        self._state = "idle"  # "open": a pass whose gradients are reduced; "local": one whose are not
        self._end: weakref.ref | None = None  # of what autograd calls at the end of the pass, and drops if it raises
        self._sent = 0
        self._passes = 0
        self._reduced: list[tuple[Entry, Tensor]] = []
        self._lock = threading.RLock()
        self._line = Line()
        self._sums = Checksums(model)
        self._handles: list[Any] = []
        self._device = next((p.device for p in model.parameters()), torch.device("cpu"))
        check_same_model(model, self.group, self._device)
        self._join(model)

    def _join(self, model: nn.Module) -> None:
        membership = Membership(self)
        for weight in model.parameters():
            if weight.requires_grad:
                self._handles.append(weight.register_post_accumulate_grad_hook(Weakly(self._touch)))
        for module in model.modules():
            for name in ("weight", "qweight"):
                weight = module._parameters.get(name)
                if weight is not None and (isinstance(weight, QuantParameter) or not weight.is_floating_point()):
                    weight.reducer = membership
        self._layers = list(step_size_layers(model))
        self._agreement = Agreement(model, self._layers)
        for layer in self._layers:
            layer._membership = membership

    @property
    def group(self) -> dist.ProcessGroup:
        """The process group of the reductions, of the ranks of the one that was given."""
        return self._groups[0]

    @property
    def binary(self) -> str:
        """How int8 gradients of 1-bit weights travel; the same on all ranks."""
        return self._binary

    @binary.setter
    def binary(self, value: str) -> None:
        if value not in _BINARY:
            raise ValueError(f"binary: expected {' or '.join(map(repr, _BINARY))}, got {value!r}")
        self._binary, self._planned = value, ()

    def __deepcopy__(self, memo: dict) -> None:
        """A copy of a model is in no group."""

    def __reduce__(self) -> tuple:
        return _nothing, ()

    def close(self) -> None:
        """Leaves the model to whoever reduces it next."""
        for handle in self._handles:
            handle.remove()
        self._handles.clear()
        self._line.close()

    # A pass: forward.

    @contextlib.contextmanager
    def no_sync(self) -> Iterator[None]:
        """Forward passes in here leave their gradients on the rank, where they add up in float32."""
        before, self._without_sync = self._without_sync, True
        try:
            yield
        finally:
            self._without_sync = before

    def broadcast(self) -> None:
        """Gives every rank the integer weights, floats outside the optimizer and buffers of the group's rank 0."""
        model = self._model()
        scales = [scale for layer in self._layers for scale, _ in layer._first_values()]
        fixed = [weight for weight in model.parameters() if not weight.requires_grad]
        self._broadcast([*fixed, *model.buffers(), *self._floats, *scales])

    def _broadcast(self, tensors: Iterable[Tensor]) -> None:
        with torch.no_grad():
            for tensor in tensors:
                whole = tensor.detach().view(torch.uint8) if tensor.dtype == torch.bool else tensor.detach()
                dist.broadcast(whole, self.ranks[0], group=self.group)

    def _begin(self, *_: Any) -> None:
        """Before a forward pass of the model."""
        model = self._model()
        if not torch.is_grad_enabled() or model is None:
            return
        others = {id(found): found for layer in self._layers if (found := layer._membership.reducer()) is not self}
        if others:
            if all(other is not None and other._state != "idle" for other in others.values()):
                return  # of a wrapper around this one, in whose pass we are
            raise RuntimeError(
                "bie.distributed: the model has been given to another reducer since; run the wrapper that was made last"
            )
        self._leave_broken_pass()
        if torch._C._current_graph_task_id() == -1:  # a checkpointed part runs forward in a backward pass
            for entry in self._entries.values():
                entry.between_passes()
        for layer in self._layers:
            layer._prepare_for_group()
        self._replan(model)
        self._state = "open" if self._syncs() else "local"

    def _replan(self, model: nn.Module) -> None:
        if kinds_of(model) == self._planned:
            return
        entries = [
            *entries_of(model, self._binary == "majority"),
            *(FloatEntry(f"floats[{i}]", p) for i, p in enumerate(self._floats)),
        ]
        old = {id(entry.weight): entry for entry in self._entries.values()}
        kept: list[Entry] = []
        for entry in entries:
            before = old.get(id(entry.weight))
            same = before is not None and type(before) is type(entry)
            kept.append(before if same else entry)
            if not same and isinstance(entry, WideEntry | CodesEntry):
                self._watch(entry)
        for i, entry in enumerate(kept):
            if isinstance(entry.weight, QuantParameter):
                entry.weight.reducer = Membership(self)
            elif i >= len(kept) - len(self._floats) and entry not in old.values():
                entry.weight.register_post_accumulate_grad_hook(Weakly(self._arrived))
        self._entries = {id(entry.weight): entry for entry in kept}
        self._plan = buckets_of(kept, self.bucket_elements)
        self._planned = kinds_of(model)

    def _watch(self, entry: WideEntry | CodesEntry) -> None:
        arrived, reference = Weakly(self._arrived), weakref.ref(entry.weight)
        entry.node.register_hook(lambda *_: arrived(reference()))

    def anchor(self, weight: nn.Parameter) -> Tensor | None:
        """What tells an operator to write the weight's gradient, and us that it has; None for a weight of no pass."""
        entry = self._entries.get(id(weight))
        return entry.anchor if isinstance(entry, WideEntry | CodesEntry) else None

    def before(self, y: Tensor, weight: nn.Parameter) -> None:
        """Makes room for the float part of a weight when the backward pass reaches its output."""
        entry = self._entries.get(id(weight))
        if isinstance(entry, CodesEntry) and y.grad_fn is not None:
            y.grad_fn.register_prehook(lambda _: entry.keep())

    def watch_anchor(self, weight: nn.Parameter, anchor: Tensor) -> None:
        """The float leaf of a packed weight was made."""
        arrived, reference = Weakly(self._arrived), weakref.ref(weight)
        anchor.register_post_accumulate_grad_hook(lambda _: arrived(reference()))

    def note_first_batch(self, scale: Tensor, x: Tensor) -> None:
        """A layer has set a step size from this rank's first batch."""
        self._agreement.note_first_batch(scale, x)

    # A pass: backward.

    def _touch(self, *_: Any) -> None:
        """Something of the model has a gradient: the end of this pass is ours too."""
        self._leave_broken_pass()
        if self._state == "open" and self._end is None:

            def end() -> None:
                self._finish()

            self._end = weakref.ref(end)
            torch.autograd.Variable._execution_engine.queue_callback(end)

    def _leave_broken_pass(self) -> None:
        """After a backward pass that raised: its collectives end, for which other ranks may wait, and its gradients are
        nobody's."""
        if self._end is None or self._end() is not None:
            return
        state = self._state
        try:
            self._run()
        finally:
            self._reduced, self._end, self._sent, self._state = [], None, 0, state
            for entry in self._entries.values():
                entry.abandon()

    def _arrived(self, weight: nn.Parameter | None) -> None:
        entry = self._entries.get(id(weight))
        if entry is None:
            return
        if self._state == "local":
            entry.delivered()
            return
        if self._state == "idle":
            raise RuntimeError(
                f"bie.distributed: {entry.name} has a gradient of a second backward pass through one forward pass, "
                "which the group does not reduce; run the forward pass again"
            )
        with self._lock:
            self._touch()
            entry.take()
            while self._sent < len(self._plan) and all(other.ready for other in self._plan[self._sent]):
                self._send()

    def _send(self) -> None:
        bucket = self._plan[self._sent]
        self._sent += 1

        def reduce() -> None:
            reduced = type(bucket[0]).reduce(bucket, self.group, self._device)
            self._reduced.extend(zip(bucket, reduced, strict=True))

        self._line.put(reduce, self._device)

    def _finish(self) -> None:
        """At the end of a backward pass: what is missing counts as zeros; gradients are given when all are there."""
        names = ", ".join(entry.name for entry in list(self._entries.values())[:3])
        try:
            anywhere, fresh, seed = self._run()
            self._settle(fresh, seed)
        except RanksDifferError:
            raise
        except RuntimeError as error:
            raise RuntimeError(
                f"bie.distributed: rank {dist.get_rank(self.group)} of {self.world} lost its group while it reduced "
                f"integer gradients ({names}, ...): {error}"
            ) from error
        finally:
            reduced, self._reduced = self._reduced, []
            here = {id(entry): entry for entry in self._entries.values()}
            self._state, self._end, self._sent = "idle", None, 0
        for (entry, gradient), there in zip(reduced, anywhere, strict=True):
            entry.give(gradient, there)
        for entry in here.values():
            entry.forget()

    def _run(self) -> tuple[list[bool], bool, int]:
        with self._lock:
            while self._sent < len(self._plan):
                self._send()
        order = [entry for bucket in self._plan for entry in bucket]
        words = [
            int(self._agreement.has_first_batch),
            self._agreement.own_seed(self.group),
            *(int(entry.part is not None) for entry in order),
        ]
        header = torch.tensor(words, dtype=torch.int64, device=self._device)
        self._line.put(lambda: dist.all_reduce(header, dist.ReduceOp.MAX, group=self.group), self._device)
        self._line.wait(self._device)
        fresh, seed, *anywhere = header.tolist()
        return [bool(there) for there in anywhere], bool(fresh), seed

    def shadow(self) -> None:
        """The collectives of a pass in which this rank has nothing."""
        model = self._model()
        for layer in self._layers:
            layer._prepare_for_group()
        self._replan(model)
        self._state = "open"
        self._finish()

    def take_state(self, is_last_joiner: bool) -> None:
        """Gives every rank the integer optimizers' state of the rank that joined last, which stepped to the end."""
        self._agreement.share_state(is_last_joiner, self.group, self._device)

    def _settle(self, fresh: bool, seed: int) -> None:
        """First-batch step sizes, the random streams, and now and then a comparison of the weights."""
        if fresh:
            self._agreement.settle_step_sizes(self.group, self._device)
        self._agreement.take_seed(seed)
        self._passes += 1
        if self.check_every and self._passes % self.check_every == 0:
            self.check()

    def check(self) -> None:
        """Compares the integer weights and the step sizes of all ranks.

        Raises:
            RuntimeError: they differ; it names the layers and the ranks.
        """
        self._sums.compare(self.group)


def reducer_of(model: nn.Module) -> IntegerReducer | None:
    """The reducer of a model's integer gradients: that of the wrapper, or one made by hand; None where there is none.

    Example::

        >>> bie.distributed.reducer_of(bie.nn.BinaryLinear(8, 4)) is None
        True
    """
    for module in model.modules():
        found = module.__dict__.get("_integer_reducer")
        if found is None and isinstance(module, StepSizeOptions):
            found = module._membership.reducer()
        if isinstance(found, IntegerReducer):
            return found
    return None


def train_alone(model: nn.Module) -> None:
    """Lets this process train a model's integer weights by itself, though it is one of several.

    Example::

        >>> bie.distributed.train_alone(bie.nn.BinaryLinear(8, 4))
    """
    for module in model.modules():
        for name in ("weight", "qweight"):
            weight = module._parameters.get(name)
            if weight is not None and (isinstance(module, StepSizeOptions) or isinstance(weight, QuantParameter)):
                weight.reducer = Membership(alone=True)
