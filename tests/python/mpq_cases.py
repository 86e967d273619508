"""Weight-only layers full of random words, and how one word is read."""

import numpy as np
import torch

from bitorch_engine.layers.qlinear.nbit import MPQLinearBase

WIDTHS = [1, 2, 4, 8]


def generator(seed):
    return torch.Generator().manual_seed(seed)


def word_of(raw, bits, row, column, along_rows=True):
    """The code of a place, bit after bit: those of 3, 5 and 6 bits lie across words."""
    place = int(row if along_rows else column) * bits
    words = raw[:, column] if along_rows else raw[row]
    return sum((int(np.uint32(words[i // 32])) >> i % 32 & 1) << (i - place) for i in range(place, place + bits))


def make_layer(w_bit, *, asym, k=64, n=64, group_size=32, seed=0, dtype=torch.float32, **kwargs):
    """A GPTQ layer (asym) or a GBA layer with plain scales, prepared, full of random words."""
    options = {"use_gba_quant": not asym, "group_size": group_size if asym else 256, "dtype": dtype, **kwargs}
    layer = MPQLinearBase(k, n, w_bit=w_bit, **options)
    g = generator(seed)
    layer.set_qweight_data(torch.randint(-(2**31), 2**31, layer.qweight.shape, generator=g).int())
    layer.scales.copy_(0.01 + torch.rand(layer.scales.shape, generator=g))
    if asym:
        layer.qzeros.copy_(torch.randint(-(2**31), 2**31, layer.qzeros.shape, generator=g).int())
    else:
        layer.zeros.copy_(torch.randn(layer.zeros.shape, generator=g))
    layer.g_idx.copy_(torch.randint(0, layer.scales.size(0), (k,), generator=g).int())
    layer.prepare_params()
    return layer
