"""convert() of attention, transformers and convolutions along one axis; padding by name; what it leaves alone."""

import copy
import warnings

import pytest
import torch
from torch import nn

import bie
from bie import convert

#: Largest relative error of a converted transformer's output, by target; random weights, one batch for step sizes.
BOUNDS = {"q8": 0.06, "q4": 0.3, "w8": 0.01, "w4": 0.1}


def error(ours, theirs):
    return float((ours - theirs).norm() / theirs.norm())


@pytest.fixture(autouse=True)
def seed():
    torch.manual_seed(0)


@pytest.mark.parametrize("target", BOUNDS)
@pytest.mark.parametrize("batch_first", [True, False])
def test_an_encoder(target, batch_first):
    layer = nn.TransformerEncoderLayer(32, 4, 64, batch_first=batch_first, dropout=0.0)
    model, x = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False).eval(), torch.randn(3, 7, 32)
    report = convert(model, target, inplace=False, batch=x)
    assert len(report.swapped) == 6 and not report.skipped
    padded = torch.zeros(x.shape[:2] if batch_first else (7, 3), dtype=torch.bool)
    padded[1, -2:] = True
    with torch.no_grad():
        assert error(report.model(x), model(x)) < BOUNDS[target]
        ours, theirs = report.model(x, src_key_padding_mask=padded), model(x, src_key_padding_mask=padded)
        assert (
            error(ours[~padded] if batch_first else ours, theirs[~padded] if batch_first else theirs) < BOUNDS[target]
        )


def test_a_decoder():
    model, x, memory = nn.TransformerDecoderLayer(32, 4, 64, dropout=0.0).eval(), torch.randn(5, 3, 32), None
    memory = torch.randn(6, 3, 32)
    report = convert(model, "q8", inplace=False, batch=(x, memory))
    assert len(report.swapped) == 4 and not report.skipped
    causal = nn.Transformer.generate_square_subsequent_mask(5)
    with torch.no_grad():
        wanted = model(x, memory, tgt_mask=causal, tgt_is_causal=True)
        assert error(report.model(x, memory, tgt_mask=causal, tgt_is_causal=True), wanted) < 0.06


@pytest.mark.parametrize("options", [{}, {"bias": False}, {"kdim": 12, "vdim": 20}, {"batch_first": True}])
@pytest.mark.parametrize("need_weights", [True, False])
def test_attention_with_float_projections_is_torchs(options, need_weights):
    """The arithmetic around the projections, with nn.Linear in their places."""
    theirs = nn.MultiheadAttention(16, 4, **options).eval()
    ours = convert(theirs, "w8", inplace=False).model
    for name, weight in zip(("q_proj", "k_proj", "v_proj"), projections(theirs), strict=True):
        setattr(ours, name, linear(weight, None))
    if theirs.in_proj_bias is not None:
        for layer, bias in zip((ours.q_proj, ours.k_proj, ours.v_proj), theirs.in_proj_bias.chunk(3), strict=True):
            layer.bias = nn.Parameter(bias.detach())
    ours.out_proj = theirs.out_proj
    q, k, v = torch.randn(5, 3, 16), torch.randn(6, 3, ours.kdim), torch.randn(6, 3, ours.vdim)
    length, s, b = (3, 3, 5) if ours.batch_first else (5, 6, 3)
    k, v = (k[:5], v[:5]) if ours.batch_first else (k, v)
    masks = [{}, {"attn_mask": torch.randn(length, s)}, {"attn_mask": torch.rand(4 * b, length, s) > 0.7}]
    masks[2]["attn_mask"][..., 0] = False
    padding = torch.zeros(b, s, dtype=torch.bool)
    padding[0, -1] = True
    masks.append({"key_padding_mask": padding})
    for mask in masks:
        for average in (True, False):
            wanted, scores = theirs(q, k, v, need_weights=need_weights, average_attn_weights=average, **mask)
            y, found = ours(q, k, v, need_weights=need_weights, average_attn_weights=average, **mask)
            torch.testing.assert_close(y, wanted, rtol=1e-4, atol=1e-5)
            assert (found is None) == (scores is None)
            if scores is not None:
                torch.testing.assert_close(found, scores, rtol=1e-4, atol=1e-5)
    if not ours.batch_first:
        alone = ours(q[:, 0], k[:, 0], v[:, 0], need_weights=need_weights)[0]
        torch.testing.assert_close(alone, theirs(q[:, 0], k[:, 0], v[:, 0])[0], rtol=1e-4, atol=1e-5)


def projections(attention):
    if attention.in_proj_weight is not None:
        return attention.in_proj_weight.chunk(3)
    return attention.q_proj_weight, attention.k_proj_weight, attention.v_proj_weight


def linear(weight, bias):
    layer = nn.Linear(weight.shape[1], weight.shape[0], bias=bias is not None)
    layer.weight = nn.Parameter(weight.detach())
    return layer


