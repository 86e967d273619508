"""What all quantised layers share: the forms of the weight, the activation's bias and step size, files, refusals."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import torch
from torch import Tensor, nn
from torch.fx import Proxy

from bie._operators import ANCHOR, FROZEN, ops
from bie._outside_graphs import outside_graphs
from bie.errors import ShapeError
from bie.nn.state.layer_state import LayerState
from bie.nn.state.panels import kernel_of
from bie.nn.state.saved_tensors import past_hooks
from bie.nn.state.seen import version_of
from bie.nn.state.step_size import (
    COMPATS,
    GRAD_MODES,
    StepSizeOptions,
    first_batch,
    guarded,
    one_of,
    set_compat,
    set_grad_mode,
)
from bie.weights.parameters import QuantParameter, has_optimizer

__all__ = ["COMPATS", "GRAD_MODES", "QuantLayer", "quant_layers", "set_compat", "set_grad_mode"]


class _Ready(NamedTuple):
    """What evaluation derives from a weight, and which weight that was."""

    source: Tensor
    address: int
    stride: tuple[int, ...]
    version: int | None
    scale_seen: Tensor | None
    scale_version: int | None  # None where nothing was derived from the scale's value
    weight: Tensor
    whole: bool  # the weight is there, and not its shape alone
    scale_w: Tensor | None
    options: dict[str, Any]
    storage: Tensor  # keeps the source's address from being used again


class QuantLayer(StepSizeOptions, LayerState):
    """Base of all layers with low-bit weights. Source: docs/spec/index.md.

    State, by the keys of BITorch Engine 0.2.6:

    =============  =====================================================================================================
    weight         float, or int8 once prepared for an integer optimizer; ``None`` once only ``qweight`` is kept
    qweight        the packed weight, where ``generate_quantized_weight`` made it or a file held it; else ``None``
    bias_a         ``[in]`` zeros, learnable, added to the activation before it is quantised
    scale_a        0-dim float32, learnable; 0 means that the first batch sets it
    scale_w        0-dim float32, not learned
    eps            0-dim, the smallest step size (8- and 4-bit layers)
    bias           ``[out]`` added to the output, where the layer was made with ``bias=True``
    channel_scale  ``[out]`` float32, not learned, where the layer was made with ``channel_scale=True``
    =============  =====================================================================================================

    The gradient of ``scale_a`` is divided by the square root of its batch's elements: over m equal micro-batches it
    adds up to sqrt(m) times the whole batch's (docs/training.md).

    Scales stay float32 whatever ``.half()`` or ``.to(dtype)`` is asked for.

    Training uses ``weight``; evaluation the packed form of the weight as it is: packed on first use, anew when the
    weight has changed (told by its memory and version), forgotten by ``train()`` and ``eval()``; packed in every call
    where the weight was made in inference mode, which counts no versions. That form is never saved, copied or pickled.
    A write through ``weight.data`` in evaluation cannot be seen, nor one by a fused optimizer, nor one into ``eps``,
    nor, by a compiled graph on CUDA, one into ``qweight``: call ``repack()``. A ``qweight`` beside a float weight is
    stale once the weight or ``scale_w`` was written into, but not through ``.data``: generate it anew.

    Options of the constructors, which BITorch Engine's do not have:

    * ``latent``: keep the weight as a float that any optimizer trains (default of 8- and 4-bit layers), or make it int8
      for ``DiodeMix`` (default of 1-bit layers).
    * ``grad_mode``: ``"exact"`` (learned step size quantization, Esser et al. 2020) or ``"reference"`` (what BITorch
      Engine computes); 8- and 4-bit layers only.
    * ``channel_scale``: the output is multiplied by one scale a channel before the bias, so that the weight is
      ``channel_scale[o] * scale_w * code`` (8- and 4-bit layers). ``set_weight_data`` chooses it.
    * ``compat="bie-0.2.6"``: BITorch Engine's values where these differ on purpose (docs/migration.md).

    Integer weights train outside ``torch.compile`` graphs, float ones inside once the layer has seen its first batch.
    ``DataParallel``, ``FullyShardedDataParallel`` and ``torch.func`` transforms are refused. In several processes:
    docs/distributed.md.
    """

    _feature_axis: ClassVar[int] = -1
    _versions: tuple[int | None, ...] | None = None  # of weight, scale_a and bias_a in the last training batch
    _warned_of_gradient = False
    _warned_of_packed = False
    _trained = False  # whether a float weight ran in training since its step sizes were last taken away
    _generation = 0  # how many times the derived forms were forgotten

    def __init__(
        self,
        weight_shape: tuple[int, ...],
        *,
        latent: bool,
        grad_mode: str = "exact",
        compat: str = "none",
        **tensors: Any,
    ) -> None:
        self._forget()
        super().__init__(weight_shape, **tensors)
        self._latent = latent
        self._grad_mode = one_of("grad_mode", grad_mode, GRAD_MODES)
        self._compat = one_of("compat", compat, COMPATS)
        if self._scaled:
            self._register_activation()

    # Methods that each kind of layer overrides.

    def _prepack(self, packed: Tensor) -> Tensor:
        """A kernel's arrangement of a packed weight."""
        raise NotImplementedError

    def _options(self, panels: Tensor | None = None, anchor: Tensor | None = None) -> dict[str, Any]:
        """The operator's keyword arguments that are not its defaults: each one costs a call a quarter microsecond."""
        options = {"panels": panels, "anchor": anchor}
        return {name: tensor for name, tensor in options.items() if tensor is not None}

    def _operator(
        self, x: Tensor, bias_a: Tensor | None, weight: Tensor, scale_w: Tensor | None, options: dict[str, Any]
    ) -> Tensor:
        raise NotImplementedError

    def _training_scale(self) -> Tensor | None:
        """The scale that a float weight trains with; ``None`` where the operator computes it."""
        raise NotImplementedError

    def _check_forward(self, x: Tensor) -> None:
        """``ShapeError`` unless the layer can take x, ``TypeError`` for what is no tensor."""
        raise NotImplementedError

    # The weight.

    def prepare_params(self) -> None:
        """Makes the weight ready for training; acts once, on a float weight."""
        raise NotImplementedError(f"{type(self).__name__} is a base class: prepare_params belongs to its subclasses")

    def repack(self) -> None:
        """Forgets every derived form of the weight."""
        self._forget()

    @property
    def opt_weight(self) -> Tensor:
        """``weight`` in training; in evaluation the packed form (``qweight``) of the weight as it is."""
        if self.weight is None:
            return self.qweight
        if self.training:
            return self.weight
        if not self._qweight_is_current:
            with torch.no_grad():
                return self._to_file(self._pack()[0])
        return self.qweight

    def _forget(self) -> None:
        self._generation += 1
        self._ready: _Ready | None = None
        # For a layer that has only qweight, graphs read the kernel's panels, and qweight's memory as a plain tensor,
        # because AOTInductor takes no parameters of other classes.
        self._packed_panels: Tensor | None = None
        self._packed_plain: Tensor | None = None

    # The activation.

    def set_activation(self, x: Tensor) -> Tensor:
        """x + bias_a; where ``scale_a`` is 0 it is first set from x."""
        self._check_forward(x)
        if not self._scale_ready:
            self._first_batch(x)
        return x + self._along_features(self.bias_a, x)

    def _along_features(self, vector: Tensor, x: Tensor) -> Tensor:
        return vector if self._feature_axis == -1 else vector.view(-1, 1, 1)

    def _first_batch(self, x: Tensor) -> None:
        self._check_forward(x)
        if self.scale_a is None or not x.is_floating_point():
            return
        value, fresh = first_batch(self, self.scale_a, x, self._first_batch_factor())
        self._scale_ready = value != 0
        if fresh:
            self._guarded_scale = value
            guarded.add(self)

    def _step_sizes(self) -> Iterable[str]:
        return () if self.scale_a is None else ("scale_a",)

    def _take_first_value(self, name: str, value: float) -> None:
        self._scale_ready, self._guarded_scale = True, value

    def _prepare_for_group(self) -> None:
        weight = self._parameters.get("weight")
        if weight is not None and weight.is_floating_point() and not self._latent and self._has_its_own():
            self.prepare_params()

    def _first_values(self) -> Iterable[tuple[Tensor, float]]:
        return () if self.scale_a is None else ((self.scale_a, self._guarded_scale),)

    def _check_tensor(self, x: Tensor) -> None:
        if not isinstance(x, Tensor):
            raise TypeError(f"{type(self).__name__}: x: expected a tensor, got a {type(x).__name__}")
        if x.is_nested:
            raise TypeError(
                f"{type(self).__name__}: x: expected a dense tensor, got a nested one; an nn.TransformerEncoder "
                "makes them of padded batches unless it has enable_nested_tensor=False"
            )

    def _shape_error(self, x: Tensor, wanted: str) -> ShapeError:
        return ShapeError(f"{type(self).__name__}: x: expected {wanted}, got {list(x.shape)} of {x.dtype}")

    # The forward pass.

    def forward(self, x: Tensor) -> Tensor:
        if torch.compiler.is_compiling() or type(x) is Proxy:
            self._refuse_proxy(x)
            if not self.training:
                return self._trace(x)
            return self._trace_training(x) if self._trains_in_graphs() else self._train_outside_the_graph(x)
        return self._train(x) if self.training else self._evaluate(x)

    if TYPE_CHECKING:  # calls have the types of forward, for editors and checkers
        __call__ = forward

    def _refuse_proxy(self, x: Any) -> None:
        if type(x) is Proxy:
            raise TypeError(
                f"{type(self).__name__}: torch.fx.symbolic_trace cannot follow it; take torch.export.export, or a "
                "torch.fx.Tracer whose is_leaf_module says True for bie.nn.QuantLayer"
            )

    def __prepare_scriptable__(self) -> None:
        raise RuntimeError(
            f"{type(self).__name__}: torch.jit.script is refused; torch.export.export takes it, or bie.export "
            "for a net that runs without torch"
        )

    def _evaluate(self, x: Tensor) -> Tensor:
        # A small layer takes as long to get here as to compute: bench/python_overhead.py measures every line of this.
        parameters = self._parameters
        source = parameters.get("weight")
        if source is None:
            source = parameters["qweight"]
        scale_w = self._buffers.get("scale_w")
        if scale_w is None:
            scale_w = parameters.get("scale_w")
        ready = self._ready
        if (
            ready is None
            or ready.source is not source
            or ready.address != source.data_ptr()
            or ready.stride != source.stride()
            or ready.version is None
            or ready.version != source._version
            or ready.scale_seen is not scale_w
            or (ready.scale_version is not None and ready.scale_version != scale_w._version)
            or not (ready.whole or not torch.is_grad_enabled())
        ):
            ready = self._make_ready(source, scale_w)
        if not self._scale_ready:
            self._first_batch(x)
        try:
            return self._call(x, ready.weight, ready.scale_w, ready.options)
        except (AttributeError, RuntimeError, TypeError, ValueError):
            self._check_forward(x)
            raise

    def _call(self, x: Tensor, weight: Tensor, scale_w: Tensor | None, options: dict[str, Any]) -> Tensor:
        parameters = self._parameters
        bias_a, bias = parameters["bias_a"], parameters["bias"]
        if self._compat != "none" and bias_a is not None and x.dtype in (torch.float16, torch.bfloat16):
            x, bias_a = x + self._along_features(bias_a.to(x.dtype), x), None
        y = self._operator(x, bias_a, weight, scale_w, options)
        if (channel_scale := self._buffers.get("channel_scale")) is not None:
            y = y * self._along_features(channel_scale.to(y.dtype), y)
        return y if bias is None else y.add_(self._along_features(bias.to(y.dtype), y))  # y is nobody else's

    def _make_ready(self, source: Tensor | None, scale_w: Tensor | None) -> _Ready:
        self._refuse_parametrized()
        # Another thread may write meanwhile: what was seen before is what the forms are of, at most.
        generation, address, stride, version = self._generation, source.data_ptr(), source.stride(), version_of(source)
        scale_version, scale_now = None, None if scale_w is None else version_of(scale_w)
        # Tensors of inference mode could not be saved for a backward pass later on.
        with torch.inference_mode(False), torch.no_grad():
            if source is not self._parameters["weight"]:
                packed, scale = self._from_file(source), scale_w
            elif sources := self._sources_seen():
                packed, scale = self._from_file(self.qweight), scale_w
                scale_version = scale_now if sources == 2 else None
            else:
                own = self._has_its_own()
                if own:
                    self._adopt()
                if self._packs_by_scale():
                    scale_version = scale_now
                    version = None if scale_version is None else version
                seen = self._sources(True)
                packed, scale = self._pack()
                if own and self.qweight is not None:
                    self._keep_packed(self._to_file(packed).detach().clone(), scale, seen)
                    generation, scale_version = generation + 1, scale_now  # that assignment forgot once
            if packed.is_inference():
                packed = packed.clone()
            options = self._options(panels=self._prepack(packed))
        whole = torch.is_grad_enabled() or packed is source
        if not whole:  # without a backward pass nothing is read of a prepacked weight but its shape
            packed = packed.new_zeros(()).expand(packed.shape)
        # A version is None where a tensor is of inference mode: packed in each call.
        seen = address, stride, version, scale_w, scale_version
        ready = _Ready(source, *seen, packed, whole, scale, options, source.detach())
        self._ready = ready
        if self._generation != generation:  # what was forgotten meanwhile must not come back
            self._ready = None
        return ready

    def _packs_by_scale(self) -> bool:
        """Whether what the weight is packed to depends on scale_w."""
        return False

    def _refuse_parametrized(self) -> None:
        if "weight" not in self._parameters:
            raise RuntimeError(
                f"{type(self).__name__}: its weight is parametrized or pruned, which quantised layers refuse: change "
                "the float layer and convert it then (bie.convert), or write into the weight (set_weight_data)"
            )

    def _prepare_evaluation(self) -> None:
        """What a graph cannot find out, where evaluation is next: whether the step size is set, and the panels of a
        weight that cannot change any more."""
        scale = self._parameters.get("scale_a")
        if not self.training and not self._scale_ready and scale is not None and not scale.is_meta:
            self._scale_ready = float(scale.detach()) != 0
        if self.weight is None and self.qweight is not None and not self.training and not self.qweight.is_meta:
            panels = self._make_ready(self.qweight, self.scale_w).options["panels"]
            self._packed_panels, self._packed_plain = panels, self._from_file(self.qweight).detach()

    def _train(self, x: Tensor) -> Tensor:
        if torch._C._functorch.peek_interpreter_stack() is not None:
            raise RuntimeError(f"{type(self).__name__}: transforms of torch.func (grad, vmap, jvp, ...) are refused")
        self._refuse_parametrized()
        self._check_forward(x)
        if self._has_its_own():
            self.prepare_params()
        if not self._scale_ready:
            self._first_batch(x)
            self._versions = None
        self._guard_scales()
        weight = self.weight
        if weight is None:
            if self.qweight is None:
                raise RuntimeError(f"{type(self).__name__} has neither a weight nor a packed one")
            self._warn_of_packed()
            return self._call(x, self._from_file(self.qweight), self.scale_w, self._options())
        if weight.is_floating_point():
            self._trained = True
            return self._call(x, weight, self._training_scale(), self._options())
        if not self.weight_trainable or not torch.is_grad_enabled():
            return self._call(x, weight, self.scale_w, self._options(anchor=FROZEN))
        self._watch_gradient(weight)
        weight.awaits_gradient = True
        reducer = weight.reducer.reducer() if isinstance(weight, QuantParameter) else None
        anchor = None if reducer is None else reducer.anchor(weight)
        with past_hooks([weight]):
            y = self._call(x, weight, self.scale_w, self._options(anchor=ANCHOR if anchor is None else anchor))
        if anchor is not None:
            reducer.before(y, weight)
        return y

    def _warn_of_packed(self) -> None:
        """Warns once where a packed layer is trained: its floats are, and its weight stays."""
        trains = torch.is_grad_enabled() and any(parameter.requires_grad for parameter in self.parameters())
        if not trains or self._warned_of_packed:
            return
        self._warned_of_packed = True
        warnings.warn(
            f"{type(self).__name__}({self.extra_repr()}): the layer is packed, its weight does not train: pack a copy "
            "of the model, or pack it after training; requires_grad_(False) freezes the rest of the layer too",
            stacklevel=6,
        )

    def _watch_gradient(self, weight: Tensor) -> None:
        """Warns once where an optimizer moves the layer's floats and leaves its integer weight with a gradient.

        Backward passes that add up move nothing, and who steps the weight writes into it or holds it.
        """
        before, now = self._versions, (version_of(weight), version_of(self.scale_a), version_of(self.bias_a))
        self._versions = now
        if before is None or before[0] != now[0] or before == now or weight.grad is None or self._warned_of_gradient:
            return
        if getattr(weight, "awaits_gradient", False) and not has_optimizer(weight):
            self._warned_of_gradient = True
            warnings.warn(
                f"{type(self).__name__}({self.extra_repr()}): an optimizer moves its floats, and none its integer "
                "weight, whose gradient adds up: it does not require grad, so a list of parameters that do leaves it "
                "out; give DiodeMix model.parameters(), or freeze the weight by requires_grad_(False)",
                stacklevel=6,
            )

    def _trains_in_graphs(self) -> bool:
        """Whether a graph may hold the training: of a float weight, once a batch has set what the first one sets."""
        weight = self._parameters.get("weight")
        return self._trained and weight is not None and weight.is_floating_point() and self._latent

    def _trace_training(self, x: Tensor) -> Tensor:
        """As ``_train``; the floor of the step size is kept behind the optimizer's step."""
        self._check_forward(x)
        return self._call(x, self.weight, self._training_scale(), self._options())

    @outside_graphs("quantised layers train outside the graph, where no integer gradient is lost")
    def _train_outside_the_graph(self, x: Tensor) -> Tensor:
        return self._train(x)

    def _trace(self, x: Tensor) -> Tensor:
        """Evaluation as a graph holds it: a weight that may still change is packed in each call."""
        self._check_forward(x)
        if not self._scale_ready and x.is_floating_point() and self.scale_a is not None:
            with torch.no_grad():
                ops.init_scale_(self.scale_a.detach(), x.detach(), self._first_batch_factor())
        if self.weight is not None:
            return self._call(x, *self._pack(), self._options())
        # is_exporting() is true in every graph that dynamo makes.
        if getattr(torch.compiler, "_is_exporting_flag", False) and self._packed_plain is not None:
            packed, panels = self._packed_plain, self._packed_panels  # constants of the exported program
        else:
            packed = self._from_file(self.qweight)
            # The operator tells by the weight whether its panels are stale: not by one that a graph makes in each call.
            panels = self._packed_panels if packed is self.qweight else None
        return self._call(x, packed, self.scale_w, self._options(panels=panels))

    def extra_repr(self) -> str:
        parts = [self._sizes(), f"{self.weight_form} weight"]
        if self.bias is not None:
            parts.append("bias")
        if self.channel_scale is not None:
            parts.append("scales of channels")
        if kernel := self.kernel:
            parts.append(f"kernel={kernel}")
        return ", ".join([*parts, *self._mode_of()])

    @property
    def kernel(self) -> str:
        """Name of the kernel that the last call in evaluation ran on a CPU; empty before, and in training."""
        return "" if self._ready is None else kernel_of(self._ready.options.get("panels"))

    def _sizes(self) -> str:
        return ", ".join(str(size) for size in reversed(self._weight_shape))


def quant_layers(module: nn.Module) -> Iterator[tuple[str, QuantLayer]]:
    """Every quantised layer inside a module, itself included, with its name.

    Example::

        >>> model = torch.nn.Sequential(torch.nn.Linear(8, 8), bie.nn.Q4Linear(8, 4))
        >>> [name for name, layer in bie.nn.quant_layers(model)]
        ['1']
    """
    for name, layer in module.named_modules():
        if isinstance(layer, QuantLayer):
            yield name, layer
