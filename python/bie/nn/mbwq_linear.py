"""The weight-only linear with permuted rows, of one width or of several."""

from __future__ import annotations

import contextlib
from typing import Any

import torch
from torch import Tensor

from bie._operators import ops
from bie.errors import ShapeError
from bie.nn.state.weight_state import StagedState, ordinary
from bie.nn.weight_only import WeightOnlyLinear
from bie.weights.gptq import MIXED_WIDTHS, Coded, gptq_style_unpacking, make_group_map
from bie.weights.parameters import WeightOnlyParameter

_WIDTHS = (2, 4)


class MBWQLinear(WeightOnlyLinear):
    """``y = (x * channel_scale) . W (+ bias)``, ``W[q_perm[i], c] = q[i, c] * scales[g, c] - zeros[g, c]``.

    Packed row ``i`` holds the weights of feature ``q_perm[i]`` (int16, read as unsigned; all zero: no permutation).
    With ``use_mbw`` rows have 8, 6, 5, 4, 3 or 2 bits, falling, in groups that ``q_groups`` [2 * groups] int16 lists as
    ``bits, first packed row`` (EXL2); else all have ``w_bit`` bits, 2 or 4, in groups of ``group_size``. x times
    ``channel_scale`` [1, 1, k] is rounded to float32. Buffers of double quantisation in a file are passed over.

    Args:
        use_mbw: rows of several widths.
        groups: how many groups ``q_groups`` lists; a file may have another number.
        rows_packed: rows of int32 words; a file may have another number.

    ``disable_bias``, ``train_bias``, ``requires_grad``, ``master`` and ``activation`` are those of
    :class:`WeightOnlyLinear`.
    Source: docs/spec/weight-only.md; BITorch Engine 0.2.6 ``MBWQLinearCuda``; ExLlamaV2's EXL2.

    Example::

        >>> layer = bie.nn.MBWQLinear(64, 3, w_bit=4, group_size=32, use_mbw=False, dtype=torch.float32)
        >>> layer(torch.randn(5, 64)).shape
        torch.Size([5, 3])
    """

    _layer_type = 2

    _checks_parameters = True

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        w_bit: int = 4,
        dtype: torch.dtype = torch.half,
        group_size: int = -1,
        *,
        use_mbw: bool = True,
        groups: int = 64,
        rows_packed: int = 64,
        disable_bias: bool = True,
        train_bias: bool = False,
        requires_grad: bool = True,
        master: bool | torch.dtype = False,
        activation: str = "exact",
        device: torch.device | str | None = None,
    ) -> None:
        self._set_rows(use_mbw, groups, rows_packed)
        options = {"disable_bias": disable_bias, "train_bias": train_bias, "requires_grad": requires_grad}
        options |= {"master": master, "activation": activation}
        sizes = {"w_bit": w_bit, "dtype": dtype, "group_size": group_size}
        super().__init__(in_channels, out_channels, **sizes, device=device, **options)

    def _set_rows(self, use_mbw: bool, groups: int, rows_packed: int) -> None:
        """What the buffers' sizes depend on; before the base's constructor makes them."""
        if groups < 1 or rows_packed < 1:
            raise ShapeError(
                f"{type(self).__name__}: groups is {groups}, rows_packed {rows_packed}; both are 1 or more"
            )
        self.__dict__.update(use_mbw=use_mbw, groups=groups, rows_packed=rows_packed)

    def _check_sizes(self) -> None:
        super()._check_sizes()
        if not self.use_mbw and self.w_bit not in _WIDTHS:
            raise ShapeError(f"{type(self).__name__}: w_bit: expected 2 or 4 without use_mbw, got {self.w_bit}")
        if self.asym:
            raise ValueError(f"{type(self).__name__}: asym is set, its zeros are floats")

    @property
    def _groups(self) -> int:
        return self.groups if self.use_mbw else super()._groups

    @property
    def _double_quantised(self) -> bool:
        return False

    def _words_shape(self) -> tuple[int, int]:
        return (self.rows_packed, self.out_channels) if self.use_mbw else super()._words_shape()

    def _register_rows(self) -> None:
        self.register_buffer("q_perm", torch.zeros(self.in_channels, dtype=torch.int16))
        self.register_buffer("channel_scale", torch.ones(1, 1, self.in_channels, dtype=self.dtype))
        if self.use_mbw:
            self.register_buffer("q_groups", torch.zeros(2 * self.groups, dtype=torch.int16))

    def _register_of_files(self) -> None:
        self._register_bias()
        plain = (self._groups, self.out_channels)
        self.register_buffer("scales", torch.ones(plain, dtype=self.dtype))
        self.register_buffer("zeros", torch.zeros(plain, dtype=self.dtype))

    @property
    def q_group_map(self) -> Tensor | None:
        """``make_group_map`` of ``q_groups``, once prepared."""
        return self.qweight.q_group_map

    @property
    def rows(self) -> list[int]:
        """How many rows have at least 8, 6, 5, 4, 3 and 2 bits, once prepared; the last of seven is their kernel's."""
        return [*(self.qweight.rows or [0] * 6), 0]

    def set_weight_data(self, weight: Tensor) -> None:
        """``NotImplementedError``: how many bits a row has and the order of the rows are the file's."""
        raise NotImplementedError(f"{type(self).__name__} takes its weight from a file; MPQLinear from floats too")

    def set_scales(self, scales: Tensor | None = None) -> None:
        """Replaces the scales [G, n]; None leaves them. ``ValueError`` unless they fit and are finite."""
        self._set_table("scales", scales)

    def set_zeros(self, zeros: Tensor | None = None) -> None:
        """Replaces the float zeros [G, n]; None leaves them. ``ValueError`` unless they fit and are finite."""
        self._set_table("zeros", zeros)

    def _set_table(self, name: str, table: Tensor | None) -> None:
        if table is None:
            return
        self._check_entry(f"{type(self).__name__}: {name}", name, table, (self._groups, self.out_channels))
        device = self._buffers[name].device
        self._buffers[name] = ordinary(table.detach().to(device=device, dtype=self.dtype, copy=True))
        if self._prepared:
            self._tell_weight()
        self._panels.forget()

    def _tell_weight(self) -> None:
        weight = self.qweight
        self._row_options, self._words = None, weight.detach()
        weight.rest, weight.levels = self._buffers.get("rest"), self.levels
        for name in ("scales", "zeros", "w_bit", "asym", "group_size", "q_perm"):
            setattr(weight, name, getattr(self, name))
        weight.g_idx, found = None, (None, None)
        if self.use_mbw and not self.q_groups.is_meta:
            with contextlib.suppress(ValueError):  # of a table that is not filled yet: said when it is needed
                found = self._mixed_rows()
        weight.q_group_map, weight.rows = found

    @torch.inference_mode(False)
    def _mixed_rows(self) -> tuple[Tensor, list[int]]:
        name = f"{type(self).__name__}: q_groups"
        rows = _rows_of_widths(name, self.q_groups, self.rows_packed, self.in_channels)
        return make_group_map(self.q_groups, self.rows_packed), rows

    def _coded(self) -> Coded:
        if self.use_mbw and self.qweight.q_group_map is None:
            self._mixed_rows()
        return super()._coded()

    def _zeros_and_scales(self) -> tuple[Tensor, Tensor]:
        zeros, scales = super()._zeros_and_scales()
        if self.use_mbw:
            self._mixed_rows()
        return zeros, scales

    def _input_options(self) -> dict[str, Any]:
        return {"channel_scale": self.channel_scale}

    # Files.

    def _forms(self) -> dict[bool, dict[str, tuple[int, ...]]]:
        plain = (self._groups, self.out_channels)
        entries = {"qweight": self._words_shape(), "q_perm": (self.in_channels,), "scales": plain, "zeros": plain}
        entries["channel_scale"] = (1, 1, self.in_channels)
        if self.use_mbw:
            entries["q_groups"] = (2 * self._groups,)
        if not self.disable_bias:
            entries["bias"] = (self.out_channels,)
        return {True: entries, False: entries}

    _PASSED_OVER = (*WeightOnlyLinear._PASSED_OVER, "g_idx", "qzeros")
    _INTEGERS = {**WeightOnlyLinear._INTEGERS, "q_perm": torch.int16, "q_groups": torch.int16}  # noqa: RUF012

    def _check_entry(self, entry: str, name: str, tensor: Any, shape: tuple[int, ...]) -> Tensor:
        tensor = super()._check_entry(entry, name, tensor, shape)
        if name == "q_perm":
            ops.check_permutation_entry(tensor, self.in_channels, entry)
        return tensor

    def _check_state(self, own: dict[str, Any], prefix: str) -> StagedState:
        # For mixed rows, the file says how many groups and words there are.
        q_groups, words = own.get("q_groups"), own.get("qweight")
        sizes = self.groups, self.rows_packed
        pairs = isinstance(q_groups, Tensor) and q_groups.dtype == torch.int16 and q_groups.numel() % 2 == 0
        if self.use_mbw and pairs and isinstance(words, Tensor) and words.dim() == 2:
            self.groups, self.rows_packed = max(1, q_groups.numel() // 2), words.size(0)
        try:
            staged = super()._check_state(own, prefix)
            if (self.groups, self.rows_packed) != sizes and staged.missing:
                raise ValueError(
                    f"the entry '{prefix}q_groups' lists {self.groups} groups in {self.rows_packed} rows of words and "
                    f"the layer has {sizes[0]} in {sizes[1]}: expected all entries, got no {', '.join(staged.missing)}"
                )
            if self.use_mbw and "q_groups" in staged.values and not q_groups.is_meta:
                _rows_of_widths(f"the entry '{prefix}q_groups'", q_groups, self.rows_packed, self.in_channels)
        finally:
            loaded = self.groups, self.rows_packed
            self.groups, self.rows_packed = sizes
        staged.sizes = loaded
        return staged

    def _take_state(self, staged: StagedState, assign: bool) -> None:
        self.groups, self.rows_packed = staged.sizes
        super()._take_state(staged, assign)

    def load_state_dict(self, state_dict: dict[str, Tensor], strict: bool = True, assign: bool = False) -> Any:
        """As every module's; with ``use_mbw`` the file says how many groups and rows of words there are."""
        return super().load_state_dict(state_dict, strict=strict, assign=assign)

    # Floats.

    @staticmethod
    def q42fp_weight(
        qweight: Tensor, scales: Tensor, zeros: Tensor, group_size: int, bits: int, q_perm: Tensor
    ) -> Tensor:
        """The float weight [k, n] of rows of one width, in ``scales``' dtype.

        Args:
            qweight: [ceil(k * bits / 32), n] int32 as a file holds it.
            scales, zeros: [G, n] float.
            q_perm: [k] int16; packed row ``i`` is row ``q_perm[i]``; all zero means no permutation.

        Raises:
            ShapeError: a shape does not fit. ValueError: ``q_perm`` is no permutation.
        """
        weight = WeightOnlyParameter(
            qweight, scales=scales, zeros=zeros, w_bit=bits, group_size=group_size, layer_type=2, q_perm=q_perm
        )
        return gptq_style_unpacking(weight)[0]

    @staticmethod
    def exl2fp_weight(
        qweight: Tensor, scales: Tensor, zeros: Tensor, q_perm: Tensor, q_group_map: Tensor, rows: list[int]
    ) -> Tensor:
        """The float weight [k, n] of rows of several widths, in ``scales``' dtype.

        Args:
            qweight: [rows of words, n] int32, each group dense in words of its own.
            scales, zeros: [G, n] float.
            q_perm: [k] int16, as in ``q42fp_weight``.
            q_group_map: [2 * k] int16 of ``make_group_map``.
            rows: how many rows have at least 8, 6, 5, 4, 3 and 2 bits.
        """
        weight = WeightOnlyParameter(
            qweight, scales=scales, zeros=zeros, layer_type=2, q_perm=q_perm, q_group_map=q_group_map, rows=rows
        )
        return gptq_style_unpacking(weight)[0]


def _rows_of_widths(name: str, q_groups: Tensor, words: int, in_channels: int) -> list[int]:
    """How many rows have at least 8, 6, 5, 4, 3 and 2 bits; ``ValueError`` for a table that is none of this layer's."""
    bit_rows, g_idx = ops.mixed_rows(q_groups, words, name)
    if g_idx.numel() != in_channels:
        raise ValueError(f"{name}: expected {in_channels} rows, got {g_idx.numel()}")
    runs = list(zip(bit_rows[::2], bit_rows[1::2], strict=True))
    return [sum(rows for bits, rows in runs if bits >= least) for least in MIXED_WIDTHS]