def test_attention_refuses_with_a_sentence():
    attention = bie.nn.MultiheadAttention(16, 4, batch_first=True)
    with pytest.raises(ValueError, match="embed_dim: expected a multiple of num_heads = 3, got 16"):
        bie.nn.MultiheadAttention(16, 3)
    got = r"\[2, 5, 16\], \[2, 5, 16\], \[2, 4, 16\]"
    with pytest.raises(bie.ShapeError, match=f"query, key and value: expected .*, got {got}"):
        attention(torch.ones(2, 5, 16), torch.ones(2, 5, 16), torch.ones(2, 4, 16))
    with pytest.raises(ValueError, match="is_causal is a hint about attn_mask"):
        attention(*[torch.ones(2, 5, 16)] * 3, is_causal=True)
    report = convert(nn.Sequential(nn.MultiheadAttention(8, 2, add_bias_kv=True)), "q8")
    assert "appends keys and values" in report.skipped[0].reason


def test_frozen_projections_stay_frozen():
    theirs = nn.MultiheadAttention(8, 2)
    theirs.in_proj_weight.requires_grad_(False)
    ours = convert(theirs, "q8", inplace=False).model
    assert not ours.q_proj.weight.requires_grad and ours.out_proj.weight.requires_grad


@pytest.mark.parametrize("target", ["q8", "q4", "binary"])
@pytest.mark.parametrize("options", [{"padding": 2, "stride": 2}, {"padding": "same", "dilation": 2}, {"groups": 2}])
def test_convolutions_along_one_axis_are_those_of_two(target, options):
    conv, x = nn.Conv1d(32, 6, 5, **options), torch.randn(2, 32, 11)
    flat = nn.Conv2d(32, 6, (1, 5), **{k: (0, v) if k == "padding" and v != "same" else v for k, v in options.items()})
    flat.stride, flat.dilation = (1, conv.stride[0]), (1, conv.dilation[0])
    flat.load_state_dict({"weight": conv.weight.detach().unsqueeze(2), "bias": conv.bias.detach()})
    ours, theirs = convert(conv, target).model, convert(flat, target).model
    assert isinstance(ours, bie.nn.Q8Conv1d | bie.nn.Q4Conv1d | bie.nn.BinaryConv1d)
    for mode in (True, False):
        ours.train(mode)
        theirs.train(mode)
        assert torch.equal(ours(x), theirs(x.unsqueeze(2)).squeeze(2))
        assert ours(x).shape == conv(x).shape
    bie.pack(ours)
    assert torch.equal(copy.deepcopy(ours)(x), theirs(x.unsqueeze(2)).squeeze(2))
    with pytest.raises(bie.ShapeError, match=r"x: expected \[batch, 32, length\], got"):
        ours(x[:, :3])


def test_padding_by_name():
    model = nn.Sequential(nn.Conv2d(3, 3, (3, 5), padding="same"), nn.Conv2d(3, 3, 2, padding="same"))
    report = convert(model, "q8")
    assert model[0]._geometry["padding"] == (1, 2)
    assert "more on one side than on the other" in report.skipped[0].reason


def grouped_convolutions():
    return nn.Sequential(nn.Conv2d(32, 32, 3, groups=32), nn.Conv2d(32, 32, 3, groups=2), nn.Conv2d(1, 4, 3))


def test_convolutions_of_few_channels_a_group_are_swapped_on_the_cpu():
    assert len(convert(grouped_convolutions(), "q8").swapped) == 3


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_convolutions_that_would_be_slower_are_left_unless_asked_for():
    report = convert(grouped_convolutions().cuda(), "q8")
    assert [entry.name for entry in report.swapped] == ["1", "2"]
    assert "1 channels a group are mostly slower in codes" in report.skipped[0].reason
    assert len(convert(grouped_convolutions().cuda(), "q8", small_groups=True).swapped) == 3


def test_everything_left_alone_is_in_the_report():
    model = nn.Sequential(
        nn.Embedding(5, 8),
        nn.LSTM(8, 8),
        nn.ConvTranspose2d(8, 8, 2),
        nn.LayerNorm(8),
        nn.Linear(8, 8),
        nn.Bilinear(8, 8, 2),
    )
    report = convert(model, "q8")
    assert {entry.name: entry.reason for entry in report.skipped} == {
        "0": "there is no such layer for Embedding",
        "1": "there is no such layer for LSTM",
        "2": "there is no such layer for ConvTranspose2d",
        "5": "there is no such layer for Bilinear",
    }
    again = convert(model, "q8")
    assert not again.swapped and len(again.skipped) == 4


