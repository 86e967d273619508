"""The tensors of a weight-only linear as files hold them and as it computes with them, and how it takes a state.

Source: docs/spec/weight-only.md.
"""

from __future__ import annotations

import math
from functools import partial
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from bie._operators import ops
from bie._outside_graphs import outside_graphs
from bie.nn.state.arguments import NamesItself
from bie.nn.state.entries import check_entry, preparing
from bie.nn.state.panels import Panels
from bie.nn.state.weight_state import StagedState, ordinary, take_entry
from bie.nn.state.whole_load import load_layer
from bie.nn.state.whole_weights import WholeWeights
from bie.weights.gptq import words_of
from bie.weights.parameters import WeightOnlyParameter

_DOUBLE_QUANTISED_BELOW = 256  # a larger group stores its scales and zeros as they are

# Entries of files only: prepare_params undoes their double quantisation.
_OF_FILES = ("qscales_zeros", "qscales_scales", "qscales", "qstatistic", "qzeros_zeros", "qzeros_scales", "wf")


class WeightOnlyState(NamesItself, WholeWeights, nn.Module):
    """Base of :class:`bie.nn.weight_only.WeightOnlyLinear`, which says what the keys are.

    Before ``prepare_params`` the buffers are those of files, after it those that the product reads.
    """

    in_channels: int
    out_channels: int
    w_bit: int
    dtype: torch.dtype
    group_size: int
    use_gba_quant: bool
    dq_group_size: int
    dq_mode: int
    disable_bias: bool
    train_bias: bool
    asym: bool
    requires_grad: bool
    master: bool | torch.dtype
    qweight: WeightOnlyParameter
    _prepared: bool
    _panels: Panels

    _parameter: ClassVar[type[WeightOnlyParameter]] = WeightOnlyParameter
    _layer_type: ClassVar[int] = 1  # what its parameter says of it

    def _look_at_rows(self) -> None:
        """Finds out what an export must know of the weight."""
        raise NotImplementedError

    def _tell_weight(self) -> None:
        """Tells ``qweight`` what it is read with."""
        raise NotImplementedError

    @property
    def _groups(self) -> int:
        return math.ceil(self.in_channels / self.group_size)

    @property
    def _dq_groups(self) -> int:
        return math.ceil(self.out_channels / self.dq_group_size)

    def initialize(self) -> None:
        """Makes the parameters and buffers of an unprepared layer: all-zero weight, scales 1, zeros 0."""
        self._prepared = False
        self.qweight = self._parameter(
            torch.zeros(self._words_shape(), dtype=torch.int32),
            requires_grad=self.requires_grad,
            w_bit=self.w_bit,
            asym=self.asym,
            group_size=self.group_size,
            layer_type=self._layer_type,
        )
        self._register_rows()
        self._register_of_files()
        if self.master:
            rest = torch.zeros(self.in_channels, self.out_channels, dtype=self.rest_dtype)
            self.register_buffer("rest", rest)

    @property
    def rest_dtype(self) -> torch.dtype:
        """The dtype of ``rest``, of a layer that has one."""
        return self.master if isinstance(self.master, torch.dtype) else torch.bfloat16

    def _words_shape(self) -> tuple[int, int]:
        return words_of(self.in_channels, self.w_bit), self.out_channels

    def _register_rows(self) -> None:
        """What says which group a packed row is in, and which feature."""
        self.register_buffer("g_idx", torch.arange(self.in_channels, dtype=torch.int32) // self.group_size)

    def _register_of_files(self) -> None:
        self._register_bias()
        self.register_buffer("wf", torch.arange(0, 32, self.w_bit, dtype=torch.int32).unsqueeze(0))
        if self.use_gba_quant:
            self.init_gba()
        else:
            self.init_gptq()

    def _register_bias(self) -> None:
        bias = torch.zeros(self.out_channels, dtype=self.dtype)
        if self.train_bias:
            self.bias = nn.Parameter(bias)
        else:
            self.register_buffer("bias", bias)

    def _register_packed_zeros(self) -> None:
        shape = (self._groups, words_of(self.out_channels, self.w_bit))
        self.register_buffer("qzeros", torch.zeros(shape, dtype=torch.int32))

    def init_gptq(self) -> None:
        """Makes the buffers of GPTQ's files; sets ``asym``."""
        self.asym = True
        self._register_packed_zeros()
        self.register_buffer("scales", torch.ones(self._groups, self.out_channels, dtype=self.dtype))

    def init_gba(self) -> None:
        """Makes the buffers of GBA's files."""
        per_group = (self._groups, self._dq_groups, 1)
        statistic = (self._groups, self._dq_groups, self.dq_group_size)
        plain = (self._groups, self.out_channels)
        if self.asym:
            self._register_packed_zeros()
            shape = statistic if self.w_bit == 4 else plain
            self.register_buffer("qscales", torch.ones(shape, dtype=torch.uint8))
        else:
            self.register_buffer("qstatistic", torch.ones(statistic, dtype=torch.uint8))
            self.register_buffer("qzeros_zeros", torch.zeros(per_group, dtype=self.dtype))
            self.register_buffer("qzeros_scales", torch.ones(per_group, dtype=self.dtype))
        shape = (1, self.out_channels, 1) if self.dq_mode == 1 else per_group
        self.register_buffer("qscales_zeros", torch.zeros(shape, dtype=self.dtype))
        self.register_buffer("qscales_scales", torch.ones(shape, dtype=self.dtype))
        self.register_buffer("scales", torch.ones(plain, dtype=self.dtype))
        self.register_buffer("zeros", torch.zeros(plain, dtype=self.dtype))

    def prepare_params(self) -> None:
        """Undoes the double quantisation and deletes what was needed for it, ``wf`` and an unused ``bias``; acts once.

        ``scales = (qscale - qscales_zeros) * qscales_scales``, ``zeros = (qzero - qzeros_zeros) * qzeros_scales`` in
        ``dtype``, for GBA with ``group_size`` < 256; a larger group has them as they are. ``qweight`` is told them.

        Raises:
            RuntimeError: the scales or zeros are not finite, or a buffer has not the layer's shape.
        """
        if not self._prepared:
            self._prepare()

    @outside_graphs("a layer becomes prepared outside of graphs")
    def _prepare(self) -> None:
        with preparing:
            if self._prepared:  # by another thread meanwhile
                return
            try:
                zeros, scales = self._zeros_and_scales()
            except (RuntimeError, ValueError) as error:
                raise RuntimeError(f"{type(self).__name__}: prepare_params failed: {error}") from error
            self._become_prepared(scales, zeros)

    def _become_prepared(self, scales: Tensor, zeros: Tensor) -> None:
        self.scales, self.zeros = ordinary(scales), ordinary(zeros)
        for name in (*_OF_FILES, *(("bias",) if self.disable_bias else ())):
            if name in self._buffers:
                delattr(self, name)
        self._tell_weight()
        self._prepared = True
        self._panels.forget()

    @property
    def _double_quantised(self) -> bool:
        return self.use_gba_quant and self.group_size < _DOUBLE_QUANTISED_BELOW

    def _zeros_and_scales(self) -> tuple[Tensor, Tensor]:
        double = self._double_quantised
        scales = self._double_quantised_scales() if double else self.scales
        if self.asym:
            zeros = self.qzeros
        elif double:
            low = self._by_column(self.qstatistic & 0x0F).to(self.dtype)
            zeros = (low - self._by_column(self.qzeros_zeros)) * self._by_column(self.qzeros_scales)
        else:
            zeros = self.zeros
        for name, tensor in (("scales", scales), ("zeros", zeros)):
            if tensor.is_floating_point() and not torch.isfinite(tensor).all():
                raise ValueError(f"the {name} hold NaN or infinity")
        return zeros, scales

    def _double_quantised_scales(self) -> Tensor:
        codes = self._by_column(self.qscales if self.asym else self.qstatistic >> 4).to(self.dtype)
        return (codes - self._by_column(self.qscales_zeros)) * self._by_column(self.qscales_scales)

    def _by_column(self, table: Tensor) -> Tensor:
        """[G, n] (or [1, n]) from any shape of the table above: one entry for each column of the weight."""
        if (
            table.dim() == 3
            and table.size(2) == 1
            and table.size(1) == self._dq_groups
            and table.size(0) == self._groups
        ):
            table = table.expand(-1, -1, self.dq_group_size)
        return table.reshape(table.size(0), -1)[:, : self.out_channels]

    def _forms(self) -> dict[bool, dict[str, tuple[int, ...]]]:
        """{whether prepared: {key: shape}} of the entries that each form must have."""
        k, n = self.in_channels, self.out_channels
        plain = (self._groups, n)
        zeros = {"qzeros": (self._groups, words_of(n, self.w_bit))} if self.asym else {"zeros": plain}
        weight = {"qweight": self._words_shape(), "g_idx": (k,)}
        prepared = weight | {"scales": plain} | zeros | ({} if self.disable_bias else {"bias": (n,)})
        if not self._double_quantised:
            return {True: prepared, False: prepared}
        per_group = (self._groups, self._dq_groups, 1)
        statistic = (self._groups, self._dq_groups, self.dq_group_size)
        outer = (1, n, 1) if self.dq_mode == 1 else per_group
        files = weight | {"qscales_zeros": outer, "qscales_scales": outer}
        if self.asym:
            files |= {"qscales": statistic if self.w_bit == 4 else plain} | zeros
        else:
            files |= {"qstatistic": statistic, "qzeros_zeros": per_group, "qzeros_scales": per_group}
        return {True: prepared, False: files | ({} if self.disable_bias else {"bias": (n,)})}

    #: Entries that files have and nobody needs.
    _PASSED_OVER: ClassVar[tuple[str, ...]] = (*_OF_FILES, "bias", "scales", "zeros", "rest")
    _INTEGERS: ClassVar[dict[str, torch.dtype]] = {
        "qweight": torch.int32,
        "g_idx": torch.int32,
        "qzeros": torch.int32,
        "qscales": torch.uint8,
        "qstatistic": torch.uint8,
    }

    def _check_entry(self, entry: str, name: str, tensor: Any, shape: tuple[int, ...]) -> Tensor:
        integers = self._INTEGERS | ({"rest": torch.int8} if self.rest_dtype == torch.int8 else {})
        tensor = check_entry(entry, tensor, shape, integers.get(name, self.dtype))
        if name == "g_idx":
            ops.check_groups_entry(tensor, self.in_channels, self._groups, entry)
        return tensor

    def _check_state(self, own: dict[str, Any], prefix: str) -> StagedState:
        """The entries that are given, and what those of the form that they are of want besides; others stay."""
        tables, double = {"scales"} if self.asym else {"scales", "zeros"}, self._double_quantised
        of_files = double and any(name in own for name in _OF_FILES if name != "wf")
        given = tables & own.keys() if double else tables <= own.keys()
        staged = StagedState(prepared=not of_files and (self._prepared or bool(given)))
        wanted = dict(self._forms()[staged.prepared])
        if self.master:
            wanted["rest"] = (self.in_channels, self.out_channels)
        for name, tensor in own.items():
            if name in wanted:
                staged.values[name] = self._check_entry(f"the entry '{prefix}{name}'", name, tensor, wanted[name])
            elif name not in self._PASSED_OVER:
                staged.unexpected.append(name)
            elif not staged.prepared and self._lacks(name, tensor):  # no product reads it, and saving it must not fail
                staged.values[name] = tensor.detach()
        staged.missing = [name for name in wanted if name not in own and name != "rest"]
        if self.master and "qweight" in own and "rest" not in own:  # of codes alone
            staged.values["rest"] = torch.zeros(wanted["rest"], dtype=self.rest_dtype)
        if double and own and self._prepared != staged.prepared:
            self._complete(staged, prefix, tables)
        return staged

    def _lacks(self, name: str, tensor: Any) -> bool:
        """Whether the layer has the place of an entry, and on the meta device."""
        place = self._buffers.get(name)
        return place is not None and place.is_meta and isinstance(tensor, Tensor) and tensor.shape == place.shape

    def _complete(self, staged: StagedState, prefix: str, tables: set[str]) -> None:
        """Adds what the other form has and the state lacks; ``ValueError`` where this form does not say it."""
        if not staged.prepared:
            for name in staged.missing:
                if name not in self._buffers and name not in self._parameters:
                    raise ValueError(
                        f"the entry '{prefix}{name}' is missing: the scales of a prepared layer are replaced by all "
                        "entries of a double quantisation, or by none"
                    )
        elif not staged.values.keys() >= tables and not self.scales.is_meta:
            zeros, scales = self._zeros_and_scales()
            staged.values = {"scales": scales} | ({} if self.asym else {"zeros": zeros}) | staged.values

    def _take_state(self, staged: StagedState, assign: bool) -> None:
        if not staged.values:  # a state without this layer, loaded with strict=False
            return
        if self._prepared and not staged.prepared:
            self._unprepare()
        weight = self.qweight
        for name, value in staged.values.items():
            take_entry(self, name, value, assign)
        weight.adopt(self.qweight)
        if staged.prepared:
            self._become_prepared(self.scales, self.qzeros if self.asym else self.zeros)
        self._panels.forget()
        self._look_at_rows()

    def _unprepare(self) -> None:
        """The buffers of the form of files beside the tensors that both forms have."""
        device, kept = self.qweight.device, dict(self._parameters)
        buffers = dict(self._buffers)
        self.__dict__.pop("zeros", None)
        self.initialize()
        for name in self._buffers:
            self._buffers[name] = buffers[name] if name in buffers else self._buffers[name].to(device)
        for name, parameter in kept.items():
            setattr(self, name, parameter)

    def _load_from_state_dict(
        self, state_dict: dict[str, Any], prefix: str, local_metadata: dict[str, Any], *lists: Any
    ) -> None:
        keys = {*self._PASSED_OVER, *self._buffers, *self._forms()[True], *self._forms()[False]}
        take = partial(self._take_state, assign=local_metadata.get("assign_to_params_buffers", False))
        load_layer(self, keys, self._check_state, take, state_dict, prefix, local_metadata, *lists)
