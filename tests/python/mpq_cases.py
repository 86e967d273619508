"""Weight-only layers full of random words, and how one word is read."""

import numpy as np
import torch

from bie import nn
from bie.nn import MBWQLinear, MPQLinear
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


def filled(layer, seed=0):
    """Random words, scales and zeros; before ``prepare_params``."""
    g = generator(seed)
    layer.qweight.detach().copy_(torch.randint(-(2**31), 2**31, layer.qweight.shape, generator=g))
    for name, buffer in layer.named_buffers():
        if name in ("scales", "qscales_scales", "qzeros_scales"):
            buffer.copy_(0.01 + 0.1 * torch.rand(buffer.shape, generator=g))
        elif name in ("zeros", "qscales_zeros", "qzeros_zeros", "bias"):
            buffer.copy_(torch.randn(buffer.shape, generator=g) / 8)
        elif buffer.dtype == torch.uint8:
            buffer.copy_(torch.randint(0, 256, buffer.shape, generator=g))
        elif name == "qzeros":
            buffer.copy_(torch.randint(-(2**31), 2**31, buffer.shape, generator=g))
    return layer


def mpq(k, n, w_bit=4, group=32, form="gptq", seed=0, cls=MPQLinear, **kwargs):
    options = {"use_gba_quant": form != "gptq", "asym": form == "gba_asym", "group_size": group, "dq_group_size": 16}
    layer = cls(k, n, w_bit=w_bit, **{"dtype": torch.float32} | options | kwargs)
    return filled(layer, seed)


def mixed(k_rows, n, seed=0, cls=MBWQLinear, groups_of=32, **kwargs):
    """Rows of the widths in ``k_rows`` {bits: rows}, falling, in groups of 32 or fewer."""
    g = generator(seed)
    q_groups, words, codes = [], 0, []
    for bits, rows in k_rows.items():
        for start in range(0, rows, groups_of):
            size = min(groups_of, rows - start)
            q_groups += [bits, words]
            words += -(-size * bits // 32)
            codes.append((bits, torch.randint(0, 2**bits, (size, n), generator=g)))
    packed = torch.cat([torch.ops.bie.pack_words(c.int(), bits, 0) for bits, c in codes])
    k = sum(k_rows.values())
    layer = cls(k, n, dtype=torch.float16, groups=len(codes), rows_packed=words, **kwargs)
    layer.qweight.detach().copy_(packed)
    layer.q_groups.copy_(torch.tensor(q_groups))
    layer.q_perm.copy_(torch.randperm(k, generator=g))
    layer.scales.copy_(0.01 + 0.05 * torch.rand(layer.scales.shape, generator=g))
    layer.zeros.copy_(torch.randn(layer.zeros.shape, generator=g) / 8)
    layer.channel_scale.copy_(0.5 + torch.rand(layer.channel_scale.shape, generator=g))
    weight, row = torch.zeros(k, n, dtype=torch.float64), 0
    for group, (_, values) in enumerate(codes):
        for values_of_row in values:
            feature = int(layer.q_perm[row]) & 0xFFFF
            weight[feature] = values_of_row * layer.scales[group].double() - layer.zeros[group].double()
            row += 1
    return layer, weight


EXL2 = {8: 32, 6: 32, 5: 32, 4: 64, 3: 32, 2: 64}


def _random_table(layer, seed):
    layer.set_weight_data(torch.randn(layer.num_embeddings, layer.embedding_dim, generator=generator(seed)))
    return layer


def _signs(seed):
    layer = nn.BinaryEmbedding(11, 21, padding_idx=2)
    layer.reset_parameters(torch.randn(11, 21, generator=generator(seed)))
    return layer


def _bag(seed):
    layer = nn.BinaryEmbeddingBag(11, 21)
    layer.weight.detach().copy_(torch.rand(11, 21, generator=generator(seed)) < 0.5)
    return layer


#: {name: seed -> layer} of every kind whose weight is packed from the start, as files hold it.
CODED = {
    "gptq": lambda seed: mpq(70, 45, 4, 32, "gptq", seed),
    "gptq_3": lambda seed: mpq(37, 9, 3, 16, "gptq", seed, disable_bias=False),
    "gba": lambda seed: mpq(70, 45, 2, 32, "gba", seed, disable_bias=False, train_bias=True),
    "gba_asym": lambda seed: mpq(64, 45, 4, 32, "gba_asym", seed),
    "large_group": lambda seed: mpq(512, 8, 4, 256, "gba", seed, dtype=torch.float16),
    "master": lambda seed: mpq(40, 9, 4, 16, "gba", seed, master=True),
    "mbwq": lambda seed: filled(MBWQLinear(64, 9, w_bit=4, group_size=32, use_mbw=False), seed),
    "exl2": lambda seed: mixed(EXL2, 8, seed)[0],
    "table": lambda seed: _random_table(nn.WeightOnlyEmbedding(11, 24, 4, 8), seed),
    "table_3": lambda seed: _random_table(nn.WeightOnlyEmbedding(11, 21, 3, -1, dtype=torch.bfloat16), seed),
    "signs": _signs,
    "bag": _bag,
}


def inputs_of(layer, seed=0):
    """A batch that a layer of CODED takes."""
    if isinstance(layer, nn.WeightOnlyLinear):
        return torch.randn(3, layer.in_channels, generator=generator(seed)).to(layer.dtype)
    return torch.randint(0, layer.num_embeddings, (4, 5), generator=generator(seed))