def test_the_report_in_a_notebook():
    report = convert(nn.ModuleDict({"a": nn.Linear(4, 2), "b": nn.Bilinear(2, 2, 2)}), "q8")
    html = report._repr_html_()
    assert "<td>a</td><td>Linear</td><td>2x4</td><td>Q8Linear</td>" in html
    assert "unchanged: there is no such layer for Bilinear" in html and "1 swapped, 1 unchanged" in html


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_weights_below_the_scales_of_float16_are_refused_and_told(dtype):
    weight = torch.randn(32, 64, generator=torch.Generator().manual_seed(1)) * 1e-7
    for kind in (torch.nn.Linear(64, 32, bias=False), torch.nn.Embedding(32, 64)):
        with torch.no_grad():
            kind.weight.copy_(weight)
        kind = kind.to(dtype)
        wanted = kind.weight.detach().double()
        report = bie.convert(torch.nn.Sequential(kind), "w4")
        if dtype == torch.float16:
            (left,) = report.skipped
            assert "float32 scales hold them (dtype=torch.float32)" in left.reason
            report = bie.convert(torch.nn.Sequential(kind), "w4", dtype=torch.float32)
        (layer,) = report.model
        is_table = isinstance(kind, torch.nn.Embedding)
        opened = layer.eval()(torch.arange(32) if is_table else torch.eye(64)).detach().double()
        opened = opened if is_table else opened.t()
        assert float((opened - wanted).norm() / wanted.norm()) < 0.1


def test_a_half_model_with_one_dead_group_is_converted():
    linear = torch.nn.Linear(64, 32, bias=False).half()
    with torch.no_grad():
        linear.weight[3] = 1e-7
    assert bie.convert(torch.nn.Sequential(linear), "w4").swapped


@pytest.mark.parametrize("lazy", [torch.nn.LazyLinear(4), torch.nn.LazyConv2d(4, 3)])
@pytest.mark.parametrize("target", ["q8", "w4"])
def test_a_lazy_layer_is_left_with_its_reason(lazy, target):
    model = torch.nn.Sequential(copy.deepcopy(lazy), torch.nn.Linear(8, 8))
    report = bie.convert(model, target)
    (left,) = report.skipped
    assert "it is lazy" in left.reason or "no such layer" in left.reason
    assert "1 swapped, 1 unchanged" in str(report)


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
@pytest.mark.parametrize("how", ["all", "linears", "replaced", "quantized"])
@pytest.mark.parametrize("grad", [True, False])
@pytest.mark.parametrize("target", ["q8", "w8"])
def test_an_encoder_takes_a_padding_mask_in_evaluation(target, grad, how):
    """torch's fused kernel and its nested tensors read float weights: a converted stack is kept off both."""
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(32, 4, 64, batch_first=True)
    model = nn.TransformerEncoder(layer, 2).eval()
    x, padding = torch.randn(2, 5, 32), torch.tensor([[False] * 5, [False] * 3 + [True] * 2])
    with torch.set_grad_enabled(grad):
        wanted = model(x, src_key_padding_mask=padding)
    linears = [f"layers.{i}.linear{j}" for i in (0, 1) for j in (1, 2)]
    if how == "quantized":
        bie.quantization.quantize(model, [x], bits=8, group_size=32)
    elif how == "replaced":
        cls, options = (bie.nn.Q8Linear, {}) if target == "q8" else (bie.nn.MPQLinear, {"bits": 8, "group_size": 32})
        bie.conversion.replace_layers(model, linears, cls, lambda old: bie.conversion.carry(old, cls, **options))
    else:
        bie.convert(model, target, filter=(lambda name, _: name in linears) if how == "linears" else None)
    if target == "q8" and how != "quantized":
        bie.calibrate(model, [x])
    with torch.set_grad_enabled(grad):
        found = model(x, src_key_padding_mask=padding)
    kept = ~padding
    assert float((found - wanted).detach()[kept].norm() / wanted[kept].norm()) < 0.05
    if target == "q8" and how != "quantized":
        assert not torch.equal(found[kept], wanted[kept]), "the layers of codes were called"


@pytest.mark.parametrize("make", [torch.optim.AdamW, bie.optim.DiodeMix])
def test_an_optimizer_made_before_the_conversion_is_told(make):
    """It would train nothing, without a word."""
    model, x = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4)), torch.randn(4, 8)
    early = make(model.parameters(), lr=1e-3)
    bie.convert(model, "q8", batch=x, filter=lambda name, module: name == "0")
    model(x).sum().backward()
    with pytest.warns(UserWarning, match="2 of its parameters are of layers that a conversion has replaced"):
        early.step()
    late = make(model.parameters(), lr=1e-3)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        late.step()
        early.step()  # once is enough


def test_an_optimizer_of_a_model_that_stays_is_not(recwarn):
    """Of the float model behind a converted copy."""
    model, x = nn.Sequential(nn.Linear(8, 4)), torch.randn(4, 8)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    bie.convert(model, "q8", batch=x, inplace=False)
    model(x).sum().backward()
    optimizer.step()
    assert not [warning for warning in recwarn if "replaced" in str(warning.message)]


def test_training_a_packed_layer_warns_once():
    layer, x = bie.nn.Q4Linear(8, 4), torch.randn(4, 8)
    layer(x)
    bie.pack(layer)
    with pytest.warns(UserWarning, match="the layer is packed, its weight does not train"):
        layer.train()(x)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        layer(x)
        frozen = bie.nn.Q4Linear(8, 4)
        frozen(x)
        bie.pack(frozen)
        frozen.requires_grad_(False)
        frozen.train()(x)
        frozen.eval()(x)
