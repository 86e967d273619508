"""Rows of codes, as files hold them, into the layers that take them as they are; docs/spec/files.md#rows-of-codes."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from bie._operators import ops
from bie.errors import ShapeError
from bie.nn import MPQLinear, WeightOnlyEmbedding
from bie.nn.weight_only_embedding import TiedHead


@dataclass(frozen=True)
class CodedRows:
    """A matrix [rows, columns] of unsigned codes q, with s and z of their group of ``group_size`` columns.

    ``W = s * q - z`` where ``zeros`` holds z, ``W = s * (q - zero)`` where it is None; float32, one rounding an
    operation.

    =======  =================================================================================
    words    [rows, ceil(columns * bits / 32)] int32, the codes of a row, the first lowest
    scales   [rows, groups] float32
    zeros    [rows, groups] float32, or None
    =======  =================================================================================
    """

    columns: int
    bits: int
    group_size: int
    words: Tensor
    scales: Tensor
    zeros: Tensor | None
    zero: int

    @property
    def rows(self) -> int:
        return self.words.size(0)

    def _whole_zeros(self) -> Tensor:
        shape = (self.scales.size(1), self.rows)
        return ops.pack_words(torch.full(shape, self.zero - 1, dtype=torch.int32), self.bits, 1)

    def open(self) -> Tensor:
        """The floats, [rows, columns] float32."""
        zeros = self._whole_zeros() if self.zeros is None else self.zeros.t()
        options = {"in_features": self.columns, "bits": self.bits, "group_size": self.group_size}
        return ops.weight_only_open(self.words.t(), self.scales.t(), zeros, dtype=torch.float32, **options).t()

    def linear(
        self, bias: Tensor | None = None, *, requires_grad: bool = False, activation: str = "exact"
    ) -> MPQLinear:
        """A layer of these codes, with scales (and zeros) in 16 bits where nothing is lost by it."""
        floats = [self.scales, *([] if self.zeros is None else [self.zeros]), *([] if bias is None else [bias])]
        half = all(torch.equal(t.half().float(), t.float()) for t in floats)
        layer = MPQLinear(
            self.columns,
            self.rows,
            w_bit=self.bits,
            dtype=torch.float16 if half else torch.float32,
            group_size=self.group_size,
            use_gba_quant=self.zeros is not None,
            disable_bias=bias is None,
            requires_grad=requires_grad,
            activation=activation,
        )
        if bias is not None and tuple(bias.shape) != (self.rows,):
            raise ShapeError(f"the bias: expected [{self.rows}], got {list(bias.shape)}")
        state = {"qweight": self.words.t().contiguous(), "g_idx": layer.g_idx, "scales": self.scales.t()}
        state |= {"qzeros": self._whole_zeros()} if self.zeros is None else {"zeros": self.zeros.t()}
        layer.load_state_dict(state | ({} if bias is None else {"bias": bias}))
        return layer.eval()

    def embedding(self, padding_idx: int | None = None, *, activation: str = "exact") -> WeightOnlyEmbedding:
        """A table of these codes, whose rows are the floats of ``open`` to the bit."""
        table = WeightOnlyEmbedding(
            self.rows, self.columns, self.bits, self.group_size, padding_idx, activation=activation
        )
        zeros = self.zero * self.scales if self.zeros is None else self.zeros
        table.load_state_dict({"qweight": self.words, "scales": self.scales, "zeros": zeros})
        return table.eval()


def rows_of(what: str, layer: nn.Module) -> CodedRows:
    """The codes of a layer as they are.

    Raises:
        ValueError: another kind of layer, rows that are permuted, groups that are not runs of features.
    """
    if isinstance(layer, TiedHead):
        layer = layer.table
    if isinstance(layer, WeightOnlyEmbedding):
        scales, zeros = layer.scales.float().cpu(), layer.zeros.float().cpu()
        return CodedRows(
            layer.embedding_dim, layer.bits, layer.group_size, layer.qweight.detach().cpu(), scales, zeros, 0
        )
    if not isinstance(layer, MPQLinear):
        raise ValueError(f"{what}: a {type(layer).__name__} has no codes of one width, MPQLinear has")
    layer.prepare_params()
    k, size = layer.in_channels, layer.group_size
    if not torch.equal(layer.g_idx, torch.arange(k, dtype=torch.int32, device=layer.g_idx.device) // size):
        raise ValueError(
            f"{what}: the groups of the layer are in an order of their own (g_idx), rows of a file are not"
        )
    words, scales = layer.qweight.detach().t().contiguous().cpu(), layer.scales.t().float().contiguous().cpu()
    if not layer.asym:
        return CodedRows(k, layer.w_bit, size, words, scales, layer.zeros.t().float().contiguous().cpu(), 0)
    zeros = ops.unpack_words(layer.zeros, layer.w_bit, layer.out_channels, 1).cpu() + 1
    if int(zeros.min()) == int(zeros.max()):
        return CodedRows(k, layer.w_bit, size, words, scales, None, int(zeros.min()))
    return CodedRows(k, layer.w_bit, size, words, scales, (zeros.t() * scales).contiguous(), 0)
