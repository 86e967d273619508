"""Folders of GreenBit hold the layers whose state dicts they are."""

import pytest
import torch
from weight_folders import generator, write

import bie
from bie.formats import load_weights_folder


def filled(layer, seed):
    g = generator(seed)
    for name, tensor in {"qweight": layer.qweight, **dict(layer.named_buffers())}.items():
        if name in ("g_idx", "wf", "q_groups"):
            continue
        if name == "bias" and layer.disable_bias:
            tensor.zero_()
        elif tensor.is_floating_point():
            tensor.data = (torch.rand(tensor.shape, generator=g) + 0.1).to(tensor.dtype)
        elif name == "q_perm":
            tensor.copy_(torch.randperm(tensor.numel(), generator=g))
        elif tensor.dtype == torch.uint8:
            tensor.copy_(torch.randint(0, 256, tensor.shape, generator=g))
        else:
            tensor.data = torch.randint(-(2**31), 2**31, tensor.shape, generator=g).int()
    return layer


def as_loaded(layer, tmp_path, **texts):
    """The layer that its state dict makes as a file, and what was told of it."""
    state = {key: value.detach().clone() for key, value in layer.state_dict().items()}
    told = load_weights_folder(write(tmp_path / "m", {"model.layers.0.mlp.up_proj": state}, **texts))
    (coded,) = told.layers.values()
    assert not told.tensors
    return coded.linear(), coded


def same_outputs(a, b):
    x = torch.randn(3, a.in_channels, generator=generator(9))
    return torch.equal(a.eval()(x), b(x))


@pytest.mark.parametrize("bits", [1, 2, 4, 8])
@pytest.mark.parametrize("asym", [False, True])
@pytest.mark.parametrize(
    ("k", "n", "group", "dq", "mode"), [(96, 64, 32, 32, 2), (70, 40, 32, 16, 2), (96, 64, 32, 32, 1)]
)
def test_greenbit_legacy(bits, asym, k, n, group, dq, mode, tmp_path):
    if asym and mode == 1:
        dq = n
    options = {"w_bit": bits, "group_size": group, "dq_group_size": dq, "dq_mode": mode, "asym": asym}
    layer = filled(bie.nn.MPQLinear(k, n, disable_bias=False, **options), bits)
    loaded, coded = as_loaded(layer, tmp_path)
    assert (coded.kind, coded.bits, coded.group_size) == ("gba", bits, group)
    assert same_outputs(layer, loaded)


def test_greenbit_legacy_with_wide_groups_and_prepared(tmp_path):
    layer = filled(bie.nn.MPQLinear(512, 64, w_bit=4, group_size=256, dq_group_size=32), 1)
    loaded, coded = as_loaded(layer, tmp_path)
    assert coded.group_size == 256
    assert same_outputs(layer, loaded)
    layer = filled(bie.nn.MPQLinear(96, 64, w_bit=4, group_size=32, dq_group_size=32), 2)
    layer.prepare_params()
    loaded, _ = as_loaded(layer, tmp_path)
    assert same_outputs(layer, loaded)


@pytest.mark.parametrize("bits", [2, 4])
def test_greenbit_layer_mix(bits, tmp_path):
    layer = filled(bie.nn.MBWQLinear(96, 40, w_bit=bits, group_size=32, use_mbw=False), bits)
    loaded, coded = as_loaded(layer, tmp_path)
    assert (coded.kind, coded.bits, coded.group_size, type(loaded)) == ("mbwq", bits, 32, bie.nn.MBWQLinear)
    assert same_outputs(layer, loaded)


def strategy(bits=(4, 2), shares=(0.75, 0.25), groups=(32, 32)):
    entry = {
        "bits": list(bits),
        "bits_prop": list(shares),
        "group_size": {str(b): g for b, g in zip(bits, groups, strict=True)},
    }
    return {"measurement": {"model.layers.0": {"up_proj": entry | {"scale_bits": 4}}}}


