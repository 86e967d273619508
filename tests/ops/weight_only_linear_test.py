"""Weight-only linears: forward and gradients against float64, every form of the weight, every refusal."""

import itertools
import re

import pytest
import torch
from torch.utils.checkpoint import checkpoint


def bits_to_words(codes: torch.Tensor, bits: int) -> torch.Tensor:
    """[k, n] codes as words along axis 0, a bit at a time."""
    k, n = codes.shape
    stream = torch.zeros((k * bits + 31) // 32 * 32, n, dtype=torch.int64)
    for b in range(bits):
        stream[torch.arange(k) * bits + b] = codes.long() >> b & 1
    words = (stream.view(-1, 32, n) << torch.arange(32).view(1, 32, 1)).sum(1)
    return torch.where(words >= 2**31, words - 2**32, words).int()


class Weight:
    """A random weight: what the operators take, and W [k, n] in float64."""

    def __init__(self, k, n, bits=4, group=32, form="zero", dtype=torch.float16, g_idx=None, perm=False, seed=0):
        g = torch.Generator().manual_seed(seed)
        self.k, self.n = k, n
        runs = bits if isinstance(bits, list) else [(bits, k)]
        codes = torch.cat([torch.randint(0, 2**b, (rows, n), generator=g) for b, rows in runs])
        self.words = torch.cat(
            [bits_to_words(part, b) for part, (b, _) in zip(self.parts(codes, runs), runs, strict=True)]
        )
        size = k if group == -1 else group
        group_of = torch.arange(k) // size if g_idx is None else g_idx
        groups = int(group_of.max()) + 1 if k else 0
        self.scales = (torch.rand(groups, n, generator=g) * 0.1 + 0.01).to(dtype)
        width = torch.cat([torch.full((rows,), b) for b, rows in runs])
        self.codes, self.group_of, self.width = codes, group_of, width
        s, q = self.scales.double()[group_of], codes.double()
        self.zeros, self.whole_zeros, self.order = None, None, torch.arange(k)
        if form == "none":
            w = s * (q - 2.0 ** (width.double().unsqueeze(1) - 1))
        elif form == "value":
            self.zeros = torch.rand(groups, n, generator=g).to(dtype)
            w = s * q - self.zeros.double()[group_of]
        else:
            z = torch.randint(1, 2**bits + 1, (groups, n), generator=g)
            self.whole_zeros = z
            self.zeros = bits_to_words((z - 1).t(), bits).t().contiguous()
            w = s * (q - z.double()[group_of])
        self.options = {"group_size": group} if g_idx is None else {"g_idx": g_idx.int()}
        self.options |= {"bit_rows": [x for run in runs for x in run]} if isinstance(bits, list) else {"bits": bits}
        self.values = w
        if perm:
            order = torch.randperm(k, generator=g)
            self.options["q_perm"] = order.to(torch.int16)
            self.order = order
            self.values = torch.empty_like(w).index_copy_(0, order, w)

    @staticmethod
    def parts(codes, runs):
        return codes.split([rows for _, rows in runs])

    @property
    def tensors(self):
        return self.words, self.scales, self.zeros


def close(found: torch.Tensor, wanted: torch.Tensor, size: torch.Tensor, terms: int):
    """Within the roundings of a float32 sum of that many terms and of the result's dtype."""
    eps = torch.finfo(found.dtype).eps
    room = size * (2.0**-24 * (terms + 8)) + wanted.abs() * eps + 2.0**-24
    assert ((found.double() - wanted).abs() <= room).all(), ((found.double() - wanted).abs() / room).max()


FORMS = ["none", "value", "zero"]
DTYPES = [torch.float32, torch.bfloat16, torch.float16]


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("bits", [1, 2, 3, 4, 5, 6, 8])
def test_forward_is_the_product(operators, bits, form):
    sizes = [(96, 40, 32), (100, 7, 32), (5, 3, 32), (64, 130, -1), (33, 64, 8)]
    for (k, n, group), dtype, lead in zip(
        sizes, itertools.cycle(DTYPES), [(3,), (2, 4), (), (1, 1, 5), (0,)], strict=False
    ):
        w = Weight(k, n, bits, group, form, seed=k)
        x = torch.randn(*lead, k).to(dtype)
        bias = torch.randn(n)
        for b in (None, bias):
            y = operators.weight_only_linear(x, *w.tensors, b, **w.options)
            assert y.dtype == dtype and y.shape == (*lead, n)
            wanted = x.double() @ w.values + (0 if b is None else b.double())
            close(y, wanted, x.double().abs() @ (w.values.abs() + w.scales.double().max() * 2**bits) + 3, k)
            panels = operators.weight_only_prepack(*w.tensors, in_features=k, **w.options)
            assert torch.equal(operators.weight_only_linear(x, *w.tensors, b, **w.options, panels=panels), y)


def test_forms_of_rows(operators):
    act_order = torch.randint(0, 5, (70,), generator=torch.Generator().manual_seed(3))
    act_order[0] = 4
    mixed = torch.repeat_interleave(torch.arange(7), 10)
    cases = [
        Weight(70, 9, 4, g_idx=act_order),
        Weight(70, 9, 4, 32, "value", perm=True),
        Weight(70, 9, [(8, 10), (6, 10), (5, 10), (4, 10), (3, 10), (2, 20)], form="value", g_idx=mixed, perm=True),
        Weight(70, 9, [(5, 30), (3, 40)], form="none", g_idx=mixed),
    ]
    for w in cases:
        x, channel = torch.randn(4, 70), torch.rand(1, 1, 70)
        y = operators.weight_only_linear(x, *w.tensors, **w.options, channel_scale=channel)
        xs = (x * channel.view(-1)).double()
        close(y, xs @ w.values, xs.abs() @ (w.values.abs() + 30), 70)
        opened = operators.weight_only_open(*w.tensors, in_features=70, **w.options, dtype=torch.float32)
        assert (opened.double() - w.values).abs().max() <= 2.0**-23 * w.values.abs().max() * 2
        again = operators.weight_only_pack(opened, w.scales, w.zeros, **w.options)
        assert torch.equal(again, w.words)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("form", FORMS)
def test_gradients(operators, form, dtype):
    w = Weight(70, 33, 4, 16, form, perm=True)
    x, channel = torch.randn(2, 3, 70).to(dtype), torch.rand(70)
    g, bias = torch.randn(2, 3, 33).to(dtype), torch.zeros(33, requires_grad=True)
    x.requires_grad_()
    anchor = torch.zeros(()).expand(70, 33).requires_grad_()
    y = operators.weight_only_linear(x, *w.tensors, bias, **w.options, channel_scale=channel, anchor=anchor)
    y.backward(g)
    g2, x2 = g.double().view(6, 33), x.detach().double().view(6, 70) * channel.double()
    wanted = (g2 @ w.values.t() * channel.double()).view(2, 3, 70)
    close(x.grad, wanted, (g2.abs() @ w.values.abs().t()).view(2, 3, 70), 33)
    assert anchor.grad.dtype == torch.float32 and anchor.grad.shape == (70, 33) and anchor.grad.is_contiguous()
    close(anchor.grad, x2.t() @ g2, x2.abs().t() @ g2.abs(), 6)
    close(bias.grad, g2.sum(0), g2.abs().sum(0), 6)


def test_the_anchor_is_an_ordinary_leaf(operators):
    """Its gradient adds up, is asked for by itself, is the same under checkpoints, and is optional."""
    w = Weight(64, 8)
    x, g = torch.randn(5, 64), torch.randn(5, 8)
    anchor = torch.zeros(1).expand(64, 8).requires_grad_()

    def forward(x, anchor=anchor):
        return operators.weight_only_linear(x, *w.tensors, **w.options, anchor=anchor)

    (alone,) = torch.autograd.grad(forward(x), anchor, g)
    assert anchor.grad is None
    forward(x).backward(g)
    forward(x).backward(g)
    assert torch.equal(anchor.grad, alone + alone)
    for reentrant in (True, False):
        anchor.grad = None
        wanting = x.clone().requires_grad_()
        checkpoint(forward, wanting, use_reentrant=reentrant).backward(g)
        assert torch.equal(anchor.grad, alone)
    wanting = x.clone().requires_grad_()
    forward(wanting, None).backward(g)
    assert wanting.grad is not None
    assert not forward(x, None).requires_grad
    with torch.no_grad():
        assert not forward(x).requires_grad
    half = torch.zeros(1, dtype=torch.bfloat16).expand(64, 8).requires_grad_()
    assert torch.equal(torch.autograd.grad(forward(x, half), half, g)[0], alone.bfloat16())
    with pytest.raises(RuntimeError, match="second derivative"):
        torch.autograd.grad(forward(x), anchor, g, create_graph=True)


def test_a_weight_written_to_after_forward_is_noticed(operators):
    w = Weight(64, 8)
    x = torch.randn(5, 64, requires_grad=True)
    y = operators.weight_only_linear(x, *w.tensors, **w.options)
    w.words.add_(1)
    with pytest.raises(RuntimeError, match="inplace operation"):
        y.sum().backward()


def test_stale_panels_are_not_read(operators):
    w = Weight(64, 8, form="value")
    x = torch.randn(5, 64)
    panels = operators.weight_only_prepack(*w.tensors, in_features=64, **w.options)
    for tensor in w.tensors:
        tensor.copy_(tensor.roll(1, 0))
        y = operators.weight_only_linear(x, *w.tensors, **w.options, panels=panels)
        assert torch.equal(y, operators.weight_only_linear(x, *w.tensors, **w.options))


def test_rows_do_not_depend_on_their_number(operators):
    w = Weight(200, 150, 4, 64)
    x = torch.randn(37, 200)
    y = operators.weight_only_linear(x, *w.tensors, **w.options)
    for rows in (1, 2, 5, 13):
        part = operators.weight_only_linear(x[:rows], *w.tensors, **w.options)
        assert torch.equal(part, y[:rows])
    strided = torch.cat([x, x], 1)[:, :200]
    assert torch.equal(operators.weight_only_linear(strided, *w.tensors, **w.options), y)


def test_words(operators):
    g = torch.Generator().manual_seed(0)
    for bits in range(1, 9):
        for k, n in [(1, 1), (31, 3), (32, 2), (50, 5), (0, 4)]:
            codes = torch.randint(0, 2**bits, (k, n), generator=g).int()
            words = operators.pack_words(codes, bits)
            assert torch.equal(words, bits_to_words(codes, bits))
            assert torch.equal(operators.unpack_words(words, bits, k), codes)
            across = operators.pack_words(codes.t().contiguous(), bits, 1)
            assert torch.equal(across, words.t())
            assert torch.equal(operators.unpack_words(across, bits, k, 1), codes.t())


def refusals(o):
    w = Weight(64, 8)
    v = Weight(64, 8, form="value")
    x = torch.randn(3, 64)
    q, s, z = w.tensors
    ok = {"bits": 4, "group_size": 32}
    idx = torch.zeros(64, dtype=torch.int32)
    far, bad = idx.clone(), s.clone()
    far[5], bad[1, 2] = 2, float("nan")
    linear, prepack = o.weight_only_linear, o.weight_only_prepack
    return [
        (linear, (x, q, s, z), ok | {"bits": 7}, ValueError, "bits: expected 1, 2, 3, 4, 5, 6 or 8, got 7"),
        (linear, (x, q, s, z), ok | {"bits": 8}, ValueError, r"expected 16 rows of words"),
        (
            linear,
            (x, q[:7], s, z),
            ok,
            ValueError,
            r"qweight: expected 8 rows of words for 64 input features, got \[7, 8\]",
        ),
        (linear, (x[:, :63], q, s[:, :7], z), ok, ValueError, r"scales: expected \[groups, 8\], got \[2, 7\]"),
        (
            linear,
            (x, q, s, z),
            ok | {"group_size": 0},
            ValueError,
            "group_size: expected -1 or a positive number, got 0",
        ),
        (linear, (x, q, s, z), ok | {"group_size": 16}, ValueError, "groups of 16 want 4 groups"),
        (linear, (x, q, s, z[:, :0]), ok, ValueError, r"zeros: expected \[2, 1\], got \[2, 0\] of int32"),
        (linear, (x, q, s, v.zeros[:1]), ok, ValueError, r"zeros: expected \[2, 8\], as the scales are, got \[1, 8\]"),
        (linear, (x, q.float(), s, z), ok, TypeError, "qweight: expected int32, got Float"),
        (linear, (x.int(), q, s, z), ok, TypeError, "x: expected float32, bfloat16 or float16, got Int"),
        (linear, (x, q, s.int(), z), ok, TypeError, "scales: expected float32, bfloat16 or float16, got Int"),
        (linear, (x, q, s, z, torch.zeros(7)), ok, ValueError, r"bias: expected \[8\], got \[7\]"),
        (linear, (x, q, s, z), ok | {"g_idx": idx[:3]}, ValueError, r"g_idx: expected \[64\], got \[3\]"),
        (linear, (x, q, s, z), ok | {"g_idx": far}, ValueError, "g_idx: expected 0 ... 1, got 2"),
        (linear, (x, q, s, z), ok | {"g_idx": idx - 1}, ValueError, "g_idx: expected 0 ... 1, got -1"),
        (linear, (x, q, s, z), ok | {"q_perm": idx + 1}, ValueError, "q_perm is not a permutation of the 64 rows"),
        (linear, (x, q, s, z), ok | {"channel_scale": torch.ones(63)}, ValueError, "channel_scale is"),
        (
            linear,
            (x, q, s, z),
            ok | {"anchor": torch.zeros(8, 64)},
            ValueError,
            r"anchor: expected \[64, 8\], got \[8, 64\]",
        ),
        (linear, (x, q, s, z), ok | {"panels": torch.zeros(64)}, TypeError, "a tensor made by a prepack operator"),
        (
            linear,
            (x, q, s, z),
            ok | {"bit_rows": [4, 64]},
            ValueError,
            "zeros: expected float ones with bit_rows, got packed ones",
        ),
        (
            linear,
            (x, q, s),
            {"bit_rows": [4, 60], "group_size": 32},
            ValueError,
            "the rows of bit_rows: expected 64, got 60",
        ),
        (
            linear,
            (x, q, s),
            {"bit_rows": [7, 64], "group_size": 32},
            ValueError,
            "bit_rows: expected rows of 1, 2, 3, 4, 5, 6 or 8 bits, got 7",
        ),
        (
            linear,
            (x, q, s),
            {"bit_rows": [4], "group_size": 32},
            ValueError,
            "bit_rows: expected bits and rows of each width, got 1 numbers",
        ),
        (
            prepack,
            (torch.zeros(10, 8, dtype=torch.int32), s),
            {"in_features": 64, "bit_rows": [8, 20, 4, 44], "group_size": 32},
            ValueError,
            "11 rows of words",
        ),
        (
            prepack,
            (torch.zeros(11, 8, dtype=torch.int32), s),
            {"in_features": 64, "bit_rows": [8, 20, 4, 40, 2, 4], "group_size": 32},
            ValueError,
            "a group holds rows of two widths",
        ),
        (linear, (x, q, bad, z), ok, ValueError, "scales hold NaN or infinity"),
        (prepack, (q, s, v.zeros / 0), ok | {"in_features": 64}, ValueError, "zeros hold NaN or infinity"),
        (o.weight_only_open, (q, bad, z), ok | {"in_features": 64}, ValueError, "scales hold NaN or infinity"),
        (
            o.weight_only_open,
            (q, s, z),
            ok | {"in_features": 64, "dtype": torch.int8},
            TypeError,
            "dtype: expected float32, bfloat16 or float16, got Char",
        ),
        (o.weight_only_pack, (x.t() / 0, s[:, :3], None), ok, ValueError, "values hold NaN or infinity"),
        (o.unpack_words, (q, 4, 65), {}, ValueError, "words: expected "),
        (o.unpack_words, (q, 9, 57), {}, ValueError, "bits: expected 1 ... 8, got 9"),
        (o.pack_words, (q, 4, 2), {}, ValueError, "dim: expected 0 or 1, got 2"),
    ]


def test_refusals(operators):
    for op, arguments, keywords, error, text in refusals(operators):
        try:
            op(*arguments, **keywords)
        except error as found:
            assert re.search(text, str(found)), (text, str(found))
        else:
            pytest.fail(f"not refused: {text}")


def test_panels_of_another_weight_are_refused(operators):
    w, other = Weight(64, 8), Weight(64, 9)
    panels = operators.weight_only_prepack(*other.tensors, in_features=64, **other.options)
    with pytest.raises(ValueError, match="panels hold a weight of 9 outputs"):
        operators.weight_only_linear(torch.randn(2, 64), *w.tensors, **w.options, panels=panels)


def test_transforms_are_refused(operators):
    w = Weight(64, 8)
    with pytest.raises(RuntimeError, match=r"torch\.func"):
        torch.func.vmap(lambda x: operators.weight_only_linear(x, *w.tensors, **w.options))(torch.randn(2, 3, 64))
