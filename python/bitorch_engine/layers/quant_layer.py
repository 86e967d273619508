"""What all quantised layers share: the forms of the weight, the activation's bias and step size, files, refusals."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from typing import Any, ClassVar, NamedTuple

import torch
from torch import Tensor, nn

from bitorch_engine._operators import ANCHOR, ops
from bitorch_engine.errors import ShapeError
from bitorch_engine.layers.layer_state import LayerState, key_of

GRAD_MODES = ("exact", "reference")
COMPATS = ("none", "bie-0.2.6")


class _Ready(NamedTuple):
    """What evaluation derives from a weight, and which weight that was."""

    source: Tensor
    address: int
    version: int
    scale_seen: Tensor | None
    weight: Tensor
    whole: bool  # the weight is there, and not its shape alone
    scale_w: Tensor | None
    options: dict[str, Any]
    storage: Tensor  # keeps the source's address from being used again


def _one_of(name: str, value: str, choices: tuple[str, ...]) -> str:
    if value not in choices:
        raise ValueError(f"{name} is {value!r}, {' or '.join(map(repr, choices))} is wanted")
    return value


class QuantLayer(LayerState):
    """Base of all layers with low-bit weights. Source: numerics.md sections 3 to 7.

    State, by the keys of BITorch Engine 0.2.6:

    ========  ===============================================================================================
    weight    float, or int8 once prepared for an integer optimizer; ``None`` once only ``qweight`` is kept
    qweight   the packed weight, where ``generate_quantized_weight`` made it or a file held it; else ``None``
    bias_a    ``[in]`` zeros, learnable, added to the activation before it is quantised
    scale_a   0-dim float32, learnable; 0 means that the first batch sets it
    scale_w   0-dim float32, not learned
    eps       0-dim, the smallest step size (8- and 4-bit layers)
    bias      ``[out]`` added to the output, where the layer was made with ``bias=True`` (ours)
    ========  ===============================================================================================

    Scales stay float32 whatever ``.half()`` or ``.to(dtype)`` is asked for.

    Training uses ``weight``; evaluation the packed form of the weight as it is: packed on first use, anew when the
    weight has changed (told by its address and version), forgotten by ``train()``. That form is never saved, copied or
    pickled. A write through ``weight.data`` in evaluation cannot be seen, nor one by a fused optimizer, nor one into
    ``eps``: call ``repack()``.

    Keyword arguments beyond BITorch Engine's (``bias``, ``latent``, ``grad_mode``, ``compat``) are ours:

    * ``latent``: keep the weight as a float that any optimizer trains (default of 8- and 4-bit layers), or make it int8
      for ``DiodeMix`` (default of 1-bit layers).
    * ``grad_mode``: ``"exact"`` (learned step size quantization, Esser et al. 2020) or ``"reference"`` (what BITorch
      Engine computes); 8- and 4-bit layers only.
    * ``compat="bie-0.2.6"``: the values of BITorch Engine where ours differ on purpose (docs/migration.md).

    Training runs outside ``torch.compile`` graphs; FSDP, ``DataParallel`` and ``torch.func`` transforms are refused.
    """

    _feature_axis: ClassVar[int] = -1

    def __init__(
        self,
        weight_shape: tuple[int, ...],
        *,
        latent: bool,
        grad_mode: str = "exact",
        compat: str = "none",
        bias: bool = False,
        **tensors: Any,
    ) -> None:
        self._forget()
        super().__init__(weight_shape, bias=bias, **tensors)
        self._latent = latent
        self._grad_mode = _one_of("grad_mode", grad_mode, GRAD_MODES)
        self._compat = _one_of("compat", compat, COMPATS)
        self._step_size_floor = 0.03

    # What distinguishes one kind of layer from the others.

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

    def _first_batch_factor(self) -> float:
        """First-batch scale_a / mean|x|."""
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
        if self.qweight is None or self._qweight_key != key_of(self.weight):
            with torch.no_grad():
                return self._to_file(self._pack()[0])
        return self.qweight

    def _forget(self) -> None:
        self._ready: _Ready | None = None
        self._packed_panels: Tensor | None = None  # of a layer that has qweight alone; what a compiled graph reads

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
        fresh = float(self.scale_a.detach()) == 0
        if fresh and not self.training:
            warnings.warn(
                f"{type(self).__name__} takes its activation scale from a batch of the evaluation: it was not trained",
                stacklevel=4,
            )
        ops.init_scale_(self.scale_a.detach(), x.detach(), self._first_batch_factor())
        value = float(self.scale_a.detach())
        self._scale_ready = value != 0
        if fresh:
            self._guarded_scale = value

    def _guard_scale(self) -> None:
        """Keeps a learned step size from crossing zero, whatever the optimizer did; docs/training.md says why."""
        if self._guarded_scale > 0 and self._step_size_floor > 0:
            # .data: the scale may have been saved by an earlier call in the same graph.
            self.scale_a.data.clamp_min_(self._step_size_floor * self._guarded_scale)

    def _check_tensor(self, x: Tensor) -> None:
        if not isinstance(x, Tensor):
            raise TypeError(f"{type(self).__name__}: x is a {type(x).__name__}, a tensor is wanted")

    def _shape_error(self, x: Tensor, wanted: str) -> ShapeError:
        return ShapeError(f"{type(self).__name__}: x is {list(x.shape)} of {x.dtype}, {wanted}")

    # The forward pass.

    def forward(self, x: Tensor) -> Tensor:
        if torch.compiler.is_compiling():
            return self._train_outside_the_graph(x) if self.training else self._trace(x)
        return self._train(x) if self.training else self._evaluate(x)

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
            or ready.version != (0 if source.is_inference() else source._version)
            or ready.scale_seen is not scale_w
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
        return y if bias is None else y + self._along_features(bias.to(y.dtype), y)

    def _make_ready(self, source: Tensor | None, scale_w: Tensor | None) -> _Ready:
        self._refuse_parametrized()
        key = key_of(source)
        # Tensors of inference mode could not be saved for a backward pass later on.
        with torch.inference_mode(False), torch.no_grad():
            if source is not self.weight:
                packed, scale = self._from_file(source), scale_w
            elif self.qweight is not None and self._qweight_key == key:
                packed, scale = self._from_file(self.qweight), scale_w
            else:
                self._share_scale()
                packed, scale = self._pack()
                if self.qweight is not None:
                    self.qweight = self._to_file(packed).detach().clone()
                    if scale_w is not None:
                        scale_w.copy_(scale)
            options = self._options(panels=self._prepack(packed))
        whole = torch.is_grad_enabled() or packed is source
        if not whole:  # without a backward pass nothing is read of a prepacked weight but its shape
            packed = packed.new_zeros(()).expand(packed.shape)
        ready = _Ready(source, *key, scale_w, packed, whole, scale, options, source.detach())
        self._ready = ready
        return ready

    def _refuse_parametrized(self) -> None:
        if "weight" not in self._parameters:
            raise RuntimeError(f"{type(self).__name__}: its weight is parametrized, which quantised layers refuse")

    def _prepare_evaluation(self) -> None:
        """The panels of a weight that cannot change any more, where evaluation is next: a compiled graph makes none."""
        if self.weight is None and self.qweight is not None and not self.training and not self.qweight.is_meta:
            self._packed_panels = self._make_ready(self.qweight, self.scale_w).options["panels"]

    def _train(self, x: Tensor) -> Tensor:
        if torch._C._functorch.peek_interpreter_stack() is not None:
            raise RuntimeError(f"{type(self).__name__}: transforms of torch.func (grad, vmap, jvp, ...) are refused")
        self._refuse_parametrized()
        self._check_forward(x)
        self.prepare_params()
        if not self._scale_ready:
            self._first_batch(x)
        self._guard_scale()
        weight = self.weight
        if weight is None:
            return self._call(x, self._from_file(self.qweight), self.scale_w, self._options())
        if weight.is_floating_point():
            return self._call(x, weight, self._training_scale(), self._options())
        if not self.weight_trainable or not torch.is_grad_enabled():
            return self._call(x, weight, self.scale_w, self._options())
        weight.awaits_gradient = True
        return self._call(x, weight, self.scale_w, self._options(anchor=ANCHOR))

    @torch.compiler.disable(reason="quantised layers train outside the graph, where no integer gradient is lost")
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
        # Panels fit one machine and are never saved. is_exporting() is true in every graph that dynamo makes.
        exporting = getattr(torch.compiler, "_is_exporting_flag", True)
        panels = None if exporting else self._packed_panels
        return self._call(x, self._from_file(self.qweight), self.scale_w, self._options(panels=panels))

    def train(self, mode: bool = True) -> QuantLayer:
        if mode or self.training:
            self._forget()
        if self.training:
            self._guard_scale()  # the optimizer's last step was not followed by a forward pass
        super().train(mode)
        self._prepare_evaluation()
        return self

    # Options.

    @property
    def grad_mode(self) -> str:
        """``"exact"`` or ``"reference"``."""
        return self._grad_mode if self._compat == "none" else "reference"

    @grad_mode.setter
    def grad_mode(self, value: str) -> None:
        self._grad_mode = _one_of("grad_mode", value, GRAD_MODES)
        self._forget()

    @property
    def compat(self) -> str:
        """``"none"`` or ``"bie-0.2.6"``."""
        return self._compat

    @compat.setter
    def compat(self, value: str) -> None:
        self._compat = _one_of("compat", value, COMPATS)
        self._forget()

    @property
    def step_size_floor(self) -> float:
        """In training ``scale_a`` stays above this share of its first-batch value; 0 turns the guard off."""
        return self._step_size_floor

    @step_size_floor.setter
    def step_size_floor(self, value: float) -> None:
        if not 0 <= value <= 1:
            raise ValueError(f"step_size_floor is {value}, a number in [0, 1] is wanted")
        self._step_size_floor = value

    def extra_repr(self) -> str:
        parts = [self._sizes(), f"{self.weight_form} weight"]
        if self.bias is not None:
            parts.append("bias")
        if self._compat != "none":
            parts.append(f"compat={self._compat}")
        elif self._grad_mode != "exact":
            parts.append(f"grad_mode={self._grad_mode}")
        return ", ".join(parts)

    def _sizes(self) -> str:
        return ", ".join(str(size) for size in reversed(self._weight_shape))


def quant_layers(module: nn.Module) -> Iterator[tuple[str, QuantLayer]]:
    """Every quantised layer inside a module, itself included, with its name."""
    for name, layer in module.named_modules():
        if isinstance(layer, QuantLayer):
            yield name, layer


def set_grad_mode(module: nn.Module, mode: str) -> None:
    """``grad_mode`` of every quantised layer inside a module."""
    _one_of("grad_mode", mode, GRAD_MODES)
    for _, layer in quant_layers(module):
        layer.grad_mode = mode


def set_compat(module: nn.Module, compat: str) -> None:
    """``compat`` of every quantised layer inside a module."""
    _one_of("compat", compat, COMPATS)
    for _, layer in quant_layers(module):
        layer.compat = compat