def channel_mix(rows=((4, 96), (2, 32)), n=24):
    """Rows of falling widths in groups of 32."""
    first, pairs = 0, []
    for width, count in rows:
        for _ in range(count // 32):
            pairs += [width, first]
            first += width
    k = sum(count for _, count in rows)
    layer = bie.nn.MBWQLinear(k, n, use_mbw=True, groups=len(pairs) // 2, rows_packed=first)
    layer.q_groups.copy_(torch.tensor(pairs, dtype=torch.int16))
    return filled(layer, 5)


def test_greenbit_channel_mix(tmp_path):
    layer = channel_mix()
    loaded, coded = as_loaded(layer, tmp_path, strategy=strategy())
    assert (coded.kind, coded.bits) == ("mixed", 0)
    assert same_outputs(layer, loaded)


def test_mixed_rows_of_every_width_without_a_strategy(tmp_path):
    layer = channel_mix(((8, 32), (6, 32), (5, 64), (4, 32), (3, 32), (2, 64)))
    loaded, coded = as_loaded(layer, tmp_path)
    assert (coded.kind, coded.in_features) == ("mixed", 256)
    assert same_outputs(layer, loaded)


def test_a_strategy_that_the_file_does_not_follow(tmp_path):
    with pytest.raises(ValueError, match=r"has 4 groups in 14 rows of words, quant_strategy\.json makes 4 in 12"):
        as_loaded(channel_mix(), tmp_path, strategy=strategy(shares=(0.5, 0.5)))
    with pytest.raises(ValueError, match=r'the entry "model\.layers\.0\.up_proj" has no bits_prop'):
        as_loaded(channel_mix(), tmp_path, strategy=strategy(shares=(0.5,)))
    with pytest.raises(ValueError, match=r'the entry "model\.layers\.0\.up_proj" has no group_size'):
        as_loaded(channel_mix(), tmp_path, strategy=strategy(groups=(32, 0)))


def test_the_width_of_words_without_an_index_is_the_strategys(tmp_path):
    layer = filled(bie.nn.MPQLinear(96, 64, w_bit=4, group_size=32, dq_group_size=32), 3)
    state = {key: value.detach().clone() for key, value in layer.state_dict().items() if key != "g_idx"}
    name = {"model.layers.0.mlp.up_proj": state}
    with pytest.raises(ValueError, match="neither g_idx nor a configuration says of how many bits"):
        load_weights_folder(write(tmp_path / "a", name))
    told = strategy(bits=(4,), shares=(1.0,), groups=(32,))
    (coded,) = load_weights_folder(write(tmp_path / "b", name, strategy=told)).layers.values()
    assert (coded.bits, coded.in_features) == (4, 96)
    assert same_outputs(layer, coded.linear())


@pytest.mark.parametrize(
    ("key", "tensor", "words"),
    [
        ("qstatistic", torch.zeros(3, 2, 31, dtype=torch.uint8), 'qstatistic": expected [3, 3, 31], got [3, 2, 31]'),
        ("qstatistic", torch.zeros(0, 2, 32, dtype=torch.uint8), 'qstatistic" is [0, 2, 32], which is empty'),
        ("qscales_scales", torch.ones(3, 3, 1), 'qscales_scales": expected [3, 2, 1] or [1, 64, 1], got [3, 3, 1]'),
        ("qzeros_zeros", torch.ones(3, 1, 1), 'qzeros_zeros": expected [3, 2, 1], got [3, 1, 1]'),
        ("g_idx", torch.full((96,), 3).int(), 'g_idx" holds groups outside [0, 2]'),
    ],
)
def test_greenbit_tables_that_do_not_fit(key, tensor, words, tmp_path):
    layer = filled(bie.nn.MPQLinear(96, 64, w_bit=4, group_size=32, dq_group_size=32), 3)
    state = {name: value.detach().clone() for name, value in layer.state_dict().items()} | {key: tensor}
    with pytest.raises(ValueError) as refused:
        load_weights_folder(write(tmp_path / "m", {"a": state}))
    assert words in str(refused.value)


def test_an_order_that_is_none_names_the_file_and_the_layer(tmp_path):
    layer = filled(bie.nn.MBWQLinear(96, 40, w_bit=4, group_size=32, use_mbw=False), 1)
    layer.q_perm[0] = layer.q_perm[1]
    state = {name: value.detach().clone() for name, value in layer.state_dict().items()}
    folder = load_weights_folder(write(tmp_path / "m", {"a.b": state}))
    with pytest.raises(ValueError, match=r"/m: layer 'a\.b': the entry 'q_perm' is not a permutation"):
        folder["a.b"].linear()
